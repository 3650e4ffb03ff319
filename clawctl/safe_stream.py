"""The last wall before a terminal: a stream that lets only our own control codes through.

What is shown is made safe where it is shown (`wire.safe_text`). This stands behind that, so that
what was forgotten there still cannot drive the terminal. It also breaks lines that would fill the
screen; a line that goes on begins with `↳`, so that no text of others can begin a line.
"""

import os
import re
import unicodedata
from collections.abc import Callable
from typing import Any, TextIO

from clawd.wire.safe_text import MARKS_LIMIT, terminal_safe, with_few_marks

LINE_LIMIT = 1_000
CONTINUED = "\n↳ "

_LINE_STARTS = frozenset({"\r", "\n", "\x1b[2K"})
_LEAST_WIDTH = 4  # the mark, a blank and one wide character
_TAB_COLUMNS = 8
_EMOJI_SIGN = "\ufe0f"  # makes the character before it wide, in some terminals

# Colours of `render.Palette`, "clear the line", and the return to its beginning.
_OURS = re.compile(r"(\x1b\[(?:0|1|2|31|32|33|36)m|\x1b\[2K|\r|\n)")
# What a drawing needs beside them: styles but blinking and hidden, "up" and "right" by so many,
# "clear what follows" in the line and below, and the brackets around one picture.
_STYLE = r"(?:[0-479]|3[0-7]|9[0-7])"
_DRAWN = re.compile(
    rf"(\x1b\[{_STYLE}(?:;{_STYLE}){{0,4}}m|\x1b\[[1-9][0-9]{{0,3}}[AC]|\x1b\[[JK]"
    r"|\x1b\[\?2026[hl]|\r|\n)"
)


class Screen:
    """A text stream in front of a terminal's.

    Attributes:
        plain: the stream behind it, for text that must stay as it is (JSON).
    """

    def __init__(self, stream: TextIO, width: Callable[[], int] | None = None) -> None:
        self.plain = stream
        self._width = width or (lambda: LINE_LIMIT)
        self._column = 0
        self._tail = ""

    def __getattr__(self, name: str) -> Any:
        """Be the stream in all but writing."""
        return getattr(self.plain, name)

    def write(self, text: str) -> int:
        """Write the text as it may be shown."""
        return self._pass(text, _OURS)

    def begin_line(self) -> None:
        """Take note that the cursor is at the beginning of a line, by what others wrote."""
        self._column, self._tail = 0, ""

    def draw(self, picture: str) -> int:
        """Write a part of a drawing: more codes pass. Its texts were made safe one by one."""
        return self._pass(picture, _DRAWN)

    def _pass(self, text: str, ours: re.Pattern[str]) -> int:
        width = max(self._width(), _LEAST_WIDTH)
        for index, part in enumerate(ours.split(text)):
            if index % 2:
                self._tail = ""
                self._column = 0 if part in _LINE_STARTS else self._column
                self.plain.write(part)
            elif part:
                self._write(part, width)
        return len(text)

    def writelines(self, lines: Any) -> None:
        """Write all of them."""
        for line in lines:
            self.write(line)

    def _write(self, part: str, width: int) -> None:
        # Marks may come one write after the other: what they stand on is looked at again.
        before, after = _shown(self._tail), _shown(self._tail + part)
        # What was judged with what came before may be judged otherwise with what comes after.
        shown = after.removeprefix(before) if after.startswith(before) else _shown(part)
        self._tail = _last_character(self._tail + part)
        rows = []
        for character in shown:
            if self._column + columns_of(character, self._column, width) > width:
                rows.append(CONTINUED)
                self._column = len(CONTINUED) - 1
            rows.append(character)
            self._column += columns_of(character, self._column, width)
        self.plain.write("".join(rows))


def columns(stream: TextIO) -> int:
    """Return how many columns a terminal has: a line that is shown so never wraps by itself."""
    try:
        return os.get_terminal_size(stream.fileno()).columns or LINE_LIMIT
    except OSError:
        return LINE_LIMIT


def plain(stream: TextIO) -> TextIO:
    """Return what is behind a `Screen`, or the stream itself."""
    return stream.plain if isinstance(stream, Screen) else stream


def _shown(text: str) -> str:
    return with_few_marks(terminal_safe(text))


def columns_of(character: str, column: int = 0, width: int = LINE_LIMIT) -> int:
    """Return how many columns a character takes there, or more where terminals differ."""
    if character.isascii():
        # A terminal never wraps at a tab: it stops at the last column.
        is_tab = character == "\t"
        return (
            1 if not is_tab else max(min(_TAB_COLUMNS - column % _TAB_COLUMNS, width - column), 1)
        )
    if unicodedata.category(character) in {"Mn", "Me"}:
        return int(character == _EMOJI_SIGN)
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def _last_character(text: str) -> str:
    """Return the last character with its marks, or so many of them that they are too many."""
    at = len(text) - 1
    while at > 0 and unicodedata.category(text[at]) in {"Mn", "Me"}:
        at -= 1
    return text[max(at, 0) :][: 2 + MARKS_LIMIT]
