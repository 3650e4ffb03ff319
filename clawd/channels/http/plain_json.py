"""JSON for streams in which a line ends an event, whatever a reader takes for a line's end."""

from typing import Any

import msgspec

# Some readers end lines as Unicode has it, and would cut a value in two.
_LINE_ENDS = {b"\xc2\x85": b"\\u0085", b"\xe2\x80\xa8": b"\\u2028", b"\xe2\x80\xa9": b"\\u2029"}


def on_one_line(value: Any) -> bytes:
    """Return a value as JSON text that no reader takes for two lines."""
    data = msgspec.json.encode(value)
    for raw, escaped in _LINE_ENDS.items():
        data = data.replace(raw, escaped)
    return data
