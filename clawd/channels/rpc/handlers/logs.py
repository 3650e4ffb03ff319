"""Handlers about the daemon's log."""

from clawd.channels.rpc.connection import Call
from clawd.channels.rpc.handlers.parts import Handler
from clawd.wire.log_methods import TailLog
from clawd.wire.log_reports import LogPage


class LogHandlers(Handler):
    """Each method handles the wire method of its name."""

    async def tail_log(self, params: TailLog, _call: Call) -> LogPage:
        """Return lines of the log; the connection has checked that the caller is an admin."""
        return self.parts.log(params)
