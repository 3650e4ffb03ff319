"""Rows of a terminal: pieces of styled text, measured so that no terminal wraps one by itself."""

import re
from collections.abc import Iterable, Sequence

import msgspec

from clawctl.safe_stream import columns_of
from clawd.wire.safe_text import terminal_safe, with_few_marks

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
