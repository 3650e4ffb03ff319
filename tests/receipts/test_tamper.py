"""Whatever is done to a signed log of 1,000 receipts, two verifiers that share no code agree."""

import hashlib
import itertools
import os
import random
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clawd.receipts import logfiles
from clawd.receipts.record import Receipt, ReceiptCheckpoint, fitted, parse, seal
from clawd.receipts.verify import ChainWalk
from clawd.wire.receipts import GENESIS_HASH
from tests.receipts.samples import draft, forged, line, receipts, signed_chain
from tests.receipts.tampering import (
    COUNT,
    SIGNED_AT,
    UNREADABLE,
    both,
    chain,
    entries,
    found,
    index_of,
    last_head,
    lines,
    place,
    sampled,
)
from tests.support.rows import each_row, thorough
from tests.support.verify_peak import verify_peak_kb

pytestmark = pytest.mark.tamper

NUMBERS = range(1, COUNT + 1)


@pytest.fixture(autouse=True)
def _nobody_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spare each torn tail the wait for a writer that is about to finish it."""
    monkeypatch.setattr(logfiles, "_TAIL_WAIT_S", 0.0)


def _assert_flips_are_found(log: Path, some: list[bytes], flips: dict[int, int]) -> None:
    """Flip one byte at a time (position: mask) in the log of these lines, and put it back."""
    text = b"".join(some)
    log.write_bytes(text)
    numbers = [place(index) for index, one in enumerate(some) for _ in one]
    with log.open("r+b", buffering=0) as file:
        for position, mask in flips.items():
            os.pwrite(file.fileno(), bytes([text[position] ^ mask]), position)
            number, kind = both(log)
            kinds = {"torn tail"} if position == len(text) - 1 else UNREADABLE
            assert number == numbers[position] and kind in kinds, f"byte {position} ^ {mask}"
            os.pwrite(file.fileno(), text[position : position + 1], position)
    assert both(log) == (None, None)


def test_both_verifiers_take_the_chain_that_nobody_touched(tmp_path: Path) -> None:
    assert found(tmp_path, lines()) == (None, None)
    assert both(tmp_path / "log", last_head()) == (None, None)
    assert found(tmp_path, []) == (None, None)


def test_no_line_with_any_byte_flipped_fits_in_its_place() -> None:
    walk = ChainWalk()
    tampered = set(sampled(range(len(lines()))))
    for index, one in enumerate(lines()):
        for position, byte in enumerate(one if index in tampered else b""):
            flipped = bytes([byte ^ 1 << (index + position) % 8])
            changed = one[:position] + flipped + one[position + 1 :]
            assert not walk.take(changed), f"byte {position} of line {index + 1}"
        assert walk.take(one)
    assert walk.seq == COUNT


def test_every_flipped_byte_around_checkpoints_is_found(tmp_path: Path) -> None:
    some = [line(entry) for entry in signed_chain(4, (2, 3))]
    text = b"".join(some)
    log = tmp_path / "log"
    log.write_bytes(text)
    places = (1, 2, 3, 3, 4, 4)
    numbers = [number for number, one in zip(places, some, strict=True) for _ in one]
    with log.open("r+b", buffering=0) as file:
        for position in range(len(text) - 1):
            os.pwrite(file.fileno(), bytes([text[position] ^ 1 << position % 8]), position)
            number, kind = both(log)
            assert number == numbers[position] and kind in UNREADABLE, f"byte {position}"
            os.pwrite(file.fileno(), text[position : position + 1], position)


@each_row("index", [0, 200, index_of(257) - 1, index_of(COUNT)])
def test_every_flipped_byte_of_one_line_of_many_is_found(tmp_path: Path, index: int) -> None:
    some = list(lines())
    start = sum(map(len, some[:index]))
    # The last line is the dear one: all that stands before it is verified each time.
    step = 16 if index == index_of(COUNT) else 4
    flips = dict.fromkeys(range(start, start + len(some[index]), step), 0x01)
    _assert_flips_are_found(tmp_path / "log", some, flips)


def test_flipped_bytes_all_over_the_chain_are_found(tmp_path: Path) -> None:
    some = list(lines())
    dice = random.Random(8)
    places = dice.sample(range(sum(map(len, some))), 200 if thorough() else 60)
    _assert_flips_are_found(tmp_path / "log", some, {at: dice.randint(1, 255) for at in places})


def test_every_other_byte_in_the_place_of_a_newline_is_found(tmp_path: Path) -> None:
    some = list(lines()[:3])
    for number, last in ((2, UNREADABLE), (3, {"torn tail"})):
        for byte in set(range(256)) - {ord("\n")}:
            changed = [*some]
            changed[number - 1] = changed[number - 1][:-1] + bytes([byte])
            bad, kind = found(tmp_path, changed)
            assert bad == number and kind in last, f"byte {byte} at the end of {number}"


def test_every_removed_line_is_found(tmp_path: Path) -> None:
    for index in sampled(range(len(lines()) - 1)):
        changed = lines()[:index] + lines()[index + 1 :]
        assert found(tmp_path, changed) == (place(index), "removed")


def test_every_swap_of_neighbours_is_found(tmp_path: Path) -> None:
    for index in sampled(range(len(lines()) - 1)):
        changed = list(lines())
        changed[index : index + 2] = changed[index + 1], changed[index]
        assert found(tmp_path, changed) == (place(index), "reordered")


def test_swaps_of_far_lines_are_found(tmp_path: Path) -> None:
    dice = random.Random(8)
    signed = [index for index, one in enumerate(entries()) if isinstance(one, ReceiptCheckpoint)]
    places = range(len(lines()))
    pairs = [
        (0, places[-1]),
        *(sorted(dice.sample(places, 2)) for _ in range(110 if thorough() else 30)),
    ]
    pairs += [sorted(dice.sample(signed, 2)) for _ in range(8)]
    pairs += [sorted((dice.choice(signed), dice.choice(places))) for _ in range(40)]
    for one, other in pairs:
        changed = list(lines())
        changed[one], changed[other] = changed[other], changed[one]
        expected = (place(one), "reordered") if one != other else (None, None)
        assert found(tmp_path, changed) == expected, f"{one} and {other}"


def test_a_part_in_another_order_is_found_at_its_first_change(tmp_path: Path) -> None:
    dice = random.Random(8)
    for _ in range(60 if thorough() else 20):
        start, end = sorted(dice.sample(range(len(lines())), 2))
        changed = list(lines())
        part = changed[start:end]
        dice.shuffle(part)
        changed[start:end] = part
        moved = [at for at, one in enumerate(lines()) if changed[at] != one]
        expected = (place(moved[0]), "reordered") if moved else (None, None)
        assert found(tmp_path, changed) == expected
    assert found(tmp_path, lines()[::-1]) == (1, "reordered")


def test_forged_receipts_put_in_anywhere_are_found(tmp_path: Path) -> None:
    for at in [0, 1, *range(4, COUNT, 11 if thorough() else 67), *SIGNED_AT, COUNT - 1]:
        previous = chain()[at - 1].receipt_hash if at else GENESIS_HASH
        mark = chain()[at].checkpoint_hash
        extra = seal(
            draft(reason="forged"), seq=at + 1, previous_hash=previous, checkpoint_hash=mark
        )
        index = index_of(at + 1)
        # The forged one fits; the genuine one after it bears the same number.
        expected = (at + 1 if at + 1 < COUNT else COUNT + 1, "inserted")
        for put_in, number in ((line(extra), expected), (b"{}\n", (at + 1, "inserted"))):
            assert found(tmp_path, [*lines()[:index], put_in, *lines()[index:]]) == number


def test_copies_put_in_anywhere_are_found(tmp_path: Path) -> None:
    signed = [index for index, one in enumerate(entries()) if isinstance(one, ReceiptCheckpoint)]
    for index in [*range(0, COUNT, 9 if thorough() else 61), *signed, len(lines()) - 1]:
        copied = [*lines()[: index + 1], lines()[index], *lines()[index + 1 :]]
        number = place(index) if index in signed else place(index) + 1
        assert found(tmp_path, copied) == (number, "duplicated")
    for index in [*range(0, COUNT, 50 if thorough() else 170), *signed]:
        assert found(tmp_path, [*lines(), lines()[index]]) == (COUNT + 1, "duplicated")


def test_a_receipt_rewritten_with_a_fitting_hash_is_found_by_the_next(tmp_path: Path) -> None:
    for number in [*range(1, COUNT, 40), *SIGNED_AT, COUNT - 1]:
        changed = list(lines())
        changed[index_of(number)] = line(forged(chain()[number - 1], status="denied"))
        assert found(tmp_path, changed) == (number, "edited")


def test_a_cut_tail_is_found_with_a_known_head_and_only_with_one(tmp_path: Path) -> None:
    for kept in [*range(0, len(lines()), 25), len(lines()) - 1]:
        assert found(tmp_path, lines()[:kept]) == (None, None)
        number = place(kept - 1) + 1 if kept else 1
        if kept and isinstance(entries()[kept - 1], ReceiptCheckpoint):
            number -= 1
        assert both(tmp_path / "log", last_head()) == (number, "cut tail")


def test_a_tail_torn_at_any_byte_of_the_last_line_is_found(tmp_path: Path) -> None:
    some = lines()[:20]
    for length in range(1, len(some[-1]), 2):
        assert found(tmp_path, [*some[:-1], some[-1][:length]]) == (20, "torn tail")
    signed = lines()[: index_of(257)]
    for length in range(1, len(signed[-1]), 9):
        assert found(tmp_path, [*signed[:-1], signed[-1][:length]]) == (257, "torn tail")
    assert found(tmp_path, [*lines()[:-1], lines()[-1][:-1]]) == (COUNT, "torn tail")


def test_two_logs_joined_are_found_where_the_second_begins(tmp_path: Path) -> None:
    other = [line(receipt) for receipt in receipts(60)]
    assert found(tmp_path, [*lines()[:50], *other]) == (51, "inserted")
    assert found(tmp_path, [*lines(), *lines()]) == (COUNT + 1, "duplicated")
    # Receipt 51 names another hash for 50 and is itself named by 52: 50 is the one that is wrong.
    assert found(tmp_path, [*lines()[:50], *other[50:]]) == (50, "edited")
    assert found(tmp_path, [*lines()[:50], *other[55:]]) == (51, "removed")


SAME_JSON: dict[str, Callable[[bytes], bytes]] = {
    "a blank before": lambda x: b" " + x,
    "a blank inside": lambda x: x.replace(b'"seq":', b'"seq": '),
    "a blank at the end": lambda x: x[:-1] + b" \n",
    "a tab at the end": lambda x: x[:-1] + b"\t\n",
    "CR LF": lambda x: x[:-1] + b"\r\n",
    "the same key twice": lambda x: x.replace(b'"uid":1000', b'"uid":1000,"uid":1000'),
    "a key twice, the true value last": lambda x: x.replace(b'"uid":1000', b'"uid":0,"uid":1000'),
    "an escaped letter": lambda x: x.replace(b"file_list", b"file_lis\\u0074"),
    "an escaped letter in a key": lambda x: x.replace(b'"tool"', b'"too\\u006c"'),
    "an escaped solidus": lambda x: x.replace(b"/home", b"\\/home"),
    "minus nought": lambda x: x.replace(b'"duration_ms":0', b'"duration_ms":-0'),
    "no checkpoint named": lambda x: x.replace(b'"conv', b'"checkpoint_hash":"","conv', 1),
    "another order": lambda x: b'{"uid":1000,' + x.replace(b'"uid":1000,', b"")[1:],
}
OTHER_JSON: dict[str, Callable[[bytes], bytes]] = {
    "a float": lambda x: x.replace(b'"uid":1000', b'"uid":1000.0'),
    "an exponent": lambda x: x.replace(b'"uid":1000', b'"uid":1e3'),
    "the format left out": lambda x: x.replace(b'"format":"clawd-receipt/1",', b""),
    "null left out": lambda x: x.replace(b'"exit_code":null,', b""),
    "a byte order mark": lambda x: b"\xef\xbb\xbf" + x,
    "UTF-16": lambda x: x[:-1].decode().encode("utf-16-le") + b"\n",
    "an overlong letter": lambda x: x.replace(b"file_list", b"file_lis\xc1\xb4"),
    "half a surrogate pair": lambda x: x.replace(b"file_list", b"file_list\\ud800"),
    "a NUL at the end": lambda x: x[:-1] + b"\0\n",
    "a key more": lambda x: x.replace(b'"uid":', b'"note":1,"uid":'),
}


@each_row("number", [1, 500, COUNT])
def test_the_same_receipt_in_other_bytes_is_refused(tmp_path: Path, number: int) -> None:
    for kind, variants in (("edited", SAME_JSON), ("not a receipt", OTHER_JSON)):
        for name, vary in variants.items():
            changed = list(lines())
            index = index_of(number)
            changed[index] = vary(changed[index])
            assert changed[index] != lines()[index], name
            assert found(tmp_path, changed) == (number, kind), name


def test_a_line_of_another_type_and_one_past_all_bounds_are_named(tmp_path: Path) -> None:
    before, after = lines()[:4], lines()[4:9]
    typed = b'{"seq":4,"type":"checkpoint"}\n'
    assert found(tmp_path, [*before, b'{"type":"note"}\n']) == (5, "unknown line type")
    assert found(tmp_path, [*before, typed, *after]) == (5, "unknown line type")
    endless = b"x" * (3 << 20)
    assert found(tmp_path, [*before, endless, b"\n", *after]) == (5, "inserted")
    assert found(tmp_path, [*before, endless, b"\n", *after[1:]]) == (5, "not a receipt")
    assert found(tmp_path, [*before, endless]) == (5, "not a receipt")


def _write_rotated(folder: Path, *parts: Iterable[bytes]) -> Path:
    log = folder / "log"
    names = [*(f"log.{number:06d}" for number in range(1, len(parts))), log.name]
    for name, part in zip(names, parts, strict=True):
        (folder / name).write_bytes(b"".join(part))
    return log


def test_tampering_is_found_in_and_between_rotated_files(tmp_path: Path) -> None:
    cuts = [0, 250, index_of(257), 700, len(lines())]
    a, b, c, d = (lines()[one:other] for one, other in itertools.pairwise(cuts))
    assert both(_write_rotated(tmp_path, a, b, c, d), last_head()) == (None, None)
    assert both(_write_rotated(tmp_path, a, c, b, d)) == (251, "reordered")
    assert both(_write_rotated(tmp_path, a, b[:-1], c, d)) == (257, "removed")
    assert both(_write_rotated(tmp_path, a, [], c, d)) == (251, "removed")
    assert both(_write_rotated(tmp_path, a, b, b, d)) == (257, "duplicated")
    assert both(_write_rotated(tmp_path, [], b, c, d)) == (1, "removed")
    last = place(cuts[3] - 1)
    assert both(_write_rotated(tmp_path, a, b, [*c[:-1], c[-1][:-9]], d)) == (last, "not a receipt")
    for end in (b"", b" ", b"\t", b"\r"):
        ended = [*c[:-1], c[-1][:-1] + end]
        assert both(_write_rotated(tmp_path, a, b, ended, d)) == (last, "edited")
    assert both(_write_rotated(tmp_path, a, b, c, [*d[:-1], d[-1][:-9]])) == (COUNT, "torn tail")
    assert both(_write_rotated(tmp_path, a, b, c, []), last_head()) == (last + 1, "cut tail")
    _write_rotated(tmp_path, a, b, c, d).unlink()
    assert both(tmp_path / "log") == (None, None)
    (tmp_path / "log.000002").unlink()
    assert both(tmp_path / "log") == (251, "removed")


@settings(max_examples=100, deadline=None)
@given(texts=st.lists(st.text(), min_size=1, max_size=4), code=st.none() | st.integers())
def test_both_take_whatever_the_writer_may_write(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str], code: int | None
) -> None:
    written: list[Receipt] = []
    for seq, text in enumerate(texts, start=1):
        filled = fitted(draft(reason=text, tool=text[::-1], approved_by=text, exit_code=code))
        previous = written[-1].receipt_hash if written else GENESIS_HASH
        written.append(seal(filled, seq=seq, previous_hash=previous))
    assert found(tmp_path_factory.mktemp("written"), map(line, written)) == (None, None)


def test_memory_stays_flat_over_100_000_receipts(tmp_path: Path) -> None:
    short, long = tmp_path / "short", tmp_path / "long"
    short.write_bytes(b"".join(lines()))
    whole, number = lines()[0], 100_000
    own_hash, previous = b'"receipt_hash":"%b",' % parse(whole).receipt_hash.encode(), b"0" * 64
    with long.open("wb") as log:
        for seq in range(1, number + 1):
            bare = whole.replace(own_hash, b"").replace(b'"seq":1', b'"seq":%d' % seq)
            bare = bare[:-1].replace(b"0" * 64, previous)
            previous = hashlib.sha256(bare).hexdigest().encode()
            at = bare.index(b'"result_hash"')
            log.write(bare[:at] + b'"receipt_hash":"%b",' % previous + bare[at:] + b"\n")
    (few, low_kb), (many, high_kb) = verify_peak_kb(short), verify_peak_kb(long)
    assert (few, many) == (COUNT, number)
    print(f"the peak grew by {high_kb - low_kb} KiB from 1,000 to {number} receipts")
    assert high_kb - low_kb < 4096
