"""What a server prints on its standard error: the last of it, in a file of the home (0600).

Kept are 64 KiB, with secrets replaced. A server may print as fast as it likes.
"""

import asyncio
import contextlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from clawd.mcp.trouble import shown

KEPT_BYTES = 64 << 10


class StderrLog:
    """The end of one server's standard error.

    Args:
        path: where it is written, in a folder that is there.
        redact: replaces secrets.
    """

    def __init__(self, path: Path, redact: Callable[[str], str]) -> None:
        self._path = path
        self._redact = redact
        self._tail = bytearray()
        self._is_saved = True
        self._is_cut = False

    def add(self, data: bytes) -> None:
        """Take what came; forgets what is too old."""
        self._tail += data[-KEPT_BYTES:]
        self._is_saved = False
        self._is_cut = self._is_cut or len(data) > KEPT_BYTES or len(self._tail) > KEPT_BYTES
        if len(self._tail) > 2 * KEPT_BYTES:
            del self._tail[:-KEPT_BYTES]

    def last_line(self) -> str:
        """Return the last line that says something, for a sentence; empty for none."""
        lines = self._text().splitlines()
        return shown(next((line for line in reversed(lines) if line.strip()), ""))

    async def save(self) -> None:
        """Write it, if there is anything new. Never raises for a disk that is full."""
        if self._is_saved:
            return
        self._is_saved = True
        data = self._text().encode()
        with contextlib.suppress(OSError):
            await asyncio.to_thread(_replace, self._path, data)

    def _text(self) -> str:
        kept = bytes(self._tail[-KEPT_BYTES:])
        if self._is_cut:  # half a secret, at the cut, would not be known for one
            kept = kept.partition(b"\n")[2]
        return self._redact(kept.decode("utf-8", "replace"))


def _replace(path: Path, data: bytes) -> None:
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)  # 0600
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        Path(name).replace(path)
    except OSError:
        Path(name).unlink(missing_ok=True)
        raise
