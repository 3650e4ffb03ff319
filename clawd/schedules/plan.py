"""What is due: the times of a job, what of them was missed, and what is done about it. Pure.

A job comes at times that do not depend on when clawd looks: by a calendar, every so many seconds
since it was made, or once. Each such time is run at most once; one that is not run is reported.

Calendar expressions of systemd (systemd.time(7)), and when they come next.

    Mon..Fri 07:00              weekdays at seven
    *-*-01,15 06:30:00          twice a month
    *:0/15                      every quarter of an hour
    Mon *-05~07/1 Europe/Riga   the last Monday in May, at midnight there

What names its hours comes once a day for each, whatever the clocks do: a time that is skipped comes
at the first one that there is, a time that is there twice comes the first time. What comes in every
hour follows the hours that there are. Fractions of seconds are refused.
"""

import contextlib
import hashlib
import os
import re
from bisect import bisect_left, bisect_right
from calendar import monthrange
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec

from clawd.errors import InvalidRequestError

MAX_YEAR = 2199
MAX_TEXT = 200
_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_HOURS = 24
_MAX_FROM_END = 28
_NAMED = {
    "minutely": "*-*-* *:*:00",
    "hourly": "*-*-* *:00:00",
    "daily": "*-*-* 00:00:00",
    "weekly": "Mon *-*-* 00:00:00",
    "monthly": "*-*-01 00:00:00",
    "quarterly": "*-01,04,07,10-01 00:00:00",
    "semiannually": "*-01,07-01 00:00:00",
    "semi-annually": "*-01,07-01 00:00:00",
    "bi-annually": "*-01,07-01 00:00:00",
    "biannually": "*-01,07-01 00:00:00",
    "yearly": "*-01-01 00:00:00",
    "annually": "*-01-01 00:00:00",
}


class Calendar(msgspec.Struct, frozen=True, kw_only=True):
    """The times that an expression names; every field is sorted and not empty.

    Attributes:
        weekdays: 0 is Monday.
        days: of the month; where `from_end`, 1 is its last.
        zone: that the expression names, "" for none.
    """

    weekdays: tuple[int, ...]
    years: tuple[int, ...]
    months: tuple[int, ...]
    days: tuple[int, ...]
    from_end: bool
    hours: tuple[int, ...]
    minutes: tuple[int, ...]
    seconds: tuple[int, ...]
    zone: str = ""

    @property
    def is_hourly(self) -> bool:
        """Whether it comes in every hour of its days."""
        return len(self.hours) == _HOURS


def read_calendar(text: str) -> Calendar:
    """Return what an expression names.

    Raises:
        InvalidRequestError: it is none; the message says which part.
    """
    if len(text) > MAX_TEXT:
        raise InvalidRequestError(f"a calendar expression has at most {MAX_TEXT} characters")
    words = text.split()
    zone = words.pop() if words and is_zone(words[-1]) else ""
    if len(words) == 1:
        words = _NAMED.get(words[0].lower(), words[0]).split()
    weekdays = tuple(range(7))
    if words and words[0][0].isalpha():
        weekdays = _weekdays(words.pop(0))
    elif not words:
        raise _wrong(text, "it is empty")
    day = words.pop(0) if words and ":" not in words[0] else "*-*-*"
    time = words.pop(0) if words and ":" in words[0] else "00:00:00"
    if words:
        raise _wrong(text, f"{words[0]!r} is one part too many")
    years, months, days, from_end = _date(day)
    hours, minutes, seconds = _time(time)
    return Calendar(
        weekdays=weekdays,
        years=years,
        months=months,
        days=days,
        from_end=from_end,
        hours=hours,
        minutes=minutes,
        seconds=seconds,
        zone=zone,
    )


def is_zone(name: str) -> bool:
    """Return whether it is the name of a time zone."""
    try:
        return bool(name) and ZoneInfo(name).key == name
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return False


def next_after(calendar: Calendar, zone: ZoneInfo, after: int) -> int | None:
    """Return the first time that comes after one, both in seconds since 1970; None for none."""
    return (_next_hourly if calendar.is_hourly else _next_daily)(calendar, zone, after)


def _next_daily(calendar: Calendar, zone: ZoneInfo, after: int) -> int | None:
    wall = _wall(zone, after)
    while (found := _next_wall(calendar, wall)) is not None:
        at = instant(found, zone)
        if at > after:
            return at
        wall = found  # in an hour that is there twice: it was there the first time
    return None


def _next_hourly(calendar: Calendar, zone: ZoneInfo, after: int) -> int | None:
    # Between two changes of the clocks what they show follows the seconds evenly.
    while True:
        offset = _offset(zone, after)
        found = _next_wall(calendar, _wall(zone, after))
        if found is None:
            return None
        at = int(found.replace(tzinfo=UTC).timestamp()) - offset
        change = _first_change(zone, after, at)
        if change is None:
            return at
        wall = _wall(zone, change)
        if _is_named(calendar, wall):
            return change
        after = change


def instant(wall: datetime, zone: ZoneInfo) -> int:
    """Return when clocks show a time: the first time, or the first after it if it is skipped."""
    early = int(wall.replace(tzinfo=zone, fold=0).timestamp())
    if _wall(zone, early) == wall:
        return early
    change = _first_change(zone, int(wall.replace(tzinfo=zone, fold=1).timestamp()) - 1, early)
    return early if change is None else change


def _wall(zone: ZoneInfo, at: int) -> datetime:
    return datetime.fromtimestamp(at, zone).replace(tzinfo=None, fold=0)


def _offset(zone: ZoneInfo, at: int) -> int:
    found = datetime.fromtimestamp(at, zone).utcoffset()
    return int(found.total_seconds()) if found is not None else 0


def _first_change(zone: ZoneInfo, after: int, until: int) -> int | None:
    """Return the first second up to `until` that has another offset than `after`; None for none."""
    offset, step = _offset(zone, after), 7 * 86_400  # no zone changes and changes back in a week
    low = after
    while low < until:
        high = min(low + step, until)
        if _offset(zone, high) != offset:
            while high - low > 1:
                middle = (low + high) // 2
                if _offset(zone, middle) == offset:
                    low = middle
                else:
                    high = middle
            return high
        low = high
    return None


def _next_wall(calendar: Calendar, after: datetime) -> datetime | None:
    """Return the first time of clocks that is named after one."""
    begin = after + timedelta(seconds=1)
    found = _next_of_day(calendar, (begin.hour, begin.minute, begin.second))
    today = begin.date()
    for day in _dates(calendar, today):
        if day != today:
            found = calendar.hours[0], calendar.minutes[0], calendar.seconds[0]
        if found is not None:
            return datetime(day.year, day.month, day.day, *found)  # noqa: DTZ001 - of clocks
    return None


def _is_named(calendar: Calendar, wall: datetime) -> bool:
    return _next_wall(calendar, wall - timedelta(seconds=1)) == wall


def _next_of_day(calendar: Calendar, begin: tuple[int, int, int]) -> tuple[int, int, int] | None:
    hours, minutes, seconds = calendar.hours, calendar.minutes, calendar.seconds
    for hour in (each for each in hours if each >= begin[0]):
        if hour > begin[0]:
            return hour, minutes[0], seconds[0]
        for minute in (each for each in minutes if each >= begin[1]):
            if minute > begin[1]:
                return hour, minute, seconds[0]
            for second in seconds:
                if second >= begin[2]:
                    return hour, minute, second
    return None


def _dates(calendar: Calendar, begin: date) -> Iterator[date]:
    """Yield the days that are named, from one on."""
    for year in calendar.years[bisect_left(calendar.years, begin.year) :]:
        for month in calendar.months:
            if (year, month) < (begin.year, begin.month):
                continue
            first = begin.day if (year, month) == (begin.year, begin.month) else 1
            last = monthrange(year, month)[1]
            days = calendar.days
            if calendar.from_end:
                days = tuple(last + 1 - day for day in reversed(days))
            for day in days[bisect_left(days, first) : bisect_right(days, last)]:
                found = date(year, month, day)
                if found.weekday() in calendar.weekdays:
                    yield found


def _date(text: str) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], bool]:
    parts = text.replace("~", "-~").split("-")
    if len(parts) == 2:
        parts.insert(0, "*")
    if len(parts) != 3:
        raise _wrong(text, "a date is year-month-day or month-day")
    from_end = parts[2].startswith("~")
    years = _numbers(parts[0], 1970, MAX_YEAR, "year")
    months = _numbers(parts[1], 1, 12, "month")
    days = _from_end(parts[2][1:]) if from_end else _numbers(parts[2], 1, 31, "day")
    return years, months, days, from_end


def _time(text: str) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    parts = text.split(":")
    if len(parts) == 2:
        parts.append("00")
    if len(parts) != 3:
        raise _wrong(text, "a time is hour:minute or hour:minute:second")
    return (
        _numbers(parts[0], 0, 23, "hour"),
        _numbers(parts[1], 0, 59, "minute"),
        _numbers(parts[2], 0, 59, "second"),
    )


def _from_end(text: str) -> tuple[int, ...]:
    """Return days counted from a month's end; a step leads towards the end."""
    found: set[int] = set()
    for part in text.split(","):
        first, slash, step = part.partition("/")
        begin = _number(first, 1, _MAX_FROM_END, "day from the end")
        found.add(begin)
        if slash:
            found |= set(range(begin, 0, -_number(step, 1, _MAX_FROM_END, "step")))
    return tuple(sorted(found))


def _numbers(text: str, least: int, most: int, what: str) -> tuple[int, ...]:
    """Return the numbers of a list such as `1,5..9,20/3`."""
    if text == "*":
        return tuple(range(least, most + 1))
    found: set[int] = set()
    for part in text.split(","):
        span, slash, step = part.partition("/")
        first, dots, last = span.partition("..")
        begin = _number(first, least, most, what)
        end = _number(last, begin, most, what) if dots else (most if slash else begin)
        found |= set(range(begin, end + 1, _number(step, 1, most, "step") if slash else 1))
    return tuple(sorted(found))


def _number(text: str, least: int, most: int, what: str) -> int:
    if not re.fullmatch(r"[0-9]{1,4}", text):
        raise _wrong(text, f"it is no {what}")
    value = int(text)
    if what == "year" and len(text) <= 2:
        value += 2000 if value < 70 else 1900
    if not least <= value <= most:
        article = "an" if what == "hour" else "a"
        raise _wrong(text, f"{article} {what} lies between {least} and {most}")
    return value


def _weekdays(text: str) -> tuple[int, ...]:
    found: set[int] = set()
    for part in text.rstrip(",").split(","):
        first, dots, last = part.replace("-", "..").partition("..")
        begin, end = _weekday(first), _weekday(last) if dots else None
        end = begin if end is None else end
        if end < begin:
            raise _wrong(part, "the days of a range follow each other")
        found |= set(range(begin, end + 1))
    return tuple(sorted(found))


def _weekday(text: str) -> int:
    name = text.lower()
    for number, day in enumerate(_DAYS):
        if name in {day, day[:3]}:
            return number
    raise _wrong(text, "it is no day of the week, named word or time zone")


def _wrong(text: str, why: str) -> InvalidRequestError:
    return InvalidRequestError(
        f"{text[:60]!r} is no time of a schedule: {why}",
        hint="Such are: daily; Mon..Fri 07:00; *-*-01 06:30; every 2h; at 2026-12-24 18:00.",
    )


Missed = Literal["once", "skip", "all"]

LATE_S = 60  # what is later than this was missed: clawd did not run, or the machine slept
MAX_CATCH_UP = 24
MAX_COUNTED = 10_000
MIN_EVERY_S = 10
MAX_SECONDS = 400 * 86_400
_UNITS = {"s": 1, "m": 60, "min": 60, "h": 3_600, "d": 86_400, "w": 604_800}


class Every(msgspec.Struct, frozen=True, kw_only=True):
    """Every so many seconds from a moment on."""

    seconds: int
    since: int


class Once(msgspec.Struct, frozen=True, kw_only=True):
    """At one moment, in seconds since 1970."""

    at: int


class Times(msgspec.Struct, frozen=True, kw_only=True):
    """When a job comes.

    Attributes:
        rule: what names the times.
        zone: where the clocks are; a calendar that names a zone comes by those of that one.
        quiet: hours of the day, in minutes from midnight, in which nothing begins; None for none.
            They are over the end of the day where the second is the smaller one.
        delay_s: how long after its time it begins; always as long, so that jobs spread.
        missed: what is done about times that were missed.
    """

    rule: Calendar | Every | Once
    zone: ZoneInfo
    quiet: tuple[int, int] | None = None
    delay_s: int = 0
    missed: Missed = "once"

    def after(self, at: int) -> int | None:
        """Return the first time after one; None for none."""
        match self.rule:
            case Calendar():
                return next_after(self.rule, ZoneInfo(self.rule.zone or self.zone.key), at)
            case Every(seconds=seconds, since=since):
                return since + max((at - since) // seconds + 1, 1) * seconds
            case Once(at=moment):
                return moment if moment > at else None

    def wakes_at(self, due: int, now: float) -> int:
        """Return when a time is looked at: after its delay, not before now nor in quiet hours.

        What was due just before quiet hours, and is still to be looked at in them, waits for
        their end.
        """
        at = max(due + self.delay_s, int(now))
        end = self.quiet_until(at)
        return at if end is None else end

    def quiet_until(self, at: int) -> int | None:
        """Return when the quiet hours end that a moment lies in; None where it lies in none."""
        if self.quiet is None:
            return None
        begin, end = self.quiet
        local = datetime.fromtimestamp(at, self.zone)
        minute = local.hour * 60 + local.minute
        is_quiet = begin <= minute < end if begin < end else minute >= begin or minute < end
        if not is_quiet:
            return None
        day = local.date() + timedelta(days=begin > end and minute >= begin)
        wall = datetime(day.year, day.month, day.day, end // 60, end % 60)  # noqa: DTZ001 of clocks
        return max(instant(wall, self.zone), at + 1)


class Due(msgspec.Struct, frozen=True, kw_only=True):
    """What a look at a job finds.

    Attributes:
        runs: times to run now, oldest first.
        missed: times that are not run, oldest first; at most `MAX_COUNTED`.
        next_at: the first time that is still to come; None for none.
        is_counted: `missed` are all; else there are more.
    """

    runs: tuple[int, ...] = ()
    missed: tuple[int, ...] = ()
    next_at: int | None = None
    is_counted: bool = True


def look(times: Times, next_at: int | None, now: float) -> Due | None:
    """Return what is due of a job whose next time was known; None while nothing is.

    A clock that was put back lets times come again: what keeps them knows which were run.
    """
    moment = int(now)
    upcoming = times.after(moment)
    if upcoming is not None and (next_at is None or upcoming < next_at):
        return Due(next_at=upcoming)  # put back by years, a clock must not have jobs wait as long
    if next_at is None or times.wakes_at(next_at, now) > moment:
        return None
    found = list[int]()
    at: int | None = next_at
    while at is not None and at + times.delay_s <= moment and len(found) < MAX_COUNTED:
        found.append(at)
        at = times.after(at)
    is_counted = at is None or at + times.delay_s > moment
    if not is_counted:
        at = times.after(moment - times.delay_s)
    runs = _to_run(times, found, moment)
    missed = tuple(each for each in found if each not in runs)
    return Due(runs=runs, missed=missed, next_at=at, is_counted=is_counted)


def _to_run(times: Times, found: list[int], moment: int) -> tuple[int, ...]:
    timely = tuple(each for each in found if moment - times.delay_s - each <= LATE_S)
    match times.missed:
        case "once":
            return tuple(found[-1:])
        case "skip":
            return timely[-1:]
        case "all":
            return tuple(found[-MAX_CATCH_UP:])


def read_rule(text: str, zone: ZoneInfo, now: int) -> Calendar | Every | Once:
    """Return what `Mon..Fri 07:00`, `every 2h`, `at 2026-12-24 18:00` or `in 20m` names.

    Raises:
        InvalidRequestError: it is none of these, or never comes.
    """
    word, _, rest = text.strip().partition(" ")
    rule: Calendar | Every | Once
    match word.lower():
        case "every":
            seconds = read_span(rest)
            if seconds < MIN_EVERY_S:
                raise InvalidRequestError(f"every {rest}: {MIN_EVERY_S} seconds are the least")
            return Every(seconds=seconds, since=now)
        case "in":
            return Once(at=now + read_span(rest))
        case "at":
            rule = Once(at=_moment(rest, zone))
        case _:
            rule = read_calendar(text)
    if Times(rule=rule, zone=zone).after(now) is None:
        raise InvalidRequestError(f"{text[:60]!r} does not come any more")
    return rule


def read_span(text: str) -> int:
    """Return the seconds of `90s`, `20m`, `1h30m` or `2d`.

    Raises:
        InvalidRequestError: it is none, or longer than 400 days.
    """
    parts = re.findall(r"(\d{1,9})\s*(min|[smhdw])", text.strip())
    if not parts or re.sub(r"\d{1,9}\s*(?:min|[smhdw])|\s", "", text.strip()):
        raise InvalidRequestError(
            f"{text[:40]!r} is no span of time", hint="Such are 90s, 20m, 1h30m and 2d."
        )
    seconds = sum(int(count) * _UNITS[unit] for count, unit in parts)
    if not 0 < seconds <= MAX_SECONDS:
        raise InvalidRequestError(f"{text[:40]!r} does not lie between 1 s and 400 days")
    return seconds


def read_quiet(text: str) -> tuple[int, int] | None:
    """Return the minutes from midnight of `22:00-07:00`; None for "".

    Raises:
        InvalidRequestError: it is none.
    """
    if not text:
        return None
    hour = r"([01]?\d|2[0-3]):([0-5]\d)"
    found = re.fullmatch(rf"{hour}\s*-\s*{hour}", text.strip())
    minutes = [int(each) for each in found.groups()] if found else [0, 0, 0, 0]
    begin, end = minutes[0] * 60 + minutes[1], minutes[2] * 60 + minutes[3]
    if begin == end:
        raise InvalidRequestError(f"quiet hours are such as 22:00-07:00, not {text[:40]!r}")
    return begin, end


def read_zone(name: str) -> ZoneInfo:
    """Return a time zone by its name.

    Raises:
        InvalidRequestError: there is none of this name.
    """
    if not is_zone(name):
        raise InvalidRequestError(
            f"there is no time zone {name[:60]!r}", hint="Such are Europe/Berlin and UTC."
        )
    return ZoneInfo(name)


def local_zone() -> str:
    """Return the name of the machine's time zone; UTC where it has none."""
    named = os.environ.get("TZ", "").removeprefix(":")
    if not named:
        with contextlib.suppress(OSError):
            named = str(Path("/etc/localtime").readlink()).partition("zoneinfo/")[2]
    return named if is_zone(named) else "UTC"


def delay_of(job_id: str, jitter_s: int) -> int:
    """Return how long a job waits after its times: always as long, and of each job another."""
    digest = hashlib.sha256(job_id.encode()).digest()
    return int.from_bytes(digest[:8], "big") % (jitter_s + 1)


def _moment(text: str, zone: ZoneInfo) -> int:
    found: datetime | None = None
    with contextlib.suppress(ValueError):
        found = datetime.fromisoformat(text.strip())
    # Near the ends of what dates there are, the next day or another zone's clock is none any more.
    if found is None or not 1970 <= found.year <= MAX_YEAR:
        raise InvalidRequestError(
            f"at {text[:40]!r} is no moment between 1970 and {MAX_YEAR}",
            hint="Such is: at 2026-12-24 18:00",
        )
    if found.tzinfo is not None:
        return int(found.astimezone(UTC).timestamp())
    return instant(found.replace(microsecond=0), zone)
