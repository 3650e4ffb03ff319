"""What MCP servers tell, as what begins jobs: the first at once, what comes after it gathered.

A server may tell as fast as it likes: of a job's events only different lines are kept, so many at
most, and they begin it no more often than `every` may. What a server tells while it is not
connected, nobody knows. All of it is untrusted text.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Mapping
from typing import Protocol

from clawd.errors import InvalidRequestError
from clawd.mcp.events import EventListener, EventPattern, ServerEvent, read_pattern
from clawd.mcp.model import ServerState
from clawd.memory.schedules import ScheduledJob
from clawd.schedules.plan import MIN_EVERY_S
from clawd.wire.safe_text import single_line

AWAY_S = 30.0
MAX_LINES = 24  # of some 500 characters; the others are counted

_log = logging.getLogger(__name__)


class EventSource(Protocol):
    """Servers that can be listened to."""

    def listen(
        self, wanted: Mapping[str, tuple[EventPattern, ...]], listener: EventListener
    ) -> None:
        """Hear these events of servers by their aliases from now on, and no others."""
        ...

    def states(self) -> tuple[ServerState, ...]:
        """Return how the servers stand."""
        ...


class HeardEvents:
    """Listens for jobs. One of a daemon; every method is called on the loop's thread.

    Args:
        servers: those that are listened to.
        wakes: set when a job may begin.
        every_s: so many seconds lie between two times of a job, at least.
        away_s: a server that is not there for longer is reported.
    """

    def __init__(
        self,
        servers: EventSource,
        wakes: asyncio.Event,
        *,
        every_s: float = MIN_EVERY_S,
        away_s: float = AWAY_S,
    ) -> None:
        self._servers = servers
        self._wakes = wakes
        self._every_s = every_s
        self._away_s = away_s
        self._jobs: dict[str, tuple[str, EventPattern]] = {}
        self._came: dict[str, Counter[str]] = {}
        self._free_at: dict[str, float] = {}
        self._away_since: dict[str, float] = {}
        self._reported: set[str] = set()

    def adopt(self, jobs: Mapping[str, ScheduledJob]) -> None:
        """Listen for these jobs, by their ids, and for no others; report servers that are gone."""
        wanted = {
            each: (job.server, read_pattern(job.on)) for each, job in jobs.items() if job.server
        }
        if wanted != self._jobs:
            self._jobs = wanted
            for gone in self._came.keys() - wanted.keys():
                del self._came[gone]
            self._free_at = {job: at for job, at in self._free_at.items() if job in wanted}
            patterns: dict[str, tuple[EventPattern, ...]] = {}
            for alias, pattern in sorted(wanted.values(), key=str):
                patterns[alias] = (*patterns.get(alias, ()), pattern)
            self._servers.listen(patterns, self)
        self._look_for_away()

    def heard(self, alias: str, event: ServerEvent) -> None:
        """Take an event for the jobs that it is meant for."""
        for job, (server, pattern) in self._jobs.items():
            if server != alias or not pattern.takes(event):
                continue
            lines = self._came.setdefault(job, Counter())
            if not lines:
                loop = asyncio.get_running_loop()
                wait_s = self._free_at.get(job, 0.0) - loop.time()
                loop.call_later(max(wait_s, 0.0), self._wakes.set)
            line = event.line()
            lines[line if line in lines or len(lines) < MAX_LINES else ""] += 1

    def take(self, job: str) -> Counter[str]:
        """Return what came for a job, once; nothing while it is too soon for another time."""
        now = asyncio.get_running_loop().time()
        if job not in self._came or now < self._free_at.get(job, 0.0):
            return Counter()
        self._free_at[job] = now + self._every_s
        return self._came.pop(job)

    def give_back(self, job: str, lines: Counter[str]) -> None:
        """Take back what could not begin the job; it is tried again at the next look."""
        self._came[job] = lines + self._came.get(job, Counter())

    def text(self, job: str, lines: Counter[str]) -> str:
        """Return what a job is told of what came for it."""
        told = [f"The MCP server {self._jobs[job][0]} told:"]
        told += [
            f"{line} ({count} times)" if count > 1 else line
            for line, count in lines.items()
            if line
        ]
        return "\n".join([*told, f"and {lines['']} more"] if lines[""] else told)

    def _look_for_away(self) -> None:
        """Report, once, servers that do not come."""
        now = asyncio.get_running_loop().time()
        problems = problems_of(self._servers.states())
        for alias in {alias for alias, _ in self._jobs.values()}:
            problem = problems.get(alias, "is not configured")
            if not problem:
                self._away_since.pop(alias, None)
                self._reported.discard(alias)
            elif now - self._away_since.setdefault(alias, now) >= self._away_s:
                if alias not in self._reported:
                    _log.warning("a schedule waits for the MCP server %s, which %s", alias, problem)
                self._reported.add(alias)


def problems_of(states: tuple[ServerState, ...]) -> dict[str, str]:
    """Return by alias why a server begins nothing now; "" where it may."""
    return {
        state.alias: single_line(state.deaf_problem, 200)
        if state.link == "ready"
        else f"is not connected: {single_line(state.problem, 200) or state.link}"
        for state in states
    }


def check_event(server: str, on: str) -> None:
    """Refuse what names no events of a server.

    Raises:
        InvalidRequestError: the one is named without the other, or is none.
    """
    if bool(server) != bool(on):
        raise InvalidRequestError(
            "a schedule names both an MCP server and what of it begins it, or neither",
            hint="As: --mcp notes --on 'resource note://today'.",
        )
    if on:
        read_pattern(on)
