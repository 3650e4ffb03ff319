"""What is drawn at the end of a terminal: rows that stay, and below them rows that may change.

Rows that stay go into the scrollback once and for good. The rows that may change are fewer than
the terminal has, so every one can be reached by moving up. Only rows that differ are written again.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TextIO

from clawctl.repl.theme import width_of, without_codes
from clawctl.safe_stream import Screen

LEAST_COLUMNS = 4
LEAST_LINES = 2
SYNC_BEGINS, SYNC_ENDS = "\x1b[?2026h", "\x1b[?2026l"

# Terminals that hold a picture back until it is whole.
_SYNC_PROGRAMS = frozenset({"WezTerm", "ghostty", "iTerm.app", "vscode", "contour", "rio"})
_SYNC_TERMS = ("xterm-kitty", "xterm-ghostty", "alacritty", "foot", "contour", "wezterm")


class Canvas:
    """Draws on one terminal.

    Args:
        out: the terminal's stream.
        size: returns its columns and lines now.
        sync: whether it holds pictures back.
        reflows: whether it breaks old rows anew when its width changes.
    """

    def __init__(
        self, out: TextIO, size: Callable[[], tuple[int, int]], *, sync: bool, reflows: bool
    ) -> None:
        self._out = out
        self._size = size
        self._sync = sync
        self._reflows = reflows
        self._live: list[str] = []
        self._column = 0
        self._drawn_at = (0, 0)

    @property
    def columns(self) -> int:
        """How wide a row may be; the last column stays empty, because terminals differ there."""
        return max(self._size()[0] - 1, LEAST_COLUMNS)

    @property
    def lines(self) -> int:
        """How many rows that may change there can be."""
        return max(self._size()[1] - 1, LEAST_LINES)

    def paint(self, kept: Sequence[str], live: Sequence[str]) -> None:
        """Let `kept` stay above, and `live` be all that may change.

        Rows of `kept` may be wider than the terminal, which then wraps them; those of `live` not.
        """
        size = self._size()
        live = live[-self.lines :]
        text = self._after_resize(size)
        text += self._changes([*kept, *live], is_open=bool(live))
        self._live, self._drawn_at = list(live), size
        if text:
            _draw(self._out, f"{SYNC_BEGINS}{text}{SYNC_ENDS}" if self._sync else text)

    def _changes(self, rows: Sequence[str], *, is_open: bool) -> str:
        """Return what turns the rows that are shown into these; the cursor ends in the last."""
        old = self._live
        same = _same(old, rows)
        ending = "" if is_open or not rows else "\n"
        if same == len(rows) == len(old):
            return ending
        text = self._up(len(old) - 1 - min(same, len(old) - 1)) if old else ""
        if same == len(rows):
            self._column = 0
            return text + _cleared(len(old) - same) + ("\x1b[1A" if is_open else "")
        if old and same == len(old):
            text += "\n"
        if any(_width(row) > self.columns for row in rows[same:]):
            text += _cleared(len(old) - same) + "\n".join(rows[same:])
            self._column = _width(rows[-1])
        else:
            text += self._differences(old[same:], rows[same:])
        return text + ending

    def _differences(self, old: Sequence[str], rows: Sequence[str]) -> str:
        """Return what turns old rows into others, from the beginning of the first of them."""
        parts: list[str] = []
        at = 0
        for index, row in enumerate(rows):
            before = old[index] if index < len(old) else ""
            if row == before:
                continue
            parts += ["\n" * (index - at), _rewritten(before, row)]
            at = index
        last = len(rows) - 1
        parts.append("\n" * (last - at))
        self._column = _width(rows[-1]) if at == last and parts[-2:-1] else 0
        if len(old) > len(rows):
            parts.append("\n\x1b[J\x1b[1A")
            self._column = 0
        return "".join(parts)

    def _after_resize(self, size: tuple[int, int]) -> str:
        """Return what clears the rows that may change, when the terminal has another size now."""
        if not self._live or size == self._drawn_at:
            return ""
        columns = max(size[0], 1)
        above = len(self._live) - 1
        if self._reflows:
            heights = (-(-max(_width(row), 1) // columns) for row in self._live[:-1])
            above = sum(heights) + max(self._column - 1, 0) // columns
        elif size[0] == self._drawn_at[0] and above < size[1]:
            return ""
        self._live = []
        above = min(above, max(size[1] - 1, 0))
        return self._up(above) + _cleared(above + 1)

    def _up(self, rows: int) -> str:
        return f"\x1b[{rows}A\r" if rows else "\r"


def syncs(environ: Mapping[str, str]) -> bool:
    """Return whether the terminal is known to hold a picture back until it is whole."""
    if "TMUX" in environ or "STY" in environ:
        return False
    return environ.get("TERM_PROGRAM", "") in _SYNC_PROGRAMS or environ.get("TERM", "").startswith(
        _SYNC_TERMS
    )


def reflows(environ: Mapping[str, str]) -> bool:
    """Return whether the terminal breaks old rows anew when its width changes, as most do."""
    if "TMUX" in environ:
        return True
    if "STY" in environ or "XTERM_VERSION" in environ:
        return False
    return not environ.get("TERM", "").startswith(("linux", "vt", "screen"))


def _cleared(rows: int) -> str:
    """Return what clears so many rows from the beginning of the first, and stays there.

    Clearing all below from the top of the screen would make tmux keep it as scrollback.
    """
    if rows <= 0:
        return ""
    return "\x1b[K" if rows == 1 else "\x1b[K\n\x1b[J\x1b[1A"


def _draw(out: TextIO, text: str) -> None:
    if isinstance(out, Screen):
        out.draw(text)
    else:
        out.write(text)
    out.flush()


def _same(old: Sequence[str], rows: Sequence[str]) -> int:
    for index, (before, row) in enumerate(zip(old, rows, strict=False)):
        if before != row:
            return index
    return min(len(old), len(rows))


def _rewritten(before: str, row: str) -> str:
    """Return what makes one row of another, from its beginning on."""
    if before and before.isascii() and row.startswith(before):
        return f"\x1b[{_width(before)}C{row[len(before) :]}"
    if "\t" in row:
        # A tab only moves: what it passes over must be gone before.
        return f"\x1b[K{row}" if before else row
    return row + ("\x1b[K" if before else "")


def _width(row: str) -> int:
    return width_of(without_codes(row))
