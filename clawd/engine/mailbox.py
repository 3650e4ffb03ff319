"""The events of one generation between the reader of a worker's frames and who waits for them."""

import asyncio
from collections import deque
from collections.abc import Callable

from clawd.engine.protocol import (
    GenerationDone,
    GenerationFailed,
    PromptEvaluated,
    PromptProgress,
    Tokens,
)
from clawd.errors import ClawError

GenerationEvent = PromptProgress | PromptEvaluated | Tokens | GenerationDone | GenerationFailed
ErrorFactory = Callable[[], ClawError]


class Mailbox:
    """Events of one generation, in order.

    Bounded by the generation's own length: waiting tokens are handed out as one event.
    """

    def __init__(self) -> None:
        self._events: deque[GenerationEvent] = deque()
        self._error: ErrorFactory | None = None
        self._changed = asyncio.Event()
        self.is_finished = False

    @property
    def is_drained(self) -> bool:
        """Whether the last event has been fetched."""
        return self.is_finished and not self._events

    def put(self, event: GenerationEvent) -> None:
        """Add an event; GenerationDone and GenerationFailed are the last."""
        self._events.append(event)
        self.is_finished = isinstance(event, GenerationDone | GenerationFailed)
        self._changed.set()

    def fail(self, error: ErrorFactory) -> None:
        """End it with an error that overtakes what was not fetched yet."""
        self._error = self._error or error
        self._changed.set()

    async def get(self) -> GenerationEvent:
        """Wait for the next event.

        Raises:
            ClawError: what `fail` was given.
        """
        while not self._events and self._error is None:
            self._changed.clear()
            await self._changed.wait()
        if self._error is not None:
            raise self._error()
        first = self._events.popleft()
        return self._merged(first) if isinstance(first, Tokens) else first

    def _merged(self, first: Tokens) -> Tokens:
        pieces = [first]
        while self._events and isinstance(following := self._events[0], Tokens):
            pieces.append(following)
            self._events.popleft()
        if len(pieces) == 1:
            return first
        text = "".join(piece.text for piece in pieces)
        return Tokens(
            id=first.id,
            text=text,
            count=sum(piece.count for piece in pieces),
            logprobs=tuple(logprob for piece in pieces for logprob in piece.logprobs),
        )
