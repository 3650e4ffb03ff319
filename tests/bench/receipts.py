"""How fast a signed chain is verified, against hashing its lines, and the memory it takes."""

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path

from clawd.receipts.record import CHECKPOINT_RECEIPTS, LINE_START
from clawd.receipts.verify import verify
from tests.bench.report import Row, measured_in_turn, row_of
from tests.bench.scale import Scale
from tests.bench.streams import BenchError, now
from tests.receipts.samples import line, signed_entries
from tests.support.verify_peak import verify_peak_kb

MEMORY_PAIRS = 2


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
    short = folder / "short.log"
    _write_chain(short, scale.short_receipts)
    peaks = measured_in_turn(lambda _: _peak_mb(path), lambda _: _peak_mb(short), MEMORY_PAIRS)
    name = f"memory to verify {scale.receipts:,} receipts ({scale.short_receipts:,})"
    yield row_of(name, "MB", peaks)


def _write_chain(path: Path, count: int) -> None:
    at = range(CHECKPOINT_RECEIPTS, count + 1, CHECKPOINT_RECEIPTS)
    with path.open("wb") as file:
        file.writelines(line(entry) for entry in signed_entries(count, at))


def _peak_mb(path: Path) -> float:
    return verify_peak_kb(path)[1] * 1024 / 1e6


def _hash_all(path: Path) -> int:
    count = 0
    with path.open("rb") as file:
        for each in file:
            hashlib.sha256(each).hexdigest()
            count += not each.startswith(LINE_START)
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
