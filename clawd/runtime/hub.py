"""Everything that happens in the daemon, for those who follow all that they may see."""

import asyncio
import secrets
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import msgspec
from typing_extensions import override

from clawd.security.principal import Principal
from clawd.wire.events import (
    ApprovalRequested,
    EstopChanged,
    Event,
    ModelLoading,
    PromptProgress,
    ReasoningDelta,
    TextDelta,
    ToolDraft,
    ToolFinished,
    ToolProgress,
    ToolRequested,
    ToolStarted,
    TurnFinished,
)

# Events of a turn to many readers, each at its own speed; nobody's slowness stops the turn.
#
# A reader that lags gets its deltas merged: text is never dropped. One that takes nothing for
# `STALL_S` seconds is cut off and told so by the end of its stream.

QUEUE_LIMIT = 1000
STALL_S = 30.0
KEPT_EVENTS = 2000
KEPT_CHARS = 4 << 20
_EVENT_CHARS = 200


_T = TypeVar("_T")


class EventQueue(ABC, Generic[_T]):
    """One reader's queue. Iterate it; it ends after `close`, or when the reader stalled.

    Args:
        limit: how many events wait before they are merged.
        stall_s: how long a reader that lags may take nothing.
    """

    def __init__(self, *, limit: int = QUEUE_LIMIT, stall_s: float = STALL_S) -> None:
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

    @abstractmethod
    def merged(self, first: _T, second: _T) -> _T | None:
        """Return one event that says what both say in a row, or None where there is none."""

    def _cut_off(self) -> None:
        self.stalled = True
        self.close()

    def _merged_into_last(self, event: _T) -> bool:
        """Merge the event into the last one where they are of a kind; return whether it did."""
        merged = self.merged(self._events[-1], event)
        if merged is None:
            return False
        self._events[-1] = merged
        return True


class Subscription(EventQueue[Event]):
    """The queue of one who follows a conversation, or owns a turn."""

    @override
    def merged(self, first: Event, second: Event) -> Event | None:
        """Return one event for two deltas of a kind in a row."""
        return merge(first, second)


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


@dataclass(eq=False, slots=True)
class Broadcast:
    """Everybody who follows one conversation.

    Args:
        hub: is given every event as well, followed or not; None for none.
        owner: whose conversation it is.
        conversation_id: which.
        made_by: id of the key of the HTTP gateway that it was made with; empty for none.

    Attributes:
        followers: the subscriptions that are open.
    """

    hub: "Hub | None" = None
    owner: int = 0
    conversation_id: str = ""
    made_by: str = ""
    followers: set[Subscription] = field(default_factory=set, init=False)

    def subscribe(self, *, limit: int = QUEUE_LIMIT, stall_s: float = STALL_S) -> Subscription:
        """Return a new subscription; it sees what happens from now on."""
        subscription = Subscription(limit=limit, stall_s=stall_s)
        self.followers.add(subscription)
        return subscription

    def unsubscribe(self, subscription: Subscription) -> None:
        """Forget a subscription and end it."""
        self.followers.discard(subscription)
        subscription.close()

    def emit(self, event: Event) -> None:
        """Give the event to every subscription."""
        if self.hub is not None:
            self.hub.emit(
                DaemonEvent(
                    event=event,
                    owner=self.owner,
                    conversation_id=self.conversation_id,
                    made_by=self.made_by,
                )
            )
        if self.followers:
            self.tell_followers(event)

    def tell_followers(self, event: Event) -> None:
        """Give every subscription an event that the hub is given elsewhere."""
        for subscription in tuple(self.followers):
            subscription.put(event)
            if subscription.stalled:
                self.followers.discard(subscription)


class DaemonEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event, and whose it is.

    Attributes:
        owner: uid of whose conversation or call it is; None for what is everybody's.
        conversation_id: empty for a call outside of conversations.
        made_by: id of the key of the HTTP gateway that it was made with; empty for none.
        number: its place among all of this daemon; 0 before it has one.
        is_news: people who look elsewhere are told of it, too.
    """

    event: Event | EstopChanged
    owner: int | None = None
    conversation_id: str = ""
    made_by: str = ""
    number: int = 0
    is_news: bool = False


class HubSubscription(EventQueue[DaemonEvent]):
    """The queue of one who follows everything that a principal may see."""

    def __init__(self, principal: Principal, *, limit: int, stall_s: float) -> None:
        super().__init__(limit=limit, stall_s=stall_s)
        self._principal = principal

    def may_see(self, told: DaemonEvent) -> bool:
        """Return whether an event is for this reader."""
        return told.owner is None or self._principal.may_see(told.owner, told.made_by)

    @override
    def merged(self, first: DaemonEvent, second: DaemonEvent) -> DaemonEvent | None:
        """Return one event for two in a row of the same conversation, as a follower of it gets."""
        is_same = (first.owner, first.conversation_id) == (second.owner, second.conversation_id)
        if not is_same or isinstance(first.event, EstopChanged):
            return None
        if isinstance(second.event, EstopChanged):
            return None
        merged = merge(first.event, second.event)
        if merged is None:
            return None
        return msgspec.structs.replace(first, event=merged, number=second.number)


class Hub:
    """Tells what happens to everybody who follows it, and to listeners of the daemon's own.

    The last events are kept, `KEPT_EVENTS` and `KEPT_CHARS` at most, for followers whose connection
    broke.

    Attributes:
        epoch: names this hub: numbers of events of another one mean nothing here.
    """

    def __init__(self) -> None:
        self.epoch = secrets.token_hex(4)
        self._number = 0
        self._kept: deque[tuple[DaemonEvent, int]] = deque()
        self._kept_chars = 0
        self._subscriptions: set[HubSubscription] = set()
        self._listeners: list[Callable[[DaemonEvent], None]] = []

    def add_listener(self, listener: Callable[[DaemonEvent], None]) -> None:
        """Tell a part of the daemon everything; it never blocks and never raises."""
        self._listeners.append(listener)

    def subscribe(
        self, principal: Principal, *, limit: int = QUEUE_LIMIT, stall_s: float = STALL_S
    ) -> HubSubscription:
        """Return a new subscription; it sees what the principal may see, from now on."""
        subscription = HubSubscription(principal, limit=limit, stall_s=stall_s)
        self._subscriptions.add(subscription)
        return subscription

    def unsubscribe(self, subscription: HubSubscription) -> None:
        """Forget a subscription and end it."""
        self._subscriptions.discard(subscription)
        subscription.close()

    def close(self) -> None:
        """End every subscription."""
        for subscription in tuple(self._subscriptions):
            self.unsubscribe(subscription)

    def replay(self, subscription: HubSubscription, *, behind: str) -> bool:
        """Give a new subscription what came after an event, named `EPOCH-NUMBER`.

        Return whether that is all of it: False, and nothing is given, where some is kept no longer
        or the event is not one of this hub.
        """
        epoch, _, text = behind.partition("-")
        if epoch != self.epoch or not (text.isascii() and text.isdigit()):
            return False
        number = int(text)
        oldest = self._kept[0][0].number if self._kept else self._number + 1
        if not oldest - 1 <= number <= self._number:
            return False
        for told, _ in self._kept:
            if told.number > number and subscription.may_see(told):
                subscription.put(told)
        return True

    def emit(self, told: DaemonEvent) -> None:
        """Tell an event to all that it is for."""
        self._number += 1
        told = msgspec.structs.replace(told, number=self._number)
        size = _chars_of(told.event)
        self._kept.append((told, size))
        self._kept_chars += size
        while len(self._kept) > KEPT_EVENTS or self._kept_chars > KEPT_CHARS:
            self._kept_chars -= self._kept.popleft()[1]
        for listener in self._listeners:
            listener(told)
        for subscription in tuple(self._subscriptions):
            if subscription.may_see(told):
                subscription.put(told)
                if subscription.stalled:
                    self._subscriptions.discard(subscription)


def _chars_of(event: Event | EstopChanged) -> int:
    """Return about how much memory an event holds, in characters."""
    match event:
        case TextDelta() | ReasoningDelta() | ToolDraft() | ToolProgress() | TurnFinished():
            return _EVENT_CHARS + len(event.text)
        case ToolFinished():
            return _EVENT_CHARS + len(event.output)
        case ToolRequested():
            return _EVENT_CHARS + len(event.arguments)
        case ApprovalRequested() | ToolStarted():
            return _EVENT_CHARS + len(msgspec.json.encode(event))
        case _:
            return _EVENT_CHARS
