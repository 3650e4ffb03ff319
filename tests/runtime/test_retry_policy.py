"""Answers that are none: what is asked for again, how often, and what is left of it."""

import asyncio

import pytest

from clawd.errors import EngineError, ProviderError, StoppedError
from clawd.providers.base import CallDelta, ChatRequest, Finished, Message, ToolCall, ToolSpec
from clawd.runtime.model_request import (
    REMARK,
    SAME_CALL_LIMIT,
    STALE_ROUND_LIMIT,
    HopResult,
    LoopGuard,
    flaw_of,
    was_to_be_a_call,
)
from clawd.wire.events import HopFinished, HopReset, HopUsage, Notice, ReasoningDelta, TextDelta
from tests.runtime.models import DONE, Hop, Pause, calls, fails, says
from tests.runtime.test_turn import USER, Table, roles, run_cancelled, texts
from tests.support.dispatching import Bench, Probe
from tests.support.rows import each_row

THOUGHT: Hop = [ReasoningDelta(text="hm, "), ReasoningDelta(text="yes"), DONE]
EMPTY: Hop = [DONE]
LOST = ProviderError("gone", kind="network")
HALF_A_CALL: Hop = [TextDelta(text='I look. <tool_call>\n{"name": "probe", "argum'), DONE]
OFFERING = ChatRequest(
    messages=(USER,),
    tools=(ToolSpec(name="probe", description="", parameters={}),),
)


def resets(bench: Bench) -> list[str]:
    return [event.reason for event in bench.events if isinstance(event, HopReset)]


def warnings(bench: Bench) -> list[str]:
    return [event.text for event in bench.events if isinstance(event, Notice)]


async def test_an_answer_of_thoughts_alone_is_discarded_and_asked_for_again(bench: Bench) -> None:
    table = Table(bench, THOUGHT, THOUGHT, says("yes."))
    finished = await table.turn().run()
    assert (finished.text, finished.stop_reason) == ("yes.", "stop")
    assert resets(bench) == ["the model only thought and said nothing"] * 2
    assert [request.messages for request in table.model.requests] == [(USER,)] * 3
    assert table.stored == [((USER, Message(role="assistant", content="yes.")), "")]


async def test_the_third_time_its_thoughts_are_the_answer_and_that_is_said(bench: Bench) -> None:
    table = Table(bench, THOUGHT)
    finished = await table.turn().run()
    assert (finished.text, len(table.model.requests)) == ("hm, yes", 3)
    assert len(resets(bench)) == 2
    assert texts(bench) == "hm, yes"
    assert warnings(bench) == ["the model only thought; its thoughts are the answer"]
    assert table.in_step()


async def test_thoughts_that_ran_into_a_limit_are_not_asked_for_again(bench: Bench) -> None:
    table = Table(bench, [ReasoningDelta(text="and so on"), Finished(reason="length")])
    finished = await table.turn().run()
    assert (finished.text, finished.stop_reason) == ("and so on", "length")
    assert len(table.model.requests) == 1
    endless: Hop = [ReasoningDelta(text="x" * 50)] * 9
    table = Table(bench, endless)
    finished = await table.turn(max_response_bytes=100).run()
    assert (finished.text, finished.stop_reason) == ("x" * 100, "length")
    assert len(table.model.requests) == 1


async def test_thoughts_beside_calls_are_no_thoughts_alone(bench: Bench) -> None:
    acting: Hop = [ReasoningDelta(text="hm"), *calls(("probe", '{"text":"a"}'))]
    table = Table(bench, acting, says("done"))
    assert (await table.turn().run()).text == "done"
    assert resets(bench) == []


async def test_an_empty_answer_is_asked_for_again_at_most_twice(bench: Bench) -> None:
    table = Table(bench, EMPTY, [TextDelta(text=" \n"), DONE], says("here"))
    assert (await table.turn().run()).text == "here"
    assert len(resets(bench)) == 2
    table = Table(bench, EMPTY)
    assert (await table.turn().run()).text == ""
    assert len(table.model.requests) == 3
    assert warnings(bench) == ["the model gave an empty answer"]
    assert table.in_step()


async def test_an_answer_that_broke_off_is_asked_for_again(bench: Bench) -> None:
    table = Table(bench, fails(LOST, "half an"), [TextDelta(text="without an end")], says("whole"))
    finished = await table.turn().run()
    assert finished.text == "whole"
    assert resets(bench) == ["the answer was empty or broke off"] * 2
    assert [request.messages for request in table.model.requests] == [(USER,)] * 3
    assert table.stored == [((USER, Message(role="assistant", content="whole")), "")]


async def test_calls_that_broke_off_are_asked_for_again_and_made_once(bench: Bench) -> None:
    probe = Probe()
    broken: Hop = [*calls(("probe", '{"text":"a"}'))[:-1], *fails(LOST)]
    table = Table(bench, broken, calls(("probe", '{"text":"a"}')), says("ok"), tools=[probe])
    assert (await table.turn().run()).text == "ok"
    assert (probe.calls, len(bench.receipts())) == (1, 1)


async def test_the_newest_text_of_attempts_that_all_broke_off_is_kept_and_shown(
    bench: Bench,
) -> None:
    table = Table(bench, fails(LOST, "first"), fails(LOST, "second"), fails(LOST))
    with pytest.raises(ProviderError, match="gone"):
        await table.turn().run()
    said = Message(role="assistant", content="second")
    assert table.stored == [((USER, said), "incomplete: gone")]
    assert bench.events[-1] == TextDelta(text="second")


@each_row("later", [" ", "<tool_call>\n{"], fresh=["bench"])
async def test_a_text_that_broke_off_outlives_attempts_that_said_nothing(
    bench: Bench, later: str
) -> None:
    table = Table(bench, fails(LOST, "first"), fails(LOST, later))
    with pytest.raises(ProviderError, match="gone"):
        await table.turn().run()
    said = Message(role="assistant", content="first")
    assert table.stored == [((USER, said), "incomplete: gone")]
    assert bench.events[-2:] == [
        HopReset(reason="the answer was empty or broke off"), TextDelta(text="first"),
    ]  # fmt: skip


@each_row(
    "error",
    [
        ProviderError("slow", kind="timeout"),
        ProviderError("HTTP 500: x", kind="http", status=500),
        EngineError("the worker died"),
    ],
    fresh=["bench"],
)
async def test_other_failures_in_mid_answer_are_not_asked_for_again(
    bench: Bench, error: Exception
) -> None:
    table = Table(bench, fails(error, "half"))
    with pytest.raises(type(error)):
        await table.turn().run()
    assert len(table.model.requests) == 1


async def test_a_failure_before_anything_came_is_the_providers_to_retry(bench: Bench) -> None:
    table = Table(bench, fails(LOST))
    with pytest.raises(ProviderError):
        await table.turn().run()
    assert (len(table.model.requests), resets(bench)) == (1, [])


async def test_retries_of_incomplete_answers_can_be_switched_off(bench: Bench) -> None:
    table = Table(bench, fails(LOST, "half"))
    with pytest.raises(ProviderError):
        await table.turn(retry_on_incomplete=False).run()
    assert len(table.model.requests) == 1
    table = Table(bench, EMPTY)
    assert (await table.turn(retry_on_incomplete=False).run()).text == ""
    assert len(table.model.requests) == 1


async def test_an_answer_cut_by_the_models_limit_is_not_asked_for_again(bench: Bench) -> None:
    table = Table(bench, [Finished(reason="length")])
    assert (await table.turn().run()).stop_reason == "length"
    assert len(table.model.requests) == 1


async def test_a_cancel_during_a_second_attempt_ends_the_turn(bench: Bench) -> None:
    pause = Pause()
    table = Table(bench, THOUGHT, [pause, DONE])
    await run_cancelled(table.turn(), pause.reached)
    assert (len(table.model.requests), table.stored) == (2, [])


async def test_the_emergency_stop_during_a_second_attempt_ends_the_turn(bench: Bench) -> None:
    pause = Pause()
    table = Table(bench, EMPTY, [pause, DONE])
    turn = table.turn()
    running = asyncio.create_task(turn.run())
    await pause.reached.wait()
    turn.stop_generating()
    with pytest.raises(StoppedError):
        await running
    assert len(table.model.requests) == 2


# --- calls that cannot be read


async def test_text_that_was_to_be_a_call_is_repaired_once_by_asking(bench: Bench) -> None:
    probe = Probe()
    table = Table(bench, HALF_A_CALL, calls(("probe", '{"text":"a"}')), says("ok"), tools=[probe])
    finished = await table.turn().run()
    assert (finished.text, probe.calls) == ("ok", 1)
    assert resets(bench) == ["a tool call could not be read"]
    first, repair, after = (request.messages for request in table.model.requests)
    assert repair[: len(first)] == first
    assert [m.role for m in repair[len(first) :]] == ["assistant", "user"]
    assert (repair[-2].content or "").startswith("I look. <tool_call>")
    assert repair[-1].content == REMARK
    assert after[: len(first)] == first
    assert [m.role for m in after] == ["user", "assistant", "tool"]
    assert not any("<tool_call>" in (m.content or "") for m in table.context.messages)
    assert table.in_step()


async def test_a_call_that_stays_unreadable_is_never_the_answer(bench: Bench) -> None:
    probe = Probe()
    table = Table(bench, HALF_A_CALL, tools=[probe])
    finished = await table.turn().run()
    assert len(table.model.requests) == 2
    assert probe.calls == 0
    assert finished.text == (
        "I stopped: the model's tool calls could not be read, and none of them was run."
    )
    last_reset = max(n for n, event in enumerate(bench.events) if isinstance(event, HopReset))
    shown = [event for event in bench.events[last_reset:] if isinstance(event, TextDelta)]
    assert shown == [TextDelta(text=finished.text)]
    assert roles(table.context) == ["user", "assistant"]


async def test_r1_what_could_not_be_read_is_told_by_its_beginning_and_kept_in_the_log(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    wrote = '<tool_call>\n{"name": "probe", "arguments": {"text": "' + "x" * 300
    table = Table(bench, [TextDelta(text=wrote), DONE])
    with caplog.at_level("DEBUG", logger="clawd.runtime.turn"):
        await table.turn().run()
    told = [e.text for e in bench.events if isinstance(e, Notice) and "wrote" in e.text]
    beginning = '<tool_call> {"name": "probe", "arguments": {"text": "'
    assert told == [f"the model wrote: {beginning.ljust(200, 'x')}… ({len(wrote)} characters)"]
    logged = [vars(r)["text"] for r in caplog.records if "could not be read" in r.message]
    assert logged == [wrote, wrote]  # the attempt and its repair


async def test_a_call_cut_at_the_models_limit_is_repaired_too(bench: Bench) -> None:
    cut: Hop = [*HALF_A_CALL[:-1], Finished(reason="length")]
    table = Table(bench, cut, says("in words"))
    finished = await table.turn().run()
    assert (finished.text, finished.stop_reason) == ("in words", "stop")


async def test_an_answer_that_must_be_a_call_and_is_cut_before_its_name_is_never_text(
    bench: Bench,
) -> None:
    cut: Hop = [TextDelta(text='{\n  "name": "pro'), Finished(reason="length")]
    table = Table(bench, cut)
    table.tool_choice = "required"
    finished = await table.turn().run()
    assert finished.text.startswith("I stopped: a tool call could not be read and was not run: ")
    assert "cut at its limit of tokens (max_tokens)" in finished.text
    free = await Table(bench, cut).turn().run()
    assert free.text == '{\n  "name": "pro'


async def test_an_endless_unreadable_call_is_not_asked_for_again_nor_shown(bench: Bench) -> None:
    table = Table(bench, [TextDelta(text="<tool_call>" + "x" * 500), DONE])
    finished = await table.turn(max_response_bytes=100).run()
    assert len(table.model.requests) == 1
    assert "<tool_call>" not in finished.text


async def test_half_a_call_of_a_failed_answer_is_not_kept(bench: Bench) -> None:
    slow = ProviderError("slow", kind="timeout")
    table = Table(bench, fails(slow, "<tool_call>{"))
    with pytest.raises(ProviderError):
        await table.turn().run()
    assert table.stored == []


async def test_each_flaw_has_attempts_of_its_own(bench: Bench) -> None:
    hops = [THOUGHT, EMPTY, HALF_A_CALL, THOUGHT, EMPTY, says("at last")]
    table = Table(bench, *hops)
    assert (await table.turn().run()).text == "at last"
    assert len(resets(bench)) == 5


async def test_without_tools_nothing_is_an_unreadable_call(bench: Bench) -> None:
    table = Table(bench, HALF_A_CALL, tools=[])
    assert "<tool_call>" in (await table.turn().run()).text
    assert len(table.model.requests) == 1


@each_row(
    ("text", "expected"),
    [
        ("<tool_call>{", True),
        ('{"name": "probe", "arguments": {"text": "a"', True),
        ('```json\n{"name": "probe", "arguments": {"text": }}\n```', True),
        ('[{"name": "probe", "parameters": {', True),
        ("```tool_code\nprobe(", True),
        ('{"name": "Ada", "arguments": {}}', False),
        ('{"name": "probe"}', False),
        ("Hermes writes `<tool_call>` before a call.", False),
        ("So:\n```xml\n<tool_call>{}</tool_call>\n```\nThat is all.", False),
        ("```\n<tool_call>", False),
        ("It is noon.", False),
        ("", False),
    ],
)
def test_what_was_to_be_a_call(text: str, expected: bool) -> None:
    assert was_to_be_a_call(text, OFFERING) is expected


def test_a_cancelled_answer_has_no_flaw() -> None:
    stopped = HopResult(text="", calls=(), finished=Finished(reason="cancelled"))
    assert flaw_of(stopped, OFFERING) is None


# --- what is counted


async def test_discarded_attempts_are_counted_as_spent_and_their_answers_not_as_read(
    bench: Bench,
) -> None:
    usage = HopUsage(prompt_tokens=10, cached_tokens=4, completion_tokens=5)
    end = Finished(reason="stop", usage=usage)
    table = Table(bench, [ReasoningDelta(text="hm"), end], [end], [TextDelta(text="ok"), end])
    finished = await table.turn().run()
    assert (finished.usage.prompt_tokens, finished.usage.completion_tokens) == (30, 15)
    told = [event.usage for event in bench.events if isinstance(event, HopFinished)]
    assert [one.new_tokens for one in told] == [6, 0, 0]


async def test_after_a_repair_the_next_hop_begins_at_the_first_prompt(bench: Bench) -> None:
    def end(prompt: int) -> Finished:
        return Finished(reason="stop", usage=HopUsage(prompt_tokens=prompt, completion_tokens=5))

    acting: Hop = [CallDelta(index=0, name="probe"), end(40)]
    table = Table(bench, [HALF_A_CALL[0], end(10)], acting, [TextDelta(text="ok"), end(30)])
    await table.turn().run()
    told = [event.usage for event in bench.events if isinstance(event, HopFinished)]
    assert [(one.new_tokens, one.reevaluated_tokens) for one in told] == [
        (10, 0), (25, 15), (20, 10),
    ]  # fmt: skip
    assert table.known_tokens == 35


def call(name: str = "t", arguments: str = "{}") -> ToolCall:
    return ToolCall(id="1", name=name, arguments=arguments)


def test_the_same_call_three_times_in_a_row_stops() -> None:
    guard = LoopGuard()
    assert guard.note([call()], ["1"]) == ""
    assert guard.note([call()], ["2"]) == ""
    assert guard.note([call()], ["3"]) == "the same t call was made 3 times in a row"


def test_three_times_within_one_round_stops_too() -> None:
    assert "3 times" in LoopGuard().note([call()] * SAME_CALL_LIMIT, ["1", "2", "3"])


def test_another_call_between_begins_to_count_anew() -> None:
    guard = LoopGuard()
    for number in range(20):
        calls = [call(), call()] if number % 2 else [call("other")]
        assert guard.note(calls, [f"{number}", f"{number}b"]) == ""


def test_other_arguments_are_another_call() -> None:
    guard = LoopGuard()
    for number in range(20):
        assert guard.note([call(arguments=f"[{number}]")], [str(number)]) == ""


def test_six_rounds_that_bring_nothing_new_stop() -> None:
    guard = LoopGuard()
    assert guard.note([call("a")], ["same"]) == ""
    for number in range(STALE_ROUND_LIMIT - 1):
        assert guard.note([call(str(number))], ["same"]) == ""
    assert guard.note([call("z")], ["same"]) == "6 rounds in a row brought nothing new"


def test_something_new_begins_to_count_anew() -> None:
    guard = LoopGuard()
    guard.note([call("a")], ["same"])
    for number in range(50):
        texts = ["same", f"new {number}"] if number % 5 == 0 else ["same"]
        assert guard.note([call(str(number))], texts) == ""


def test_blanks_and_the_order_of_keys_make_no_other_call() -> None:
    guard = LoopGuard()
    spellings = ['{"a":1,"b":2}', '{ "b": 2, "a": 1 }', '{"a": 1, "b": 2}']
    reasons = [
        guard.note([ToolCall(id=str(n), name="grep", arguments=text)], [str(n)])
        for n, text in enumerate(spellings)
    ]
    assert reasons[:2] == ["", ""]
    assert "3 times" in reasons[2]


def test_blanks_around_a_value_make_no_other_call() -> None:
    guard = LoopGuard()
    spellings = ['{"command":"ls"}', '{"command":" ls "}', '{"command":"ls\\n"}']
    reasons = [guard.note([call(arguments=text)], [str(n)]) for n, text in enumerate(spellings)]
    assert "3 times" in reasons[2]


def test_calls_that_take_turns_stop_when_they_bring_nothing_new() -> None:
    guard = LoopGuard()
    reasons: list[str] = []
    while not any(reasons):
        number = len(reasons)
        reasons.append(guard.note([call("ab"[number % 2])], [f"result of {number % 2}"]))
    assert reasons == [""] * 7 + ["6 rounds in a row brought nothing new"]


def test_calls_that_take_turns_and_bring_news_go_on() -> None:
    guard = LoopGuard()
    for number in range(40):
        assert guard.note([call("ab"[number % 2])], [f"line {number}"]) == ""


def test_arguments_that_are_no_json_are_compared_as_they_are() -> None:
    guard = LoopGuard()
    reasons = [guard.note([call(arguments="{oops")], [str(n)]) for n in range(3)]
    assert "3 times" in reasons[2]
