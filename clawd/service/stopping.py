"""What follows when the emergency stop is set or cleared, beside the processes that it kills."""

import logging
from collections.abc import Callable

from clawd.runtime.hub import DaemonEvent, Hub
from clawd.runtime.inbox import Inbox
from clawd.security.approvals import Approvals
from clawd.security.estop import Listener
from clawd.wire.daemon_events import EstopChanged

_log = logging.getLogger(__name__)


def on_estop(approvals: Approvals, stop_calls: Callable[[], int], inbox: Inbox) -> Listener:
    """Return what ends questions, calls and answers when the stop is set."""

    def changed(is_set: bool) -> None:  # noqa: FBT001 - the listener's signature
        if not is_set:
            _log.warning("emergency stop cleared")
            return
        denied = approvals.deny_all()
        stopped = stop_calls()
        inbox.stop_generations()
        _log.warning("emergency stop set", extra={"stopped": stopped, "denied": denied})

    return changed


def tell_estop(hub: Hub) -> Listener:
    """Return what tells everybody who follows the daemon."""

    def changed(is_set: bool) -> None:  # noqa: FBT001 - the listener's signature
        hub.emit(DaemonEvent(event=EstopChanged(is_set=is_set)))

    return changed
