"""The newest lines of the log, kept in memory so that an admin can read them over the socket.

Where the log goes (stderr, a file, the journal) does not matter to who asks here.
"""

import logging
from collections import deque
from datetime import UTC, datetime

from typing_extensions import override

from clawd.wire.log_methods import TailLog
from clawd.wire.log_reports import LogLine, LogPage
from clawd.wire.method import PAGE_LIMIT

KEPT_LINES = 2_000
KEPT_CHARACTERS = 8_000
MAX_CURSOR_DIGITS = 18


class LogRing(logging.Handler):
    """Keeps the last KEPT_LINES entries, each cut at KEPT_CHARACTERS.

    Whoever adds it to a logger gives it the filter that redacts.
    """

    def __init__(self) -> None:
        super().__init__()
        self._lines: deque[LogLine] = deque(maxlen=KEPT_LINES)
        self._count = 0

    @override
    def emit(self, record: logging.LogRecord) -> None:
        """Keep an entry."""
        at = datetime.fromtimestamp(record.created, UTC)
        line = LogLine(
            at=at.isoformat(timespec="milliseconds"),
            level=record.levelname.lower(),
            logger=record.name,
            text=self.format(record)[:KEPT_CHARACTERS],
        )
        # `handle` holds the handler's lock: entries come from any thread.
        self._lines.append(line)
        self._count += 1

    def page(self, wanted: TailLog) -> LogPage:
        """Return what is wanted; a cursor that is none of ours counts as none."""
        limit = max(1, min(wanted.limit, PAGE_LIMIT))
        self.acquire()
        try:
            lines, count = list(self._lines), self._count
        finally:
            self.release()
        oldest = count - len(lines)
        cursor = wanted.cursor
        is_number = cursor.isascii() and cursor.isdecimal()
        if not is_number or len(cursor) > MAX_CURSOR_DIGITS or int(cursor) > count:
            items = lines[-limit:]
            return LogPage(items=tuple(items), cursor=str(count))
        since = int(cursor)
        first = max(since, oldest)
        items = lines[first - oldest : first - oldest + limit]
        return LogPage(
            items=tuple(items), cursor=str(first + len(items)), missed=max(0, oldest - since)
        )


def ring() -> LogRing:
    """Return the ring that the root logger writes to; an empty one where none was set up."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler, LogRing):
            return handler
    return LogRing()
