"""What a hop reports: cached, new and evaluated again, and where the next one begins."""

import asyncio
from typing import Any

import msgspec

from clawd.config.schema import AgentSection
from clawd.errors import ProviderError
from clawd.providers.base import CallDelta, ChatRequest, Failed, Finished, Message
from clawd.runtime.model_request import HopResult, TurnMeter, new_tokens, run_hop
from clawd.wire.events import (
    Event,
    HopFinished,
    HopUsage,
    ModelLoading,
    Notice,
    PromptEvaluated,
    ReasoningDelta,
    TextDelta,
    ToolDraft,
)
from tests.runtime.inboxes import House
from tests.runtime.models import Hop, PlannedModel, calls, says
from tests.security.fakes import ADA
from tests.support.dispatching import LIMIT_S, Bench
from tests.support.rows import each_row

REQUEST = ChatRequest(messages=(Message(role="user", content="hi"),))
USAGE = HopUsage(prompt_tokens=100, cached_tokens=70, completion_tokens=9, tokens_per_s=4.0)
END = Finished(reason="stop", usage=USAGE)
READ = PromptEvaluated(tokens=100, cached=70, elapsed_ms=1.0, context_used=100, context_size=500)


async def hop(*deltas: object, known: int = 0) -> tuple[HopResult, list[Event]]:
    events: list[Event] = []
    model = PlannedModel(deltas)  # type: ignore[arg-type]
    async with asyncio.timeout(LIMIT_S):
        result = await run_hop(model, REQUEST, events.append, limit_bytes=1000, known_tokens=known)
    return result, events


async def test_what_is_in_the_context_is_that_of_the_last_request_though_only_its_end_counts() -> (
    None
):
    meter = TurnMeter(0)
    for prompt in (100, 150):
        usage = msgspec.structs.replace(USAGE, prompt_tokens=prompt)
        meter.note_hop((await hop(Finished(reason="stop", usage=usage)))[0])
    found = meter.usage
    assert (found.prompt_tokens, found.completion_tokens) == (250, 18)
    assert (found.context_used, found.context_size) == (159, 0)
    meter.note_hop((await hop(READ, END))[0])
    assert (meter.usage.context_used, meter.usage.context_size) == (109, 500)
    meter.note_hop((await hop(END))[0])  # another server goes on for it
    meter.note_hop((await hop(Finished(reason="stop")))[0])  # and counts nothing at last
    assert (meter.usage.context_used, meter.usage.context_size) == (109, 0)


async def test_calls_without_end_are_cut_though_they_have_no_arguments() -> None:
    endless = [CallDelta(index=number, id=f"c{number}", name="time") for number in range(1000)]
    result, _ = await hop(*endless, END)
    assert (result.overlong, result.calls) == (True, ())
    few, _ = await hop(*endless[:5], *endless[:5], END)
    assert len(few.calls) == 5


async def test_h4_a_call_is_shown_while_it_is_written_and_counts_when_it_is_whole() -> None:
    pieces = [CallDelta(index=0, arguments=piece) for piece in ('{"a":', " 1}")]
    drafts = [ToolDraft(index=1, tool="look", text=piece) for piece in ("{", "}")]
    whole = CallDelta(index=1, id="c2", name="look", arguments="{}")
    begun = CallDelta(index=0, id="c1", name="time")
    result, events = await hop(begun, *pieces, *drafts, whole, END)
    assert [each for each in events if isinstance(each, ToolDraft)] == [
        ToolDraft(tool="time", text=""),
        ToolDraft(tool="time", text='{"a":'),
        ToolDraft(tool="time", text=" 1}"),
        ToolDraft(tool="look", text="{", index=1),
        ToolDraft(tool="look", text="}", index=1),
    ]
    assert [(each.name, each.arguments) for each in result.calls] == [
        ("time", '{"a": 1}'),
        ("look", "{}"),
    ]
    none, _ = await hop(*drafts, END)
    assert none.calls == () and not none.has_begun


async def test_the_load_of_a_model_is_told() -> None:
    _, events = await hop(ModelLoading(model="m", loaded_bytes=1, total_bytes=2), END)
    assert events[0] == ModelLoading(model="m", loaded_bytes=1, total_bytes=2)


async def test_r10_what_is_to_be_known_of_an_answers_end_is_a_notice() -> None:
    notice = Notice(level="warning", text="it was a loop")
    result, events = await hop(TextDelta(text="ok"), notice, END)
    assert notice in events
    assert (result.text, result.is_cut) == ("ok", False)


@each_row(
    ("prompt", "cached", "known", "new"),
    [
        (100, 0, 0, 100),
        (100, 70, 0, 30),
        (100, 70, 70, 30),
        (100, 69, 70, 30),
        (100, 10, 70, 30),
        (100, 70, 120, 0),
        (100, 100, 70, 0),
        (0, 0, 70, 0),
    ],
)
def test_new_is_what_was_neither_cached_nor_known(
    prompt: int, cached: int, known: int, new: int
) -> None:
    assert new_tokens(prompt, cached, known) == new


async def test_the_three_parts_of_a_prompt_are_told_once_read_and_at_the_end() -> None:
    _, events = await hop(READ, TextDelta(text="ok"), END, known=80)
    read, end = events[0], events[-1]
    assert isinstance(read, PromptEvaluated)
    assert (read.tokens, read.cached, read.new, read.reevaluated) == (100, 70, 20, 10)
    assert end == HopFinished(
        usage=HopUsage(
            prompt_tokens=100,
            cached_tokens=70,
            new_tokens=20,
            reevaluated_tokens=10,
            completion_tokens=9,
            tokens_per_s=4.0,
        )
    )


async def test_a_provider_that_only_counts_at_the_end_is_reported_too() -> None:
    _, events = await hop(TextDelta(text="ok"), END, known=70)
    assert isinstance(events[-1], HopFinished)
    assert events[-1].usage.new_tokens == 30
    _, events = await hop(TextDelta(text="ok"), Finished(reason="stop"), known=70)
    assert events[-1] == HopFinished(usage=HopUsage())


async def test_the_next_prompt_begins_with_this_one_and_its_answer() -> None:
    result, _ = await hop(READ, TextDelta(text="ok"), END)
    assert result.sequence_tokens == 109
    thought, _ = await hop(READ, ReasoningDelta(text="hm"), TextDelta(text="ok"), END)
    assert thought.sequence_tokens == 100
    lost = Failed(error=ProviderError("gone", kind="network"))
    broken, events = await hop(READ, TextDelta(text="o"), lost)
    assert broken.sequence_tokens == 100
    assert not any(isinstance(event, HopFinished) for event in events)
    unread, _ = await hop(lost)
    assert unread.sequence_tokens == 0


async def known_after(bench: Bench, *hops: Hop, **limits: Any) -> tuple[House, str]:
    house = House(bench, *hops)
    if limits:
        house.change(loop=AgentSection.model_construct(**limits))
    return house, (await house.say("hi")).conversation_id


async def test_how_far_a_conversation_was_read_is_kept_for_the_model_that_read_it(
    bench: Bench,
) -> None:
    house, conversation_id = await known_after(bench, says("ok"))
    for _ in range(2):
        live = await house.book.load(conversation_id, ADA)
        assert live.known_tokens("mock", "small") == 5
        assert live.known_tokens("mock", "big") == 0
        assert live.known_tokens("cloud", "small") == 0
        house.restart()


async def test_calls_that_were_never_made_are_not_counted_as_read(bench: Bench) -> None:
    again = calls(("probe", '{"text":"a"}'))
    house, conversation_id = await known_after(bench, again, max_tool_rounds=0)
    live = await house.book.load(conversation_id, ADA)
    assert live.known_tokens("mock", "small") == 3
