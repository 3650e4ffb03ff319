"""What MCP servers tell, as what begins jobs: each once, gathered, and never more than they may."""

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest

from clawd.config.sections import SchedulesSection
from clawd.errors import InvalidRequestError
from clawd.mcp.events import EventListener, EventPattern, ServerEvent
from clawd.mcp.model import ServerState
from clawd.memory.schedules import Schedule, ScheduledJob
from clawd.memory.store import Memory
from clawd.schedules.scheduler import JobScheduler
from clawd.schedules.server_events import MAX_LINES, HeardEvents, check_event, problems_of
from tests.schedules.test_scheduler import Hands, Switch
from tests.support.rows import each_row

LIMIT_S = 30.0
NOTE = ServerEvent(kind="resource", uri="note://a")
READY = ServerState(alias="notes", link="ready")


class Source:
    """Servers that tell what a test says."""

    def __init__(self) -> None:
        self.wanted: list[dict[str, tuple[EventPattern, ...]]] = []
        self.all: tuple[ServerState, ...] = (READY,)

    def listen(
        self, wanted: Mapping[str, tuple[EventPattern, ...]], _listener: EventListener
    ) -> None:
        self.wanted.append(dict(wanted))

    def states(self) -> tuple[ServerState, ...]:
        return self.all


def job(server: str = "notes", on: str = "resource note://a") -> ScheduledJob:
    return ScheduledJob(prompt="p", workspace="/w", server=server, on=on)


@pytest.fixture
async def memory(tmp_path: Path) -> AsyncIterator[Memory]:
    made = await Memory.open(tmp_path / "memory.sqlite")
    yield made
    await made.close()


async def test_servers_are_listened_to_for_the_jobs_that_are_in_force() -> None:
    source = Source()
    heard = HeardEvents(source, asyncio.Event(), every_s=0)
    jobs = {"one": job(), "two": job(on="tools"), "three": ScheduledJob(prompt="p", workspace="/w")}
    heard.adopt(jobs)
    heard.adopt(jobs)
    pattern = EventPattern(kind="resource", uri="note://a")
    assert [{alias: set(each) for alias, each in told.items()} for told in source.wanted] == [
        {"notes": {pattern, EventPattern(kind="tools")}}
    ]
    heard.heard("notes", NOTE)
    heard.heard("other", NOTE)
    heard.heard("notes", ServerEvent(kind="resource", uri="note://b"))
    heard.adopt({"two": job(on="tools")})
    assert heard.take("one") == {}
    heard.adopt({})
    assert source.wanted[-1] == {}


async def test_what_comes_is_gathered_bounded_and_told_once() -> None:
    wakes = asyncio.Event()
    heard = HeardEvents(Source(), wakes, every_s=3_600)
    heard.adopt({"one": job(), "two": job(on="log info")})
    for _ in range(10_000):
        heard.heard("notes", NOTE)
    for number in range(10_000):
        line = ServerEvent(kind="log", level="error", logger="disk", text=f"{number}")
        heard.heard("notes", line)
    async with asyncio.timeout(LIMIT_S):
        await wakes.wait()
    told = heard.text("one", heard.take("one"))
    assert told == "The MCP server notes told:\nthe resource note://a was updated (10000 times)"
    lines = heard.text("two", heard.take("two")).splitlines()
    assert lines[1] == "log error disk: 0"
    assert lines[-1] == f"and {10_000 - MAX_LINES} more"
    assert len(lines) == MAX_LINES + 2
    heard.heard("notes", NOTE)
    assert heard.take("one") == {}  # it is too soon


async def test_what_could_not_begin_a_job_is_not_lost() -> None:
    heard = HeardEvents(Source(), asyncio.Event(), every_s=0)
    heard.adopt({"one": job()})
    heard.heard("notes", NOTE)
    lines = heard.take("one")
    heard.heard("notes", NOTE)
    heard.give_back("one", lines)
    assert heard.take("one") == {"the resource note://a was updated": 2}


async def test_a_server_that_does_not_come_is_reported_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    source = Source()
    heard = HeardEvents(source, asyncio.Event(), away_s=0)
    jobs = {"one": job()}
    with caplog.at_level(logging.WARNING):
        heard.adopt(jobs)
        assert not caplog.messages
        source.all = (ServerState(alias="notes", link="waiting", problem="it ended"),)
        for _ in range(3):
            heard.adopt(jobs)
        source.all = (READY,)
        heard.adopt(jobs)
        source.all = ()
        heard.adopt(jobs)
    assert caplog.messages == [
        "a schedule waits for the MCP server notes, which is not connected: it ended",
        "a schedule waits for the MCP server notes, which is not configured",
    ]
    deaf = ServerState(alias="notes", link="ready", deaf_problem="it takes no subscription")
    assert problems_of((READY, deaf)) == {"notes": "it takes no subscription"}


@each_row(
    "server, on, is_good",
    [
        ("", "", True),
        ("notes", "tools", True),
        ("notes", "", False),
        ("", "tools", False),
        ("notes", "everything", False),
    ],
)
def test_a_server_and_what_it_tells_are_named_together(server: str, on: str, is_good: bool) -> None:
    if is_good:
        check_event(server, on)
        return
    with pytest.raises(InvalidRequestError):
        check_event(server, on)


async def test_ten_thousand_notifications_begin_a_job_no_oftener_than_it_may(
    memory: Memory,
) -> None:
    source, hands = Source(), Hands()
    daemon = JobScheduler(memory.schedules, hands, settings=SchedulesSection, stop=Switch())
    daemon.listen_to(source)
    made = await memory.schedules.add(Schedule(name="job", owner=7, job=job()))
    await daemon.look()
    assert daemon._heard is not None
    hands.busy = asyncio.Event()
    for _ in range(10_000):
        daemon._heard.heard("notes", NOTE)
        await daemon.look() if _ % 1_000 == 0 else None
    await daemon.look()
    (run,) = await memory.schedules.history(made.id, 100)  # the next would come seconds later
    assert (run.state, run.cause) == ("claimed", "mcp") or run.state == "running"
    assert run.input == "The MCP server notes told:\nthe resource note://a was updated"
    hands.busy.set()
    await daemon.close()


async def test_under_the_emergency_stop_it_waits_and_paused_it_is_forgotten(
    memory: Memory,
) -> None:
    source, stop = Source(), Switch()
    daemon = JobScheduler(memory.schedules, Hands(), settings=SchedulesSection, stop=stop)
    daemon.listen_to(source)
    made = await memory.schedules.add(Schedule(name="job", owner=7, job=job()))
    await daemon.look()
    assert daemon._heard is not None
    stop.set_ = True
    daemon._heard.heard("notes", NOTE)
    await daemon.look()
    assert await memory.schedules.history(made.id, 9) == []
    await memory.schedules.change(made.id, paused=True, next_at=None)
    stop.set_ = False
    await daemon.look()
    assert source.wanted[-1] == {}
    await memory.schedules.change(made.id, paused=False, next_at=None)
    await daemon.look()
    assert await memory.schedules.history(made.id, 9) == []
    daemon._heard.heard("notes", NOTE)
    await daemon.look()
    assert len(await memory.schedules.history(made.id, 9)) == 1
    await daemon.close()
