"""Logs: lines for people on stderr, JSON with CLAWD_LOG=json, fields in the journal.

2026-11-21 08:00:00 INFO clawd.tools.dispatch: tool completed tool=file_list receipt=receipt-01…
"""

import json
import logging
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from typing_extensions import override

from clawd.security.redact import RedactingFilter, Redactor
from clawd.service.journal import JOURNAL_SOCKET, PRIORITY, JournalHandler, event_of
from clawd.service.logfile import LogFileHandler, is_log
from clawd.wire.safe_text import visible, visible_line

_log = logging.getLogger(__name__)

MESSAGE_LIMIT = 4_000

_STANDARD = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}


def set_up(environ: Mapping[str, str], redactor: Redactor, log_file: Path | None = None) -> None:
    """Send all logs to stderr, or to the journal, with secrets replaced.

    Where stderr is `log_file`, that is rotated as it grows.
    """
    handler = _handler(environ, log_file)
    handler.addFilter(_RecordRedactor(redactor))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    wanted = environ.get("CLAWD_LOG_LEVEL", "INFO").upper()
    levels = logging.getLevelNamesMapping()
    root.setLevel(levels.get(wanted, logging.INFO))
    if wanted not in levels:
        known = ", ".join(levels)
        _log.warning("CLAWD_LOG_LEVEL is no level, INFO is used", extra={"known": known})
    for noisy in ("asyncio", "aiohttp", "stamina"):
        logging.getLogger(noisy).setLevel(logging.WARNING)


def _handler(environ: Mapping[str, str], log_file: Path | None) -> logging.Handler:
    if _is_journal(environ.get("JOURNAL_STREAM", "")):
        handler: logging.Handler
        if JOURNAL_SOCKET.exists():
            handler = JournalHandler(_STANDARD)
            handler.setFormatter(_Lines(bare=True))
            return handler
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(_Lines(with_priority=True))
        return handler
    handler = _stderr_handler(log_file)
    handler.setFormatter(_Json() if environ.get("CLAWD_LOG") == "json" else _Lines())
    return handler


def _stderr_handler(log_file: Path | None) -> logging.Handler:
    try:
        is_file = log_file is not None and is_log(sys.stderr.fileno(), log_file)
    except (OSError, ValueError):  # a stderr that is no file at all
        is_file = False
    if log_file is not None and is_file:
        return LogFileHandler(log_file)
    return logging.StreamHandler(sys.stderr)


def _is_journal(stream: str) -> bool:
    """Tell whether stderr is the journal's (systemd.exec: `$JOURNAL_STREAM` is device:inode)."""
    try:
        about = os.fstat(sys.stderr.fileno())
    except (OSError, ValueError):
        return False
    return stream == f"{about.st_dev}:{about.st_ino}"


def _fields(record: logging.LogRecord) -> dict[str, object]:
    return {name: value for name, value in record.__dict__.items() if name not in _STANDARD}


class _RecordRedactor(RedactingFilter):
    """Redacts a record's fields too, and leaves of an exception only its redacted text.

    The journal's handler sends every attribute of a record, so none may hold a secret.
    """

    @override
    def filter(self, record: logging.LogRecord) -> bool:
        """Redact the record; it always passes."""
        super().filter(record)
        record.exc_info = None
        for name, value in _fields(record).items():
            if not isinstance(value, int | float | None):
                setattr(record, name, self._redactor.text(str(value)))
        return True


class _Lines(logging.Formatter):
    """One line for people; a traceback follows on lines of its own."""

    def __init__(self, *, with_priority: bool = False, bare: bool = False) -> None:
        super().__init__()
        self._with_priority = with_priority
        self._bare = bare

    @override
    def format(self, record: logging.LogRecord) -> str:
        """Return the record as text."""
        fields = "".join(f" {name}={_short(value)}" for name, value in _fields(record).items())
        text = visible_line(record.getMessage(), MESSAGE_LIMIT) + fields
        if record.exc_text:
            text = f"{text}\n{_indented(record.exc_text)}"
        if self._bare:
            return text
        text = f"{record.levelname} {record.name}: {text}"
        if self._with_priority:
            return f"<{PRIORITY.get(record.levelname, 6)}>{text}"
        at = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(record.created))
        return f"{at} {text}"


class _Json(logging.Formatter):
    """One JSON object a line."""

    @override
    def format(self, record: logging.LogRecord) -> str:
        """Return the record as JSON."""
        entry: dict[str, object] = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(record.created)),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        event = event_of(record)
        if event:
            entry["event"] = event
        entry |= _fields(record)
        if record.exc_text:
            entry["traceback"] = record.exc_text
        return json.dumps(entry)


def _short(value: object) -> str:
    text = visible_line(str(value), 200)
    return json.dumps(text, ensure_ascii=False) if set(text) & set(' "=') or not text else text


def _indented(traceback: str) -> str:
    """Return a traceback that shows as it is and cannot be mistaken for lines of the log."""
    return "\n".join(f"  {line}" for line in visible(traceback).splitlines())
