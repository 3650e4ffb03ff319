"""Bytes of tokens to text that may be shown: whole characters, nothing of a stop string.

Both classes are forward-only; what they hold back is bounded by a character and by the longest
stop string.
"""

import codecs


class Utf8Decoder:
    """Joins pieces that may end inside a character; bytes that are no UTF-8 become U+FFFD."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def push(self, piece: bytes) -> str:
        """Take bytes and return the text that is whole now."""
        return self._decoder.decode(piece)

    def flush(self) -> str:
        """Return what an unfinished character leaves behind."""
        return self._decoder.decode(b"", final=True)


class StopMatcher:
    """Finds the first of several stop strings in a stream of text.

    Text that may be the beginning of a stop string is held until it is known not to be.
    `stopped_by` is the string that was found.
    """

    def __init__(self, stops: tuple[str, ...]) -> None:
        self._stops = tuple(stop for stop in stops if stop)
        self._held = ""
        self.is_stopped = False
        self.stopped_by = ""

    def push(self, text: str) -> str:
        """Take text and return what may be shown; nothing any more once a stop was found."""
        if not self._stops:
            return text
        if self.is_stopped:
            return ""
        text = self._held + text
        found = [(at, stop) for stop in self._stops if (at := text.find(stop)) >= 0]
        if found:
            at, self.stopped_by = min(found)
            self.is_stopped = True
            self._held = ""
            return text[:at]
        hold = self._length_to_hold(text)
        self._held = text[len(text) - hold :]
        return text[: len(text) - hold]

    def flush(self) -> str:
        """Return what is held: the stream ended, so it is no stop string."""
        held, self._held = self._held, ""
        return held

    def _length_to_hold(self, text: str) -> int:
        longest = min(max(map(len, self._stops)) - 1, len(text))
        for size in range(longest, 0, -1):
            tail = text[len(text) - size :]
            if any(stop.startswith(tail) for stop in self._stops):
                return size
        return 0
