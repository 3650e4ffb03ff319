"""What went wrong with one connection, as its parts learn it: the one place they tell it."""

import asyncio
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from clawd.wire.safe_text import single_line

TRANSPORT_ERROR = -32950
"""Code of the errors that this side makes up for what the transport met."""

_NEWEST = "2026-07-28"
"""The first revision without a handshake; a server is asked for it first."""

_MAX_PROBLEM = 400


def shown(text: str) -> str:
    """Return a server's words so that they can stand in a sentence of ours."""
    return single_line(text.encode("utf-8", "replace").decode(), _MAX_PROBLEM)


class Trouble:
    """What is known of a connection's end. Used from its event loop only.

    Attributes:
        problem: why it ends, the first reason that was told; empty while it does not.
        is_lost: the server is well, but does not know this session any more.
        is_unreachable: nothing listens there.
        status: the HTTP status that refuses us for good (401, 403), 0 for none.
        ignores_discover: the server did not answer when asked for the newest revision.
        speaks_newest: it answered that late, so it was only slow.
        sign_in: the address that a person must open to sign in.
    """

    def __init__(self) -> None:
        self.problem = ""
        self.is_lost = False
        self.is_unreachable = False
        self.status = 0
        self.ignores_discover = False
        self.speaks_newest = False
        self.sign_in = ""
        self.is_over = asyncio.Event()
        self.stir = asyncio.Event()

    def end(self, problem: str) -> None:
        """The connection is of no use any more."""
        self.problem = self.problem or problem
        self.is_over.set()
        self.stir.set()

    def learn_newest(self, answer: Mapping[str, Any]) -> None:
        """The server said late which revisions it speaks."""
        told = answer.get("supportedVersions")
        self.speaks_newest = isinstance(told, list) and _NEWEST in told
        self.stir.set()

    def lose(self) -> None:
        """The server answered that it does not know the session."""
        self.is_lost = True
        self.end("the server does not know this session any more (HTTP 404)")

    def refuse(self, status: int, sentence: str) -> None:
        """The server does not let us in."""
        self.status = status
        self.end(sentence)

    def unreachable(self, sentence: str) -> None:
        """Nothing listens there, so nothing was sent."""
        self.is_unreachable = True
        self.end(sentence)


# What a server prints on its standard error: the last of it, in a file of the home (0600).
#
# Kept are 64 KiB, with secrets replaced. A server may print as fast as it likes.

KEPT_BYTES = 64 << 10


class StderrLog:
    """The end of one server's standard error.

    Args:
        path: where it is written, in a folder that is there.
        redact: replaces secrets.
    """

    def __init__(self, path: Path, redact: Callable[[str], str]) -> None:
        self._path = path
        self.redact = redact
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
        import anyio.to_thread  # with the first server

        self._is_saved = True
        data = self._text().encode()
        try:
            # Not left by a cancel until it is written: an older text must not come after a newer.
            await anyio.to_thread.run_sync(_replace, self._path, data)
        except OSError:
            pass
        except BaseException:
            self._is_saved = False
            raise

    def _text(self) -> str:
        kept = bytes(self._tail[-KEPT_BYTES:])
        if self._is_cut:  # half a secret, at the cut, would not be known for one
            kept = kept.partition(b"\n")[2]
        return self.redact(kept.decode("utf-8", "replace"))


def _replace(path: Path, data: bytes) -> None:
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)  # 0600
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        Path(name).replace(path)
    except OSError:
        Path(name).unlink(missing_ok=True)
        raise


# Lines out of a stream of bytes, in time that grows with the bytes and no faster. Pure.

MAX_LINE_BYTES = 16 << 20


class LineTooLongError(Exception):
    """A line did not end within the limit."""


class LineSplitter:
    """Takes pieces as they come and gives the lines that are whole; empty ones are left out.

    Args:
        limit: how many bytes a line may have.
    """

    def __init__(self, limit: int = MAX_LINE_BYTES) -> None:
        self._limit = limit
        self._parts: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Give the lines that end in this piece, without their ends.

        Raises:
            LineTooLongError: a line is longer than the limit; nothing more can be read.
        """
        *whole, rest = data.split(b"\n")
        for line in whole:
            if not self._parts and not line.strip():
                continue
            self._keep(line)
            line = b"".join(self._parts).rstrip(b"\r")
            self._parts, self._size = [], 0
            if line.strip():
                yield line
        self._keep(rest)

    def _keep(self, part: bytes) -> None:
        self._size += len(part)
        if self._size > self._limit:
            raise LineTooLongError(f"a line has more than {self._limit} bytes")
        if part:
            self._parts.append(part)
