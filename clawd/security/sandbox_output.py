"""What a command has printed: the first bytes as text, the rest counted."""

import codecs
from collections.abc import Callable

# Beyond this a flood costs the daemon more than the rest of the output is worth.
FLOOD_BYTES = 64 << 20


class Output:
    """Keeps the first bytes of the output and counts the rest.

    Args:
        limit: how many bytes are kept.
        on_output: takes them as text, as they come.
    """

    def __init__(self, limit: int, on_output: Callable[[str], None] | None) -> None:
        self._limit = limit
        self._on_output = on_output
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._parts: list[str] = []
        self.total_bytes = 0

    @property
    def truncated(self) -> bool:
        """Whether there was more than is kept."""
        return self.total_bytes > self._limit

    @property
    def flooded(self) -> bool:
        """Whether there was so much that it must end."""
        return self.total_bytes > max(FLOOD_BYTES, self._limit)

    def add(self, data: bytes) -> None:
        """Take what came."""
        room = max(0, self._limit - self.total_bytes)
        self.total_bytes += len(data)
        self._take(self._decoder.decode(data[:room]))

    def close(self) -> None:
        """Take what an unfinished character leaves, as its replacement."""
        self._take(self._decoder.decode(b"", final=True))

    def text(self) -> str:
        """Return what is kept."""
        return "".join(self._parts)

    def _take(self, text: str) -> None:
        if text:
            self._parts.append(text)
            if self._on_output is not None:
                self._on_output(text)
