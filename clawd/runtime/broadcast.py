"""Events of a turn to many readers, each at its own speed; nobody's slowness stops the turn.

A reader that lags gets its deltas merged: text is never dropped. One that takes nothing for
`STALL_S` seconds is cut off and told so by the end of its stream.
"""

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Generic, TypeVar

import msgspec

from clawd.wire.events import (
    Event,
    ModelLoading,
    PromptProgress,
    ReasoningDelta,
    TextDelta,
    ToolDraft,
    ToolProgress,
)

QUEUE_LIMIT = 1000
STALL_S = 30.0


_T = TypeVar("_T")


class EventQueue(Generic[_T]):
    """One reader's queue. Iterate it; it ends after `close`, or when the reader stalled.

    Args:
        merge: returns one event that says what two in a row say, or None where there is none.
        limit: how many events wait before they are merged.
        stall_s: how long a reader that lags may take nothing.
    """

    def __init__(
        self,
        merge: Callable[[_T, _T], _T | None],
        *,
        limit: int = QUEUE_LIMIT,
        stall_s: float = STALL_S,
    ) -> None:
        self._merge = merge
        self._events: deque[_T] = deque()
        self._ready = asyncio.Event()
        self._closed = False
        self._limit = limit
        self._stall_s = stall_s
        self._taken_at = time.monotonic()
        self.stalled = False

    def put(self, event: _T) -> None:
        """Take an event; never blocks. Beyond the limit deltas are merged."""
        if self._closed:
            return
        if not self._events:
            self._taken_at = time.monotonic()
        if len(self._events) >= self._limit:
            if time.monotonic() - self._taken_at > self._stall_s:
                self._cut_off()
                return
            if self._merged_into_last(event):
                return
            if len(self._events) >= 2 * self._limit:
                self._cut_off()
                return
        self._events.append(event)
        self._ready.set()

    def close(self) -> None:
        """End the stream after what is queued."""
        self._closed = True
        self._ready.set()

    def __aiter__(self) -> AsyncIterator[_T]:
        """Iterate over the events."""
        return self

    async def __anext__(self) -> _T:
        """Return the next event."""
        while not self._events:
            if self._closed:
                raise StopAsyncIteration
            self._ready.clear()
            await self._ready.wait()
        self._taken_at = time.monotonic()
        return self._events.popleft()

    def _cut_off(self) -> None:
        self.stalled = True
        self.close()

    def _merged_into_last(self, event: _T) -> bool:
        """Merge the event into the last one where they are of a kind; tell whether it did."""
        merged = self._merge(self._events[-1], event)
        if merged is None:
            return False
        self._events[-1] = merged
        return True


class Subscription(EventQueue[Event]):
    """The queue of one who follows a conversation, or owns a turn."""

    def __init__(self, *, limit: int = QUEUE_LIMIT, stall_s: float = STALL_S) -> None:
        super().__init__(merge, limit=limit, stall_s=stall_s)


def merge(first: Event, second: Event) -> Event | None:
    """Return one event that says what both say in a row, or None where there is none."""
    merged: Event | None = None
    match first, second:
        case TextDelta(), TextDelta():
            merged = TextDelta(text=first.text + second.text)
        case ReasoningDelta(), ReasoningDelta():
            merged = ReasoningDelta(text=first.text + second.text)
        case ToolDraft(), ToolDraft() if (first.tool, first.index) == (second.tool, second.index):
            merged = msgspec.structs.replace(first, text=first.text + second.text)
        case (PromptProgress(), PromptProgress()) | (ModelLoading(), ModelLoading()):
            merged = second
        case ToolProgress(), ToolProgress() if first.call_id == second.call_id:
            merged = msgspec.structs.replace(first, text=first.text + second.text)
        case _:
            pass
    return merged


class Broadcast:
    """Everybody who follows one conversation.

    Args:
        tell: is given every event as well, followed or not; never blocks.
    """

    def __init__(self, tell: Callable[[Event], None] | None = None) -> None:
        self._subscriptions: set[Subscription] = set()
        self._tell = tell

    @property
    def is_followed(self) -> bool:
        """Whether anybody listens."""
        return bool(self._subscriptions)

    def subscribe(self, *, limit: int = QUEUE_LIMIT, stall_s: float = STALL_S) -> Subscription:
        """Return a new subscription; it sees what happens from now on."""
        subscription = Subscription(limit=limit, stall_s=stall_s)
        self._subscriptions.add(subscription)
        return subscription

    def unsubscribe(self, subscription: Subscription) -> None:
        """Forget a subscription and end it."""
        self._subscriptions.discard(subscription)
        subscription.close()

    def emit(self, event: Event) -> None:
        """Give the event to every subscription."""
        if self._tell is not None:
            self._tell(event)
        for subscription in tuple(self._subscriptions):
            subscription.put(event)
            if subscription.stalled:
                self._subscriptions.discard(subscription)
