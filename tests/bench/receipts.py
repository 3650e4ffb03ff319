"""How fast a chain of receipts is verified, against hashing the same lines and nothing else."""

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path

from clawd.receipts.record import GENESIS_HASH, canonical, seal
from clawd.receipts.verify import verify
from tests.bench.report import Row, measured_in_turn, row_of
from tests.bench.scale import Scale
from tests.bench.streams import BenchError, now
from tests.receipts.samples import draft


def rows(folder: Path, scale: Scale) -> Iterator[Row]:
    """Measure on a chain that is made for it, warm in the page cache."""
    path = folder / "tool_receipts.log"
    _write_chain(path, scale.receipts)

    def verify_all() -> int:
        verdict = verify(path)
        if not verdict.ok:
            raise BenchError(verdict.message)
        return verdict.receipts

    ours, peer = _per_second(verify_all, scale), _per_second(lambda: _hash_all(path), scale)
    pairs = measured_in_turn(ours, peer, scale.receipt_pairs)
    yield row_of("receipts verified (SHA-256 of the same lines)", "receipts/s", pairs)


def _write_chain(path: Path, count: int) -> None:
    previous = GENESIS_HASH
    with path.open("wb") as file:
        for seq in range(1, count + 1):
            receipt = seal(draft(reason=f"call {seq}"), seq=seq, previous_hash=previous)
            file.write(canonical(receipt) + b"\n")
            previous = receipt.receipt_hash


def _hash_all(path: Path) -> int:
    count = 0
    with path.open("rb") as file:
        for line in file:
            hashlib.sha256(line).hexdigest()
            count += 1
    return count


def _per_second(read_all: Callable[[], int], scale: Scale) -> Callable[[int], float]:
    """Return what reads the chain once and tells how many receipts a second that were."""

    def once(_number: int) -> float:
        began = now()
        count = read_all()
        elapsed_s = now() - began
        if count != scale.receipts:
            raise BenchError(f"{count} receipts were read, expected {scale.receipts}")
        return count / elapsed_s

    return once
