"""Counts what is asked of models outside of turns: those count themselves by their events."""

from collections.abc import AsyncIterator

from clawd.channels.http.exchange import (
    Caller,
    GatewayEvent,
    Generation,
    Generations,
    ModelRequest,
)
from clawd.runtime.activity import DeltaMeter, ModelCounts


class CountedGenerations:
    """Runs requests as another does, and counts those that are forwarded."""

    def __init__(self, inner: Generations, counts: ModelCounts) -> None:
        self._inner = inner
        self._counts = counts

    async def open(self, request: ModelRequest, caller: Caller) -> Generation:
        """Begin a request; one that belongs to a conversation is a turn, and counted there.

        Raises:
            ClawError: it cannot be answered.
        """
        generation = await self._inner.open(request, caller)
        return generation if generation.conversation_id else _Counted(generation, self._counts)

    async def count(self, request: ModelRequest, caller: Caller) -> int:
        """Return how many tokens a prompt has.

        Raises:
            ClawError: nobody can tell.
        """
        return await self._inner.count(request, caller)


class _Counted:
    def __init__(self, inner: Generation, counts: ModelCounts) -> None:
        self.model = inner.model
        self.conversation_id = ""
        self._inner = inner
        self._meter = DeltaMeter(counts, inner.model)

    async def __aiter__(self) -> AsyncIterator[GatewayEvent]:
        async for event in self._inner:
            self._meter.note(event)
            yield event

    async def aclose(self) -> None:
        """Stop the work at once."""
        await self._inner.aclose()
