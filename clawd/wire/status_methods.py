"""The method of the control socket that reports on the daemon; see `wire.methods`."""

from clawd.wire.method import Method
from clawd.wire.status_reports import StatusReport


class Status(Method[StatusReport], frozen=True, kw_only=True):
    """Report on the daemon."""
