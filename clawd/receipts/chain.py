"""The one writer of the receipt chain: takes receipts, gives each its place, and has it on disk.

Between the receipts it writes checkpoints (see `checkpoint`): after every 256 receipts, an hour
after the first unsigned one, where a full file ends, and at the close.

Beside `tool_receipts.log` it keeps `tool_receipts.log.lock` (held while the chain is open) and,
when a crash left half a line, `tool_receipts.log.torn`. The private key lies where `keys` says.
"""

import asyncio
import errno
import fcntl
import logging
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from clawd.errors import ReceiptError
from clawd.kernel.files import sync_folder
from clawd.receipts import record
from clawd.receipts.durable import GroupCommit, open_private, write_all, write_private
from clawd.receipts.keys import CheckpointKey
from clawd.receipts.logfiles import next_rotated, read_lines_backwards
from clawd.wire.receipts import GENESIS_HASH


class Head(msgspec.Struct, frozen=True, kw_only=True):
    """The last receipt of a chain: its number and hash; 0 and 64 zeros before the first."""

    seq: int = 0
    receipt_hash: str = GENESIS_HASH


class Ending(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a chain.

    Attributes:
        head: the last receipt.
        signed_seq: the receipt that the last checkpoint signs; 0 without one.
        next_public_key: the key that it names; None without one.
        checkpoint_hash: of that checkpoint when it is the last line, else "".
    """

    head: Head = Head()
    signed_seq: int = 0
    next_public_key: str | None = None
    checkpoint_hash: str = ""

    @property
    def unsigned(self) -> int:
        """How many receipts no checkpoint signs yet."""
        return self.head.seq - self.signed_seq

    def after_checkpoint(self, checkpoint: record.ReceiptCheckpoint) -> "Ending":
        """Return the end when the checkpoint follows."""
        return Ending(
            head=Head(seq=checkpoint.seq, receipt_hash=checkpoint.head_hash),
            signed_seq=checkpoint.seq,
            next_public_key=checkpoint.next_public_key,
            checkpoint_hash=checkpoint.checkpoint_hash,
        )


def read_ending(path: Path) -> Ending:
    """Return how the chain ends; it is read backwards as far as its last checkpoint.

    Raises:
        ReceiptError: the last line, or the last checkpoint, is broken in itself, or there is no
            chain at the path.
    """
    head: Head | None = None
    for line in read_lines_backwards(path):
        if head is None and not line.startswith(record.LINE_START):
            head = _sound_head(path, line)
        elif line.startswith(record.LINE_START):
            end = Ending().after_checkpoint(_sound_checkpoint(path, line))
            if head is None:
                return end
            return msgspec.structs.replace(end, head=head, checkpoint_hash="")
    return Ending(head=head or Head())


def _sound_head(path: Path, line: bytes) -> Head:
    try:
        last = record.parse(line)
    except ReceiptError as error:
        raise _bad_end(path, error.message) from error
    if record.canonical(last) != line or record.compute_hash(last) != last.receipt_hash:
        raise _bad_end(path, f"receipt {last.seq} does not match its hash")
    return Head(seq=last.seq, receipt_hash=last.receipt_hash)


def _sound_checkpoint(path: Path, line: bytes) -> record.ReceiptCheckpoint:
    try:
        last = record.parse_checkpoint(line)
    except ReceiptError as error:
        raise _bad_end(path, error.message, "checkpoint") from error
    if record.canonical_checkpoint(last) != line or record.hash_of(last) != last.checkpoint_hash:
        raise _bad_end(path, f"that of receipt {last.seq} does not match its hash", "checkpoint")
    if not record.is_signed(last):
        raise _bad_end(path, f"that of receipt {last.seq} is not signed by its key", "checkpoint")
    return last


def _bad_end(path: Path, why: str, what: str = "line") -> ReceiptError:
    return ReceiptError(
        f"the last {what} of {path} is no valid {'receipt' if what == 'line' else what} ({why}); "
        "nothing may follow it",
        hint="Look at it with `clawctl receipt verify`. To go on with a new chain, move the log, "
        "its rotated files and the checkpoint key away and keep them.",
    )


_log = logging.getLogger(__name__)

MAX_FILE_BYTES = 64 << 20
CHECKPOINT_INTERVAL_S = 3600.0

_T = TypeVar("_T")


class TornLine(msgspec.Struct, frozen=True, kw_only=True):
    """Half a line that a crash left at the end of the log, and where it was set aside."""

    length: int
    file: Path


class ReceiptChain:
    """An open chain. Appends of many tasks share one write and one fsync.

    Attributes:
        path: the current file.
        torn: what was set aside at open, or None.
        unwritten: ids of the receipts that were refused since then; whoever closes their calls
            takes them out.
    """

    def __init__(
        self, path: Path, *, key_path: Path, max_file_bytes: int, checkpoint_interval_s: float
    ) -> None:
        self.path = path
        self.torn: TornLine | None = None
        self.unwritten: set[str] = set()
        self._key_path = key_path
        self._max_file_bytes = max_file_bytes
        self._checkpoint_interval_s = checkpoint_interval_s
        self._key: CheckpointKey
        self._end = Ending()
        self._unsigned_since = 0.0
        self._failure = ""
        self._lock_fd = -1
        self._fd = -1
        self._size = 0
        self._writer: GroupCommit[record.Receipt, record.Receipt] | None = None
        self._reopening = asyncio.Lock()

    @classmethod
    async def open(
        cls,
        path: Path,
        *,
        key_path: Path | None = None,
        max_file_bytes: int = MAX_FILE_BYTES,
        checkpoint_interval_s: float = CHECKPOINT_INTERVAL_S,
    ) -> "ReceiptChain":
        """Lock the chain, look at its end and return it ready for `append`.

        The folder must be there; the file need not. Half a line at the end is set aside in
        `<path>.torn`; see `torn`.

        Args:
            path: the current file.
            key_path: of the private key; by default `checkpoint.key` beside the log.
            max_file_bytes: from which size on the chain goes on in a new file.
            checkpoint_interval_s: how long a receipt may stay without a checkpoint.

        Raises:
            ReceiptError: another process writes it, it cannot be read or written, its last line
                is no valid receipt or checkpoint, or the private key is not the promised one.
        """
        chain = cls(
            path,
            key_path=key_path or path.with_name("checkpoint.key"),
            max_file_bytes=max_file_bytes,
            checkpoint_interval_s=checkpoint_interval_s,
        )
        await asyncio.to_thread(chain._acquire)
        chain._start_writer()
        return chain

    async def append(self, receipt: record.Receipt) -> record.Receipt:
        """Return the receipt, in its place, when it is on disk.

        Raises:
            ReceiptError: it is not; after a failed write nothing is taken until `reopen`.
        """
        if self._writer is None:
            raise ReceiptError(f"the receipt chain {self.path} is not open")
        return await self._writer.submit(record.fitted(receipt))

    def head(self) -> Head:
        """Return the last receipt that is on disk."""
        return self._end.head

    @property
    def failure(self) -> str:
        """Why nothing is taken any more; empty while all is well."""
        return self._failure or (self._writer.failure if self._writer is not None else "")

    def check_writable(self) -> None:
        """Make sure that no write has failed since the chain was opened.

        Raises:
            ReceiptError: one has; nothing that needs a receipt may run.
        """
        if self._failure:
            raise ReceiptError(
                f"the receipt chain {self.path} takes nothing since a write failed: "
                f"{self._failure}",
                hint="Make room or repair the disk, then reload or restart clawd.",
            )

    async def reopen(self) -> None:
        """Look at the file anew after a failed write, and take receipts again.

        Raises:
            ReceiptError: it still cannot be written; the chain stays failed.
        """
        async with self._reopening:
            await self._stop_writer()
            try:
                await asyncio.to_thread(self._reload)
            except ReceiptError as error:
                self._failure = self._failure or error.message
                raise
            finally:
                self._start_writer()

    async def close(self) -> None:
        """Write what waits, sign it and release the file; idempotent."""
        await self._stop_writer()
        await asyncio.to_thread(self._end_with_checkpoint)

    def _start_writer(self) -> None:
        self._writer = GroupCommit(
            "receipt chain", self._commit, error=ReceiptError, housekeep=self._housekeep
        )

    async def _stop_writer(self) -> None:
        if self._writer is not None:
            await self._writer.close()
            self._writer = None

    # What follows runs in threads: one at a time, never beside the writer's.

    def _acquire(self) -> None:
        lock = self.path.with_name(self.path.name + ".lock")
        self._lock_fd = _reported(lock, lambda: open_private(lock, os.O_RDWR))
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
        self._fd = open_private(self.path, os.O_RDWR | os.O_APPEND)
        sync_folder(self.path.parent)
        self._size = os.fstat(self._fd).st_size
        self._set_torn_line_aside()
        self._end = read_ending(self.path)
        self._key = CheckpointKey.open(self._key_path, promised=self._end.next_public_key)
        self._unsigned_since = time.monotonic()

    def _set_torn_line_aside(self) -> None:
        tail = os.pread(self._fd, record.MAX_LINE_BYTES, max(0, self._size - record.MAX_LINE_BYTES))
        torn = tail.rpartition(b"\n")[2]
        if not torn:
            return
        if len(torn) == record.MAX_LINE_BYTES or not (
            torn.startswith(b"{") or not torn.strip(b"\0")
        ):
            raise ReceiptError(
                f"{self.path} does not end in a receipt: it is no receipt log",
                hint="Point [receipts] path to another file, or move this one away.",
            )
        start = self._size - len(torn)
        aside = self.path.with_name(self.path.name + ".torn")
        note = {
            "at": record.utc_timestamp(),
            "file": self.path.name,
            "offset": start,
            "length": len(torn),
        }
        content = msgspec.json.encode(note) + b"\n" + torn + b"\n"
        write_private(aside, content, os.O_APPEND)
        sync_folder(aside.parent)
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

    def _commit(self, waiting: list[record.Receipt]) -> Sequence[record.Receipt | Exception]:
        answers: list[record.Receipt | Exception] = []
        while rest := waiting[len(answers) :]:
            try:
                answers += self._commit_part(rest)
            except ReceiptError as error:
                self.unwritten |= {each.id for each in rest}
                answers += [error] * len(rest)
        return answers

    def _commit_part(self, waiting: list[record.Receipt]) -> list[record.Receipt]:
        """Write as many as may stand before the next checkpoint; return their receipts."""
        self.check_writable()
        if self._end.unsigned >= record.CHECKPOINT_RECEIPTS:  # a crash tore the checkpoint off
            self._write(b"", self._end, with_checkpoint=True)
            self.check_writable()
        end = self._end
        receipts: list[record.Receipt] = []
        for each in waiting[: record.CHECKPOINT_RECEIPTS - end.unsigned]:
            receipt = record.seal(
                each,
                seq=end.head.seq + 1,
                previous_hash=end.head.receipt_hash,
                checkpoint_hash=end.checkpoint_hash,
            )
            head = Head(seq=receipt.seq, receipt_hash=receipt.receipt_hash)
            end = msgspec.structs.replace(end, head=head, checkpoint_hash="")
            receipts.append(receipt)
        if not self._end.unsigned:
            self._unsigned_since = time.monotonic()
        self._write(b"".join(record.canonical(receipt) + b"\n" for receipt in receipts), end)
        return receipts

    def _housekeep(self) -> float | None:
        """Sign what waited long enough; return in how many seconds to look again."""
        if self._failure or not self._end.unsigned:
            return None
        waits_s = self._unsigned_since + self._checkpoint_interval_s - time.monotonic()
        if waits_s > 0 and self._end.unsigned < record.CHECKPOINT_RECEIPTS:
            return waits_s
        self._write(b"", self._end, with_checkpoint=True)
        return None

    def _end_with_checkpoint(self) -> None:
        try:
            if self._fd >= 0 and self._end.unsigned and not self._failure:
                self._write(b"", self._end, with_checkpoint=True)
        except ReceiptError as error:
            _log.error("the last receipts stay unsigned: %s", error.message)
        finally:
            self._release()

    def _write(self, lines: bytes, end: Ending, *, with_checkpoint: bool = False) -> None:
        """Write lines that make the chain end so, and a checkpoint where one is due."""
        try:
            self._check_unchanged()
            if self._size >= self._max_file_bytes:
                self._rotate()
            is_full = self._size + len(lines) >= self._max_file_bytes
            is_due = with_checkpoint or is_full or end.unsigned >= record.CHECKPOINT_RECEIPTS
            if is_due:
                checkpoint = self._key.sign(end.head.seq, end.head.receipt_hash)
                lines += record.canonical_checkpoint(checkpoint) + b"\n"
                end = end.after_checkpoint(checkpoint)
            try:
                write_all(self._fd, lines)
                os.fsync(self._fd)
            except OSError:
                self._take_back()
                raise
            self._size += len(lines)
        except OSError as error:
            self._failure = error.strerror or str(error)
            raise ReceiptError(
                f"cannot write the receipt to {self.path}: {self._failure}",
                hint="Nothing that needs a receipt runs until it can be written; make room or "
                "repair the disk, then reload or restart clawd.",
            ) from error
        self._end = end
        if is_due:
            self._replace_key()

    def _replace_key(self) -> None:
        """Destroy the key that signed. The lines before it are on disk, whatever happens here."""
        try:
            self._key.replace()
        except OSError as error:
            self._failure = f"the key {self._key_path} was not replaced: {error.strerror or error}"
            _log.error("receipts stop: %s", self._failure)
        else:
            _log.info("receipts signed", extra={"seq": self._end.head.seq})

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
        fresh = open_private(self.path, os.O_RDWR | os.O_APPEND | os.O_EXCL)
        os.close(self._fd)
        self._fd = fresh
        self._size = 0
        sync_folder(self.path.parent)
        _log.info("the receipt log goes on in a new file", extra={"full": str(full)})

    def _release(self) -> None:
        for descriptor in (self._fd, self._lock_fd):
            if descriptor >= 0:
                os.close(descriptor)
        self._fd = self._lock_fd = -1


def _take_lock(descriptor: int) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise OSError(errno.EBUSY, "another process has it locked and writes the chain") from error


def _reported(path: Path, act: Callable[[], _T]) -> _T:
    try:
        return act()
    except OSError as error:
        raise ReceiptError(
            f"cannot open the receipt chain at {path}: {error.strerror or error}",
            hint="Only one clawd writes a chain; its folder must be there and belong to the "
            "daemon's user.",
        ) from error
