r"""What a program printed on a terminal, as the text that stood there in the end. Pure.

Control sequences go, what a full-screen program drew goes with them, a line that was drawn over
(`\r`, backspaces) is what it was last.
"""

import re

from clawd.wire.safe_text import paragraph, without_hidden

_FULL_SCREEN = re.compile(
    rb"\x1b\[\?(?:1049|1047|47)h.*?(?:\x1b\[\?(?:1049|1047|47)l|\Z)", re.DOTALL
)
_SEQUENCE = re.compile(
    rb"\x1b(?:\[[0-?]{0,64}[ -/]{0,8}[@-~]"  # CSI
    rb"|[\]PX^_][^\x07\x1b]{0,65536}(?:\x07|\x1b\\|\Z)"  # OSC, DCS, SOS, PM, APC
    rb"|[ -/]{1,4}[0-~]|[0-~]|\Z)"
)
_BEGUN = re.compile(rb"\x1b(?:\[[0-?]{0,64}[ -/]{0,8}|[ -/]{1,4})?\Z")
_OVERSTRUCK = re.compile(r"[^\b\n]\x08")


def plain_text(data: bytes) -> str:
    """Return the text; what is no UTF-8 is replaced."""
    data = _FULL_SCREEN.sub(b"\n", data)
    data = _BEGUN.sub(b"", _SEQUENCE.sub(b"", data))
    text = data.decode(errors="replace").replace("\r\n", "\n")
    lines = [_last_drawn(line) for line in text.split("\n")]
    return without_hidden(paragraph("\n".join(lines)))


def _last_drawn(line: str) -> str:
    if "\r" in line:
        line = next((part for part in reversed(line.split("\r")) if part.strip()), "")
    while "\b" in line:
        shorter = _OVERSTRUCK.sub("", line)
        if shorter == line:
            return line.replace("\b", "")
        line = shorter
    return line
