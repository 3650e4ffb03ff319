"""What is due: the times of a job, what of them was missed, and what is done about it. Pure.

A job comes at times that do not depend on when clawd looks: by a calendar, every so many seconds
since it was made, or once. Each such time is run at most once; one that is not run is reported.
"""

import contextlib
import hashlib
import os
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal
from zoneinfo import ZoneInfo

import msgspec

from clawd.errors import InvalidRequestError
from clawd.schedules.calendar import Calendar, instant, is_zone, next_after, read_calendar

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
        zone: where a calendar's clocks are.
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
                return next_after(self.rule, self.zone, at)
            case Every(seconds=seconds, since=since):
                return since + max((at - since) // seconds + 1, 1) * seconds
            case Once(at=moment):
                return moment if moment > at else None

    def wakes_at(self, due: int) -> int:
        """Return when a time is looked at: after its delay, and not in quiet hours."""
        at = due + self.delay_s
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
    if next_at is None or times.wakes_at(next_at) > moment:
        return None
    if times.quiet_until(moment) is not None:
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
    try:
        found = datetime.fromisoformat(text.strip())
    except ValueError:
        raise InvalidRequestError(
            f"at {text[:40]!r} is no moment", hint="Such is: at 2026-12-24 18:00"
        ) from None
    if found.tzinfo is not None:
        return int(found.astimezone(UTC).timestamp())
    return instant(found.replace(microsecond=0), zone)
