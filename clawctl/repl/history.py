"""The history of the prompt: a file of the home that nobody else may read.

Every entry is a block of lines that begin with `+`, after a line that says when, as in

    # 2026-11-21 08:00:00
    +first line
    +second line

A line that begins with a blank is not kept, nor one that looks as if it held a secret.
"""

import contextlib
import os
import re
import time
from collections.abc import Iterable
from pathlib import Path

MAX_BYTES = 2 * 1024 * 1024
KEPT_BYTES = 1024 * 1024
ENTRY_BYTES = 16 * 1024

_SECRET = re.compile(
    r"(?i)\b(?:api[_-]?key|access[_-]?key|token|passw(?:or)?d|passphrase|secret|authorization)\b"
    r"[\"']?\s*(?:[:=]|\bis\b)\s*\S{6,}"
    r"|\bbearer\s+[\w.~+/-]{16,}"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY"
    r"|\b[a-z]{2,10}(?:[-_][a-z0-9]{2,10}){0,3}[-_](?=[\w-]*\d)(?=[\w-]*[A-Za-z])[\w-]{28,}"
)


def is_kept(entry: str) -> bool:
    """Tell whether an entry may be kept: it begins with no blank and shows no secret."""
    return bool(entry.strip()) and not entry[0].isspace() and _SECRET.search(entry) is None


class HistoryFile:
    """The entries of all REPLs of a home; one that cannot be read or written is an empty one."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def load(self) -> list[str]:
        """Return the entries, oldest first; a file that has grown too long is cut first."""
        try:
            data = self._path.read_bytes()
            self._path.chmod(0o600)
        except OSError:
            return []
        if len(data) > MAX_BYTES:
            data = data[data.find(b"\n#", len(data) - KEPT_BYTES) + 1 :]
            self._replace(data)
        return list(_entries(data.decode(errors="replace").split("\n")))

    def add(self, entry: str) -> None:
        """Keep an entry, if it may be kept and is short enough to be of use."""
        text = entry.encode(errors="replace")
        if not is_kept(entry) or len(text) > ENTRY_BYTES:
            return
        lines = b"".join(b"+%s\n" % line for line in text.split(b"\n"))
        block = f"\n# {time.strftime('%Y-%m-%d %H:%M:%S')}\n".encode() + lines
        # A home that cannot be written is told by whatever needs it; a prompt does not.
        with contextlib.suppress(OSError):
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
            descriptor = os.open(self._path, flags, 0o600)
            try:
                os.write(descriptor, block)
            finally:
                os.close(descriptor)

    def _replace(self, data: bytes) -> None:
        new = self._path.with_name(f"{self._path.name}.{os.getpid()}")
        with contextlib.suppress(OSError):
            descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
            new.replace(self._path)


def _entries(lines: Iterable[str]) -> Iterable[str]:
    entry: list[str] = []
    for line in [*lines, ""]:
        if line.startswith("+"):
            entry.append(line[1:])
        elif entry:
            yield "\n".join(entry)
            entry = []
