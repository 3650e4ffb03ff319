"""The method of the control socket about the daemon's log; see `wire.methods`."""

from typing import ClassVar

from clawd.wire.log_reports import LogPage
from clawd.wire.method import Method


class TailLog(Method[LogPage], frozen=True, kw_only=True):
    """Return the newest lines of the log, or with the cursor of a page before, what came since.

    The daemon keeps a bounded number of lines since it began; secrets are replaced in them.
    """

    admin: ClassVar[bool] = True
    cursor: str = ""
    limit: int = 100
