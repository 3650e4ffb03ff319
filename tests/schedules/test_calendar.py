"""Calendar expressions: read as systemd reads them, and right when clocks are put on or back."""

import shutil
import subprocess
from datetime import UTC, datetime
from itertools import pairwise
from zoneinfo import ZoneInfo, available_timezones

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawd.errors import InvalidRequestError
from clawd.schedules.plan import MAX_TEXT, instant, next_after, read_calendar
from tests.support.rows import each_row, thorough

YEAR_S = 366 * 86_400
BEGIN = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp())


def at(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp())


def coming(expression: str, zone: str, after: str, count: int) -> list[str]:
    """Return the next times by the clocks of the zone, with their distance from UTC."""
    calendar, moment = read_calendar(expression), at(after)
    found = []
    for _ in range(count):
        following = next_after(calendar, ZoneInfo(zone), moment)
        if following is None:
            break
        moment = following
        found.append(datetime.fromtimestamp(moment, ZoneInfo(zone)).isoformat())
    return found


SAME_AS_SYSTEMD = [
    "minutely", "hourly", "daily", "weekly", "monthly", "quarterly", "semiannually", "yearly",
    "Mon..Fri 07:00", "*-*-01,15 06:30:00", "*:0/15", "Mon *-05~07/1", "*-02~01", "*-02-29",
    "Sat,Sun 12:05", "Mon, 12-25", "*:*:0/20", "08..17/3:30", "2027-01-01", "27-3-4 5:6", "*-*-31",
    "*-*~03,01 1:2", "00:00:59", "Mon-Wed 3:00", "*-1..3/2-1", "Wed", "Thu,Fri 2026-*-1..7 11:12",
]  # fmt: skip


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd-analyze")
def test_what_comes_next_is_what_systemd_says() -> None:
    for base in ("2026-11-24 00:00:00", "2028-02-28 13:14:15"):
        asked = [f"{each} UTC" for each in SAME_AS_SYSTEMD]
        words = ["systemd-analyze", "calendar", f"--base-time={base} UTC", *asked]
        told = subprocess.run(words, capture_output=True, text=True, check=True).stdout
        wanted = [
            line.split(": ")[1].strip() for line in told.splitlines() if "Next elapse" in line
        ]
        found = []
        for expression in SAME_AS_SYSTEMD:
            (each,) = coming(expression, "UTC", f"{base}+00:00", 1) or [""]
            shown = f"{datetime.fromisoformat(each):%a %Y-%m-%d %H:%M:%S UTC}" if each else "never"
            found.append((expression, shown))
        assert found == list(zip(SAME_AS_SYSTEMD, wanted, strict=True))


BROKEN = [
    "", "never", "Mon..Xyz", "Fri..Mon", "*-13-01", "*-*-32", "25:00", "12:60", "1:2:3:4", "*",
    "1-2-3-4", "*-*~29", "*/2:00", "12:00 13:00", "07:00 Mars/Base", "*:0/0", "9..8:00", "-1:00",
    "Mon Tue", "12:00:00.5", "٣:00", "2026-01-01 " + "1," * MAX_TEXT, "../../etc/passwd",
    "07:00 ../../etc/localtime", "07:00 /etc/localtime",
]  # fmt: skip


@each_row("expression", BROKEN)
def test_what_is_no_expression_is_refused_with_the_part_that_is_wrong(expression: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        read_calendar(expression)
    assert caught.value.message


@each_row(
    "expression, said",
    [("25:00", "an hour lies between 0 and 23"), ("*-13-01", "a month lies between 1 and 12")],
)
def test_what_lies_outside_of_its_range_is_told_with_the_range(expression: str, said: str) -> None:
    with pytest.raises(InvalidRequestError, match=said):
        read_calendar(expression)


@given(st.text(alphabet="Mon.Fri,-:~/*0123456789 dayUTC", max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        calendar = read_calendar(text)
    except InvalidRequestError:
        return
    following = next_after(calendar, ZoneInfo("UTC"), BEGIN)
    assert following is None or following > BEGIN


def test_a_time_that_is_skipped_comes_once_at_the_next_there_is() -> None:
    assert coming("02:30", "Europe/Berlin", "2026-03-28T12:00+01:00", 2) == [
        "2026-03-29T03:00:00+02:00",
        "2026-03-30T02:30:00+02:00",
    ]
    assert coming("*:0/30", "Europe/Berlin", "2026-03-29T01:00+01:00", 3) == [
        "2026-03-29T01:30:00+01:00",
        "2026-03-29T03:00:00+02:00",
        "2026-03-29T03:30:00+02:00",
    ]


def test_a_time_that_is_there_twice_comes_the_first_time_and_every_hour_comes_in_both() -> None:
    assert coming("02:30", "Europe/Berlin", "2026-10-24T12:00+02:00", 2) == [
        "2026-10-25T02:30:00+02:00",
        "2026-10-26T02:30:00+01:00",
    ]
    assert coming("*:30", "Europe/Berlin", "2026-10-25T01:00+02:00", 4) == [
        "2026-10-25T01:30:00+02:00",
        "2026-10-25T02:30:00+02:00",
        "2026-10-25T02:30:00+01:00",
        "2026-10-25T03:30:00+01:00",
    ]
    # Half an hour at a time on Lord Howe; a whole day was left out in Samoa.
    assert coming("01:45", "Australia/Lord_Howe", "2026-04-04T12:00+11:00", 1) == [
        "2026-04-05T01:45:00+11:00"
    ]
    assert coming("12:00", "Pacific/Apia", "2011-12-29T11:00-10:00", 2) == [
        "2011-12-29T12:00:00-10:00",
        "2011-12-31T00:00:00+14:00",
    ]


def test_the_zone_of_an_expression_is_its_own() -> None:
    assert read_calendar("Mon 07:00 Europe/Riga").zone == "Europe/Riga"
    assert read_calendar("daily UTC").zone == "UTC"


def zones() -> list[str]:
    found = sorted(available_timezones())
    some = ["Europe/Berlin", "Australia/Lord_Howe", "Asia/Kathmandu", *found[:: len(found) // 6]]
    return found if thorough() else some


@pytest.mark.parametrize("zone", zones())
def test_in_a_year_of_any_zone_each_day_comes_once_and_each_hour_once(zone: str) -> None:
    where = ZoneInfo(zone)
    for expression in ("02:30", "00:00", "23:59:59"):
        calendar, moment, days = read_calendar(expression), BEGIN, []
        while moment < BEGIN + YEAR_S:
            following = next_after(calendar, where, moment)
            assert following is not None
            assert following > moment
            moment = following
            days.append(datetime.fromtimestamp(moment, where).date())
        assert len(set(days)) == len(days)  # no day twice, and none left out
        assert {(b - a).days for a, b in pairwise(days)} == {1}
    hourly, moment = read_calendar("hourly"), BEGIN
    for _ in range(24 * 366):
        following = next_after(hourly, where, moment)
        assert following is not None
        assert 0 < following - moment <= 3 * 3_600
        assert datetime.fromtimestamp(following, where).minute == 0
        moment = following


@given(
    st.datetimes(min_value=datetime(1990, 1, 1), max_value=datetime(2036, 1, 1)),  # noqa: DTZ001
    st.sampled_from(sorted(available_timezones())),
)
def test_a_time_of_clocks_is_an_instant_that_shows_it_or_the_first_after(
    wall: datetime, zone: str
) -> None:
    wall, where = wall.replace(microsecond=0), ZoneInfo(zone)
    found = instant(wall, where)
    shown = datetime.fromtimestamp(found, where).replace(tzinfo=None, fold=0)
    assert shown >= wall
    if shown != wall:  # skipped: the second before shows an earlier time
        before = datetime.fromtimestamp(found - 1, where).replace(tzinfo=None, fold=0)
        assert before < wall
