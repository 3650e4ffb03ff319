"""The one writer of the receipt chain: takes drafts, gives each its place, and has it on disk.

Beside `tool_receipts.log` it keeps `tool_receipts.log.lock` (held while the chain is open) and,
when a crash left half a line, `tool_receipts.log.torn`.
"""

import asyncio
import errno
import fcntl
import logging
import os
import stat
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from clawd.errors import ReceiptError
from clawd.receipts.groupcommit import GroupCommit
from clawd.receipts.logfiles import next_rotated, read_lines_backwards
from clawd.receipts.record import (
    GENESIS_HASH,
    MAX_LINE_BYTES,
    Receipt,
    ReceiptDraft,
    canonical,
    compute_hash,
    fitted,
    parse,
    seal,
    utc_timestamp,
)

_log = logging.getLogger(__name__)

MAX_FILE_BYTES = 64 << 20

_T = TypeVar("_T")


class Head(msgspec.Struct, frozen=True, kw_only=True):
    """The last receipt of a chain: its number and hash; 0 and 64 zeros before the first."""

    seq: int = 0
    receipt_hash: str = GENESIS_HASH


class TornLine(msgspec.Struct, frozen=True, kw_only=True):
    """Half a line that a crash left at the end of the log, and where it was set aside."""

    length: int
    file: Path


class ReceiptChain:
    """An open chain. Appends of many tasks share one write and one fsync.

    Attributes:
        path: the current file.
        torn: what was set aside at open, or None.
    """

    def __init__(self, path: Path, *, max_file_bytes: int) -> None:
        self.path = path
        self.torn: TornLine | None = None
        self._max_file_bytes = max_file_bytes
        self._head = Head()
        self._failure = ""
        self._lock_fd = -1
        self._fd = -1
        self._size = 0
        self._writer: GroupCommit[ReceiptDraft, Receipt] | None = None

    @classmethod
    async def open(cls, path: Path, *, max_file_bytes: int = MAX_FILE_BYTES) -> "ReceiptChain":
        """Lock the chain, look at its end and return it ready for `append`.

        The folder must be there; the file need not. Half a line at the end is set aside in
        `<path>.torn`; see `torn`.

        Raises:
            ReceiptError: another process writes it, it cannot be read or written, or its last
                line is no valid receipt.
        """
        chain = cls(path, max_file_bytes=max_file_bytes)
        await asyncio.to_thread(chain._acquire)
        chain._writer = GroupCommit("receipt chain", chain._commit, error=ReceiptError)
        return chain

    async def append(self, draft: ReceiptDraft) -> Receipt:
        """Return the receipt when it is on disk.

        Raises:
            ReceiptError: it is not; after a failed write nothing is taken until `reopen`.
        """
        if self._writer is None:
            raise ReceiptError(f"the receipt chain {self.path} is not open")
        return await self._writer.submit(fitted(draft))

    def head(self) -> Head:
        """Return the last receipt that is on disk."""
        return self._head

    @property
    def failure(self) -> str:
        """Why nothing is taken any more; empty while all is well."""
        return self._failure

    async def reopen(self) -> None:
        """Look at the file anew after a failed write, and take receipts again.

        Raises:
            ReceiptError: it still cannot be written; the chain stays failed.
        """
        await self._stop_writer()
        await asyncio.to_thread(self._reload)
        self._writer = GroupCommit("receipt chain", self._commit, error=ReceiptError)

    async def close(self) -> None:
        """Write what waits and release the file; idempotent."""
        await self._stop_writer()
        await asyncio.to_thread(self._release)

    async def _stop_writer(self) -> None:
        if self._writer is not None:
            await self._writer.close()
            self._writer = None

    # What follows runs in threads: one at a time, never beside the writer's.

    def _acquire(self) -> None:
        lock = self.path.with_name(self.path.name + ".lock")
        self._lock_fd = _reported(lock, lambda: _open_private(lock, os.O_RDWR))
        try:
            _reported(lock, lambda: _take_lock(self._lock_fd))
            self._reload()
        except ReceiptError:
            self._release()
            raise

    def _reload(self) -> None:
        _reported(self.path, self._read_end)
        self._failure = ""

    def _read_end(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        self._fd = _open_private(self.path, os.O_RDWR | os.O_APPEND)
        _sync_folder(self.path)
        self._size = os.fstat(self._fd).st_size
        self._set_torn_line_aside()
        self._head = _last_head(self.path)

    def _set_torn_line_aside(self) -> None:
        tail = os.pread(self._fd, MAX_LINE_BYTES, max(0, self._size - MAX_LINE_BYTES))
        torn = tail.rpartition(b"\n")[2]
        if not torn:
            return
        if len(torn) == MAX_LINE_BYTES or not (torn.startswith(b"{") or not torn.strip(b"\0")):
            raise ReceiptError(
                f"{self.path} does not end in a receipt: it is no receipt log",
                hint="Point [receipts] path to another file, or move this one away.",
            )
        start = self._size - len(torn)
        aside = self.path.with_name(self.path.name + ".torn")
        note = {"at": utc_timestamp(), "file": self.path.name, "offset": start, "length": len(torn)}
        aside_fd = _open_private(aside, os.O_WRONLY | os.O_APPEND)
        try:
            _write_all(aside_fd, msgspec.json.encode(note) + b"\n" + torn + b"\n")
            os.fsync(aside_fd)
        finally:
            os.close(aside_fd)
        _sync_folder(aside)
        self._cut_to(start)
        self.torn = TornLine(length=len(torn), file=aside)
        _log.warning(
            "a torn receipt was set aside",
            extra={"file": str(aside), "length": len(torn), "offset": start},
        )

    def _cut_to(self, size: int) -> None:
        os.ftruncate(self._fd, size)
        os.fsync(self._fd)
        self._size = size

    def _commit(self, drafts: list[ReceiptDraft]) -> Sequence[Receipt]:
        if self._failure:
            raise ReceiptError(
                f"the receipt chain {self.path} takes nothing since a write failed: "
                f"{self._failure}",
                hint="Make room or repair the disk, then reload or restart clawd.",
            )
        head = self._head
        receipts: list[Receipt] = []
        for draft in drafts:
            receipt = seal(draft, seq=head.seq + 1, previous_hash=head.receipt_hash)
            head = Head(seq=receipt.seq, receipt_hash=receipt.receipt_hash)
            receipts.append(receipt)
        self._write(b"".join(canonical(receipt) + b"\n" for receipt in receipts))
        self._head = head
        return receipts

    def _write(self, lines: bytes) -> None:
        try:
            self._check_unchanged()
            if self._size >= self._max_file_bytes:
                self._rotate()
            self._append(lines)
        except OSError as error:
            self._failure = error.strerror or str(error)
            raise ReceiptError(
                f"cannot write the receipt to {self.path}: {self._failure}",
                hint="Nothing that needs a receipt runs until it can be written; make room or "
                "repair the disk, then reload or restart clawd.",
            ) from error

    def _append(self, lines: bytes) -> None:
        try:
            _write_all(self._fd, lines)
            os.fsync(self._fd)
        except OSError:
            self._take_back()
            raise
        self._size += len(lines)

    def _check_unchanged(self) -> None:
        """Refuse to write into a file that lost its name or that somebody else writes."""
        mine, named = os.fstat(self._fd), self.path.stat()
        if not os.path.samestat(mine, named):
            raise OSError(errno.ESTALE, "the file was moved or replaced while in use")
        if mine.st_size != self._size:
            raise OSError(errno.EBUSY, "somebody else changed the file's length")

    def _take_back(self) -> None:
        try:
            self._cut_to(self._size)
        except OSError as error:
            _log.warning(
                "an unfinished write stays in the receipt log; it is set aside at the next open",
                extra={"file": str(self.path), "error": str(error)},
            )

    def _rotate(self) -> None:
        full = next_rotated(self.path)
        self.path.rename(full)
        fresh = _open_private(self.path, os.O_RDWR | os.O_APPEND | os.O_EXCL)
        os.close(self._fd)
        self._fd = fresh
        self._size = 0
        _sync_folder(self.path)
        _log.info("the receipt log goes on in a new file", extra={"full": str(full)})

    def _release(self) -> None:
        for descriptor in (self._fd, self._lock_fd):
            if descriptor >= 0:
                os.close(descriptor)
        self._fd = self._lock_fd = -1


def _last_head(path: Path) -> Head:
    line = next(read_lines_backwards(path), None)
    if line is None:
        return Head()
    try:
        last = parse(line)
    except ReceiptError as error:
        raise _bad_end(path, error.message) from error
    if canonical(last) != line or compute_hash(last) != last.receipt_hash:
        raise _bad_end(path, f"receipt {last.seq} does not match its hash")
    return Head(seq=last.seq, receipt_hash=last.receipt_hash)


def _bad_end(path: Path, why: str) -> ReceiptError:
    return ReceiptError(
        f"the last line of {path} is no valid receipt ({why}); nothing may follow it",
        hint="Look at it with `clawctl receipt verify`. To go on with a new chain, move the log "
        "and its rotated files away and keep them.",
    )


def _open_private(path: Path, flags: int) -> int:
    """Open a regular file that only its owner may read, creating it where it is missing."""
    descriptor = os.open(path, flags | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a regular file")
    if stat.S_IMODE(status.st_mode) != 0o600:
        os.fchmod(descriptor, 0o600)
    return descriptor


def _take_lock(descriptor: int) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise OSError(errno.EBUSY, "another process has it locked and writes the chain") from error


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _sync_folder(path: Path) -> None:
    """Make the names in the file's folder durable, a new one among them."""
    descriptor = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _reported(path: Path, act: Callable[[], _T]) -> _T:
    try:
        return act()
    except OSError as error:
        raise ReceiptError(
            f"cannot open the receipt chain at {path}: {error.strerror or error}",
            hint="Only one clawd writes a chain; its folder must be there and belong to the "
            "daemon's user.",
        ) from error
