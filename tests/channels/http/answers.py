"""Answers of all kinds as events, for properties that hold of every one of them."""

import json
from typing import Any

from hypothesis import strategies as st

from clawd.channels.http.model_api import Answered, Folding, GatewayEvent
from clawd.providers.base import CallDelta, StopReason
from clawd.wire.events import ReasoningDelta, TextDelta
from tests.channels.http.told import EVALUATED, finished

TEXTS = st.text(
    st.one_of(st.sampled_from('\u2028\u0085\u2029\n\r"\\é漢🙂'), st.characters(codec="utf-8")),
    max_size=12,
)
_ARGUMENTS = st.dictionaries(TEXTS, st.one_of(TEXTS, st.integers(), st.none()), max_size=3)
CUTS = st.lists(st.integers(0, 10_000), max_size=20)


@st.composite
def _said(draw: st.DrawFn) -> list[GatewayEvent]:
    kinds: list[type[TextDelta] | type[ReasoningDelta]] = [TextDelta, ReasoningDelta]
    return [draw(st.sampled_from(kinds))(text=text) for text in draw(st.lists(TEXTS, max_size=6))]


@st.composite
def _called(draw: st.DrawFn) -> list[GatewayEvent]:
    """Return calls in pieces, those of one call in order, several calls mixed."""
    queues: list[list[GatewayEvent]] = []
    for index, arguments in enumerate(draw(st.lists(_ARGUMENTS, max_size=3))):
        text = json.dumps(arguments, ensure_ascii=draw(st.booleans()))
        cut = draw(st.integers(0, len(text)))
        queues.append(
            [
                CallDelta(index=index, id=f"call_{index}", name=f"tool_{index}"),
                CallDelta(index=index, arguments=text[:cut]),
                CallDelta(index=index, arguments=text[cut:]),
            ]
        )
    events: list[GatewayEvent] = []
    begun: list[list[GatewayEvent]] = []
    while queues or begun:
        if queues and (not begun or draw(st.booleans())):
            begun.append(queues.pop(0))
            queue = begun[-1]
        else:
            queue = draw(st.sampled_from(begun))
        events.append(queue.pop(0))
        begun = [each for each in begun if each]
    return events


@st.composite
def answers(draw: st.DrawFn) -> list[GatewayEvent]:
    """Return the events of one answer."""
    said, called = draw(_said()), draw(_called())
    before: list[GatewayEvent] = [EVALUATED] if draw(st.booleans()) else []
    reasons: list[StopReason] = ["tool_calls"] if called else ["stop", "length"]
    said_in = [draw(st.integers(0, len(called))) for _ in said]
    mixed: list[GatewayEvent] = []
    for place in range(len(called) + 1):
        mixed += [event for event, there in zip(said, said_in, strict=True) if there == place]
        mixed += called[place : place + 1]
    return [*before, *mixed, finished(draw(st.sampled_from(reasons)))]


def folded(events: list[GatewayEvent]) -> Answered:
    """Return the whole answer of these events."""
    folding = Folding()
    for event in events:
        if answered := folding.add(event):
            return answered
    raise AssertionError("the events do not end")


class Named:
    """Stands for a generation: what a dialect asks of one before its events."""

    model = "told-model"
    conversation_id = ""

    def __aiter__(self) -> Any:
        raise AssertionError("nobody asks this one for its events")

    async def aclose(self) -> None:
        return
