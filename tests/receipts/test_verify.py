"""The verifier finds everything that can be done to a chain, with number and kind."""

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from clawd.errors import ReceiptError
from clawd.receipts.record import Receipt, canonical, seal
from clawd.receipts.verify import (
    BadLine,
    find_receipt,
    read_receipts,
    verify,
)
from clawd.wire.receipts import GENESIS_HASH, Verification
from tests.receipts.samples import draft, forged, line, receipts, write
from tests.support.rows import each_row


def _found(path: Path) -> tuple[int | None, str | None]:
    found = verify(path)
    assert found.ok is (found.first_bad is None)
    if not found.ok:
        assert found.level == "none"
        assert found.message.startswith(f"invalid chain at receipt {found.first_bad}: {found.kind}")
    return found.first_bad, found.kind or None


def test_a_chain_that_nobody_touched_is_valid(tmp_path: Path) -> None:
    chain = receipts(3)
    assert verify(write(tmp_path / "log", chain)) == Verification(
        ok=True,
        receipts=3,
        level="chain",
        message="valid chain of 3 receipts",
        head_seq=3,
        head_hash=chain[2].receipt_hash,
        signatures="no checkpoint signs them yet",
    )


def test_an_empty_log_is_a_valid_chain_of_none(tmp_path: Path) -> None:
    found = verify(write(tmp_path / "log", []))
    assert (found.ok, found.receipts, found.head_seq, found.head_hash) == (True, 0, 0, GENESIS_HASH)


def test_no_log_is_an_error_and_not_a_valid_chain(tmp_path: Path) -> None:
    with pytest.raises(ReceiptError, match="no such file"):
        verify(tmp_path / "log")
    with pytest.raises(ReceiptError, match="No such file"):
        verify(tmp_path / "nowhere" / "log")
    with pytest.raises(ReceiptError, match="Is a directory"):
        verify(tmp_path)


def test_the_second_of_three_edited_is_receipt_2(tmp_path: Path) -> None:
    text = b"".join(map(line, receipts(3)))
    (tmp_path / "log").write_bytes(text.replace(b"call 2", b"call 9"))
    found = verify(tmp_path / "log")
    assert found.message == (
        "invalid chain at receipt 2: edited: its hash does not match its content"
    )
    assert (found.first_bad, found.kind, found.receipts) == (2, "edited", 1)


def test_every_single_flipped_byte_is_found_at_its_receipt(tmp_path: Path) -> None:
    lines = [line(receipt) for receipt in receipts(3)]
    text = b"".join(lines)
    numbers = [n for n, x in enumerate(lines, start=1) for _ in x]
    path = tmp_path / "log"
    path.write_bytes(text)
    with path.open("r+b", buffering=0) as file:
        for flip in (0x01, 0x20, 0x80):
            # All but the last newline: see the test of torn tails.
            for position, number in enumerate(numbers[:-1]):
                os.pwrite(file.fileno(), bytes([text[position] ^ flip]), position)
                assert _found(path) in {
                    (number, "edited"),
                    (number, "not a receipt"),
                }, f"byte {position} ^ {flip}"
                os.pwrite(file.fileno(), text[position : position + 1], position)
    assert verify(path).ok


def test_other_json_of_the_same_content_is_edited(tmp_path: Path) -> None:
    first, second, third = map(line, receipts(3))
    for other in (
        second.replace(b',"seq":2', b', "seq":2'),
        second.replace(b'"seq":2', b'"seq":1,"seq":2'),
        second.replace(b"call 2", b"c\\u0061ll 2"),
        second.replace(b"\n", b"\r\n"),
    ):
        assert other != second
        assert _found(write(tmp_path / "log", [first, other, third])) == (2, "edited")


def test_an_edited_receipt_with_a_new_hash_is_found_by_the_next(tmp_path: Path) -> None:
    chain = receipts(4)
    chain[1] = forged(chain[1], reason="nothing to see")
    assert _found(write(tmp_path / "log", chain)) == (2, "edited")
    assert _found(write(tmp_path / "log", chain[:3])) == (2, "edited")


def test_a_first_receipt_with_another_beginning_is_edited(tmp_path: Path) -> None:
    chain = receipts(2)
    chain[0] = forged(chain[0], previous_hash="1" * 64)
    assert _found(write(tmp_path / "log", chain)) == (1, "edited")


def test_a_removed_receipt_that_was_covered_by_renumbering_is_found(tmp_path: Path) -> None:
    chain = receipts(5)
    chain[2] = forged(chain[2], seq=2)
    del chain[1]
    assert _found(write(tmp_path / "log", chain)) == (2, "edited")


@each_row("number", [1, 2, 3, 4])
def test_a_removed_receipt_is_found_where_it_is_missing(tmp_path: Path, number: int) -> None:
    chain = receipts(5)
    del chain[number - 1]
    assert _found(write(tmp_path / "log", chain)) == (number, "removed")


def test_several_removed_receipts_are_found_where_the_first_is_missing(tmp_path: Path) -> None:
    chain = receipts(9)
    del chain[2:6]
    assert _found(write(tmp_path / "log", chain)) == (3, "removed")


@each_row(("one", "other"), [(1, 2), (2, 3), (1, 5), (4, 5), (2, 4)])
def test_swapped_receipts_are_reordered(tmp_path: Path, one: int, other: int) -> None:
    chain = receipts(5)
    chain[one - 1], chain[other - 1] = chain[other - 1], chain[one - 1]
    assert _found(write(tmp_path / "log", chain)) == (one, "reordered")


def test_a_receipt_moved_to_the_end_is_reordered(tmp_path: Path) -> None:
    chain = receipts(5)
    chain.append(chain.pop(1))
    assert _found(write(tmp_path / "log", chain)) == (2, "reordered")


@each_row(("number", "at"), [(1, 2), (2, 3), (2, 6), (5, 6), (1, 4)])
def test_a_copy_of_a_receipt_is_duplicated(tmp_path: Path, number: int, at: int) -> None:
    chain = receipts(5)
    chain.insert(at - 1, chain[number - 1])
    assert _found(write(tmp_path / "log", chain)) == (at, "duplicated")


def test_a_well_linked_receipt_put_in_is_inserted(tmp_path: Path) -> None:
    chain = receipts(4)
    extra = seal(draft(reason="forged"), seq=3, previous_hash=chain[1].receipt_hash)
    assert _found(write(tmp_path / "log", [*chain[:2], extra, *chain[2:]])) == (3, "inserted")


def test_a_receipt_put_in_after_the_genuine_one_is_inserted(tmp_path: Path) -> None:
    chain = receipts(4)
    extra = forged(chain[1], reason="forged")
    assert _found(write(tmp_path / "log", [*chain[:2], extra, *chain[2:]])) == (3, "inserted")
    assert _found(write(tmp_path / "log", [*chain, extra])) == (5, "inserted")


def test_a_receipt_with_a_later_number_put_in_is_inserted(tmp_path: Path) -> None:
    chain = receipts(4)
    extra = seal(draft(), seq=9, previous_hash=chain[1].receipt_hash)
    assert _found(write(tmp_path / "log", [*chain[:2], extra, *chain[2:]])) == (3, "inserted")


@each_row("extra", [b"\n", b"hello\n", b"{}\n", b"\0\0\n"])
def test_a_line_put_in_that_is_no_receipt_is_inserted(tmp_path: Path, extra: bytes) -> None:
    chain = receipts(3)
    assert _found(write(tmp_path / "log", [*chain[:1], extra, *chain[1:]])) == (2, "inserted")
    assert _found(write(tmp_path / "log", [extra, *chain])) == (1, "inserted")
    assert _found(write(tmp_path / "log", [*chain, extra])) == (4, "not a receipt")


def test_a_line_type_of_a_later_version_is_named(tmp_path: Path) -> None:
    chain = receipts(3)
    checkpoint = b'{"seq":2,"type":"checkpoint"}\n'
    found = verify(write(tmp_path / "log", [*chain[:2], checkpoint, chain[2]]))
    assert (found.first_bad, found.kind) == (3, "unknown line type")
    assert "'checkpoint'" in found.message


def test_a_torn_last_line_is_a_torn_tail(tmp_path: Path) -> None:
    text = b"".join(map(line, receipts(3)))
    path = tmp_path / "log"
    for cut in (1, 2, 100, len(line(receipts(3)[2])) - 1):
        path.write_bytes(text[:-cut])
        assert _found(path) == (3, "torn tail")
    path.write_bytes(text[:-1] + b"\x0b")
    assert _found(path) == (3, "torn tail")


def test_a_tail_cut_at_a_line_shows_with_an_anchor_only(tmp_path: Path) -> None:
    chain = receipts(5)
    path = write(tmp_path / "log", chain[:3])
    assert verify(path).ok
    found = verify(path, anchor=(5, chain[4].receipt_hash))
    assert (found.first_bad, found.kind, found.level) == (4, "cut tail", "chain")
    assert found.message.startswith("invalid chain at receipt 4: cut tail: ")
    (tmp_path / "log").write_bytes(b"")
    assert verify(path, anchor=(5, chain[4].receipt_hash)).first_bad == 1


def test_a_chain_written_anew_shows_with_an_anchor_only(tmp_path: Path) -> None:
    path = write(tmp_path / "log", receipts(5))
    assert verify(path).ok
    found = verify(path, anchor=(3, receipts(3)[2].receipt_hash))
    assert (found.ok, found.first_bad, found.kind, found.level) == (False, 3, "edited", "chain")


def test_a_chain_that_contains_the_anchor_is_anchored(tmp_path: Path) -> None:
    chain = receipts(5)
    path = write(tmp_path / "log", chain)
    for receipt in chain:
        found = verify(path, anchor=(receipt.seq, receipt.receipt_hash))
        assert (found.ok, found.level) == (True, "anchored")


def test_rotated_files_are_read_in_order(tmp_path: Path) -> None:
    chain = receipts(6)
    write(tmp_path / "log.000001", chain[:2])
    write(tmp_path / "log.000002", chain[2:4])
    write(tmp_path / "log", chain[4:])
    (tmp_path / "log.torn").write_text("not of the chain")
    (tmp_path / "log.lock").touch()
    assert verify(tmp_path / "log").head_hash == chain[5].receipt_hash
    assert list(read_receipts(tmp_path / "log")) == chain
    assert list(read_receipts(tmp_path / "log", newest_first=True)) == chain[::-1]
    (tmp_path / "log").unlink()
    assert verify(tmp_path / "log").receipts == 4
    (tmp_path / "log.000001").unlink()
    assert _found(tmp_path / "log") == (1, "removed")


def test_a_log_of_garbage_without_lines_is_no_receipt_and_needs_no_memory(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with path.open("wb") as file:
        file.truncate(300 << 20)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert _found(path) in {(1, "not a receipt"), (1, "torn tail")}
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 32 << 10


def test_reading_shows_bad_lines_and_goes_on(tmp_path: Path) -> None:
    chain = receipts(2)
    path = write(tmp_path / "log", [chain[0], b"garbage\n", chain[1]])
    first, bad, last = read_receipts(path)
    assert (first, last) == (chain[0], chain[1])
    assert isinstance(bad, BadLine)
    assert bad.problem.startswith("not a receipt: ")


def test_reading_backwards_crosses_block_boundaries(tmp_path: Path) -> None:
    chain: list[Receipt] = []
    for seq in range(1, 120):
        previous = chain[-1].receipt_hash if chain else GENESIS_HASH
        chain.append(seal(draft(reason="x" * 50 * seq), seq=seq, previous_hash=previous))
    path = write(tmp_path / "log", chain)
    assert path.stat().st_size > 1 << 18
    assert list(read_receipts(path, newest_first=True)) == chain[::-1]


def test_a_receipt_is_found_by_its_id(tmp_path: Path) -> None:
    chain = receipts(5)
    path = write(tmp_path / "log", [*chain, b'{"id":"receipt-x"}\n'])
    assert find_receipt(path, chain[2].id) == chain[2]
    assert find_receipt(path, "receipt-x") is None
    for other in ('"', "", "ü", "\udcff"):
        assert find_receipt(path, other) is None


def test_the_verifier_loads_nothing_heavy() -> None:
    code = (
        "import sys, clawd.receipts.verify;"
        "print([m for m in ('asyncio','pydantic','sqlite3','aiohttp') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, check=True, cwd=Path(__file__).parents[2]
    )
    assert done.stdout.strip() == b"[]"


def test_it_verifies_more_than_a_hundred_thousand_a_second_where_nothing_else_runs(
    tmp_path: Path,
) -> None:
    chain = receipts(20_000)
    path = write(tmp_path / "log", [canonical(receipt) + b"\n" for receipt in chain])
    before = resource.getrusage(resource.RUSAGE_SELF)
    assert verify(path).ok
    after = resource.getrusage(resource.RUSAGE_SELF)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(f"verified {20_000 / cpu_s:,.0f} receipts a CPU second")
    assert cpu_s < 1.0, "five times slower than it should be"
