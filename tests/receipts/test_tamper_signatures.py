"""Checkpoints, forged and genuine: who holds today's private key cannot rewrite yesterday."""

from pathlib import Path

import msgspec
import pytest

from clawd.receipts import logfiles
from clawd.receipts.record import Receipt, ReceiptCheckpoint, public_key_of, rehashed, seal, signed
from clawd.receipts.verify import verify
from clawd.wire.receipts import GENESIS_HASH
from tests.receipts.samples import (
    FIRST_KEY,
    checkpoint,
    draft,
    forged,
    line,
    private_key,
    signed_chain,
    write,
)
from tests.receipts.tampering import (
    COUNT,
    SIGNED_AT,
    both,
    chain,
    entries,
    found,
    index_of,
    last_head,
    lines,
)
from tests.support.rows import each_row

pytestmark = pytest.mark.tamper

NONE = (None, None)
INTRUDER = b"\7" * 32


@pytest.fixture(autouse=True)
def _nobody_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spare each torn tail the wait for a writer that is about to finish it."""
    monkeypatch.setattr(logfiles, "_TAIL_WAIT_S", 0.0)


def _checkpoint_of(seq: int) -> ReceiptCheckpoint:
    entry = entries()[index_of(seq + 1) - 1]
    assert isinstance(entry, ReceiptCheckpoint)
    return entry


def _with(seq: int, changed: ReceiptCheckpoint) -> list[bytes]:
    """Return the log with another checkpoint of this receipt."""
    index = index_of(seq + 1) - 1
    return [*lines()[:index], line(changed), *lines()[index + 1 :]]


def test_the_levels_are_reached_with_what_each_needs(tmp_path: Path) -> None:
    path = write(tmp_path / "log", lines())
    plain, with_key = verify(path), verify(path, public_key=FIRST_KEY)
    assert (plain.level, plain.signed, plain.checkpoints) == ("chain", 768, 4)
    assert (with_key.level, with_key.signed) == ("signed", 768)
    assert with_key.signatures == "768 of 1000 signed, checked from the public key given"
    assert verify(path, anchor=last_head(), public_key=FIRST_KEY).level == "anchored"
    assert both(path, last_head(), FIRST_KEY) == NONE


def test_a_key_given_for_a_chain_without_checkpoints_does_not_make_it_signed(
    tmp_path: Path,
) -> None:
    path = write(tmp_path / "log", signed_chain(5, ()))
    result = verify(path, public_key=FIRST_KEY)
    assert (result.ok, result.level, result.signed) == (True, "chain", 0)
    assert result.signatures == "no checkpoint signs them yet"


def test_a_chain_that_was_first_signed_late_says_so(tmp_path: Path) -> None:
    path = write(tmp_path / "log", signed_chain(300, (290,)))
    assert "the first 290 stood without a signature" in verify(path).signatures
    assert both(path, key=FIRST_KEY) == NONE


def test_a_whole_rewrite_is_found_with_the_first_public_key(tmp_path: Path) -> None:
    anew = signed_chain(COUNT, SIGNED_AT, word="forged", first_key=50)
    path = write(tmp_path / "log", anew)
    assert both(path) == NONE
    assert both(path, key=FIRST_KEY) == (256, "bad signature")
    assert both(path, last_head()) == (COUNT, "edited")


def test_a_whole_rewrite_that_names_the_first_key_is_found_by_the_chain(tmp_path: Path) -> None:
    anew = signed_chain(COUNT, (), word="forged")
    first = anew[255]
    assert isinstance(first, Receipt)
    real = checkpoint(256, first.receipt_hash, 0)
    fake = rehashed(msgspec.structs.replace(real, signature="ab" * 64))
    log = [*anew[:256], fake]
    assert both(write(tmp_path / "log", log)) == (256, "bad signature")
    assert both(tmp_path / "log", key=FIRST_KEY) == (256, "bad signature")


@each_row("from_seq", [1, 200, 256, 257, 500, 768])
def test_who_has_the_current_private_key_cannot_rewrite_what_is_signed(
    tmp_path: Path, from_seq: int
) -> None:
    # The key that signs after receipt 768; those before it are destroyed.
    current = private_key(len(SIGNED_AT))
    log = list(entries()[: index_of(from_seq)])
    previous = chain()[from_seq - 2].receipt_hash if from_seq > 1 else GENESIS_HASH
    mark = chain()[from_seq - 1].checkpoint_hash
    number = sum(1 for seq in SIGNED_AT if seq < from_seq)
    for seq in range(from_seq, 769):
        filled = draft(reason="rewritten")
        receipt = seal(filled, seq=seq, previous_hash=previous, checkpoint_hash=mark)
        log.append(receipt)
        previous, mark = receipt.receipt_hash, ""
        if seq in SIGNED_AT:
            number += 1
            following = public_key_of(private_key(number))
            made = signed(current, seq=seq, head_hash=previous, next_public_key=following)
            log.append(made)
            mark = made.checkpoint_hash
    broken_at = next(seq for seq in SIGNED_AT if seq >= from_seq)
    assert found(tmp_path, map(line, log), key=FIRST_KEY) == (broken_at, "bad signature")


def test_who_has_the_current_private_key_rewrites_only_what_no_checkpoint_signs(
    tmp_path: Path,
) -> None:
    log = list(entries()[: index_of(769)])
    previous, mark = chain()[767].receipt_hash, _checkpoint_of(768).checkpoint_hash
    for seq in range(769, COUNT + 1):
        filled = draft(reason="rewritten")
        receipt = seal(filled, seq=seq, previous_hash=previous, checkpoint_hash=mark)
        log.append(receipt)
        previous, mark = receipt.receipt_hash, ""
    log.append(checkpoint(COUNT, previous, len(SIGNED_AT)))
    assert found(tmp_path, map(line, log), key=FIRST_KEY) == NONE
    assert both(tmp_path / "log", last_head()) == (COUNT, "edited")


@each_row("kept", [1, 2, 3])
def test_who_drops_the_later_checkpoints_cannot_rewrite_what_follows(
    tmp_path: Path, kept: int
) -> None:
    seq = SIGNED_AT[kept - 1]
    log = list(entries()[: index_of(seq + 1)])
    previous, mark = chain()[seq - 1].receipt_hash, _checkpoint_of(seq).checkpoint_hash
    for number in range(seq + 1, seq + 302):
        filled = draft(reason="rewritten")
        receipt = seal(filled, seq=number, previous_hash=previous, checkpoint_hash=mark)
        log.append(receipt)
        previous, mark = receipt.receipt_hash, ""
    due = seq + 256
    assert found(tmp_path, map(line, log), key=FIRST_KEY) == (due, "bad signature")
    assert both(tmp_path / "log") == (due, "bad signature")
    # What a daemon may leave unsigned, and not one more.
    assert found(tmp_path, map(line, log[: index_of(seq + 1) + 256]), key=FIRST_KEY) == NONE
    at_257 = map(line, log[: index_of(seq + 1) + 257])
    assert found(tmp_path, at_257, key=FIRST_KEY) == (due, "bad signature")


def test_a_checkpoint_with_any_field_changed_and_its_hash_made_anew_is_found(
    tmp_path: Path,
) -> None:
    genuine = _checkpoint_of(512)
    for fields in (
        {"next_public_key": public_key_of(INTRUDER)},
        {"public_key": public_key_of(INTRUDER)},
        {"public_key": "00"},
        {"public_key": genuine.public_key.upper()},
        {"signature": genuine.signature.upper()},
        {"signature": "ab" * 64},
        {"signature": ""},
        {"timestamp": "2020-01-01T00:00:00Z"},
    ):
        changed = rehashed(msgspec.structs.replace(genuine, **fields))
        assert found(tmp_path, _with(512, changed)) == (512, "bad signature"), fields
    moved = {
        # Not where it says it stands: what is due there decides what was done.
        100: (513, "inserted"),
        600: (513, "inserted"),
        0: (513, "inserted"),
        -1: (513, "inserted"),
    }
    for seq, expected in moved.items():
        changed = rehashed(msgspec.structs.replace(genuine, seq=seq))
        assert found(tmp_path, _with(512, changed)) == expected, seq
    changed = rehashed(msgspec.structs.replace(genuine, head_hash="c" * 64))
    assert found(tmp_path, _with(512, changed)) == (512, "bad signature")


def test_a_checkpoint_signed_with_a_key_of_ones_own_is_found(tmp_path: Path) -> None:
    genuine = _checkpoint_of(512)
    own = signed(
        INTRUDER,
        seq=512,
        head_hash=genuine.head_hash,
        next_public_key=genuine.next_public_key,
    )
    assert found(tmp_path, _with(512, own)) == (512, "bad signature")
    # One of the first: without the key any may have signed it, but receipt 257 names the genuine.
    own = signed(
        INTRUDER,
        seq=256,
        head_hash=_checkpoint_of(256).head_hash,
        next_public_key=_checkpoint_of(256).next_public_key,
    )
    assert found(tmp_path, _with(256, own)) == (257, "edited")
    assert both(tmp_path / "log", key=FIRST_KEY) == (256, "bad signature")


def test_a_checkpoint_put_in_is_found_even_when_it_is_signed_well(tmp_path: Path) -> None:
    at = index_of(101)
    head_hash = chain()[99].receipt_hash
    for extra, expected in (
        (checkpoint(100, head_hash, 0), (101, "inserted")),
        (checkpoint(100, "c" * 64, 0), (100, "edited")),
        (checkpoint(99, head_hash, 0), (101, "inserted")),
        (checkpoint(101, head_hash, 0), (101, "inserted")),
    ):
        assert found(tmp_path, [*lines()[:at], line(extra), *lines()[at:]]) == expected
    # At the end of the log there is no receipt that would know of it.
    genuine = checkpoint(COUNT, last_head()[1], len(SIGNED_AT))
    assert found(tmp_path, [*lines(), line(genuine)], last_head(), FIRST_KEY) == NONE
    forged_end = checkpoint(COUNT, last_head()[1], 30)
    assert found(tmp_path, [*lines(), line(forged_end)]) == (COUNT, "bad signature")
    second = checkpoint(COUNT, last_head()[1], len(SIGNED_AT) + 1)
    log = [*lines(), line(genuine), line(second)]
    assert found(tmp_path, log) == (COUNT + 1, "inserted")
    assert found(tmp_path, [line(checkpoint(0, "0" * 64, 0)), *lines()]) == (1, "inserted")


def test_a_checkpoint_of_another_chain_is_found(tmp_path: Path) -> None:
    other = signed_chain(300, (256,), word="other")
    taken = other[256]
    assert isinstance(taken, ReceiptCheckpoint)
    assert found(tmp_path, _with(256, taken)) == (256, "edited")


def test_a_receipt_that_forgets_its_checkpoint_is_found(tmp_path: Path) -> None:
    index = index_of(257)
    receipt = entries()[index]
    assert isinstance(receipt, Receipt)
    for named, expected in (("", (257, "inserted")), ("c" * 64, (257, "edited"))):
        changed = forged(receipt, checkpoint_hash=named)
        log = [*lines()[:index], line(changed), *lines()[index + 1 :]]
        assert found(tmp_path, log) == expected
    # Without the checkpoint as well, the next receipt still names another hash for this one.
    changed = forged(receipt, checkpoint_hash="")
    log = [*lines()[: index - 1], line(changed), *lines()[index + 1 :]]
    assert found(tmp_path, log) == (257, "edited")


def test_a_receipt_that_names_a_checkpoint_where_none_stands_is_found(tmp_path: Path) -> None:
    index = index_of(400)
    receipt = entries()[index]
    assert isinstance(receipt, Receipt)
    for named, expected in (
        ("c" * 64, (400, "removed")),
        (_checkpoint_of(512).checkpoint_hash, (400, "reordered")),
    ):
        changed = forged(receipt, checkpoint_hash=named)
        log = [*lines()[:index], line(changed), *lines()[index + 1 :]]
        assert found(tmp_path, log) == expected


def test_lines_of_a_later_format_are_named_and_broken_checkpoints_are_edited(
    tmp_path: Path,
) -> None:
    at = index_of(257) - 1
    genuine = lines()[at]
    for changed, kind in (
        (genuine.replace(b"checkpoint/1", b"checkpoint/2"), "unknown line type"),
        (genuine.replace(b'"type":"checkpoint"', b'"type":"seal"'), "unknown line type"),
        (genuine.replace(b'"seq":256', b'"seq":"256"'), "edited"),
        (genuine.replace(b'"seq":256', b'"seq": 256'), "edited"),
        (genuine.replace(b'"seq":256,', b""), "edited"),
        (genuine.replace(b'"seq":', b'"note":1,"seq":'), "edited"),
        (genuine.replace(b"{", b"[", 1), "not a receipt"),
    ):
        log = [*lines()[:at], changed, *lines()[at + 1 :]]
        assert changed != genuine
        assert found(tmp_path, log) == (257, kind), changed[:60]
