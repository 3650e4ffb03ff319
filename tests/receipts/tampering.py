"""A signed log of 1,000 receipts to tamper with, and two verifiers that must find the same."""

from collections.abc import Iterable
from functools import cache
from pathlib import Path

from clawd.receipts.record import Receipt, ReceiptCheckpoint
from clawd.receipts.verify import verify
from tests.receipts.samples import line, signed_chain
from tests.support import second_verifier
from tests.support.rows import thorough

COUNT = 1000
SIGNED_AT = (256, 300, 512, 768)
UNREADABLE = {"edited", "not a receipt", "unknown line type"}

Found = tuple[int | None, str | None]


@cache
def entries() -> tuple[Receipt | ReceiptCheckpoint, ...]:
    """Return the lines of the log, oldest first; the last checkpoint is not the last line."""
    return tuple(signed_chain(COUNT, SIGNED_AT))


@cache
def chain() -> tuple[Receipt, ...]:
    """Return its receipts: number N is at N - 1."""
    return tuple(entry for entry in entries() if isinstance(entry, Receipt))


@cache
def lines() -> tuple[bytes, ...]:
    return tuple(map(line, entries()))


def place(index: int) -> int:
    """Return the number at which a line is missed: of a checkpoint, that of the next receipt."""
    entry = entries()[index]
    return entry.seq + 1 if isinstance(entry, ReceiptCheckpoint) else entry.seq


def sampled(indexes: range) -> list[int]:
    """Return the indexes to tamper at: those around checkpoints and both ends, and one of seven.

    All of them when thorough.
    """
    if thorough():
        return list(indexes)
    near = {index_of(seq) + step for seq in SIGNED_AT for step in (-2, -1, 0, 1, 2, 3)}
    near |= {0, 1, indexes[-2], indexes[-1]}
    return [index for index in indexes if index in near or index % 7 == 3]


def index_of(number: int) -> int:
    """Return the index of a receipt's line."""
    return number - 1 + sum(1 for seq in SIGNED_AT if seq < number)


def both(log: Path, head: tuple[int, str] | None = None, key: str | None = None) -> Found:
    """Return number and kind of the first fault, on which both verifiers agree."""
    first = verify(log, anchor=head, public_key=key)
    second = second_verifier.verify(log, head, key)
    assert (first.receipts, first.signed, first.first_bad, first.kind or None) == second
    assert first.ok is (first.first_bad is None) is (not first.kind)
    return first.first_bad, first.kind or None


def found(
    folder: Path,
    log_lines: Iterable[bytes],
    head: tuple[int, str] | None = None,
    key: str | None = None,
) -> Found:
    """Write the log and return what both find."""
    (folder / "log").write_bytes(b"".join(log_lines))
    return both(folder / "log", head, key)


def last_head() -> tuple[int, str]:
    return COUNT, chain()[-1].receipt_hash
