"""Texts of files: pieces by lines or bytes, edits of them, what is near to a name or a text.

Pieces carry the line numbers that they have in the whole. An edit replaces an exact piece, or a
range of lines. Several edits all speak of the text as it is before any of them: they are made from
the bottom up, so that none moves the lines that another one names. Two that overlap are refused.
"""

import codecs
import contextlib
import difflib
import os
import posixpath
from array import array
from collections.abc import Iterable, Sequence
from itertools import accumulate, islice
from typing import BinaryIO

import msgspec

from clawd.errors import ClawError
from clawd.security.workspace import Workspace
from clawd.tools.base import Arguments
from clawd.wire.safe_text import shown_name

SKIPPED = frozenset({".git"})  # folders that are not searched
LINES_DEFAULT, LINES_LIMIT = 200, 2000
BYTES_DEFAULT, BYTES_LIMIT = 65_536, 1 << 20
# Lines are counted, and so numbered, up to here.
COUNTED_BYTES = 8 << 20
_SNIFFED_BYTES = 8192
_SHOWN_MATCHES = 5
_SHOWN = 3
_ALIKE, _ALIKE_ELSEWHERE = 0.6, 0.85  # how alike a near name is, in its own folder and in others
# Comparing takes time by the square of a length, and nothing could end it.
_MAX_NAMES = 2_000
_MAX_LINES = 20_000
_MAX_WIDTH = 200
_MAX_COMPARED = 200_000


class BinaryFileError(Exception):
    """The file holds no UTF-8 text."""


class Excerpt(msgspec.Struct, frozen=True, kw_only=True):
    """Some lines of a file.

    Attributes:
        lines: without their ends; the first or last may be cut by a byte limit.
        first_line: number of the first, from 1.
        total_lines: of the whole file; 0 when it is too large to count.
        is_partial: whether the file has more.
    """

    lines: list[str]
    first_line: int
    total_lines: int
    is_partial: bool


def read_lines(file: BinaryIO, start_line: int, max_lines: int) -> Excerpt:
    """Read lines from `start_line` on, at most `BYTES_LIMIT` bytes of them.

    Raises:
        BinaryFileError: it is no text.
    """
    _check_text(file)
    first = max(1, start_line)
    last = first + min(max(1, max_lines), LINES_LIMIT) - 1
    lines: list[bytes] = []
    room, number, seen = BYTES_LIMIT, 0, 0
    while seen < COUNTED_BYTES and (line := file.readline(COUNTED_BYTES - seen)):
        seen += len(line)
        number += 1
        if first <= number <= last and room > 0:
            lines.append(line[:room])
            room -= len(line)
    complete = not file.read(1)
    return Excerpt(
        lines=[_decoded(line).rstrip("\r\n") for line in lines],
        first_line=first,
        total_lines=number if complete else 0,
        is_partial=not (complete and first == 1 and number == len(lines) and room >= 0),
    )


def read_bytes(file: BinaryIO, offset: int, max_bytes: int) -> Excerpt:
    """Read bytes from `offset` on and number their lines.

    Raises:
        BinaryFileError: it is no text.
    """
    _check_text(file)
    start = min(max(0, offset), file.seek(0, os.SEEK_END))
    file.seek(0)
    before = _count_breaks(file, min(start, COUNTED_BYTES))
    file.seek(start)
    data = file.read(min(max(1, max_bytes), BYTES_LIMIT))
    rest = file.read(COUNTED_BYTES)
    complete = not file.read(1) and start <= COUNTED_BYTES
    end = (data + rest)[-1:]
    breaks = before + data.count(b"\n") + rest.count(b"\n")
    lines = _decoded(data).split("\n") if data else []
    if lines and not lines[-1]:
        lines.pop()
    return Excerpt(
        lines=[line.removesuffix("\r") for line in lines],
        first_line=before + 1,
        total_lines=breaks + (end not in {b"\n", b""}) if complete else 0,
        is_partial=bool(start or rest),
    )


def is_text(data: bytes) -> bool:
    """Whether the beginning of a file is UTF-8 text; a character cut at the end is forgiven."""
    if b"\0" in data:
        return False
    try:
        codecs.getincrementaldecoder("utf-8")().decode(data)
    except UnicodeDecodeError:
        return False
    return True


def _check_text(file: BinaryIO) -> None:
    if not is_text(file.read(_SNIFFED_BYTES)):
        raise BinaryFileError
    file.seek(0)


def _count_breaks(file: BinaryIO, length: int) -> int:
    return file.read(length).count(b"\n")


def _decoded(data: bytes) -> str:
    return data.decode("utf-8", "replace")


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


def on_own_line(added: bytes, end: bytes) -> bytes:
    """Return what is added to a text that ends so, with the line break that its end lacks."""
    is_ended = not end or end.endswith(b"\n") or b"\0" in end
    if is_ended or not added or added.startswith((b"\n", b"\r\n")):
        return added
    return (b"\r\n" if b"\r\n" in end else b"\n") + added


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
    shown = ""
    if edit.new_text and _in_its_way(edit, has_returns="\r\n" in text)[1] in text:
        shown = ", but new_text does: either it is changed already, or the two are swapped"
    if near := nearest_text(text, old):
        shown += f"; the nearest is\n{near}"
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


def nearest_names(workspace: Workspace, path: str) -> str:
    """Return `; near names are …` for a path that is not there, or an empty string.

    Names in its own folder come first; where none is like it, the whole workspace is looked
    through for the name in other folders.
    """
    folder, name = posixpath.split(path.strip().rstrip("/"))
    found: list[str] = []
    with contextlib.suppress(ClawError):
        here = (posixpath.join(folder, each.name) for each in workspace.entries(folder or "."))
        found = _alike(name, here, _ALIKE)
    if not found:
        with contextlib.suppress(ClawError):
            walked = (each for each, _ in workspace.walk(".", skip=SKIPPED))
            found = _alike(name, walked, _ALIKE_ELSEWHERE)
    return f"; near names are {', '.join(map(shown_name, found))}" if found else ""


def _alike(name: str, paths: Iterable[str], cutoff: float) -> list[str]:
    """Return the paths whose last parts are most like a name."""
    known: dict[str, str] = {}
    for path in islice(paths, _MAX_NAMES):
        known.setdefault(posixpath.basename(path).lower(), path)
    wanted = name.lower()[:_MAX_WIDTH]
    return [known[each] for each in difflib.get_close_matches(wanted, known, _SHOWN, cutoff)]


def nearest_text(text: str, wanted: str) -> str:
    """Return the lines of a text that are most like the wanted ones, numbered, or nothing."""
    lines, height = text.splitlines(), max(1, len(wanted.splitlines()))
    first = next((line.strip() for line in wanted.splitlines() if line.strip()), "")
    first = first[:_MAX_WIDTH]
    stripped = [line.strip()[:_MAX_WIDTH] for line in lines[:_MAX_LINES]]
    near = difflib.get_close_matches(first, _comparable(stripped), n=1, cutoff=0.5) if first else []
    if not near:
        return ""
    at = stripped.index(near[0])
    shown = lines[at : at + min(height, 10)]
    return "\n".join(f"{at + 1 + i}|{line}" for i, line in enumerate(shown))


def _comparable(lines: list[str]) -> list[str]:
    """Return each line once, as many as are compared in a short time."""
    kept, room = [], _MAX_COMPARED
    for line in dict.fromkeys(lines):
        room -= len(line)
        if room < 0:
            break
        kept.append(line)
    return kept
