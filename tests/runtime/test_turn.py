"""The agent loop with the real dispatcher: answers, rounds, caps, loops, failures."""

import asyncio
import itertools
from typing import Any, ClassVar

import msgspec
import pytest

from clawd.errors import ProviderError, StoppedError, StorageError
from clawd.providers.base import CallDelta, Finished, Message, ToolCall
from clawd.runtime.context import UNSAID, Context
from clawd.runtime.turn import MessageBatch, Turn
from clawd.runtime.turn_plan import GoOn, TurnLimits, TurnPlan
from clawd.security.policy import PolicySettings
from clawd.tools.base import Arguments, Tool, ToolContext, ToolResult, succeeded
from clawd.tools.dispatch import Dispatcher
from clawd.tools.offer import RequestTools
from clawd.wire.events import (
    HopFinished,
    Notice,
    PromptEvaluated,
    ReasoningDelta,
    TextDelta,
    ToolFinished,
    ToolRequested,
    TurnFinished,
)
from tests.runtime.models import DONE, EVALUATED, Hop, Pause, PlannedModel, calls, fails, says
from tests.support.dispatching import LIMIT_S, Bench, Held, Probe
from tests.support.rows import each_row

USER = Message(role="user", content="go")
BUDGET_S = 0.4


class Table:
    """A turn at hand: its model, its context, and what was stored of it."""

    def __init__(self, bench: Bench, *hops: Hop, tools: list[Tool] | None = None) -> None:
        self.bench = bench
        self.model = PlannedModel(*hops)
        self.tools = tools if tools is not None else [Probe()]
        self.context = Context()
        self.stored: list[tuple[tuple[Message, ...], str]] = []
        self.dispatcher: Dispatcher = bench.dispatcher(self.tools)
        self.disk_error: Exception | None = None
        self.storing: Pause | None = None
        self.tool_choice = "auto"
        self.message = USER
        self.go_on: GoOn | None = None
        self.known_tokens = 0

    def turn(self, **limits: float) -> Turn:
        plan = TurnPlan(
            turn_id="turn-1",
            message=self.message,
            system="be good",
            told=RequestTools(tools=tuple(self.tools)),
            provider=self.model,
            model="m",
            limits=TurnLimits(**limits),  # type: ignore[arg-type]
            scope=self.bench.scope(),
            tool_choice=self.tool_choice,
            go_on=self.go_on,
        )
        return Turn(
            plan,
            context=self.context,
            dispatcher=self.dispatcher,
            emit=self.bench.events.append,
            persist=self._persist,
        )

    async def _persist(self, batch: MessageBatch) -> None:
        if self.disk_error is not None:
            raise self.disk_error
        if self.storing is not None:
            self.storing.reached.set()
            await self.storing.let_go.wait()
        self.stored.append((batch.messages, batch.mark))
        self.known_tokens = batch.known_tokens

    def in_step(self) -> bool:
        """Return whether memory holds exactly what the context holds."""
        kept = [message for messages, _ in self.stored for message in messages]
        return kept == list(self.context.messages)


def texts(bench: Bench) -> str:
    return "".join(event.text for event in bench.events if isinstance(event, TextDelta))


def roles(context: Context) -> list[str]:
    return [message.role for message in context.messages]


async def test_a_text_is_the_answer(bench: Bench) -> None:
    table = Table(
        bench,
        [ReasoningDelta(text="hm"), EVALUATED, TextDelta(text="he"), TextDelta(text="llo"), DONE],
    )
    finished = await table.turn().run()
    assert (finished.text, finished.stop_reason, finished.provider, finished.model) == (
        "hello", "stop", "planned", "m",
    )  # fmt: skip
    assert [type(event) for event in bench.events] == [
        ReasoningDelta, PromptEvaluated, TextDelta, TextDelta, HopFinished,
    ]  # fmt: skip
    usage = finished.usage
    assert (usage.prompt_tokens, usage.cached_tokens, usage.completion_tokens) == (3, 1, 2)
    assert (usage.context_used, usage.context_size, usage.rounds) == (12, 100, 0)
    said = Message(role="assistant", content="hello", reasoning="hm")
    assert table.stored == [((USER, said), "")]
    assert table.in_step()
    assert table.model.requests[0].system == "be good"
    assert table.model.requests[0].metadata == {"conversation_id": "conv-1"}
    assert [tool.name for tool in table.model.requests[0].tools] == ["probe"]
    assert table.model.closed_streams == 1


async def test_calls_run_one_at_a_time_in_order_and_their_results_go_back(bench: Bench) -> None:
    log: list[str] = []

    async def act(arguments: Arguments, _context: ToolContext) -> ToolResult:
        log.append(f"+{arguments['text']}")
        await asyncio.sleep(0)
        log.append(f"-{arguments['text']}")
        return succeeded(f"did {arguments['text']}")

    wanted = [("probe", f'{{"text":"{name}"}}') for name in "abc"]
    table = Table(bench, calls(*wanted, text="let me"), says("done"), tools=[Probe(act=act)])
    finished = await table.turn().run()
    assert log == ["+a", "-a", "+b", "-b", "+c", "-c"]
    assert (finished.text, finished.usage.rounds, finished.usage.tool_calls) == ("done", 1, 3)
    asked = table.model.seen(1)
    assert [m.role for m in asked] == ["user", "assistant", "tool", "tool", "tool"]
    assert asked[1].content == "let me"
    assert [(m.tool_call_id, m.name, m.content) for m in asked[2:]] == [
        (f"id-{index}", "probe", f"did {name}") for index, name in enumerate("abc")
    ]
    assert [receipt.status for receipt in bench.receipts()] == ["allowed"] * 3
    assert [[m.role for m in stored] for stored, _ in table.stored] == [
        ["user", "assistant"],
        ["tool"] * 3,
        ["assistant"],
    ]
    assert {mark for _, mark in table.stored} == {""}
    assert table.in_step()
    kinds = [type(e) for e in bench.events if isinstance(e, ToolRequested | ToolFinished)]
    assert kinds == [ToolRequested, ToolFinished] * 3


async def test_every_hop_extends_the_one_before(bench: Bench) -> None:
    hops = [calls(("probe", f'{{"text":"{n}"}}')) for n in range(4)]
    table = Table(bench, *hops, says("end"))
    await table.turn().run()
    for earlier, later in itertools.pairwise(table.model.requests):
        assert later.messages[: len(earlier.messages)] == earlier.messages
        assert (later.system, later.tools) == (earlier.system, earlier.tools)


async def test_arguments_that_are_no_json_are_not_run_and_the_model_is_told(bench: Bench) -> None:
    tool = Probe()
    table = Table(bench, calls(("probe", "{oops")), says("sorry"), tools=[tool])
    assert (await table.turn().run()).text == "sorry"
    assert tool.calls == 0
    told = table.model.seen(1)[-1].content or ""
    assert told.startswith("error: the arguments are no JSON object")
    assert [receipt.reason for receipt in bench.receipts()] == ["bad arguments"]


async def test_an_unknown_tool_is_told_and_the_turn_goes_on(bench: Bench) -> None:
    table = Table(bench, calls(("fly", "{}")), says("I cannot"))
    assert (await table.turn().run()).text == "I cannot"
    assert (table.model.seen(1)[-1].content or "").startswith("error: there is no tool 'fly'")


async def test_denied_calls_are_counted(bench: Bench) -> None:
    bench.is_reachable = False
    tools: list[Tool] = [Probe("high", risk="high"), Probe("medium", risk="medium")]
    wanted = (("high", '{"text":"a"}'), ("medium", '{"text":"a"}'))
    finished = await Table(bench, calls(*wanted), says("no"), tools=tools).turn().run()
    assert (finished.denied, finished.unanswered_approvals) == (2, 1)


async def test_ids_that_were_used_before_are_made_unique(bench: Bench) -> None:
    wanted = [("probe", f'{{"text":"{name}"}}') for name in "ab"]
    table = Table(
        bench, calls(*wanted, ids=["x", "x"]), calls(*wanted, ids=["x", "x-2"]), says(".")
    )
    await table.turn().run()
    ids = [call.id for message in table.context.messages for call in message.tool_calls]
    assert ids == ["x", "x-2", "x-3", "x-2-2"]
    answered = [m.tool_call_id for m in table.context.messages if m.role == "tool"]
    assert answered == ids


async def test_at_the_cap_the_last_text_is_kept_and_the_reason_told(bench: Bench) -> None:
    hops = [calls(("probe", f'{{"text":"{n}"}}'), text=f"text {n}") for n in range(5)]
    tool = Probe()
    table = Table(bench, *hops, tools=[tool])
    finished = await table.turn(max_tool_rounds=2).run()
    assert (finished.stop_reason, finished.usage.rounds, tool.calls) == ("cap", 2, 2)
    assert (
        finished.text
        == "text 2\nI stopped: the limit of 2 tool rounds is reached (max_tool_rounds in [agent])."
    )
    assert texts(bench).endswith(
        "text 2\nI stopped: the limit of 2 tool rounds is reached (max_tool_rounds in [agent])."
    )
    assert not [event for event in bench.events if isinstance(event, Notice)], "it is said once"
    assert roles(table.context) == ["user", "assistant", "tool", "assistant", "tool", "assistant"]
    assert not table.context.messages[-1].tool_calls
    assert table.in_step()


async def test_at_the_cap_a_person_who_is_there_says_whether_it_goes_on(bench: Bench) -> None:
    hops = [calls(("probe", f'{{"text":"{n}"}}'), text=f"text {n}") for n in range(9)]
    tool, asked = Probe(), []

    async def go_on(rounds: int, more: int) -> bool:
        asked.append((rounds, more, tool.calls))
        return len(asked) < 3

    table = Table(bench, *hops, tools=[tool])
    table.go_on = go_on
    finished = await table.turn(max_tool_rounds=2).run()
    assert asked == [(2, 2, 2), (4, 2, 4), (6, 2, 6)]
    assert (finished.stop_reason, finished.usage.rounds, tool.calls) == ("cap", 6, 6)
    assert "text 6\nI stopped: the limit of 6 tool rounds is reached" in finished.text
    assert not table.context.messages[-1].tool_calls
    assert table.in_step()


async def test_a_turn_that_ends_before_the_cap_asks_nobody(bench: Bench) -> None:
    async def go_on(_rounds: int, _more: int) -> bool:
        raise AssertionError

    table = Table(bench, calls(("probe", '{"text":"a"}')), says("done"))
    table.go_on = go_on
    assert (await table.turn(max_tool_rounds=1).run()).text == "done"


async def test_the_time_for_which_a_person_thinks_about_going_on_is_not_the_turns(
    bench: Bench,
) -> None:
    hops = [calls(("probe", f'{{"text":"{n}"}}')) for n in range(2)]
    budget_s = 2.0  # what the turn does beside takes milliseconds, on a busy machine more

    async def go_on(_rounds: int, _more: int) -> bool:
        await asyncio.sleep(1.2 * budget_s)
        return True

    table = Table(bench, *hops, says("done"))
    table.go_on = go_on
    finished = await table.turn(max_tool_rounds=1, wall_clock_budget_s=budget_s).run()
    assert (finished.text, finished.stop_reason) == ("done", "stop")


async def test_no_rounds_at_all_means_no_calls(bench: Bench) -> None:
    tool = Probe()
    finished = (
        await Table(bench, calls(("probe", "{}")), tools=[tool]).turn(max_tool_rounds=0).run()
    )
    assert (finished.stop_reason, tool.calls) == ("cap", 0)
    assert (
        finished.text
        == "I stopped: the limit of 0 tool rounds is reached (max_tool_rounds in [agent])."
    )


async def test_a_loop_is_stopped_with_its_reason(bench: Bench) -> None:
    tool = Probe()
    table = Table(bench, calls(("probe", '{"text":"a"}')), tools=[tool])
    finished = await table.turn().run()
    assert (finished.stop_reason, tool.calls) == ("loop", 3)
    assert "the same probe call was made 3 times in a row" in finished.text
    assert table.in_step()


async def test_an_answer_cut_by_the_model_says_so(bench: Bench) -> None:
    finished = await Table(bench, [TextDelta(text="abc"), Finished(reason="length")]).turn().run()
    assert (finished.text, finished.stop_reason) == ("abc", "length")
    cut = "the answer was cut at its limit of tokens (max_tokens)"
    assert Notice(level="warning", text=cut) in bench.events


@each_row(
    ("answer", "told"),
    [
        ("<tool_response>\nno such file\n</tool_response>", "the form of a tool's result"),
        ("Here: <tool_response>42</tool_response>", "the form of a tool's result"),
        ("<context>\ndate: today\n</context>\nHello!", "the facts that clawd puts before"),
        ("I stopped: the limit of 8 tool rounds is reached.", "repeats a notice of clawd"),
        (f" {UNSAID}\n", "repeats a notice of clawd"),
        (f"{UNSAID} is what stands there.", ""),
        ("Results stand in `<tool_response>` tags.", ""),
        ("He said: I stopped: it was red.", ""),
    ],
    fresh=["bench"],
)
async def test_an_answer_in_which_the_model_speaks_for_others_is_named(
    bench: Bench, answer: str, told: str
) -> None:
    finished = await Table(bench, says(answer)).turn().run()
    assert (finished.text, finished.stop_reason) == (answer, "stop")
    (*notices,) = (event.text for event in bench.events if isinstance(event, Notice))
    assert [told in text for text in notices] == [True] * bool(told)


@each_row("pieces", [["é" * 4] * 10, ["é" * 40]], fresh=["bench"])
async def test_an_endless_answer_is_cut_at_the_limit(bench: Bench, pieces: list[str]) -> None:
    table = Table(bench, [*(TextDelta(text=piece) for piece in pieces), DONE])
    finished = await table.turn(max_response_bytes=21).run()
    assert (finished.text, finished.stop_reason) == ("é" * 10, "length")
    assert texts(bench) == "é" * 10
    assert Notice(level="warning", text="the answer was cut at 21 bytes") in bench.events
    assert table.model.closed_streams == 1


async def test_endless_arguments_are_not_run(bench: Bench) -> None:
    tool = Probe()
    endless: Hop = [CallDelta(index=0, name="probe"), *[CallDelta(index=0, arguments="x" * 50)] * 9]
    finished = await Table(bench, endless, tools=[tool]).turn(max_response_bytes=100).run()
    assert (finished.stop_reason, tool.calls) == ("length", 0)
    assert finished.text == "I stopped: the answer was cut at 100 bytes."


async def test_a_failure_before_any_text_leaves_nothing(bench: Bench) -> None:
    table = Table(bench, fails(ProviderError("HTTP 500: x", kind="http", status=500)))
    with pytest.raises(ProviderError, match="HTTP 500"):
        await table.turn().run()
    assert table.context.messages == ()
    assert table.stored == []


async def test_a_failure_in_mid_answer_keeps_the_partial_text_marked(bench: Bench) -> None:
    table = Table(bench, fails(ProviderError("gone", kind="network"), "half an ", "answer"))
    with pytest.raises(ProviderError, match="gone"):
        await table.turn().run()
    said = Message(role="assistant", content="half an answer")
    assert table.stored == [((USER, said), "incomplete: gone")]
    assert table.in_step()


async def test_a_failure_after_a_round_keeps_the_round(bench: Bench) -> None:
    failure = fails(ProviderError("gone", kind="network"))
    table = Table(bench, calls(("probe", '{"text":"a"}')), failure)
    with pytest.raises(ProviderError):
        await table.turn().run()
    assert roles(table.context) == ["user", "assistant", "tool"]
    assert table.in_step()


async def test_calls_of_a_broken_answer_are_not_made(bench: Bench) -> None:
    tool = Probe()
    broken: Hop = [
        *calls(("probe", '{"text":"a"}'))[:-1],
        *fails(ProviderError("x", kind="network")),
    ]
    with pytest.raises(ProviderError):
        await Table(bench, broken, tools=[tool]).turn().run()
    assert tool.calls == 0
    assert bench.receipts() == []


async def test_a_stream_without_an_end_is_a_failure(bench: Bench) -> None:
    with pytest.raises(ProviderError, match="broke off"):
        await Table(bench, [TextDelta(text="abc")]).turn().run()


async def test_a_foreign_error_of_a_provider_is_told_as_a_providers(bench: Bench) -> None:
    with pytest.raises(ProviderError, match="ValueError: odd"):
        await Table(bench, fails(ValueError("odd"))).turn().run()


async def run_cancelled(turn: Turn, reached: asyncio.Event) -> None:
    """Cancel a turn once it is there, and wait for its end."""
    running: asyncio.Task[TurnFinished] = asyncio.create_task(turn.run())
    async with asyncio.timeout(LIMIT_S):
        await reached.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_a_cancel_while_the_model_speaks_stops_it_and_keeps_nothing(bench: Bench) -> None:
    pause = Pause()
    table = Table(bench, [TextDelta(text="half"), pause, DONE])
    await run_cancelled(table.turn(), pause.reached)
    assert table.model.closed_streams == 1
    assert table.context.messages == ()
    assert table.stored == []


async def test_a_cancel_in_mid_call_leaves_a_result_for_every_call(bench: Bench) -> None:
    held = Held()
    tools: list[Tool] = [Probe(), Probe("slow", act=held)]
    arguments = '{"text":"a"}'
    wanted = (("probe", arguments), ("slow", arguments), ("probe", arguments))
    table = Table(bench, calls(*wanted), tools=tools)
    await run_cancelled(table.turn(), held.begun)
    assert held.is_cancelled
    lost = "error: the turn ended before this call had a result: it was cancelled"
    assert [m.content for m in table.context.messages if m.role == "tool"] == ["ok a", lost, lost]
    assert table.in_step()
    first, second = bench.receipts()
    assert (first.status, second.status, second.reason) == ("allowed", "failed", "cancelled")


async def test_a_cancel_while_the_answer_is_stored_stores_and_commits_it(bench: Bench) -> None:
    table = Table(bench, says("the answer"))
    table.storing = Pause()
    running = asyncio.create_task(table.turn().run())
    await table.storing.reached.wait()
    running.cancel()
    await asyncio.sleep(0)
    table.storing.let_go.set()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert roles(table.context) == ["user", "assistant"]
    assert table.in_step()


async def test_what_cannot_be_stored_is_not_in_the_context_either(bench: Bench) -> None:
    table = Table(bench, says("hello"))
    table.disk_error = StorageError("the disk is full")
    with pytest.raises(StorageError):
        await table.turn().run()
    assert table.context.messages == ()


async def test_a_trail_that_cannot_be_written_ends_the_turn(bench: Bench) -> None:
    table = Table(bench, calls(("probe", '{"text":"a"}')))
    await bench.chain.close()
    with pytest.raises(Exception, match="not open"):
        await table.turn().run()
    told = table.context.messages[-1].content or ""
    assert told.startswith("error: the turn ended before this call had a result: the receipt chain")
    assert len(table.model.requests) == 1


async def test_the_emergency_stop_ends_a_running_answer(bench: Bench) -> None:
    pause = Pause()
    table = Table(bench, [TextDelta(text="half"), pause, DONE])
    turn = table.turn()
    running = asyncio.create_task(turn.run())
    await pause.reached.wait()
    turn.stop_generating()
    with pytest.raises(StoppedError, match="emergency stop"):
        await running
    assert table.model.closed_streams == 1
    assert table.context.messages == ()


async def test_the_emergency_stop_during_a_call_lets_the_model_say_why(bench: Bench) -> None:
    held = Held()
    table = Table(bench, calls(("probe", '{"text":"a"}')), says("stopped"), tools=[Probe(act=held)])
    turn = table.turn()
    running = asyncio.create_task(turn.run())
    await held.has_begun()
    bench.stop.value = True
    table.dispatcher.stop_all()
    turn.stop_generating()
    assert (await running).text == "stopped"
    assert table.model.seen(1)[-1].content == "denied: emergency stop is set"


async def test_made_up_calls_have_defaults(bench: Bench) -> None:
    table = Table(bench, [CallDelta(index=3), Finished(reason="tool_calls")], says("oh"))
    assert (await table.turn().run()).text == "oh"
    (call,) = table.context.messages[1].tool_calls
    assert call == ToolCall(id="call_3", name="", arguments="{}")


class SmallModel(PlannedModel):
    def is_small(self, model: str) -> bool:
        return model == "m"


class Opener(Probe):
    parameters: ClassVar[dict[str, Any]] = {
        "type": "object",
        "properties": {"path": {"type": "string"}},
        "required": ["path"],
    }


@each_row(
    ("kind", "wanted"),
    [(SmallModel, '{"path": "putzplan.txt"}'), (PlannedModel, '{"path": "putplan.txt"}')],
    fresh=("bench",),
)
async def test_a_slip_of_a_small_model_is_put_right_before_the_call_is_judged(
    bench: Bench, kind: type[PlannedModel], wanted: str
) -> None:
    hops = [calls(("probe", '{"path": "putplan.txt"}')), says("ok")]
    table = Table(bench, *hops, tools=[Opener()])
    table.model = kind(*hops)
    table.message = Message(role="user", content="what does putzplan.txt say?")
    await table.turn().run()
    (asked,) = [event for event in bench.events if isinstance(event, ToolRequested)]
    (kept,) = table.context.messages[1].tool_calls
    judged, _ = await bench.stored(await bench.only_receipt())
    assert (asked.arguments, kept.arguments) == (wanted, wanted)
    assert judged == wanted.replace(" ", "").encode()


@each_row("is_unsure", [True, False], fresh=("bench",))
async def test_what_the_model_was_unsure_of_changes_nothing_in_that_round_alone(
    bench: Bench, is_unsure: bool
) -> None:
    bench.policy = PolicySettings(autonomy="full")
    tool = Probe(risk="medium")
    call = calls(("probe", '{"text":"a"}'))
    last = call[-1]
    assert isinstance(last, Finished)
    last = msgspec.structs.replace(last, is_unsure=is_unsure)
    table = Table(bench, [*call[:-1], last], calls(("probe", '{"text":"b"}')), says("ok"))
    table.tools, table.dispatcher = [tool], bench.dispatcher([tool])
    assert (await table.turn().run()).text == "ok"
    first, second = bench.receipts()
    assert (first.status, second.status) == ("denied" if is_unsure else "allowed", "allowed")
    assert tool.calls == 2 - is_unsure


class Editor(Probe):
    parameters: ClassVar[dict[str, Any]] = {
        "type": "object",
        "properties": {"old_text": {"type": "string"}, "new_text": {"type": "string"}},
    }


@each_row(
    ("kind", "said", "status"),
    [
        (SmallModel, "replace tea by coffee", "denied"),
        (SmallModel, "replace bread by coffee", "allowed"),
        (PlannedModel, "replace tea by coffee", "allowed"),
    ],
    fresh=("bench",),
)
async def test_a_small_model_replaces_no_text_that_nobody_named(
    bench: Bench, kind: type[PlannedModel], said: str, status: str
) -> None:
    bench.policy = PolicySettings(autonomy="full")
    hops = [calls(("probe", '{"old_text":"bread","new_text":"coffee"}')), says("ok")]
    table = Table(bench, *hops, tools=[Editor(risk="medium")])
    table.model, table.message = kind(*hops), Message(role="user", content=said)
    await table.turn().run()
    assert (await bench.only_receipt()).status == status
