"""Calls of one round that only read run side by side; all else runs alone, and the order holds."""

import asyncio
from typing import Any

import msgspec
import pytest

from clawd.errors import CancelledByUserError
from clawd.runtime.turn import MAX_BESIDE
from clawd.tools.base import Arguments, Tool, ToolContext, ToolResult, Traits, succeeded
from clawd.tools.hooks import Hook
from clawd.wire.events import ToolFinished, ToolRequested, ToolStarted
from tests.runtime.inboxes import House, events_of
from tests.runtime.models import calls, says
from tests.support.dispatching import LIMIT_S, Bench, Probe

LOOKS = Traits(effect="looks")


class Meeting:
    """An act that ends when so many are at it; `most` is how many were at once."""

    def __init__(self, wanted: int) -> None:
        self._wanted = wanted
        self._met = asyncio.Event()
        self._here = 0
        self.most = 0
        self.begun: list[str] = []
        self.cancelled = 0

    async def __call__(self, arguments: Arguments, _context: ToolContext) -> ToolResult:
        self.begun.append(arguments["text"])
        self._here += 1
        self.most = max(self.most, self._here)
        if self._here >= self._wanted:
            self._met.set()
        try:
            async with asyncio.timeout(LIMIT_S):
                await self._met.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self._here -= 1
        return succeeded(f"met {arguments['text']}")

    async def have_begun(self, count: int) -> None:
        async with asyncio.timeout(LIMIT_S):
            while len(self.begun) < count:
                await asyncio.sleep(0)


def probe(name: str, act: Any, *, traits: Traits | None = LOOKS, **fields: Any) -> Probe:
    made = Probe(name, act=act, **fields)
    made.traits = traits  # type: ignore[misc]
    return made


def wants(*words: str) -> Any:
    """Return a hop of calls: a word in capitals is a call of the tool that acts."""
    named = (("acts" if word.isupper() else "looks", word) for word in words)
    return calls(*((tool, f'{{"text":"{word}"}}') for tool, word in named))


async def test_two_reading_calls_of_a_round_that_wait_for_each_other_both_end(
    bench: Bench,
) -> None:
    meeting = Meeting(2)
    house = House(bench, wants("a", "b"), says("done"), tools=[probe("looks", meeting)])
    ticket = await house.send("go")
    events = await events_of(ticket)
    assert (await ticket.finished()).text == "done"
    assert meeting.most == 2
    results = [message for message in house.model.seen(1) if message.role == "tool"]
    assert [(each.tool_call_id, each.content) for each in results] == [
        ("id-0", "met a"),
        ("id-1", "met b"),
    ]
    of_calls = [
        (type(event), event.call_id)
        for event in events
        if isinstance(event, ToolRequested | ToolStarted | ToolFinished)
    ]
    kinds = (ToolRequested, ToolStarted, ToolFinished)
    assert of_calls == [(kind, each) for each in ("id-0", "id-1") for kind in kinds]
    assert {receipt.status for receipt in bench.receipts()} == {"allowed"}
    assert await bench.memory.ledger.open_intents() == []


async def test_no_more_than_a_few_run_at_once_and_intents_are_in_order(bench: Bench) -> None:
    many = [f"n{number}" for number in range(3 * MAX_BESIDE)]
    meeting = Meeting(MAX_BESIDE)
    house = House(bench, wants(*many), says("done"), tools=[probe("looks", meeting)])
    await house.say("go")
    assert (meeting.most, meeting.begun) == (MAX_BESIDE, many)


async def test_what_writes_or_asks_runs_alone_and_nothing_overtakes_it(bench: Bench) -> None:
    at_work: set[str] = set()
    beside: dict[str, set[str]] = {}
    order: list[str] = []

    async def act(arguments: Arguments, _context: ToolContext) -> ToolResult:
        word = arguments["text"]
        at_work.add(word)
        for other in at_work:
            beside.setdefault(other, set()).update(at_work - {other})
        order.append(word)
        for _ in range(20):
            await asyncio.sleep(0)
        at_work.discard(word)
        return succeeded(word)

    tools: list[Tool] = [probe("looks", act), probe("acts", act, traits=None)]
    house = House(bench, wants("a", "b", "WRITE", "c", "d", "AGAIN"), says("done"), tools=tools)
    await house.say("go")
    assert order == ["a", "b", "WRITE", "c", "d", "AGAIN"]
    assert beside["WRITE"] == beside["AGAIN"] == set()
    assert not beside["a"] & {"c", "d"}


async def test_only_a_tool_of_clawd_that_looks_unasked_at_low_risk_runs_beside_others(
    bench: Bench,
) -> None:
    async def act(_arguments: Arguments, _context: ToolContext) -> ToolResult:
        return succeeded("x")

    from tests.support.dispatching import request
    from tests.tools.test_hooks import Programs, Stand
    from tests.tools.test_hooks import says as answers

    wrong = []
    rows: dict[str, tuple[Probe, bool]] = {
        "looks": (probe("probe", act), True),
        "acts": (probe("probe", act, traits=None), False),
        "adds": (probe("probe", act, traits=Traits(effect="adds")), False),
        "asks": (probe("probe", act, traits=Traits(effect="looks", asks=True)), False),
        "medium": (probe("probe", act, risk="medium"), False),
        "held": (probe("probe", act, traits=Traits(effect="acts", looks_at_low=True)), True),
        "not held": (
            probe("probe", act, traits=Traits(effect="acts", looks_at_low=True), risk="medium"),
            False,
        ),
    }
    others = probe("probe", act)
    others.source = "mcp"  # type: ignore[misc]
    rows["of a server"] = (others, False)
    for name, (tool, expected) in rows.items():
        stand = Stand(bench)
        if stand.dispatcher(tool).may_run_beside(request("probe"), bench.scope()) is not expected:
            wrong.append(name)
    hook = Hook(name="x", event="after_tool", command=("/x",))
    hooked = Stand(bench, hook, programs=Programs(x=answers()))
    looks = hooked.dispatcher(probe("probe", act))
    assert not looks.may_run_beside(request("probe"), bench.scope()), "a hook may do anything"
    assert not looks.may_run_beside(request("none"), bench.scope())
    assert not looks.may_run_beside(request("probe", "{"), bench.scope())
    bench.stop.value = True
    assert (
        not Stand(bench)
        .dispatcher(probe("probe", act))
        .may_run_beside(request("probe"), bench.scope())
    )
    assert wrong == []


@pytest.mark.parametrize("is_stop", [False, True])
async def test_cancelling_and_the_emergency_stop_reach_all_of_them(
    bench: Bench, *, is_stop: bool
) -> None:
    meeting = Meeting(99)
    house = House(bench, wants("a", "b", "c"), says("done"), tools=[probe("looks", meeting)])
    ticket = await house.send("go")
    await meeting.have_begun(3)
    if is_stop:
        bench.stop.value = True
        assert house.dispatcher.stop_all() == 3
        await ticket.finished()
    else:
        ticket.cancel()
        with pytest.raises(CancelledByUserError):
            await ticket.finished()
    assert meeting.cancelled == 3
    assert len(bench.receipts()) == 3
    assert await bench.memory.ledger.open_intents() == []
    rows = await bench.memory.messages.history(
        ticket.conversation_id, owner=msgspec.structs.astuple(bench.scope().principal)[0], limit=9
    )
    assert sum(row.message.role == "tool" for row in rows) == 3
