"""Whatever is done to a log of 1,000 receipts, two verifiers that share no code find the same."""

import hashlib
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clawd.receipts import logfiles
from clawd.receipts.record import GENESIS_HASH, Receipt, fitted, parse, seal
from clawd.receipts.verify import verify
from tests.receipts.samples import draft, forged, line, receipts
from tests.support import second_verifier

pytestmark = pytest.mark.tamper

COUNT = 1000
NUMBERS = range(1, COUNT + 1)
UNREADABLE = {"edited", "not a receipt"}


@cache
def _chain() -> tuple[Receipt, ...]:
    return tuple(receipts(COUNT))


@cache
def _lines() -> tuple[bytes, ...]:
    return tuple(map(line, _chain()))


@pytest.fixture(autouse=True)
def _nobody_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spare each torn tail the wait for a writer that is about to finish it."""
    monkeypatch.setattr(logfiles, "_TAIL_WAIT_S", 0.0)


def _both(log: Path, head: tuple[int, str] | None = None) -> tuple[int | None, str | None]:
    """Return number and kind of the first broken receipt, on which both verifiers agree."""
    first = verify(log, anchor=head)
    second = second_verifier.verify(log, head)
    assert (first.receipts, first.first_bad, first.kind) == second
    assert first.ok is (first.first_bad is None) is (first.kind is None)
    return first.first_bad, first.kind


def _found(
    folder: Path, lines: Iterable[bytes], head: tuple[int, str] | None = None
) -> tuple[int | None, str | None]:
    (folder / "log").write_bytes(b"".join(lines))
    return _both(folder / "log", head)


def _head() -> tuple[int, str]:
    return COUNT, _chain()[-1].receipt_hash


def _assert_flips_are_found(log: Path, lines: list[bytes], flips: dict[int, int]) -> None:
    """Flip one byte at a time (position: mask) in the log of these lines, and put it back."""
    text = b"".join(lines)
    log.write_bytes(text)
    numbers = [number for number, one in enumerate(lines, start=1) for _ in one]
    with log.open("r+b", buffering=0) as file:
        for position, mask in flips.items():
            os.pwrite(file.fileno(), bytes([text[position] ^ mask]), position)
            number, kind = _both(log)
            kinds = {"torn tail"} if position == len(text) - 1 else UNREADABLE
            assert number == numbers[position] and kind in kinds, f"byte {position} ^ {mask}"
            os.pwrite(file.fileno(), text[position : position + 1], position)
    assert _both(log) == (None, None)


def test_both_verifiers_take_the_chain_that_nobody_touched(tmp_path: Path) -> None:
    assert _found(tmp_path, _lines()) == (None, None)
    assert _both(tmp_path / "log", _head()) == (None, None)
    assert _found(tmp_path, []) == (None, None)


def test_every_flipped_byte_of_a_short_chain_is_found(tmp_path: Path) -> None:
    lines = list(_lines()[:40])
    flips = {position: 1 << position % 8 for position in range(sum(map(len, lines)))}
    _assert_flips_are_found(tmp_path / "log", lines, flips)


@pytest.mark.parametrize("number", [1, 200, COUNT])
def test_every_flipped_byte_of_one_line_of_many_is_found(tmp_path: Path, number: int) -> None:
    lines = list(_lines())
    start = sum(map(len, lines[: number - 1]))
    # The last line is the dear one: all that stands before it is verified each time.
    step = 5 if number == COUNT else 1
    flips = dict.fromkeys(range(start, start + len(lines[number - 1]), step), 0x01)
    _assert_flips_are_found(tmp_path / "log", lines, flips)


def test_flipped_bytes_all_over_the_chain_are_found(tmp_path: Path) -> None:
    lines = list(_lines())
    dice = random.Random(8)
    places = dice.sample(range(sum(map(len, lines))), 250)
    _assert_flips_are_found(tmp_path / "log", lines, {at: dice.randint(1, 255) for at in places})


def test_every_other_byte_in_the_place_of_a_newline_is_found(tmp_path: Path) -> None:
    lines = list(_lines()[:3])
    for number, last in ((2, UNREADABLE), (3, {"torn tail"})):
        for byte in set(range(256)) - {ord("\n")}:
            changed = [*lines]
            changed[number - 1] = changed[number - 1][:-1] + bytes([byte])
            found, kind = _found(tmp_path, changed)
            assert found == number and kind in last, f"byte {byte} at the end of {number}"


def test_every_removed_receipt_is_found(tmp_path: Path) -> None:
    lines = _lines()
    for number in NUMBERS[:-1]:
        changed = lines[: number - 1] + lines[number:]
        assert _found(tmp_path, changed) == (number, "removed")


def test_every_swap_of_neighbours_is_found(tmp_path: Path) -> None:
    for number in NUMBERS[:-1]:
        changed = list(_lines())
        changed[number - 1 : number + 1] = changed[number], changed[number - 1]
        assert _found(tmp_path, changed) == (number, "reordered")


def test_swaps_of_far_receipts_are_found(tmp_path: Path) -> None:
    dice = random.Random(8)
    pairs = [(1, COUNT), *(sorted(dice.sample(NUMBERS, 2)) for _ in range(150))]
    for one, other in pairs:
        changed = list(_lines())
        changed[one - 1], changed[other - 1] = changed[other - 1], changed[one - 1]
        assert _found(tmp_path, changed) == (one, "reordered")


def test_a_part_in_another_order_is_found_at_its_first_change(tmp_path: Path) -> None:
    dice = random.Random(8)
    for _ in range(60):
        start, end = sorted(dice.sample(range(COUNT), 2))
        changed = list(_lines())
        part = changed[start:end]
        dice.shuffle(part)
        changed[start:end] = part
        moved = [at for at in range(COUNT) if changed[at] != _lines()[at]]
        expected = (moved[0] + 1, "reordered") if moved else (None, None)
        assert _found(tmp_path, changed) == expected
    assert _found(tmp_path, _lines()[::-1]) == (1, "reordered")


def test_forged_receipts_put_in_anywhere_are_found(tmp_path: Path) -> None:
    chain, lines = _chain(), _lines()
    for at in [0, 1, *range(4, COUNT, 9), COUNT - 1]:
        previous = chain[at - 1].receipt_hash if at else GENESIS_HASH
        extra = line(seal(draft(reason="forged"), seq=at + 1, previous_hash=previous))
        # The forged one fits; the genuine one after it bears the same number.
        expected = (at + 1 if at + 1 < COUNT else COUNT + 1, "inserted")
        assert _found(tmp_path, [*lines[:at], extra, *lines[at:]]) == expected
        assert _found(tmp_path, [*lines[:at], b"{}\n", *lines[at:]]) == (at + 1, "inserted")


def test_copies_put_in_anywhere_are_found(tmp_path: Path) -> None:
    lines = _lines()
    for number in [*range(1, COUNT, 7), COUNT]:
        next_to_it = [*lines[:number], lines[number - 1], *lines[number:]]
        assert _found(tmp_path, next_to_it) == (number + 1, "duplicated")
    for number in range(1, COUNT, 50):
        assert _found(tmp_path, [*lines, lines[number - 1]]) == (COUNT + 1, "duplicated")


def test_a_receipt_rewritten_with_a_fitting_hash_is_found_by_the_next(tmp_path: Path) -> None:
    for number in [*range(1, COUNT, 40), COUNT - 1]:
        changed = list(_lines())
        changed[number - 1] = line(forged(_chain()[number - 1], status="denied"))
        assert _found(tmp_path, changed) == (number, "edited")


def test_a_cut_tail_is_found_with_a_known_head_and_only_with_one(tmp_path: Path) -> None:
    for kept in [*range(0, COUNT, 25), COUNT - 1]:
        assert _found(tmp_path, _lines()[:kept]) == (None, None)
        assert _both(tmp_path / "log", _head()) == (kept + 1, "cut tail")


def test_a_chain_written_anew_is_found_with_a_known_head_and_only_with_one(tmp_path: Path) -> None:
    kept = 700
    anew = list(_chain()[:kept])
    for seq in range(kept + 1, COUNT + 1):
        anew.append(seal(draft(), seq=seq, previous_hash=anew[-1].receipt_hash))
    assert _found(tmp_path, map(line, anew)) == (None, None)
    assert _both(tmp_path / "log", _head()) == (COUNT, "edited")
    assert _both(tmp_path / "log", (kept + 1, _chain()[kept].receipt_hash)) == (kept + 1, "edited")
    assert _both(tmp_path / "log", (kept, _chain()[kept - 1].receipt_hash)) == (None, None)


def test_a_tail_torn_at_any_byte_of_the_last_line_is_found(tmp_path: Path) -> None:
    lines = _lines()[:20]
    for length in range(1, len(lines[-1])):
        assert _found(tmp_path, [*lines[:-1], lines[-1][:length]]) == (20, "torn tail")
    assert _found(tmp_path, [*_lines()[:-1], _lines()[-1][:-1]]) == (COUNT, "torn tail")


def test_two_logs_joined_are_found_where_the_second_begins(tmp_path: Path) -> None:
    other = [line(receipt) for receipt in receipts(60)]
    lines = _lines()
    assert _found(tmp_path, [*lines[:50], *other]) == (51, "inserted")
    assert _found(tmp_path, [*lines, *lines]) == (COUNT + 1, "duplicated")
    # Receipt 51 names another hash for 50 and is itself named by 52: 50 is the one that is wrong.
    assert _found(tmp_path, [*lines[:50], *other[50:]]) == (50, "edited")
    assert _found(tmp_path, [*lines[:50], *other[55:]]) == (51, "removed")


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
    "the format left out": lambda x: x.replace(b'"format":"clawd-receipt/1",', b""),
    "another order": lambda x: b'{"uid":1000,' + x.replace(b'"uid":1000,', b"")[1:],
}
OTHER_JSON: dict[str, Callable[[bytes], bytes]] = {
    "a float": lambda x: x.replace(b'"uid":1000', b'"uid":1000.0'),
    "an exponent": lambda x: x.replace(b'"uid":1000', b'"uid":1e3'),
    "null left out": lambda x: x.replace(b'"exit_code":null,', b""),
    "a byte order mark": lambda x: b"\xef\xbb\xbf" + x,
    "UTF-16": lambda x: x[:-1].decode().encode("utf-16-le") + b"\n",
    "an overlong letter": lambda x: x.replace(b"file_list", b"file_lis\xc1\xb4"),
    "half a surrogate pair": lambda x: x.replace(b"file_list", b"file_list\\ud800"),
    "a NUL at the end": lambda x: x[:-1] + b"\0\n",
    "a key more": lambda x: x.replace(b'"uid":', b'"note":1,"uid":'),
}


@pytest.mark.parametrize("number", [1, 500, COUNT])
def test_the_same_receipt_in_other_bytes_is_refused(tmp_path: Path, number: int) -> None:
    for kind, variants in (("edited", SAME_JSON), ("not a receipt", OTHER_JSON)):
        for name, vary in variants.items():
            changed = list(_lines())
            changed[number - 1] = vary(changed[number - 1])
            assert changed[number - 1] != _lines()[number - 1], name
            assert _found(tmp_path, changed) == (number, kind), name


def test_a_line_of_another_type_and_one_past_all_bounds_are_named(tmp_path: Path) -> None:
    before, after = _lines()[:4], _lines()[4:9]
    typed = b'{"seq":4,"type":"checkpoint"}\n'
    assert _found(tmp_path, [*before, typed, *after]) == (5, "unknown line type")
    endless = b"x" * (3 << 20)
    assert _found(tmp_path, [*before, endless, b"\n", *after]) == (5, "inserted")
    assert _found(tmp_path, [*before, endless, b"\n", *after[1:]]) == (5, "not a receipt")
    assert _found(tmp_path, [*before, endless]) == (5, "not a receipt")


def _write_rotated(folder: Path, *parts: Iterable[bytes]) -> Path:
    log = folder / "log"
    names = [*(f"log.{number:06d}" for number in range(1, len(parts))), log.name]
    for name, part in zip(names, parts, strict=True):
        (folder / name).write_bytes(b"".join(part))
    return log


def test_tampering_is_found_in_and_between_rotated_files(tmp_path: Path) -> None:
    a, b, c, d = (_lines()[start : start + 250] for start in range(0, COUNT, 250))
    assert _both(_write_rotated(tmp_path, a, b, c, d), _head()) == (None, None)
    assert _both(_write_rotated(tmp_path, a, c, b, d)) == (251, "reordered")
    assert _both(_write_rotated(tmp_path, a, b[:-1], c, d)) == (500, "removed")
    assert _both(_write_rotated(tmp_path, a, [], c, d)) == (251, "removed")
    assert _both(_write_rotated(tmp_path, a, b, b, d)) == (501, "duplicated")
    assert _both(_write_rotated(tmp_path, [], b, c, d)) == (1, "removed")
    assert _both(_write_rotated(tmp_path, a, b, [*c[:-1], c[-1][:-9]], d)) == (750, "not a receipt")
    for end in (b"", b" ", b"\t", b"\r"):
        ended = [*c[:-1], c[-1][:-1] + end]
        assert _both(_write_rotated(tmp_path, a, b, ended, d)) == (750, "edited")
    assert _both(_write_rotated(tmp_path, a, b, c, [*d[:-1], d[-1][:-9]])) == (COUNT, "torn tail")
    assert _both(_write_rotated(tmp_path, a, b, c, []), _head()) == (751, "cut tail")
    _write_rotated(tmp_path, a, b, c, d).unlink()
    assert _both(tmp_path / "log") == (None, None)
    (tmp_path / "log.000002").unlink()
    assert _both(tmp_path / "log") == (251, "removed")


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_any_edits_in_any_number_are_found_alike(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    text = b"".join(_lines()[:12])
    changed = text
    for _ in range(data.draw(st.integers(1, 4))):
        start, end = sorted(data.draw(st.tuples(*[st.integers(0, len(changed))] * 2)))
        part = st.sampled_from([b"", changed[start:end] * 2, b"\n", changed[:start], b'"', b" "])
        changed = changed[:start] + data.draw(part | st.binary(max_size=6)) + changed[end:]
    found = _found(tmp_path_factory.mktemp("edited"), [changed])
    lines = changed.splitlines(keepends=True)
    is_beginning = lines == list(_lines()[: len(lines)])
    assert (found == (None, None)) is is_beginning


@settings(max_examples=100, deadline=None)
@given(order=st.lists(st.integers(0, 7), max_size=12))
def test_any_choice_of_lines_in_any_order_is_found_alike(
    tmp_path_factory: pytest.TempPathFactory, order: list[int]
) -> None:
    found = _found(tmp_path_factory.mktemp("order"), [_lines()[at] for at in order])
    if order == list(range(len(order))):
        assert found == (None, None)
    else:
        first = next(at for at, number in enumerate(order) if number != at)
        assert found[0] == first + 1


@settings(max_examples=100, deadline=None)
@given(texts=st.lists(st.text(), min_size=1, max_size=4), code=st.none() | st.integers())
def test_both_take_whatever_the_writer_may_write(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str], code: int | None
) -> None:
    chain: list[Receipt] = []
    for seq, text in enumerate(texts, start=1):
        filled = fitted(draft(reason=text, tool=text[::-1], approved_by=text, exit_code=code))
        previous = chain[-1].receipt_hash if chain else GENESIS_HASH
        chain.append(seal(filled, seq=seq, previous_hash=previous))
    assert _found(tmp_path_factory.mktemp("written"), map(line, chain)) == (None, None)


# VmHWM and not ru_maxrss: that one begins with the peak of the process that started this one.
_PEAK_KB = r"""
import re, sys
from pathlib import Path
from clawd.receipts.verify import verify
def peak(log):
    found = verify(Path(log))
    status = Path("/proc/self/status").read_text()
    print(found.receipts, found.first_bad, re.search(r"VmHWM:\s+(\d+) kB", status)[1])
peak(sys.argv[1])
peak(sys.argv[2])
"""


def test_memory_stays_flat_over_200_000_receipts(tmp_path: Path) -> None:
    count = 200_000
    (tmp_path / "short").write_bytes(b"".join(_lines()))
    whole = _lines()[0]
    own_hash, previous = b'"receipt_hash":"%b",' % parse(whole).receipt_hash.encode(), b"0" * 64
    with (tmp_path / "log").open("wb") as log:
        for seq in range(1, count + 1):
            bare = whole.replace(own_hash, b"").replace(b'"seq":1', b'"seq":%d' % seq)
            bare = bare[:-1].replace(b"0" * 64, previous)
            previous = hashlib.sha256(bare).hexdigest().encode()
            at = bare.index(b'"result_hash"')
            log.write(bare[:at] + b'"receipt_hash":"%b",' % previous + bare[at:] + b"\n")
    command = [sys.executable, "-c", _PEAK_KB, str(tmp_path / "short"), str(tmp_path / "log")]
    root = Path(__file__).parents[2]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=root)
    short, long = (row.split() for row in done.stdout.splitlines())
    assert (short[:2], long[:2]) == ([str(COUNT), "None"], [str(count), "None"])
    print(f"the peak grew by {int(long[2]) - int(short[2])} KiB from 1,000 to {count} receipts")
    assert int(long[2]) - int(short[2]) < 4096
