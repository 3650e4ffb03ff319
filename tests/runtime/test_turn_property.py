"""Whatever models, calls and memory do, in any order: what a turn leaves is whole."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from clawd.errors import ProviderError, StorageError
from clawd.providers.base import Message
from clawd.runtime.context import Context, open_calls
from clawd.runtime.model_request import REMARK
from clawd.runtime.turn import MessageBatch, Turn
from clawd.runtime.turn_plan import TurnLimits, TurnPlan
from clawd.tools.offer import RequestTools
from clawd.tools.outcome import CallOutcome, CallRequest, CallScope
from clawd.tools.registry import Registry
from clawd.wire.events import Event, ReasoningDelta, TextDelta
from tests.runtime.models import DONE, Hop, PlannedModel, calls, fails, says
from tests.security.fakes import ADA
from tests.support.dispatching import Probe

USER = Message(role="user", content="go")
A, B = ("probe", '{"text":"a"}'), ("probe", "{oops")
HOPS: dict[str, Hop] = {
    "text": says("an answer"),
    "empty": [DONE],
    "thought": [ReasoningDelta(text="hm"), DONE],
    "call": calls(A),
    "calls": calls(A, B, A, text="I act."),
    "unreadable": says('Well. <tool_call>{"name": "probe"'),
    "lost": fails(ProviderError("gone", kind="network")),
    "broken": fails(ProviderError("gone", kind="network"), "half"),
    "broken call": fails(ProviderError("gone", kind="timeout"), "<tool_call>{"),
    "no end": [TextDelta(text="no end")],
}


class FlakyDispatcher:
    """Answers calls; those of the given numbers fail as a whole."""

    def __init__(self, failing: Sequence[int]) -> None:
        self.registry = Registry([Probe()])
        self._failing = failing
        self.made = 0

    async def call(self, request: CallRequest, _scope: CallScope) -> CallOutcome:
        self.made += 1
        if self.made in self._failing:
            raise StorageError("the trail cannot be written")
        return CallOutcome(
            kind="ok", status="allowed", text=f"result {self.made}", receipt_id="r", risk="low",
            duration_ms=1,
        )  # fmt: skip

    def may_run_beside(self, request: CallRequest, _scope: CallScope) -> bool:
        return sum(request.id.encode()) % 3 > 0


async def nobody(_pending: object) -> bool:
    return False


async def run_turns(
    hops: Sequence[str], failing_calls: Sequence[int], failing_writes: Sequence[int]
) -> tuple[PlannedModel, Context, list[Message]]:
    model, context = PlannedModel(*(HOPS[name] for name in hops)), Context()
    stored: list[Message] = []
    writes = 0

    async def persist(batch: MessageBatch) -> None:
        nonlocal writes
        writes += 1
        if writes in failing_writes:
            raise StorageError("the disk is full")
        stored.extend(batch.messages)

    events: list[Event] = []
    dispatcher = FlakyDispatcher(failing_calls)
    for number in range(2):
        plan = TurnPlan(
            turn_id=f"turn-{number}",
            message=USER,
            system="be good",
            told=RequestTools(tools=(Probe(),)),
            provider=model,
            model="m",
            limits=TurnLimits(max_tool_rounds=3),
            scope=CallScope(
                conversation_id="c", principal=ADA, workspace=Path("/"), offered=None,
                emit=events.append, deliver=nobody,
            ),
        )  # fmt: skip
        turn = Turn(
            plan,
            context=context,
            dispatcher=dispatcher,  # type: ignore[arg-type]
            emit=events.append,
            persist=persist,
        )
        try:
            finished = await turn.run()
        except (ProviderError, StorageError):
            continue
        assert "<tool_call>" not in finished.text
    return model, context, stored


@given(
    hops=st.lists(st.sampled_from(sorted(HOPS)), min_size=1, max_size=12),
    failing_calls=st.lists(st.integers(1, 8), max_size=2),
    failing_writes=st.lists(st.integers(1, 10), max_size=2),
)
@settings(deadline=None, max_examples=300)
def test_what_a_turn_leaves_is_whole_and_prompts_only_grow(
    hops: list[str], failing_calls: list[int], failing_writes: list[int]
) -> None:
    model, context, stored = asyncio.run(run_turns(hops, failing_calls, failing_writes))
    assert not any("<tool_call>" in (message.content or "") for message in context.messages)
    for index, message in enumerate(context.messages):
        if message.tool_calls:
            following = context.messages[index + 1 :]
            answered = [m.tool_call_id for m in following[: len(message.tool_calls)]]
            assert answered == [call.id for call in message.tool_calls]
    # A load finds what the context holds, with the same repair of what was cut short.
    assert Context(stored).messages == context.messages
    if not failing_writes:
        assert not open_calls(stored)
    grown: tuple[Message, ...] = ()
    for request in model.requests:
        if request.messages[-1].content == REMARK:
            continue
        kept = request.messages[: len(grown)]
        assert kept == grown or _is_rolled_back(request.messages, grown)
        grown = request.messages


def _is_rolled_back(messages: tuple[Message, ...], before: tuple[Message, ...]) -> bool:
    """Return whether a prompt begins anew after a turn that left less than it was asked with."""
    shared = 0
    for one, other in zip(messages, before, strict=False):
        if one != other:
            break
        shared += 1
    return messages[shared:] == (USER,) or shared == len(messages)
