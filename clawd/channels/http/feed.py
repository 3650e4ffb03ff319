"""The events of generations on their way to who writes them: bounded, taken in handfuls.

Waking up, encoding and sending cost more than an event does. So who writes may wait a moment for
more of them; an ending, or many, end that wait.
"""

import asyncio
from collections import deque

from clawd.channels.http.exchange import GatewayEvent
from clawd.providers.base import Failed, Finished

FEED_EVENTS = 512

Numbered = tuple[int, GatewayEvent]
"""An event, and the number of the generation that it is of."""


class Feed:
    """Events of several generations, for one taker.

    Args:
        limit: whoever puts more waits until some are taken.
    """

    def __init__(self, limit: int = FEED_EVENTS) -> None:
        self._events: deque[Numbered] = deque()
        self._limit = limit
        self._has_ending = False
        self._taker: asyncio.Future[None] | None = None
        self._is_patient = False
        self._room = asyncio.Event()
        self._room.set()

    def __len__(self) -> int:
        """Return how many events are at hand."""
        return len(self._events)

    async def put(self, number: int, event: GatewayEvent) -> None:
        """Put an event in; waits while there are too many."""
        while len(self._events) >= self._limit:
            self._room.clear()
            await self._room.wait()
        self._events.append((number, event))
        if isinstance(event, Finished | Failed):
            self._has_ending = True
        if self._taker is not None and self._is_enough(is_patient=self._is_patient):
            self._wake()

    def take(self, most: int = FEED_EVENTS) -> list[Numbered]:
        """Return what is at hand, oldest first; nothing where there is nothing."""
        count = min(most, len(self._events))
        taken = [self._events.popleft() for _ in range(count)]
        self._has_ending = self._has_ending and bool(self._events)
        self._room.set()
        return taken

    async def wait(self, limit_s: float | None = None, *, is_patient: bool = False) -> None:
        """Wait for an event, or until that time is over; one taker at a time.

        Args:
            limit_s: the longest wait; None waits without end.
            is_patient: wait for an ending, or for half of what fits, instead of any event.
        """
        if self._is_enough(is_patient=is_patient):
            return
        loop = asyncio.get_running_loop()
        self._taker, self._is_patient = loop.create_future(), is_patient
        timer = loop.call_later(limit_s, self._wake) if limit_s is not None else None
        try:
            await self._taker
        finally:
            self._taker = None
            if timer is not None:
                timer.cancel()

    def _is_enough(self, *, is_patient: bool) -> bool:
        if is_patient:
            return self._has_ending or 2 * len(self._events) >= self._limit
        return bool(self._events)

    def _wake(self) -> None:
        if self._taker is not None and not self._taker.done():
            self._taker.set_result(None)
