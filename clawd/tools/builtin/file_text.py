"""Reading pieces of a text file by lines or bytes, with the line numbers they have in the whole."""

import codecs
import os
from typing import BinaryIO

import msgspec

LINES_DEFAULT, LINES_LIMIT = 200, 2000
BYTES_DEFAULT, BYTES_LIMIT = 65_536, 1 << 20
# Lines are counted, and so numbered, up to here.
COUNTED_BYTES = 8 << 20
_SNIFFED_BYTES = 8192


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


def shown_name(name: str) -> str:
    """Return a file's name as one line of valid text."""
    text = name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    return text.replace("\n", "\\n").replace("\r", "\\r")


def _check_text(file: BinaryIO) -> None:
    if not is_text(file.read(_SNIFFED_BYTES)):
        raise BinaryFileError
    file.seek(0)


def _count_breaks(file: BinaryIO, length: int) -> int:
    return file.read(length).count(b"\n")


def _decoded(data: bytes) -> str:
    return data.decode("utf-8", "replace")
