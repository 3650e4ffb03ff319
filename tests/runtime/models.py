"""A model that says what a test wants, hop by hop, and remembers what it was asked."""

import asyncio
from collections.abc import AsyncIterator, Sequence

from clawd.providers.base import (
    CallDelta,
    Capabilities,
    ChatRequest,
    Delta,
    Failed,
    Finished,
    Message,
)
from clawd.wire.events import HopUsage, PromptEvaluated, TextDelta

DONE = Finished(
    reason="stop", usage=HopUsage(prompt_tokens=3, cached_tokens=1, completion_tokens=2)
)


class Pause:
    """Where a hop stops until it is let go."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self.let_go = asyncio.Event()


Step = Delta | Pause
Hop = Sequence[Step]


def says(text: str) -> Hop:
    return [TextDelta(text=text), DONE]


def calls(*wanted: tuple[str, str], text: str = "", ids: Sequence[str] = ()) -> Hop:
    """Return a hop that asks for calls: (tool, arguments) each."""
    deltas: list[Step] = [TextDelta(text=text)] if text else []
    for index, (name, arguments) in enumerate(wanted):
        call_id = ids[index] if ids else f"id-{index}"
        deltas += [
            CallDelta(index=index, id=call_id, name=name),
            CallDelta(index=index, arguments=arguments),
        ]
    return [*deltas, Finished(reason="tool_calls", usage=DONE.usage)]


def fails(error: Exception, *before: str) -> Hop:
    return [*(TextDelta(text=text) for text in before), Failed(error=error, partial=bool(before))]


EVALUATED = PromptEvaluated(tokens=3, cached=1, elapsed_ms=2.0, context_used=10, context_size=100)


class PlannedModel:
    """Plays its hops in order; the last one again and again."""

    def __init__(self, *hops: Hop, name: str = "planned") -> None:
        self._hops = hops
        self._name = name
        self.requests: list[ChatRequest] = []
        self.closed_streams = 0

    def name(self) -> str:
        return self._name

    def capabilities(self) -> Capabilities:
        return Capabilities()

    async def chat(self, request: ChatRequest) -> AsyncIterator[Delta]:
        hop = self._hops[min(len(self.requests), len(self._hops) - 1)]
        self.requests.append(request)
        async for delta in self.steps(hop):
            yield delta

    async def steps(self, hop: Hop) -> AsyncIterator[Delta]:
        """Play one hop."""
        try:
            for step in hop:
                if isinstance(step, Pause):
                    step.reached.set()
                    await step.let_go.wait()
                else:
                    yield step
        finally:
            self.closed_streams += 1

    async def check(self) -> str:
        return "planned"

    async def close(self) -> None:
        return

    def seen(self, hop: int = -1) -> tuple[Message, ...]:
        """Return the messages that a hop was asked with."""
        return self.requests[hop].messages
