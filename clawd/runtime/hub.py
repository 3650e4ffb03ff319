"""Everything that happens in the daemon, for those who follow all that they may see."""

from collections.abc import Callable

import msgspec

from clawd.runtime.broadcast import QUEUE_LIMIT, STALL_S, EventQueue, merge
from clawd.security.principal import Principal
from clawd.wire.events import EstopChanged, Event


class DaemonEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event, and whose it is.

    Attributes:
        owner: uid of whose conversation or call it is; None for what is everybody's.
        conversation_id: empty for a call outside of conversations.
        made_by: id of the key of the HTTP gateway that it was made with; empty for none.
    """

    event: Event | EstopChanged
    owner: int | None = None
    conversation_id: str = ""
    made_by: str = ""


class HubSubscription(EventQueue[DaemonEvent]):
    """The queue of one who follows everything that a principal may see."""

    def __init__(self, principal: Principal, *, limit: int, stall_s: float) -> None:
        super().__init__(_merge, limit=limit, stall_s=stall_s)
        self._principal = principal

    def may_see(self, told: DaemonEvent) -> bool:
        """Tell whether an event is for this reader."""
        return told.owner is None or self._principal.may_see(told.owner, told.made_by)


class Hub:
    """Tells what happens to everybody who follows it, and to listeners of the daemon's own."""

    def __init__(self) -> None:
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

    def emit(self, told: DaemonEvent) -> None:
        """Tell an event to all that it is for."""
        for listener in self._listeners:
            listener(told)
        for subscription in tuple(self._subscriptions):
            if subscription.may_see(told):
                subscription.put(told)
                if subscription.stalled:
                    self._subscriptions.discard(subscription)

    def teller(
        self, *, owner: int, conversation_id: str = "", made_by: str = ""
    ) -> Callable[[Event], None]:
        """Return what tells the events of one conversation, or of calls outside of them."""

        def tell(event: Event) -> None:
            told = DaemonEvent(
                event=event, owner=owner, conversation_id=conversation_id, made_by=made_by
            )
            self.emit(told)

        return tell


def _merge(first: DaemonEvent, second: DaemonEvent) -> DaemonEvent | None:
    """Return one event for two in a row of the same conversation, as a follower of it gets."""
    is_same = (first.owner, first.conversation_id) == (second.owner, second.conversation_id)
    if not is_same or isinstance(first.event, EstopChanged):
        return None
    if isinstance(second.event, EstopChanged):
        return None
    merged = merge(first.event, second.event)
    return None if merged is None else msgspec.structs.replace(first, event=merged)
