"""Lines out of a stream of bytes, in time that grows with the bytes and no faster. Pure."""

from collections.abc import Iterator

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
