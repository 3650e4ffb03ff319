"""The files of one chain and the lines in them, forwards and backwards. Reads only.

A chain in `tool_receipts.log` that has grown past its size goes on in a new file; the full ones are
`tool_receipts.log.000001` (the oldest), `tool_receipts.log.000002`, …
"""

import os
import re
import time
from collections.abc import Iterator
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import BinaryIO

from clawd.errors import ReceiptError
from clawd.receipts.record import MAX_LINE_BYTES

_BLOCK_BYTES = 1 << 18
_TAIL_WAITS = 5
_WRITER_WAITS = 500  # a daemon that is there may be held up in the middle of a line
_TAIL_WAIT_S = 0.02
_LOCKS = Path("/proc/locks")


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
        current = _opened(path)
        try:
            for file in _full_before(path, current):
                with file.open("rb", buffering=_BLOCK_BYTES) as opened:
                    yield from iter(partial(opened.readline, MAX_LINE_BYTES), b"")
            if current is not None:
                yield from _current_lines(path, current)
        finally:
            if current is not None:
                current.close()
    except OSError as error:
        raise _unreadable(path, error) from error


def _opened(path: Path) -> BinaryIO | None:
    """Open the current file; None where a rotation has just taken its name, or there is none.

    It is held before the others are listed, so that a rotation in between shows as the same file
    under a second name instead of a gap.
    """
    try:
        return path.open("rb")
    except FileNotFoundError:
        return None


def _full_before(path: Path, current: BinaryIO | None) -> list[Path]:
    """Return the full files that come before the one that is held, oldest first."""
    full = rotated_files(path)
    if current is None:
        if not full:
            raise ReceiptError(
                f"no receipts at {path}: there is no such file",
                hint="Check [receipts] path; the file appears with the first tool call.",
            )
        return full
    held = os.fstat(current.fileno())
    return list(takewhile(lambda file: not os.path.samestat(file.stat(), held), full))


def _current_lines(path: Path, current: BinaryIO) -> Iterator[bytes]:
    for line in iter(lambda: current.readline(MAX_LINE_BYTES), b""):
        if line.endswith(b"\n") or len(line) == MAX_LINE_BYTES:
            yield line
        else:
            yield _with_rest(path, current, line)


def _with_rest(path: Path, current: BinaryIO, line: bytes) -> bytes:
    """Give the daemon a moment to finish the line that it may be writing right now."""
    for number in range(_WRITER_WAITS):
        if number == _TAIL_WAITS and not _is_written(path):
            break
        time.sleep(_TAIL_WAIT_S)
        line += current.readline(MAX_LINE_BYTES)
        if line.endswith(b"\n"):
            break
    return line


def _is_written(path: Path) -> bool:
    """Whether somebody has the chain's lock; told without taking it, which would keep out a daemon.

    The inode's number is enough: file systems in layers tell another device there.
    """
    try:
        number = path.with_name(f"{path.name}.lock").stat().st_ino
        locks = _LOCKS.read_text("ascii").splitlines()
    except OSError:
        return False
    return any(" FLOCK " in line and f":{number} " in line for line in locks)


def read_lines_backwards(path: Path) -> Iterator[bytes]:
    """Yield the chain's lines without their newlines, newest first.

    A file that is begun while this runs is not read.

    Raises:
        ReceiptError: there is no such chain, or it cannot be read.
    """
    try:
        current = _opened(path)
        try:
            full = _full_before(path, current)
            if current is not None:
                yield from _backwards(current)
        finally:
            if current is not None:
                current.close()
        for file in reversed(full):
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
