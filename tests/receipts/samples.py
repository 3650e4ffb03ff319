"""Receipts and whole logs to test with."""

import hashlib
import resource
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from clawd.receipts.record import (
    Intent,
    Receipt,
    ReceiptCheckpoint,
    canonical,
    canonical_checkpoint,
    compute_hash,
    new_id,
    public_key_of,
    seal,
    signed,
    utc_timestamp,
)
from clawd.wire.receipts import GENESIS_HASH


def draft(**fields: Any) -> Receipt:
    """Return a receipt that has no place in a chain yet."""
    intent = Intent(
        id=new_id(),
        timestamp=utc_timestamp(),
        conversation_id="conv-01",
        tool="file_list",
        args_hash="a" * 64,
        risk="low",
        uid=1000,
        workspace="/home/user/clawd-workspace",
        approval="auto",
        reason="reads the workspace",
    )
    return msgspec.structs.replace(intent.receipt("allowed", "b" * 64), **fields)


def receipts(count: int) -> list[Receipt]:
    """Return a valid chain."""
    chain: list[Receipt] = []
    for seq in range(1, count + 1):
        previous = chain[-1].receipt_hash if chain else GENESIS_HASH
        chain.append(seal(draft(reason=f"call {seq}"), seq=seq, previous_hash=previous))
    return chain


def private_key(number: int) -> bytes:
    """Return the key that signs this checkpoint of a sample, counted from 0."""
    return hashlib.sha256(b"key %d" % number).digest()


FIRST_KEY = public_key_of(private_key(0))


def signed_chain(
    count: int, at: Collection[int], *, word: str = "call", first_key: int = 0
) -> list[Receipt | ReceiptCheckpoint]:
    """Return a valid chain with a checkpoint after each receipt that `at` names."""
    return list(signed_entries(count, at, word=word, first_key=first_key))


def signed_entries(
    count: int, at: Collection[int], *, word: str = "call", first_key: int = 0
) -> Iterator[Receipt | ReceiptCheckpoint]:
    """Yield what `signed_chain` returns."""
    previous, mark, number = GENESIS_HASH, "", first_key
    for seq in range(1, count + 1):
        filled = draft(reason=f"{word} {seq}")
        receipt = seal(filled, seq=seq, previous_hash=previous, checkpoint_hash=mark)
        yield receipt
        previous, mark = receipt.receipt_hash, ""
        if seq in at:
            made = checkpoint(seq, previous, number)
            yield made
            mark = made.checkpoint_hash
            number += 1


def checkpoint(seq: int, head_hash: str, number: int) -> ReceiptCheckpoint:
    """Return the checkpoint that the sample's key of this number signs."""
    following = public_key_of(private_key(number + 1))
    return signed(private_key(number), seq=seq, head_hash=head_hash, next_public_key=following)


def line(entry: Receipt | ReceiptCheckpoint) -> bytes:
    if isinstance(entry, ReceiptCheckpoint):
        return canonical_checkpoint(entry) + b"\n"
    return canonical(entry) + b"\n"


def write(path: Path, lines: Iterable[Receipt | ReceiptCheckpoint | bytes]) -> Path:
    """Write receipts, or raw bytes as they are, to the file."""
    path.write_bytes(b"".join(x if isinstance(x, bytes) else line(x) for x in lines))
    return path


def forged(receipt: Receipt, **fields: Any) -> Receipt:
    """Return the receipt with other fields and a hash that fits them."""
    changed = msgspec.structs.replace(receipt, **fields)
    return msgspec.structs.replace(changed, receipt_hash=compute_hash(changed))


@contextmanager
def files_no_longer_than(size: int) -> Iterator[None]:
    """Let every write beyond the size fail half-way, as a full disk does."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
