"""Logs: lines for people on stderr, JSON with CLAWD_LOG=json, fields in the journal.

2026-11-21 08:00:00 INFO clawd.tools.dispatch: tool completed tool=file_list receipt=receipt-01…
"""

import contextlib
import json
import logging
import os
import re
import select
import socket
import sys
import time
from collections import deque
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType

from typing_extensions import override

from clawd.security.redact import RedactingFilter, Redactor
from clawd.wire.daemon import LogLine, LogPage, TailLog
from clawd.wire.method import PAGE_LIMIT
from clawd.wire.safe_text import visible, visible_line

# The log file of a daemon that runs without the journal: cut off by size while it runs.
#
# Only a file that is the home's own log is rotated. What a person redirected stderr to is theirs.

_MAX_BYTES = 10 * 1024 * 1024
_KEPT = 3


class LogFileHandler(logging.StreamHandler):  # type: ignore[type-arg]
    """Writes to stderr, which is the file at `path`, and begins a new file where it is full.

    The full ones are `clawd.log.1` (the newest) to `clawd.log.3`. Descriptors 1 and 2 follow to
    the new file, so that what a library prints, and a crash, is in the log as well.
    """

    def __init__(self, path: Path, *, max_bytes: int = _MAX_BYTES, kept: int = _KEPT) -> None:
        super().__init__(sys.stderr)
        self._path = path
        self._max_bytes = max_bytes
        self._kept = kept

    @override
    def emit(self, record: logging.LogRecord) -> None:
        """Write the record."""
        # A log that cannot be rotated (a full disk) is still written.
        with contextlib.suppress(OSError, ValueError):
            self._rotate_when_full()
        super().emit(record)

    def _rotate_when_full(self) -> None:
        descriptor = self.stream.fileno()
        if os.fstat(descriptor).st_size < self._max_bytes or not _is_log(descriptor, self._path):
            return
        for number in range(self._kept, 0, -1):
            older = self._path.with_name(f"{self._path.name}.{number}")
            newer = self._path if number == 1 else older.with_suffix(f".{number - 1}")
            with contextlib.suppress(FileNotFoundError):
                newer.replace(older)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        fresh = os.open(self._path, flags, 0o600)
        was_stdout = os.path.sameopenfile(1, descriptor)
        os.dup2(fresh, descriptor)
        if was_stdout:
            os.dup2(fresh, 1)
        os.close(fresh)


def _is_log(descriptor: int, path: Path) -> bool:
    """Return whether the descriptor is the file at the path, and no link to another."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.lstat())
    except OSError:
        return False


# Log records as journal entries with fields.
#
#     journalctl CLAWD_TOOL=shell                 what one tool did
#     journalctl CLAWD_EVENT=tool_denied -o json  every refusal

JOURNAL_SOCKET = Path("/run/systemd/journal/socket")
_SEND_LIMIT_S = 1.0
PRIORITY = {"DEBUG": 7, "INFO": 6, "WARNING": 4, "ERROR": 3, "CRITICAL": 2}

# What an administrator filters and counts by: the text of the record, its name, and an id that no
# other event has. None of the three changes once it was released.
EVENTS: Mapping[str, tuple[str, str]] = {
    "clawd started": ("startup", "717ea8ba90ff4f39ab04b8fac8049067"),
    "clawd ended": ("shutdown", "2f6af4ef674244a7a88bd49d8c351e1e"),
    "config path": ("config_path", "33129db898c64d38a08345c77b249ab6"),
    "workspace path": ("workspace_path", "279cadc28cde468aa7c05588686f7c8b"),
    "provider selected": ("provider_selected", "c160643aa6ca4aef9984942864e8f7ec"),
    "channel started": ("channel_started", "19cd3ce7215a4fed96ae71b77d1ef0da"),
    "conversation started": ("conversation_started", "14b3606c6b03479a897d665f7d94f0ef"),
    "tool requested": ("tool_requested", "1e0fb8741ad9479aae86cfc2422847de"),
    "tool approved": ("tool_approved", "468ea3b6455244d1b28ffc6fd2a33789"),
    "tool denied": ("tool_denied", "3fc2ce158ebd4df5bfe9ebdc54828382"),
    "tool completed": ("tool_completed", "73f45d80d0ac4d48b831bb827f85c427"),
    "tool failed": ("tool_failed", "aa4f90a17a41492a9fe81bd2312b7fec"),
    "receipt written": ("receipt_written", "4332a27e84c5453bab1282e3060d2d78"),
    "receipt head": ("receipt_head", "fb2dd226a5f044b5a201fc4ec293e71e"),
    "memory persisted": ("memory_persisted", "a53b2a7ef834454694e2cfbb8e04e283"),
    "emergency stop set": ("estop_triggered", "e070d3c8b6c24adda24f014f8f1713ec"),
    "emergency stop cleared": ("estop_cleared", "4e91f2c15bf54a22bfcc03d34f526a2c"),
    "config reloaded": ("config_reloaded", "d2b9a2aefae448b3a23926921da926d1"),
}

_NAME = re.compile(r"[^A-Z0-9_]")
_MAX_NAME = 64


def event_of(record: logging.LogRecord) -> str:
    """Return the stable name of the event that a record tells; empty for any other record."""
    event = EVENTS.get(record.getMessage())
    return "" if event is None else event[0]


class JournalHandler(logging.Handler):
    """Sends records to the journal; where that does not take one, it goes to stderr instead.

    Args:
        journal: the module systemd.journal.
    """

    def __init__(self, journal: ModuleType) -> None:
        super().__init__()
        self._journal = journal

    @override
    def emit(self, record: logging.LogRecord) -> None:
        """Send the record."""
        entry = _entry(record, self.format(record))
        with contextlib.suppress(OSError, ValueError):
            wait_for_room(str(JOURNAL_SOCKET), _SEND_LIMIT_S)
            self._journal.send(**entry, CODE_LINE=record.lineno)
            return
        # The journal's stream on stderr waits for it. Where that has ended too, the line is lost: a
        # record must not end what it reports.
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.write(f"<{entry['PRIORITY']}>{entry['MESSAGE']}\n")


def wait_for_room(address: str, limit_s: float) -> None:
    """Wait until a datagram socket takes a message, in place of systemd-python.

    That holds the interpreter's lock meanwhile, and so every thread, the emergency stop's as well.

    Args:
        address: a path, or `@` and a name of the abstract namespace.
        limit_s: for how long.

    Raises:
        TimeoutError: there was no room.
        OSError: there is nobody.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as probe:
        probe.connect(f"\0{address[1:]}" if address.startswith("@") else address)
        poll = select.poll()
        poll.register(probe, select.POLLOUT)
        if not poll.poll(limit_s * 1000):
            raise TimeoutError(address)


def _entry(record: logging.LogRecord, text: str) -> dict[str, str]:
    entry = {
        "MESSAGE": text,
        "PRIORITY": str(PRIORITY.get(record.levelname, 6)),
        "SYSLOG_IDENTIFIER": "clawd",
        "LOGGER": record.name,
        "CODE_FILE": record.pathname,
        "CODE_FUNC": record.funcName or "",
    }
    event = EVENTS.get(record.getMessage())
    if event is not None:
        entry |= {"CLAWD_EVENT": event[0], "MESSAGE_ID": event[1]}
    for name, value in _fields(record).items():
        if value is not None:
            entry.setdefault(_field_name(name), str(value))
    return {name: value.encode(errors="replace").decode() for name, value in entry.items()}


def _field_name(name: str) -> str:
    return ("CLAWD_" + _NAME.sub("_", name.upper()))[:_MAX_NAME]


# The newest lines of the log, kept in memory so that an admin can read them over the socket.
#
# Where the log goes (stderr, a file, the journal) does not matter to who asks here.

KEPT_LINES = 2_000
KEPT_CHARACTERS = 8_000
_MAX_CURSOR_DIGITS = 18


class LogRing(logging.Handler):
    """Keeps the last KEPT_LINES entries, each cut at KEPT_CHARACTERS.

    The code that adds it to a logger gives it the filter that redacts.
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
        if not is_number or len(cursor) > _MAX_CURSOR_DIGITS or int(cursor) > count:
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


_log = logging.getLogger(__name__)

_MESSAGE_LIMIT = 4_000

_STANDARD = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}


def set_up(environ: Mapping[str, str], redactor: Redactor, log_file: Path | None = None) -> None:
    """Send all logs to stderr, or to the journal, with secrets replaced.

    Where stderr is `log_file`, that is rotated as it grows.
    """
    handler = _handler(environ, log_file)
    kept = LogRing()
    kept.setFormatter(_Lines(bare=True))
    for each in (handler, kept):
        each.addFilter(_RecordRedactor(redactor))
    root = logging.getLogger()
    root.handlers[:] = [handler, kept]
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
        return _journal_handler()
    handler = _stderr_handler(log_file)
    handler.setFormatter(_Json() if environ.get("CLAWD_LOG") == "json" else _Lines())
    return handler


def _journal_handler() -> logging.Handler:
    try:
        import systemd.journal as journal
    except ImportError:  # without the extra `systemd` the journal gets lines with their priority
        handler: logging.Handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(_Lines(with_priority=True))
    else:
        handler = JournalHandler(journal)
        handler.setFormatter(_Lines(bare=True))
    return handler


def _stderr_handler(log_file: Path | None) -> logging.Handler:
    try:
        is_file = log_file is not None and _is_log(sys.stderr.fileno(), log_file)
    except (OSError, ValueError):  # a stderr that is no file at all
        is_file = False
    if log_file is not None and is_file:
        return LogFileHandler(log_file)
    return logging.StreamHandler(sys.stderr)


def _is_journal(stream: str) -> bool:
    """Return whether stderr is the journal's (systemd.exec: `$JOURNAL_STREAM` is device:inode)."""
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
        text = visible_line(record.getMessage(), _MESSAGE_LIMIT) + fields
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
