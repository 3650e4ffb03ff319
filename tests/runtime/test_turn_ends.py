"""How a turn ends when its time is up or something fails: in every state, nothing is left half."""

import asyncio
import itertools
from typing import Any, ClassVar

import pytest

from clawd.config.schema import AgentSection
from clawd.errors import ClawError, ProviderError, ReceiptError, StorageError
from clawd.providers.base import CallDelta, Finished
from clawd.runtime.context import UNSAID, open_calls, told_text
from clawd.runtime.model_request import STOPPED
from clawd.runtime.turn import MessageBatch, Turn
from clawd.security.approvals import Approvals
from clawd.tools.base import Tool
from clawd.tools.dispatch import Dispatcher
from clawd.tools.outcome import CallOutcome, CallRequest, CallScope
from clawd.wire.events import (
    HopReset,
    Notice,
    ReasoningDelta,
    TextDelta,
    ToolRequested,
    TurnFinished,
)
from tests.runtime.inboxes import House
from tests.runtime.models import DONE, Hop, Pause, calls, fails, says
from tests.runtime.test_turn import USER, Table, roles, texts
from tests.security.fakes import ADA
from tests.support.dispatching import LIMIT_S, Bench, Held, Probe
from tests.support.passing import pass_time
from tests.support.rows import each_row

BUDGET_S = 60.0
SPENT = "I stopped: 60 s are used up."
ONE = ("probe", '{"text":"a"}')
SLOW = ("slow", '{"text":"a"}')


def whole(table: Table) -> bool:
    """Return whether context and memory agree, and no call is without its result."""
    stored = [message for messages, _ in table.stored for message in messages]
    return table.in_step() and not open_calls(table.context.messages) and not open_calls(stored)


async def out_of_time(table: Table, *so_far: asyncio.Event) -> TurnFinished:
    """Run a turn whose time is up when it has come so far."""
    running = asyncio.create_task(table.turn(wall_clock_budget_s=BUDGET_S).run())
    async with asyncio.timeout(2 * BUDGET_S):
        for reached in so_far:
            await reached.wait()
        pass_time(BUDGET_S)
        return await running


async def within_limit(turn: Turn) -> TurnFinished:
    async with asyncio.timeout(LIMIT_S):
        return await turn.run()


# --- an answer that a limit cut


@each_row("begun", ["", "{", '{"text":"a'], fresh=["bench"])
async def test_a_call_that_was_cut_in_its_arguments_does_not_run(bench: Bench, begun: str) -> None:
    class Easy(Probe):
        parameters: ClassVar[dict[str, Any]] = Probe.parameters | {"required": []}

    whole_call = CallDelta(index=0, id="a", name="probe", arguments="{}")
    cut = [whole_call, CallDelta(index=1, id="b", name="probe", arguments=begun)]
    tool = Easy()
    table = Table(bench, [*cut, Finished(reason="length")], says("done"), tools=[tool])
    await within_limit(table.turn())
    assert tool.calls == 1
    assert [receipt.status for receipt in bench.receipts()] == ["allowed", "failed"]
    assert whole(table)


# --- the time of a turn


async def test_time_that_is_up_in_mid_answer_keeps_what_was_said(bench: Bench) -> None:
    pause = Pause()
    table = Table(bench, [TextDelta(text="half an "), TextDelta(text="answer"), pause, DONE])
    finished = await out_of_time(table, pause.reached)
    assert (finished.text, finished.stop_reason) == (f"half an answer\n{SPENT}", "cap")
    assert texts(bench) == finished.text
    assert not [event for event in bench.events if isinstance(event, Notice)], "it is said once"
    assert table.model.closed_streams == 1
    assert whole(table)


async def test_time_that_is_up_before_any_text_says_so(bench: Bench) -> None:
    pause = Pause()
    table = Table(bench, [ReasoningDelta(text="hm"), pause, DONE])
    finished = await out_of_time(table, pause.reached)
    assert (finished.text, finished.stop_reason) == (SPENT, "cap")


async def test_time_that_is_up_in_another_attempt_keeps_what_the_one_before_said(
    bench: Bench,
) -> None:
    lost = fails(ProviderError("gone", kind="network"), "half an answer")
    pause = Pause()
    table = Table(bench, lost, [ReasoningDelta(text="hm"), pause, DONE])
    finished = await out_of_time(table, pause.reached)
    assert (finished.text, finished.stop_reason) == (f"half an answer\n{SPENT}", "cap")
    assert whole(table)


async def test_time_that_is_up_in_half_a_call_does_not_show_it(bench: Bench) -> None:
    pause = Pause()
    table = Table(bench, [TextDelta(text="<tool_call>{"), pause, DONE])
    finished = await out_of_time(table, pause.reached)
    assert finished.text == SPENT
    assert HopReset(reason="60 s are used up") in bench.events


async def test_time_that_is_up_in_a_call_ends_it_and_tells_every_call(bench: Bench) -> None:
    held = Held()
    tools: list[Tool] = [Probe(), Probe("slow", act=held, timeout_s=2 * BUDGET_S)]
    table = Table(bench, calls(ONE, SLOW, ONE, text="I act."), says("never"), tools=tools)
    finished = await out_of_time(table, held.begun)
    assert held.is_cancelled
    assert (finished.text, finished.stop_reason) == (SPENT, "cap")
    late = "error: 60 s are used up, the call was not completed"
    assert [m.content for m in table.context.messages if m.role == "tool"] == ["ok a", late, late]
    first, second = bench.receipts()
    assert (first.status, second.status, second.reason) == ("allowed", "failed", "cancelled")
    assert len(table.model.requests) == 1
    assert whole(table)


async def test_time_that_is_up_while_a_person_is_asked_is_a_no(bench: Bench) -> None:
    bench.approvals = Approvals(bench.rules, estop=bench.stop, timeout_s=2 * BUDGET_S)
    tool, asked = Probe(risk="medium"), asyncio.Event()
    table = Table(bench, calls(ONE), tools=[tool])
    asking = asyncio.create_task(bench.asked.get())
    asking.add_done_callback(lambda _: asked.set())
    finished = await out_of_time(table, asked)
    assert (finished.stop_reason, tool.calls) == ("cap", 0)
    assert [receipt.status for receipt in bench.receipts()] == ["denied"]
    assert whole(table)


async def test_a_turn_within_its_time_is_not_disturbed(bench: Bench) -> None:
    table = Table(bench, calls(ONE), says("done"))
    finished = await within_limit(table.turn(wall_clock_budget_s=LIMIT_S))
    assert (finished.text, finished.stop_reason) == ("done", "stop")


async def test_a_cancel_within_a_budget_of_time_is_a_cancel(bench: Bench) -> None:
    held = Held()
    table = Table(bench, calls(SLOW), tools=[Probe("slow", act=held)])
    running = asyncio.create_task(table.turn(wall_clock_budget_s=LIMIT_S).run())
    await held.has_begun()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert whole(table)


# --- faults at every point


class BrokenDispatcher:
    """The real dispatcher, whose call of a number fails as a whole."""

    def __init__(self, real: Dispatcher, number: int, error: Exception) -> None:
        self.registry = real.registry
        self._real = real
        self._left = number
        self._error = error

    async def call(self, request: CallRequest, scope: CallScope) -> CallOutcome:
        if self._left == 0:
            raise self._error
        self._left -= 1
        return await self._real.call(request, scope)

    def may_run_beside(self, request: CallRequest, scope: CallScope) -> bool:
        return self._real.may_run_beside(request, scope)


@each_row("number", [0, 1, 2])
@each_row(
    "error",
    [StorageError("the disk is full"), ReceiptError("no chain"), RuntimeError("defect")],
    fresh=["bench"],
)
async def test_a_dispatcher_that_fails_leaves_every_call_a_result_that_says_why(
    bench: Bench, number: int, error: Exception
) -> None:
    table = Table(bench, calls(ONE, ONE, ONE))
    table.dispatcher = BrokenDispatcher(table.dispatcher, number, error)  # type: ignore[assignment]
    with pytest.raises(type(error)):
        await within_limit(table.turn())
    results = [m.content or "" for m in table.context.messages if m.role == "tool"]
    why = error.message if isinstance(error, ClawError) else "RuntimeError"
    lost = f"error: the turn ended before this call had a result: {why}"
    assert results == ["ok a"] * number + [lost] * (3 - number)
    assert len(table.model.requests) == 1
    assert whole(table)


@each_row("good", [0, 1, 2, 3], fresh=["bench"])
async def test_memory_that_fails_at_any_write_leaves_no_call_without_its_result(
    bench: Bench, good: int
) -> None:
    """Writes: what is asked, the results, the answer; from `good` on every write fails."""
    table = Table(bench, calls(ONE, ONE), says("done"))
    persist, written = table._persist, 0

    async def failing(batch: MessageBatch) -> None:
        nonlocal written
        if written >= good:
            raise StorageError("the disk is full")
        written += 1
        await persist(batch)

    table._persist = failing  # type: ignore[method-assign]
    if good < 3:
        with pytest.raises(StorageError):
            await within_limit(table.turn())
    else:
        assert (await within_limit(table.turn())).text == "done"
    assert not open_calls(table.context.messages)
    expected = {0: 0, 1: 4, 2: 4, 3: 5}[good]
    assert len(table.context.messages) == expected
    if good == 1:
        lost = "error: the result was lost when the turn was interrupted"
        assert [m.content for m in table.context.messages][-2:] == [lost, lost]


@each_row("number", [1, 2, 3], fresh=["bench"])
async def test_a_cancel_during_any_write_keeps_context_and_memory_in_step(
    bench: Bench, number: int
) -> None:
    table = Table(bench, calls(ONE, ONE), says("done"))
    persist, written, reached = table._persist, 0, asyncio.Event()
    let_go = asyncio.Event()

    async def slow(batch: MessageBatch) -> None:
        nonlocal written
        written += 1
        if written == number:
            reached.set()
            await let_go.wait()
        await persist(batch)

    table._persist = slow  # type: ignore[method-assign]
    running = asyncio.create_task(table.turn().run())
    await reached.wait()
    running.cancel()
    await asyncio.sleep(0)
    let_go.set()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert whole(table)
    assert roles(table.context)[:2] == ["user", "assistant"]


@each_row(
    "second",
    [
        fails(ProviderError("gone", kind="network")),
        fails(ProviderError("gone", kind="timeout"), "half"),
        [TextDelta(text="no end")],
    ],
    fresh=["bench"],
)
async def test_a_provider_that_fails_after_a_round_keeps_it_whole(
    bench: Bench, second: Hop
) -> None:
    table = Table(bench, calls(ONE, ONE), second)
    with pytest.raises(ProviderError):
        await within_limit(table.turn())
    assert roles(table.context)[:4] == ["user", "assistant", "tool", "tool"]
    assert whole(table)


@each_row("arguments", ["{oops", '{"text": "a', "[1]", "null and void", "\x00"], fresh=["bench"])
async def test_arguments_that_are_no_json_run_nothing_and_count_as_one_round(
    bench: Bench, arguments: str
) -> None:
    probe = Probe()
    table = Table(bench, calls(("probe", arguments), ONE), says("sorry"), tools=[probe])
    finished = await within_limit(table.turn())
    assert (finished.usage.rounds, finished.usage.tool_calls, probe.calls) == (1, 2, 1)
    told = table.model.seen(1)[-2].content or ""
    assert told.startswith("error: ")
    assert [receipt.status for receipt in bench.receipts()] == ["failed", "allowed"]


async def test_the_next_turn_extends_whatever_a_failed_one_left(bench: Bench) -> None:
    table = Table(bench, calls(ONE), fails(ProviderError("gone", kind="timeout")), says("again"))
    with pytest.raises(ProviderError):
        await within_limit(table.turn())
    before = table.model.requests[-1].messages
    await within_limit(table.turn())
    after = table.model.requests[-1].messages
    assert after[: len(before)] == before
    assert after[len(before) :] == (USER,)


TWO = ("probe", '{"text":"b"}')
ENDLESS: Hop = [CallDelta(index=0, name="probe", arguments="x" * 200), DONE]
LOST = '<tool_call>\n{"name": "probe"'


def streamed(bench: Bench) -> str:
    """Return the text of the last answer, as somebody saw it come."""
    text = ""
    for event in bench.events:
        if isinstance(event, HopReset | ToolRequested):
            text = ""
        elif isinstance(event, TextDelta):
            text += event.text
    return text


@each_row(
    ("hops", "limits", "said"),
    [
        ([calls(ONE, text="first"), calls(TWO)], {"max_tool_rounds": 1}, ""),
        ([calls(ONE, text="a"), calls(TWO, text="second")], {"max_tool_rounds": 1}, "second"),
        ([calls(ONE, text="<tool_response>"), calls(TWO)], {"max_tool_rounds": 1}, ""),
        ([calls(ONE, text="again")], {}, ""),
        ([calls(ONE, text="first"), says(LOST)], {}, ""),
        ([calls(ONE, text="first"), says("x" * 200)], {"max_response_bytes": 150}, "x" * 150),
        ([calls(ONE, text="first"), ENDLESS], {"max_response_bytes": 150}, ""),
    ],
    fresh=["bench"],
)
async def test_what_is_kept_of_the_last_answer_is_what_was_streamed_of_it(
    bench: Bench, hops: list[Hop], limits: dict[str, int], said: str
) -> None:
    table = Table(bench, *hops)
    finished = await within_limit(table.turn(**limits))
    last = table.context.messages[-1]
    assert [finished.text] * 2 == [streamed(bench), told_text(last)]
    assert last.content == (said or UNSAID)
    assert (STOPPED in last.note) is (len(said) < 150)
    assert table.in_step()


async def test_why_a_turn_was_stopped_is_kept_for_people_and_no_model_reads_it(
    bench: Bench,
) -> None:
    looped = [calls(ONE, text="Again.")] * 3
    cut = [calls(ONE), calls(TWO, text="One more.")]
    hops = [*looped, says("a"), *cut, says("b"), says("c")]
    house = House(bench, *hops, tools=[Probe()])
    first = await house.say("go")
    await house.say("and now?", first.conversation_id)
    house.change(loop=AgentSection(max_tool_rounds=1))
    second = await house.say("on", first.conversation_id)
    await house.say("well?", first.conversation_id)
    house.restart()
    await house.say("again?", first.conversation_id)

    assert [STOPPED in each.text for each in (first, second)] == [True, True]
    rows = await bench.memory.messages.history(first.conversation_id, owner=ADA.uid)
    kept = [row.message.content for row in rows if row.message.role == "assistant"]
    assert [kept[3], kept[6]] == [first.text, second.text]
    requests = [each.messages for each in house.model.requests]
    shown = [message.content or "" for messages in requests for message in messages]
    assert not [text for text in shown if STOPPED.strip() in text]
    answers = [m.content for m in requests[-1] if m.role == "assistant"]
    assert answers == ["Again.", "Again.", "Again.", UNSAID, "a", "", "One more.", "b"]
    # Nothing of it moves or changes, also where it is loaded anew: what was read stays read.
    for before, after in itertools.pairwise(requests):
        assert after[: len(before)] == before
