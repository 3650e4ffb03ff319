"""Drafts, receipts and whole logs to test with."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from clawd.receipts.record import (
    GENESIS_HASH,
    Receipt,
    ReceiptDraft,
    canonical,
    new_id,
    seal,
    sealed,
    utc_timestamp,
)


def draft(**fields: Any) -> ReceiptDraft:
    plain = ReceiptDraft(
        id=new_id(),
        timestamp=utc_timestamp(),
        conversation_id="conv-01",
        tool="file_list",
        args_hash="a" * 64,
        result_hash="b" * 64,
        status="allowed",
        risk="low",
        uid=1000,
        workspace="/home/user/clawd-workspace",
        approval="auto",
        reason="reads the workspace",
    )
    return msgspec.structs.replace(plain, **fields)


def receipts(count: int) -> list[Receipt]:
    """Return a valid chain."""
    chain: list[Receipt] = []
    for seq in range(1, count + 1):
        previous = chain[-1].receipt_hash if chain else GENESIS_HASH
        chain.append(seal(draft(reason=f"call {seq}"), seq=seq, previous_hash=previous))
    return chain


def line(receipt: Receipt) -> bytes:
    return canonical(receipt) + b"\n"


def write(path: Path, lines: Iterable[Receipt | bytes]) -> Path:
    """Write receipts, or raw bytes as they are, to the file."""
    path.write_bytes(b"".join(x if isinstance(x, bytes) else line(x) for x in lines))
    return path


def forged(receipt: Receipt, **fields: Any) -> Receipt:
    """Return the receipt with other fields and a hash that fits them."""
    return sealed(msgspec.structs.replace(receipt, **fields))
