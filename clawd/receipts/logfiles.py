"""The files of one chain and the lines in them, forwards and backwards. Reads only.

A chain in `tool_receipts.log` that has grown past its size goes on in a new file; the full ones are
`tool_receipts.log.000001` (the oldest), `tool_receipts.log.000002`, …
"""

import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from clawd.errors import ReceiptError
from clawd.receipts.record import MAX_LINE_BYTES

_BLOCK_BYTES = 1 << 18
_TAIL_WAITS = 5
_TAIL_WAIT_S = 0.02


def rotated_files(path: Path) -> list[Path]:
    """Return the chain's full files, oldest first."""
    pattern = re.compile(re.escape(path.name) + r"\.([0-9]{6,})")
    numbered = [
        (int(match[1]), file)
        for file in path.parent.iterdir()
        if (match := pattern.fullmatch(file.name))
    ]
    return [file for _, file in sorted(numbered)]


def next_rotated(path: Path) -> Path:
    """Return the name that the current file gets when it is full."""
    files = rotated_files(path)
    number = int(files[-1].name.rpartition(".")[2]) + 1 if files else 1
    return path.with_name(f"{path.name}.{number:06d}")


def read_lines(path: Path) -> Iterator[bytes]:
    """Yield the chain's lines, oldest first, each with its newline where it has one.

    A file that is begun while this runs is not read. A line of over 1 MiB comes in pieces without a
    newline.

    Raises:
        ReceiptError: there is no such chain, or it cannot be read.
    """
    try:
        # The current file is held before the others are listed, so that a rotation in between
        # shows as the same file under a second name instead of a gap.
        current = path.open("rb") if path.exists() else None
        try:
            yield from _all_lines(path, current)
        finally:
            if current is not None:
                current.close()
    except OSError as error:
        raise _unreadable(path, error) from error


def _all_lines(path: Path, current: BinaryIO | None) -> Iterator[bytes]:
    full = rotated_files(path)
    if current is None and not full:
        raise ReceiptError(
            f"no receipts at {path}: there is no such file",
            hint="Check [receipts] path; the file appears with the first tool call.",
        )
    held = os.fstat(current.fileno()) if current is not None else None
    for file in full:
        if held is not None and os.path.samestat(file.stat(), held):
            break
        with file.open("rb", buffering=_BLOCK_BYTES) as opened:
            yield from iter(lambda: opened.readline(MAX_LINE_BYTES), b"")
    if current is not None:
        yield from _current_lines(current)


def _current_lines(current: BinaryIO) -> Iterator[bytes]:
    for line in iter(lambda: current.readline(MAX_LINE_BYTES), b""):
        if line.endswith(b"\n") or len(line) == MAX_LINE_BYTES:
            yield line
        else:
            yield _with_rest(current, line)


def _with_rest(current: BinaryIO, line: bytes) -> bytes:
    """Give the daemon a moment to finish the line that it may be writing right now."""
    for _ in range(_TAIL_WAITS):
        time.sleep(_TAIL_WAIT_S)
        line += current.readline(MAX_LINE_BYTES)
        if line.endswith(b"\n"):
            break
    return line


def read_lines_backwards(path: Path) -> Iterator[bytes]:
    """Yield the chain's lines without their newlines, newest first.

    Raises:
        ReceiptError: there is no such chain, or it cannot be read.
    """
    try:
        files = [*rotated_files(path), *([path] if path.exists() else [])]
        if not files:
            raise ReceiptError(
                f"no receipts at {path}: there is no such file",
                hint="Check [receipts] path; the file appears with the first tool call.",
            )
        for file in reversed(files):
            with file.open("rb") as opened:
                yield from _backwards(opened)
    except OSError as error:
        raise _unreadable(path, error) from error


def _backwards(opened: BinaryIO) -> Iterator[bytes]:
    position = opened.seek(0, os.SEEK_END)
    rest = b""
    is_last = True
    while position > 0:
        size = min(_BLOCK_BYTES, position)
        position -= size
        opened.seek(position)
        lines = (opened.read(size) + rest).split(b"\n")
        if is_last:
            is_last = False
            if not lines[-1]:
                lines.pop()
        # The first piece may begin in an earlier block. A line too long to be one is given up.
        rest = lines[0][-MAX_LINE_BYTES:]
        yield from reversed(lines[1:])
    if not is_last:
        yield rest


def _unreadable(path: Path, error: OSError) -> ReceiptError:
    return ReceiptError(
        f"cannot read the receipts at {path}: {error.strerror or error}",
        hint="Check the path and its permissions; receipts belong to the daemon's user.",
    )
