"""Edits of one text: an exact piece of it, or a range of its lines, is replaced. Pure.

Several edits all speak of the text as it is before any of them: they are made from the bottom up,
so that none moves the lines that another one names. Two that overlap are refused.
"""

from array import array
from collections.abc import Sequence
from itertools import accumulate

import msgspec

from clawd.tools.base import Arguments
from clawd.tools.builtin.nearest import nearest_text

_SHOWN_MATCHES = 5


class Edit(msgspec.Struct, frozen=True, kw_only=True):
    """One edit.

    Attributes:
        new_text: what takes the place; empty removes it.
        old_text: the exact piece to replace; empty for a range of lines.
        first: first line of the range, from 1.
        last: last line of it; one less than `first` inserts before that line.
    """

    new_text: str
    old_text: str = ""
    first: int = 0
    last: int = 0

    @property
    def is_by_text(self) -> bool:
        """Whether it names a piece of text."""
        return bool(self.old_text)


class EditError(Exception):
    """An edit that cannot be made.

    Attributes:
        number: which of the edits, from 0.
        matches: how often its text stands there; None where lines are named.
        overlaps: the number of an earlier edit that it overlaps, or -1.
    """

    def __init__(
        self, message: str, *, number: int = 0, matches: int | None = None, overlaps: int = -1
    ) -> None:
        super().__init__(message)
        self.message = message
        self.number = number
        self.matches = matches
        self.overlaps = overlaps


class _Span(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """Where an edit goes, in characters; in the order in which texts end up."""

    start: int
    end: int
    number: int


def edit_of(arguments: Arguments) -> Edit:
    """Return the edit that the arguments of file_edit mean.

    Raises:
        EditError: they name both a text and lines, or neither.
    """
    by_text, by_line = bool(arguments.get("old_text")), "start_line" in arguments
    if by_text == by_line:
        raise EditError("give either old_text, or start_line and end_line")
    if by_text:
        return Edit(new_text=arguments["new_text"], old_text=arguments["old_text"])
    first = arguments["start_line"]
    return Edit(new_text=arguments["new_text"], first=first, last=arguments.get("end_line", first))


def overlapping_lines(edits: Sequence[Edit]) -> tuple[int, int] | None:
    """Return two of the edits whose lines overlap, by number; None where none do."""
    ranges = [
        _Span(start=edit.first, end=edit.last + 1, number=number)
        for number, edit in enumerate(edits)
        if not edit.is_by_text
    ]
    return _overlap(ranges)


def edited(text: str, edits: Sequence[Edit], path: str) -> str:
    """Return the text with all edits made; `path` names it in errors.

    Raises:
        EditError: one of them cannot be made, so none is.
    """
    starts = _starts(text)
    spans = [
        _piece(text, edit, number, path) if edit.is_by_text else _range(starts, edit, number)
        for number, edit in enumerate(edits)
    ]
    if (both := _overlap(spans)) is not None:
        one, other = both
        told = f"it overlaps another edit of {path}"
        raise EditError(told, number=other, overlaps=one)
    ends_whole = not text or text.endswith("\n")
    has_returns = "\r\n" in text
    changed = text
    for span in sorted(spans, reverse=True):
        edit = edits[span.number]
        if edit.is_by_text:
            new = _in_its_way(edit, has_returns=has_returns)[1]
            changed = changed[: span.start] + new + changed[span.end :]
        else:
            changed = _with_lines(changed, edit, has_returns=has_returns, ends_whole=ends_whole)
    return changed


def _overlap(spans: Sequence[_Span]) -> tuple[int, int] | None:
    """Return the numbers of two spans that overlap, the lower one first."""
    widest: _Span | None = None
    for span in sorted(spans):
        if widest is not None and span.start < widest.end:
            one, other = sorted((widest.number, span.number))
            return one, other
        if widest is None or span.end > widest.end:
            widest = span
    return None


def _starts(text: str) -> Sequence[int]:
    """Return where each line begins, and where the text ends."""
    # Eight million lines in eight bytes each, not in objects of 36.
    starts = array("q", accumulate((len(line) + 1 for line in text.split("\n")), initial=0))
    starts.pop()
    if starts[-1] < len(text):
        starts.append(len(text))
    return starts


def _range(starts: Sequence[int], edit: Edit, number: int) -> _Span:
    lines, first, last = len(starts) - 1, edit.first, edit.last
    if not (1 <= first <= lines + 1 and first - 1 <= last <= lines):
        told = f"lines {first} to {last} are not there: the file has {lines} lines"
        raise EditError(told, number=number)
    return _Span(start=starts[first - 1], end=starts[last], number=number)


def _piece(text: str, edit: Edit, number: int, path: str) -> _Span:
    old = _in_its_way(edit, has_returns="\r\n" in text)[0]
    count = text.count(old)
    if count == 1:
        start = text.index(old)
        return _Span(start=start, end=start + len(old), number=number)
    if count > 1:
        lines = ", ".join(map(str, _line_numbers(text, old)))
        more = ", …" if count > _SHOWN_MATCHES else ""
        raise EditError(
            f"old_text stands {count} times in {path} (lines {lines}{more}); "
            "give more of the text around it, or start_line and end_line",
            number=number,
            matches=count,
        )
    near = nearest_text(text, old)
    shown = f"; the nearest is\n{near}" if near else ""
    raise EditError(f"old_text does not stand in {path}{shown}", number=number, matches=0)


def _in_its_way(edit: Edit, *, has_returns: bool) -> tuple[str, str]:
    r"""Return old and new text: models write \n; a file with \r\n is matched and kept so."""
    old, new = edit.old_text, edit.new_text
    if has_returns and "\r\n" not in old:
        old, new = old.replace("\n", "\r\n"), new.replace("\r\n", "\n").replace("\n", "\r\n")
    return old, new


def _line_numbers(text: str, old: str) -> list[int]:
    numbers: list[int] = []
    at = text.find(old)
    while at >= 0 and len(numbers) < _SHOWN_MATCHES:
        numbers.append(text.count("\n", 0, at) + 1)
        at = text.find(old, at + len(old))
    return numbers


def _with_lines(text: str, edit: Edit, *, has_returns: bool, ends_whole: bool) -> str:
    """Return the text with a range of lines replaced; what is below it was changed already.

    `ends_whole` says whether the whole text ended with a line break, for when nothing is left.
    """
    lines, new = text.split("\n"), edit.new_text
    if lines[-1] == "":
        lines.pop()
        ends_whole = ends_whole if not text else True
    else:
        ends_whole = False
    first, last = edit.first, edit.last
    fresh = new.removesuffix("\n").split("\n") if new else []
    if has_returns:
        fresh = [line.removesuffix("\r") + "\r" for line in fresh]
        if fresh and not ends_whole and last >= len(lines):
            fresh[-1] = fresh[-1].removesuffix("\r")
            if first > len(lines) > 0:  # the line before ends the text no more
                lines[-1] = lines[-1].removesuffix("\r") + "\r"
    lines[first - 1 : last] = fresh
    return "\n".join(lines) + ("\n" if ends_whole and lines else "")
