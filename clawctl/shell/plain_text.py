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
    rb"|[ -/]{1,4}[0-~]|[0-OQ-WYZ\\`-~]|\Z)"
)
_BEGUN = re.compile(rb"\x1b(?:\[[0-?]{0,64}[ -/]{0,8}|[ -/]{1,4})?\Z")
_ERASE = re.compile(rb"\x1b\[([02]?)K")
# Not in any text: the two ways of erasing a line.
_TO_END, _ALL = "\x0b", "\x0c"


def plain_text(data: bytes) -> str:
    """Return the text; what is no UTF-8 is replaced."""
    data = _FULL_SCREEN.sub(b"\n", data.replace(b"\x0b", b"").replace(b"\x0c", b""))
    data = _ERASE.sub(lambda match: b"\x0c" if match[1] == b"2" else b"\x0b", data)
    data = _BEGUN.sub(b"", _SEQUENCE.sub(b"", data))
    text = data.decode(errors="replace").replace("\r\n", "\n")
    lines = [_as_drawn(line) for line in text.split("\n")]
    return without_hidden(paragraph("\n".join(lines)))


def _as_drawn(line: str) -> str:
    """Return what a line shows after all that was drawn over it."""
    if not any(sign in line for sign in ("\r", "\b", _TO_END, _ALL)):
        return line
    # By place, so that a line that is erased while the cursor is far out costs nothing.
    cells: dict[int, str] = {}
    at = end = 0
    for character in line:
        match character:
            case "\r":
                at = 0
            case "\b":
                at = max(at - 1, 0)
            case "\x0b":
                for place in range(at, end):
                    cells.pop(place, None)
                end = min(at, end)
            case "\x0c":
                cells, end = {}, 0
            case _:
                cells[at] = character
                at += 1
                end = max(end, at)
    return "".join(cells.get(place, " ") for place in range(end)).rstrip()
