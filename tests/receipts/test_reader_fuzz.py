"""Whatever bytes a log holds, the verifier answers, and the second one answers the same."""

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clawd.errors import ReceiptError
from clawd.receipts import logfiles
from clawd.receipts.verify import (
    BadLine,
    parse_anchor,
    parse_public_key,
    read_head,
    read_receipts,
    verify,
)
from clawd.wire.receipts import Verification
from tests.receipts.samples import FIRST_KEY, line, signed_chain
from tests.receipts.tampering import both, found

pytestmark = pytest.mark.tamper


@cache
def _lines() -> tuple[bytes, ...]:
    return tuple(line(entry) for entry in signed_chain(12, (3, 4, 9, 12)))


@pytest.fixture(autouse=True, scope="module")
def _nobody_writes() -> Iterator[None]:
    """Spare each torn tail the wait for a writer that is about to finish it."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(logfiles, "_TAIL_WAIT_S", 0.0)
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz")


def _assert_answered(folder: Path, content: bytes, key: str | None) -> None:
    log = folder / "log"
    log.write_bytes(content)
    both(log, key=key)
    assert isinstance(verify(log, anchor=(3, "a" * 64), public_key=key), Verification)
    for _ in read_receipts(log):
        pass
    for one in read_receipts(log, newest_first=True):
        assert not isinstance(one, BadLine) or one.problem
    read_head(log, first_public_key_path=folder / "checkpoint.pub")


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)


@settings(max_examples=150, deadline=None)
@given(content=st.binary(max_size=200), key=st.sampled_from([None, FIRST_KEY]))
def test_any_bytes_are_answered(folder: Path, content: bytes, key: str | None) -> None:
    _assert_answered(folder, content, key)


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_any_json_in_the_place_of_a_field_is_answered(folder: Path, data: st.DataObject) -> None:
    lines = list(_lines())
    at = data.draw(st.integers(0, len(lines) - 1))
    fields = json.loads(lines[at])
    name = data.draw(st.sampled_from([*fields, "checkpoint_hash", "type", "format", "note"]))
    fields[name] = data.draw(_VALUES | st.sampled_from(["checkpoint", "clawd-checkpoint/1"]))
    text = json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    lines[at] = text.encode(errors="surrogatepass") + b"\n"
    _assert_answered(folder, b"".join(lines), data.draw(st.sampled_from([None, FIRST_KEY])))


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_any_edits_in_any_number_are_found(folder: Path, data: st.DataObject) -> None:
    changed = b"".join(_lines())
    for _ in range(data.draw(st.integers(1, 4))):
        start, end = sorted(data.draw(st.tuples(*[st.integers(0, len(changed))] * 2)))
        part = st.sampled_from([b"", changed[start:end] * 2, b"\n", changed[:start], b'"', b" "])
        changed = changed[:start] + data.draw(part | st.binary(max_size=6)) + changed[end:]
    result = found(folder, [changed])
    some = changed.splitlines(keepends=True)
    assert (result == (None, None)) is (some == list(_lines()[: len(some)]))


@settings(max_examples=100, deadline=None)
@given(order=st.lists(st.integers(0, 12), max_size=14))
def test_any_choice_of_lines_in_any_order_is_found(folder: Path, order: list[int]) -> None:
    result = found(folder, [_lines()[at] for at in order])
    if order == list(range(len(order))):
        assert result == (None, None)
    else:
        assert result[0] is not None


@settings(max_examples=60, deadline=None)
@given(text=st.text() | st.sampled_from(["1:", ":", "0:" + "a" * 64, "١:" + "a" * 64]))
def test_what_a_person_gives_is_a_key_or_a_head_or_refused(text: str) -> None:
    for parse in (parse_anchor, parse_public_key):
        with pytest.raises(ReceiptError):
            parse(text)
