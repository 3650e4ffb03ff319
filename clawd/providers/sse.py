"""Server-sent events from bytes in any pieces (WHATWG HTML, 9.2.6). No I/O.

    : a comment
    event: message
    data: {"a": 1}
    data:{"b": 2}

Both data lines belong to one event, joined by a line break; the blank line after them ends it.
"""

import re

import msgspec

from clawd.errors import ProviderError

MAX_EVENT_BYTES = 16 * 1024 * 1024

# What a line costs in memory beside its bytes.
_LINE_COST = 64

_LINE_END = re.compile(rb"\r\n|\r|\n")
_BOM = b"\xef\xbb\xbf"


class SseEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One event; `event` is empty when the server named none."""

    data: str
    event: str = ""


class SseParser:
    """Cuts a byte stream into events. Takes LF, CR and CRLF, and data without a space."""

    def __init__(self) -> None:
        self._line: list[bytes] = []
        self._data: list[bytes] = []
        self._event = b""
        self._line_size = 0
        self._data_size = 0
        self._ends_with_cr = False
        self._is_first_line = True

    def feed(self, data: bytes) -> list[SseEvent]:
        """Take bytes and return the events that are whole now.

        Raises:
            ProviderError: an event is over MAX_EVENT_BYTES.
        """
        if self._ends_with_cr and data.startswith(b"\n"):
            data = data[1:]
            self._ends_with_cr = False
        if not data:
            return []
        self._ends_with_cr = data.endswith(b"\r")
        *lines, rest = _LINE_END.split(data)
        events: list[SseEvent] = []
        for line in lines:
            self._line.append(line)
            self._take_line(b"".join(self._line), events)
            self._line.clear()
            self._line_size = 0
        self._line.append(rest)
        self._line_size += len(rest)
        self._check_size()
        return events

    def finish(self) -> list[SseEvent]:
        """Take the end of the stream; an event without its blank line counts."""
        events: list[SseEvent] = []
        self._take_line(b"".join(self._line), events)
        self._take_line(b"", events)
        return events

    def _take_line(self, line: bytes, events: list[SseEvent]) -> None:
        if self._is_first_line:
            line = line.removeprefix(_BOM)
            self._is_first_line = False
        if not line:
            self._dispatch(events)
            return
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self._data.append(value)
            self._data_size += len(value) + _LINE_COST
            self._check_size()
        elif name == b"event":
            self._event = value

    def _dispatch(self, events: list[SseEvent]) -> None:
        if self._data:
            data = b"\n".join(self._data).decode("utf-8", "replace")
            events.append(SseEvent(data=data, event=self._event.decode("utf-8", "replace")))
        self._data = []
        self._data_size = 0
        self._event = b""

    def _check_size(self) -> None:
        if self._line_size + self._data_size > MAX_EVENT_BYTES:
            raise ProviderError(
                f"the server sent an event of more than {MAX_EVENT_BYTES} bytes", kind="invalid"
            )
