"""Log records as journal entries with fields, in the journal's own protocol.

    journalctl CLAWD_TOOL=shell                 what one tool did
    journalctl CLAWD_EVENT=tool_denied -o json  every refusal

An entry is one datagram of `NAME=value` lines; a value of several lines is `NAME`, its length in
eight little-endian bytes, and itself (systemd, "Native Journal Protocol"). What is too long for a
datagram goes as a sealed memory file.
"""

import contextlib
import errno
import fcntl
import logging
import os
import re
import socket
import struct
import sys
from collections.abc import Mapping
from pathlib import Path

from typing_extensions import override

JOURNAL_SOCKET = Path("/run/systemd/journal/socket")
SEND_LIMIT_S = 1.0
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
_TOO_LONG = frozenset({errno.EMSGSIZE, errno.ENOBUFS})
_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SEAL


def event_of(record: logging.LogRecord) -> str:
    """Return the stable name of the event that a record tells; empty for any other record."""
    event = EVENTS.get(record.getMessage())
    return "" if event is None else event[0]


class JournalHandler(logging.Handler):
    """Sends records to the journal; where that does not take one, it goes to stderr instead.

    Args:
        standard: attributes that every record has; all others become `CLAWD_` fields.
        path: of the journal's socket.
    """

    def __init__(self, standard: frozenset[str], path: Path = JOURNAL_SOCKET) -> None:
        super().__init__()
        self._standard = standard
        self._path = str(path)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        self._socket.settimeout(SEND_LIMIT_S)

    @override
    def emit(self, record: logging.LogRecord) -> None:
        """Send the record."""
        text = self.format(record)
        fields = {
            "MESSAGE": text,
            "PRIORITY": str(PRIORITY.get(record.levelname, 6)),
            "SYSLOG_IDENTIFIER": "clawd",
            "LOGGER": record.name,
            "CODE_FILE": record.pathname,
            "CODE_LINE": str(record.lineno),
            "CODE_FUNC": record.funcName or "",
        }
        event = EVENTS.get(record.getMessage())
        if event is not None:
            fields |= {"CLAWD_EVENT": event[0], "MESSAGE_ID": event[1]}
        for name, value in record.__dict__.items():
            if name not in self._standard and value is not None:
                fields.setdefault(_field_name(name), str(value))
        try:
            self._send(b"".join(_line(name, value) for name, value in fields.items()))
        except OSError:
            # The journal is being restarted, or is full: its stream on stderr waits for it. Where
            # that has ended too, the line is lost: a record must not end what it tells of.
            with contextlib.suppress(OSError, ValueError):
                sys.stderr.write(f"<{fields['PRIORITY']}>{text}\n")

    @override
    def close(self) -> None:
        """Close the socket."""
        self._socket.close()
        super().close()

    def _send(self, entry: bytes) -> None:
        try:
            self._socket.sendto(entry, self._path)
        except OSError as error:
            if error.errno not in _TOO_LONG:
                raise
            self._send_file(entry)

    def _send_file(self, entry: bytes) -> None:
        descriptor = os.memfd_create("clawd-log", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            with os.fdopen(os.dup(descriptor), "wb") as file:
                file.write(entry)
            fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _SEALS)
            rights = struct.pack("i", descriptor)
            ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)]
            self._socket.sendmsg([], ancillary, 0, self._path)
        finally:
            os.close(descriptor)


def _field_name(name: str) -> str:
    return ("CLAWD_" + _NAME.sub("_", name.upper()))[:_MAX_NAME]


def _line(name: str, value: str) -> bytes:
    data = value.encode(errors="replace")
    if b"\n" not in data:
        return name.encode() + b"=" + data + b"\n"
    return name.encode() + b"\n" + struct.pack("<Q", len(data)) + data + b"\n"
