"""Reports about the daemon's log."""

import msgspec


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
