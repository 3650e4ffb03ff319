"""What is due: missed times, quiet hours, delays, clocks that were set, texts that name times."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import msgspec
import pytest

from clawd.errors import InvalidRequestError
from clawd.schedules.plan import (
    MAX_CATCH_UP,
    MAX_COUNTED,
    MAX_YEAR,
    Due,
    Every,
    Missed,
    Once,
    Times,
    delay_of,
    look,
    read_quiet,
    read_rule,
    read_span,
    read_zone,
)
from tests.support.rows import each_row

UTC_ZONE = ZoneInfo("UTC")
NOON = int(datetime(2026, 11, 24, 12, tzinfo=UTC).timestamp())
MINUTE = 60
HOUR = 3_600


def times(text: str, *, missed: Missed = "once", delay_s: int = 0, quiet: str = "") -> Times:
    return Times(
        rule=read_rule(text, UTC_ZONE, NOON),
        zone=UTC_ZONE,
        missed=missed,
        delay_s=delay_s,
        quiet=read_quiet(quiet),
    )


def test_what_is_due_runs_once_and_what_is_not_does_not() -> None:
    hourly = times("every 1h")
    assert hourly.after(NOON) == NOON + HOUR
    assert look(hourly, NOON + HOUR, NOON + HOUR - 0.5) is None
    assert look(hourly, NOON + HOUR, NOON + HOUR) == Due(
        runs=(NOON + HOUR,), next_at=NOON + 2 * HOUR
    )


@each_row(
    "missed, runs",
    [("once", (5,)), ("skip", ()), ("all", (1, 2, 3, 4, 5))],
)
def test_of_what_was_missed_the_last_none_or_all_are_run_and_each_other_is_told(
    missed: Missed, runs: tuple[int, ...]
) -> None:
    now = NOON + 5 * HOUR + 20 * MINUTE
    found = look(times("every 1h", missed=missed), NOON + HOUR, now)
    assert found is not None
    assert found.runs == tuple(NOON + each * HOUR for each in runs)
    assert {*found.runs, *found.missed} == {NOON + each * HOUR for each in range(1, 6)}
    assert found.next_at == NOON + 6 * HOUR


def test_what_is_a_little_late_was_not_missed() -> None:
    found = look(times("every 1h", missed="skip"), NOON + HOUR, NOON + HOUR + 59)
    assert found is not None
    assert (found.runs, found.missed) == ((NOON + HOUR,), ())


def test_a_long_absence_is_bounded_and_says_so() -> None:
    found = look(times("every 10s", missed="all"), NOON + 10, NOON + 400 * 86_400)
    assert found is not None
    assert len(found.runs) == MAX_CATCH_UP
    assert len(found.runs) + len(found.missed) == MAX_COUNTED
    assert not found.is_counted
    assert found.next_at is not None
    assert found.next_at > NOON + 400 * 86_400


def test_a_delay_is_always_as_long_and_of_other_jobs_another() -> None:
    delays = {delay_of(f"schedule-{each}", 600) for each in range(50)}
    assert delay_of("schedule-1", 600) == delay_of("schedule-1", 600)
    assert len(delays) > 30
    assert all(0 <= each <= 600 for each in delays)
    assert delay_of("schedule-1", 0) == 0
    late = times("every 1h", delay_s=300)
    assert late.wakes_at(NOON + HOUR, NOON) == NOON + HOUR + 300
    assert look(late, NOON + HOUR, NOON + HOUR + 299) is None
    assert look(late, NOON + HOUR, NOON + HOUR + 300) is not None


def test_in_quiet_hours_nothing_begins_and_at_their_end_what_was_missed_counts() -> None:
    quiet = times("every 1h", quiet="22:00-07:00")
    ten = NOON + 10 * HOUR
    assert look(quiet, ten, ten) is None
    assert quiet.wakes_at(ten, NOON) == NOON + 19 * HOUR
    found = look(quiet, ten, NOON + 19 * HOUR)
    assert found is not None
    assert found.runs == (NOON + 19 * HOUR,)
    assert len(found.missed) == 9
    skip = look(msgspec.structs.replace(quiet, missed="skip"), ten, NOON + 19 * HOUR)
    assert skip is not None
    assert skip.runs == (NOON + 19 * HOUR,)  # that one is on time


def test_what_was_missed_just_before_quiet_hours_is_looked_at_when_they_end() -> None:
    quiet = times("every 1h", quiet="22:00-07:00")
    nine, eleven = NOON + 9 * HOUR, NOON + 11 * HOUR
    assert look(quiet, nine, eleven) is None
    assert quiet.wakes_at(nine, eleven) == NOON + 19 * HOUR


def test_a_clock_that_was_ahead_by_years_does_not_hold_a_job_up() -> None:
    found = look(times("every 1h"), NOON + 4 * 365 * 86_400, NOON + 20)
    assert found == Due(next_at=NOON + HOUR)


def test_the_zone_of_an_expression_holds_for_its_times_and_not_for_quiet_hours() -> None:
    # 07:00 in Riga is 05:00 by the clocks of the job, 04:00 in summer.
    riga = times("Mon 07:00 Europe/Riga", quiet="04:30-06:00")
    monday = int(datetime(2026, 11, 30, 5, tzinfo=UTC).timestamp())
    assert riga.after(NOON) == monday
    assert riga.wakes_at(monday, NOON) == monday + HOUR
    summer = int(datetime(2027, 6, 7, 4, tzinfo=UTC).timestamp())
    assert riga.after(summer - 1) == summer
    assert riga.wakes_at(summer, NOON) == summer


def test_a_moment_comes_once() -> None:
    once = times("in 20m")
    assert once.rule == Once(at=NOON + 20 * MINUTE)
    assert look(once, NOON + 20 * MINUTE, NOON + 20 * MINUTE) == Due(runs=(NOON + 20 * MINUTE,))
    assert look(once, None, NOON + HOUR) is None


def test_texts_name_times() -> None:
    assert read_rule("every 2h", UTC_ZONE, NOON) == Every(seconds=2 * HOUR, since=NOON)
    assert read_rule("at 2026-12-24 18:00", ZoneInfo("Europe/Berlin"), NOON) == Once(
        at=int(datetime(2026, 12, 24, 17, tzinfo=UTC).timestamp())
    )
    assert read_rule("at 2026-12-24T18:00+05:00", UTC_ZONE, NOON) == Once(
        at=int(datetime(2026, 12, 24, 13, tzinfo=UTC).timestamp())
    )
    assert [read_span(text) for text in ("90s", "20m", "1h30m", "2d", "1w", "5 min")] == [
        90, 1_200, 5_400, 172_800, 604_800, 300,
    ]  # fmt: skip
    assert read_quiet("") is None
    assert read_quiet("22:00-07:30") == (1_320, 450)


@each_row(
    "text",
    ["every", "every 0s", "every 9s", "every 401d", "every 5 parsecs", "at noon", "in -5m",
     "at 2020-01-01 00:00", "2020-01-01", "every 1h 2x", "at 9999-12-31 23:59",
     "at 9999-12-31 23:59-05:00", "at 0001-01-01 00:00+05:00", f"at {MAX_YEAR + 1}-01-01 00:00"],
)  # fmt: skip
def test_what_names_no_time_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequestError):
        read_rule(text, UTC_ZONE, NOON)


def test_the_last_moment_that_is_taken_has_quiet_hours_and_a_delay() -> None:
    last = times(f"at {MAX_YEAR}-12-31 23:59:59", quiet="22:00-07:00", delay_s=86_400)
    due = last.after(NOON)
    assert due is not None
    assert last.wakes_at(due, NOON) == due + 86_400 + 7 * HOUR + 1


@each_row("text", ["22-07", "25:00-07:00", "07:00-07:00", "x"])
def test_what_are_no_quiet_hours_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequestError):
        read_quiet(text)


def test_what_is_no_zone_is_refused() -> None:
    for name in ("Mars/Base", "", "../etc", "/etc/localtime", "Europe"):
        with pytest.raises(InvalidRequestError):
            read_zone(name)
