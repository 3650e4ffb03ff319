"""The canonical bytes and the hash of one receipt."""

import hashlib
import json

import msgspec
import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from clawd.errors import ReceiptError
from clawd.receipts.record import (
    MAX_LINE_BYTES,
    MAX_TEXT_CHARS,
    Intent,
    Receipt,
    canonical,
    compute_hash,
    fitted,
    line_hash,
    new_id,
    parse,
    seal,
    utc_timestamp,
)
from clawd.wire.receipts import GENESIS_HASH
from tests.receipts.samples import draft, forged
from tests.support.rows import each_row

_INT = st.integers(min_value=-(2**53) + 1, max_value=2**53 - 1)
_TEXT = st.text(st.characters(exclude_categories=["Cs"]))
_RECEIPTS = st.builds(
    Receipt,
    id=_TEXT,
    seq=_INT,
    timestamp=_TEXT,
    conversation_id=_TEXT,
    tool=_TEXT,
    args_hash=_TEXT,
    result_hash=_TEXT,
    status=st.sampled_from(["allowed", "denied", "failed"]),
    risk=st.sampled_from(["low", "medium", "high"]),
    uid=_INT,
    workspace=_TEXT,
    approval=st.sampled_from(["auto", "user", "rule", "none"]),
    approved_by=_TEXT,
    reason=_TEXT,
    sandbox=_TEXT,
    duration_ms=_INT,
    exit_code=st.none() | _INT,
    previous_hash=_TEXT,
    receipt_hash=_TEXT,
    checkpoint_hash=st.just("") | _TEXT,
)


@given(_RECEIPTS)
def test_canonical_form_is_the_one_of_rfc_8785(receipt: Receipt) -> None:
    assert canonical(receipt) == rfc8785.dumps(msgspec.to_builtins(receipt))


@given(_RECEIPTS)
def test_hash_is_sha256_over_rfc_8785_without_the_hash(receipt: Receipt) -> None:
    fields = msgspec.to_builtins(receipt)
    del fields["receipt_hash"]
    assert compute_hash(receipt) == hashlib.sha256(rfc8785.dumps(fields)).hexdigest()


@given(_RECEIPTS)
def test_a_receipt_survives_its_line(receipt: Receipt) -> None:
    text = canonical(receipt)
    assert b"\n" not in text
    assert parse(text) == receipt


@given(_RECEIPTS, _TEXT)
def test_hash_from_the_line_is_the_hash_of_the_fields(receipt: Receipt, text: str) -> None:
    tricky = forged(receipt, reason=f'"receipt_hash":"{text}","', tool=text)
    assert line_hash(canonical(tricky)) == tricky.receipt_hash


def test_the_format_is_the_one_that_is_published() -> None:
    receipt = seal(
        Intent(
            id="receipt-01JD0000000000000000000000",
            timestamp="2026-11-21T08:00:00Z",
            conversation_id="conv-1",
            tool="file_list",
            args_hash="a" * 64,
            risk="low",
            uid=1000,
            workspace="/w",
            approval="auto",
        ).receipt("allowed", "b" * 64),
        seq=1,
        previous_hash=GENESIS_HASH,
    )
    assert canonical(receipt).decode() == (
        f'{{"approval":"auto","approved_by":"","args_hash":"{"a" * 64}",'
        '"conversation_id":"conv-1","duration_ms":0,"exit_code":null,'
        '"format":"clawd-receipt/1","id":"receipt-01JD0000000000000000000000",'
        f'"previous_hash":"{"0" * 64}","reason":"",'
        f'"receipt_hash":"{receipt.receipt_hash}","result_hash":"{"b" * 64}",'
        '"risk":"low","sandbox":"","seq":1,"status":"allowed",'
        '"timestamp":"2026-11-21T08:00:00Z","tool":"file_list","uid":1000,"workspace":"/w"}'
    )
    assert (
        receipt.receipt_hash == "95c16899a8d0fb0228eb1f557125ec00c979469b36e37f993c4b7757518fcd12"
    )


@each_row(
    "change",
    [
        {"surprise": 1},
        {"format": "clawd-receipt/2"},
        {"status": "maybe"},
        {"seq": "1"},
        {"seq": 1.5},
        {"exit_code": [[]]},
    ],
)
def test_other_json_is_no_receipt(change: dict[str, object]) -> None:
    fields = json.loads(canonical(seal(draft(), seq=1, previous_hash=GENESIS_HASH)))
    with pytest.raises(ReceiptError, match="not a receipt"):
        parse(json.dumps(fields | change).encode())


@each_row("garbage", [b"", b"{", b"[]", b"null", b"\xff\xfe", b"[" * 100_000])
def test_garbage_is_no_receipt(garbage: bytes) -> None:
    with pytest.raises(ReceiptError, match="not a receipt"):
        parse(garbage)


def test_what_json_cannot_carry_is_fitted() -> None:
    made = fitted(
        draft(
            tool="x" * 10_000,
            workspace="/home/\udcff",
            reason="ü" * MAX_TEXT_CHARS,
            duration_ms=2**60,
            exit_code=-(2**60),
        )
    )
    assert made.tool == "x" * (MAX_TEXT_CHARS - 1) + "…"
    assert made.workspace == "/home/\\udcff"
    assert made.reason == "ü" * MAX_TEXT_CHARS
    assert (made.duration_ms, made.exit_code) == (2**53 - 1, -(2**53) + 1)


@given(st.text())
def test_any_text_of_a_model_makes_a_receipt_that_can_be_read(text: str) -> None:
    receipt = seal(fitted(draft(tool=text, reason=text)), seq=1, previous_hash=GENESIS_HASH)
    assert parse(canonical(receipt)) == receipt


def test_the_longest_receipt_fits_a_line() -> None:
    fields = "id timestamp conversation_id tool args_hash result_hash workspace approved_by reason"
    longest = fitted(draft(**dict.fromkeys([*fields.split(), "sandbox"], "\0" * 100_000)))
    assert len(canonical(seal(longest, seq=1, previous_hash=GENESIS_HASH))) < MAX_LINE_BYTES


def test_a_status_that_no_receipt_has_is_refused() -> None:
    with pytest.raises(ReceiptError, match="maybe"):
        fitted(draft(status="maybe"))


def test_ids_are_ulids_and_sort_by_time() -> None:
    first = new_id()
    assert first.startswith("receipt-")
    assert len(first) == len("receipt-") + 26
    made = [first, *(new_id() for _ in range(1000))]
    assert made == sorted(set(made)), "also within a millisecond"


def test_timestamps_are_utc_seconds() -> None:
    assert len(utc_timestamp()) == len("2026-11-21T08:00:00Z")
    assert utc_timestamp().endswith("Z")
