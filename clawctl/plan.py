"""Shows a plan: the list that the model sees, in colour where the stream has any."""

import re

from clawctl.render import Palette
from clawd.wire.safe_text import terminal_safe, visible_line

_ITEM = re.compile(r"- (\[[ ~x!-]\]) (\d{1,9})\. (.*)")


def plan_text(markdown: str, palette: Palette) -> str:
    """Return the lines of a plan, safe to show; what is no item stays as it is."""
    return "\n".join(_line(line, palette) for line in terminal_safe(markdown).split("\n"))


def parts_of(line: str) -> tuple[str, str, str] | None:
    """Return mark, number and text of an item's line; None for another line."""
    item = _ITEM.fullmatch(line)
    return None if item is None else (item[1], item[2], item[3])


def _line(line: str, palette: Palette) -> str:
    item = parts_of(line)
    if item is None:
        return line
    mark, number, text = item
    shown = f"{mark} {number}. {visible_line(text)}"
    match mark[1]:
        case "~":
            return palette.yellow(shown)
        case "x":
            return f"{palette.green(mark)} {number}. {palette.dim(visible_line(text))}"
        case "!":
            return palette.red(shown)
        case "-":
            return palette.dim(shown)
        case _:
            return shown
