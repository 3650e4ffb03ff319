"""How a drawing looks: colours by what they mean, marks, and rows of styled text.

`CLAWD_THEME` is `dark`, `light`, `contrast` or `none`; `CLAWD_PLAIN=1` is for screen readers. Both
may stand in the settings file as well. Rows are measured so that no terminal wraps one by itself.
"""

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TextIO

import msgspec

from clawctl.safe_stream import columns_of
from clawctl.settings import read_settings, wants_plain
from clawd.wire.safe_text import terminal_safe, with_few_marks

THEME_VARIABLE = "CLAWD_THEME"


class Theme(msgspec.Struct, frozen=True, kw_only=True):
    """Parameters of the codes for styles, by what they stand for; "" is the terminal's own."""

    strong: str = "1"
    emphasis: str = "3"
    struck: str = "9"
    dim: str = "2"
    heading: str = "1;36"
    code: str = "36"
    link: str = "4"
    address: str = "2"
    accent: str = "36"
    good: str = "32"
    bad: str = "31"
    warning: str = "33"
    added: str = "32"
    removed: str = "31"
    keyword: str = "35"
    string: str = "32"
    number: str = "33"
    name: str = "34"
    comment: str = "2"


DARK = Theme(keyword="95", name="94", number="93", string="92", heading="1;96", code="96")
LIGHT = Theme(
    heading="1;34", code="34", accent="34", warning="1;31", number="35", keyword="34", name="36"
)
CONTRAST = Theme(
    dim="",
    heading="1;4",
    code="1",
    address="",
    accent="1",
    good="1;32",
    bad="1;31",
    warning="1;33",
    added="1;32",
    removed="1;31",
    keyword="1",
    string="",
    number="",
    name="",
    comment="3",
)
NONE = Theme(**dict.fromkeys(Theme.__struct_fields__, ""))
THEMES = {"dark": DARK, "light": LIGHT, "contrast": CONTRAST, "none": NONE}


class Marks(msgspec.Struct, frozen=True, kw_only=True):
    """The signs of a drawing."""

    frames: str = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
    done: str = "✓"
    failed: str = "✗"
    remark: str = "●"
    folded: str = "▸"
    bar: str = "│"
    ellipsis: str = "…"
    dot: str = "·"


UNICODE = Marks()
ASCII = Marks(
    frames="|/-\\", done="ok", failed="x", remark="*", folded=">", bar="|", ellipsis="...", dot="-"
)
# What rows of ours and of libraries hold beyond ASCII, for terminals that cannot show it.
_ASCII_OF = str.maketrans("•─━╺╸│▌…·●▸−", "*----||~-*>-")


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """What was chosen.

    Attributes:
        plain: one line for each event in words; nothing moves the cursor.
        unicode: whether the terminal shows more than ASCII.
    """

    theme: Theme = DARK
    marks: Marks = UNICODE
    plain: bool = False
    unicode: bool = True

    def drawn(self, text: str) -> str:
        """Return a row with the signs that this terminal can show."""
        return text if self.unicode else text.translate(_ASCII_OF)


def chosen_look(out: TextIO, environ: Mapping[str, str] | None = None) -> Look:
    """Return the look that environment, settings file and terminal ask for."""
    env = os.environ if environ is None else environ
    theme = THEMES[theme_name(env)]
    plain = wants_plain(env)
    unicode = "utf" in (getattr(out, "encoding", "") or "").lower()
    return Look(theme=theme, marks=UNICODE if unicode else ASCII, plain=plain, unicode=unicode)


def theme_name(environ: Mapping[str, str] | None = None) -> str:
    """Return the name of the theme that environment, settings file and terminal ask for."""
    env = os.environ if environ is None else environ
    if env.get("NO_COLOR") or env.get("TERM", "") == "dumb":
        return "none"
    name = env.get(THEME_VARIABLE) or str(read_settings().get("theme", "")) or _background(env)
    return name.lower() if name.lower() in THEMES else "dark"


def _background(env: Mapping[str, str]) -> str:
    """Return what COLORFGBG (rxvt, Konsole) says of the background."""
    return "light" if env.get("COLORFGBG", "").rpartition(";")[2] in {"7", "15"} else "dark"


_CODES = re.compile(r"\x1b\[[0-9;]*m")


class Span(msgspec.Struct, frozen=True):
    """Text in one style; `sgr` holds the parameters of its code, `1;36`, or nothing."""

    text: str
    sgr: str = ""


Row = Sequence[Span]


def safe(text: str) -> str:
    """Return text of others as it may stand in a row: no controls, few marks, blanks for tabs."""
    return with_few_marks(terminal_safe(text)).expandtabs(4)


def width_of(text: str) -> int:
    """Return the most columns that a terminal gives the text; marks take none."""
    if text.isascii():
        return len(text)
    return sum(columns_of(character) for character in text)


def fitted(row: Row, width: int) -> list[list[Span]]:
    """Return the row broken where it would be wider than so many columns; blanks at ends go."""
    rows: list[list[Span]] = [[]]
    column = 0
    for span in row:
        text = safe(span.text).replace("\n", " ")
        if column + width_of(text) <= width:
            rows[-1].append(Span(text, span.sgr))
            column += width_of(text)
            continue
        for piece in _pieces(text, column, width):
            if piece is None:
                rows.append([])
                column = 0
            else:
                rows[-1].append(Span(piece, span.sgr))
                column += width_of(piece)
    return [_stripped(each) for each in rows]


def shortened_row(row: Row, width: int, ellipsis: str) -> list[Span]:
    """Return the row on one line: cut, and marked as cut, where it is wider."""
    rows = fitted(row, width)
    if len(rows) == 1:
        return rows[0]
    cut = fitted(row, max(width - width_of(ellipsis), 1))[0]
    return [*cut, Span(ellipsis)]


def rendered(row: Row) -> str:
    """Return the row with its codes."""
    return "".join(
        f"\x1b[{span.sgr}m{span.text}\x1b[0m" if span.sgr and span.text else span.text
        for span in row
    )


def joined(spans: Iterable[Span]) -> list[Span]:
    """Return the spans with neighbours of one style as one."""
    found: list[Span] = []
    for span in spans:
        if found and found[-1].sgr == span.sgr:
            found[-1] = Span(found[-1].text + span.text, span.sgr)
        else:
            found.append(span)
    return found


def without_codes(text: str) -> str:
    """Return a rendered row without its colours."""
    return _CODES.sub("", text)


def wrapped(row: Row, width: int, *, indent: str = "") -> list[list[Span]]:
    """Return the row broken at blanks, later rows indented; what has none is broken anywhere."""
    rows: list[list[Span]] = [[]]
    column = 0
    for span in row:
        for word in re.findall(r"\s+|\S+", safe(span.text).replace("\n", " ")):
            size = width_of(word)
            if column + size > width and column > len(indent):
                rows.append([Span(indent)] if indent else [])
                column = len(indent)
                if word.isspace():
                    continue
            rows[-1].append(Span(word, span.sgr))
            column += size
    return [piece for each in rows for piece in fitted(joined(each), width)]


def _pieces(text: str, column: int, width: int) -> Iterable[str | None]:
    """Yield parts of the text that fit, and None where a row ends."""
    start = 0
    for index, character in enumerate(text):
        size = columns_of(character)
        if column + size > width and column:
            if index > start:
                yield text[start:index]
            yield None
            start, column = index, 0
        column += size
    if start < len(text):
        yield text[start:]


def _stripped(row: list[Span]) -> list[Span]:
    while row and not row[-1].text.strip(" ") and "7" not in row[-1].sgr.split(";"):
        row.pop()
    if row and row[-1].text.endswith(" "):
        row[-1] = Span(row[-1].text.rstrip(" "), row[-1].sgr)
    return row


TAIL_CHARS = 400


class Thoughts:
    """Takes reasoning as it comes.

    Args:
        started_at: on the clock of the view.
        is_whole: every line of it is shown.
    """

    def __init__(self, started_at: float, *, is_whole: bool) -> None:
        self._started_at = started_at
        self._is_whole = is_whole
        self._tail = ""
        self._words = 0
        self._partial = ""
        self._lines: list[str] = []

    def add(self, text: str) -> None:
        """Take a part of it."""
        goes_on = bool(self._tail) and not self._tail[-1].isspace()
        words = len(text.split())
        self._words += words - (goes_on and bool(words) and not text[0].isspace())
        self._tail = (self._tail + text)[-TAIL_CHARS:]
        if self._is_whole:
            *lines, self._partial = (self._partial + text).split("\n")
            self._lines += lines

    def tail(self, columns: int) -> str:
        """Return the live line: the last words that fit."""
        label = "thinking … "
        words = safe(" ".join(self._tail.split()))
        room = max(columns - width_of(label) - 2, 8)
        while width_of(words) > room:
            words = words[max((width_of(words) - room) // 2, 1) :]
        return label + words

    def rows(self, columns: int, look: Look, *, is_over: bool = False) -> list[str]:
        """Return the rows that are complete and were not returned yet; none when folded."""
        lines, self._lines = self._lines, []
        if is_over and self._partial:
            lines, self._partial = [*lines, self._partial], ""
        bar = f"  {look.marks.bar} "
        return [
            rendered(row)
            for line in lines
            for row in wrapped([Span(bar + safe(line), look.theme.dim)], columns, indent=bar)
        ]

    def summary(self, now: float, look: Look) -> str:
        """Return what stays of it."""
        words = "word" if self._words == 1 else "words"
        seconds = f"{max(now - self._started_at, 0.0):.1f} s"
        return f"{look.marks.folded} thought for {seconds} ({self._words} {words})"
