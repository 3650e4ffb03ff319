"""How a chain ends, as its writer must know it before a line may follow. Reads only."""

from pathlib import Path

import msgspec

from clawd.errors import ReceiptError
from clawd.receipts.checkpoint import (
    LINE_START,
    Checkpoint,
    canonical_checkpoint,
    hash_of,
    is_signed,
    parse_checkpoint,
)
from clawd.receipts.logfiles import read_lines_backwards
from clawd.receipts.record import GENESIS_HASH, Receipt, canonical, compute_hash, parse


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

    def after_receipt(self, receipt: Receipt) -> "Ending":
        """Return the end when the receipt follows."""
        head = Head(seq=receipt.seq, receipt_hash=receipt.receipt_hash)
        return msgspec.structs.replace(self, head=head, checkpoint_hash="")

    def after_checkpoint(self, checkpoint: Checkpoint) -> "Ending":
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
        if head is None and not line.startswith(LINE_START):
            head = _sound_head(path, line)
        elif line.startswith(LINE_START):
            end = Ending().after_checkpoint(_sound_checkpoint(path, line))
            if head is None:
                return end
            return msgspec.structs.replace(end, head=head, checkpoint_hash="")
    return Ending(head=head or Head())


def _sound_head(path: Path, line: bytes) -> Head:
    try:
        last = parse(line)
    except ReceiptError as error:
        raise _bad_end(path, error.message) from error
    if canonical(last) != line or compute_hash(last) != last.receipt_hash:
        raise _bad_end(path, f"receipt {last.seq} does not match its hash")
    return Head(seq=last.seq, receipt_hash=last.receipt_hash)


def _sound_checkpoint(path: Path, line: bytes) -> Checkpoint:
    try:
        last = parse_checkpoint(line)
    except ReceiptError as error:
        raise _bad_end(path, error.message, "checkpoint") from error
    if canonical_checkpoint(last) != line or hash_of(last) != last.checkpoint_hash:
        raise _bad_end(path, f"that of receipt {last.seq} does not match its hash", "checkpoint")
    if not is_signed(last):
        raise _bad_end(path, f"that of receipt {last.seq} is not signed by its key", "checkpoint")
    return last


def _bad_end(path: Path, why: str, what: str = "line") -> ReceiptError:
    return ReceiptError(
        f"the last {what} of {path} is no valid {'receipt' if what == 'line' else what} ({why}); "
        "nothing may follow it",
        hint="Look at it with `clawctl receipt verify`. To go on with a new chain, move the log, "
        "its rotated files and the checkpoint key away and keep them.",
    )
