"""The method about the daemon's log, and what it reports; see `wire.methods`."""

from typing import ClassVar

import msgspec

from clawd.wire.method import Method


class LogLine(msgspec.Struct, frozen=True, kw_only=True):
    """One entry: when (UTC, ISO 8601), `level` in lower case, and the text that the log has."""

    at: str
    level: str
    logger: str
    text: str


class LogPage(msgspec.Struct, frozen=True, kw_only=True):
    """Entries, oldest first, and the cursor for what comes after them.

    `missed` counts entries after the cursor given that were not kept so long.
    """

    items: tuple[LogLine, ...]
    cursor: str
    missed: int = 0


class TailLog(Method[LogPage], frozen=True, kw_only=True):
    """Return the newest lines of the log, or with the cursor of a page before, what came since.

    The daemon keeps a bounded number of lines since it began; secrets are replaced in them.
    """

    admin: ClassVar[bool] = True
    cursor: str = ""
    limit: int = 100
