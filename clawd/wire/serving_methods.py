"""The methods by which a client becomes the door of another protocol; see `wire.methods`."""

from typing import ClassVar

from clawd.wire.method import Method
from clawd.wire.reports import Done

LINE = "line"
END = "end"


class ServeMcp(Method[Done], frozen=True, kw_only=True):
    """Serve an MCP client whose messages the caller passes on, until it says that they end.

    An Answer to question `line` is a message of the client, one to `end` says that no more come.
    Every message for the client is an event.
    """

    streams: ClassVar[bool] = True
