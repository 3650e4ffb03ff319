"""JSON that knows its lines: against the standard library, and what it refuses."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawd.tools.external_manifest import MAX_DEPTH, JsonFileError, parse
from tests.support.rows import each_row

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)  # fmt: skip


def places(value: Any, at: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    inner: list[tuple[str | int, Any]] = []
    if isinstance(value, dict):
        inner = list(value.items())
    elif isinstance(value, list):
        inner = list(enumerate(value))
    return [at, *(place for name, item in inner for place in places(item, (*at, name)))]


@given(VALUES)
def test_it_reads_what_the_standard_library_writes(value: Any) -> None:
    wrapped = {"value": value}
    try:
        document = parse(json.dumps(wrapped, indent=1))
    except JsonFileError as error:
        assert "nested" in error.reason or "NUL" in error.reason
        return
    assert document.value == wrapped
    assert set(document.lines) == set(places(wrapped))


def test_every_value_has_the_line_on_which_it_begins() -> None:
    document = parse('\n{"a": [1,\n  {"b":\n    2}],\r\n "c": {}}')
    assert {place: document.line_of(place) for place in document.lines} == {
        (): 2,
        ("a",): 2,
        ("a", 0): 2,
        ("a", 1): 3,
        ("a", 1, "b"): 4,
        ("c",): 5,
    }
    assert document.line_of(("a", 1, "missing")) == 3


@each_row(
    ("text", "line", "reason"),
    [
        ("", 1, "no JSON"),
        ("{", 1, "no JSON"),
        ('{\n"a" 1}', 2, "`:` is expected"),
        ('{"a": 1\n"b": 2}', 2, "`,` is expected"),
        ("[1,\n]", 2, "no JSON"),
        ("{1: 2}", 1, "a name in double quotes"),
        ("{[]: 2}", 1, "a name in double quotes"),
        ('{"a": 1,\n\n"a": 2}', 3, "`a` is named twice"),
        ('{"a":\nNaN}', 2, "NaN is no number"),
        ("[-Infinity]", 1, "no number"),
        ('{}\n{"b": 1}', 2, "more text"),
        ('"a\nb"', 1, "no JSON"),
        ('[1,\n"\\u0000"]', 2, "a NUL"),
        ('{"\\ud800": 1}', 1, "surrogate"),
        ("9" * 5000, 1, "no JSON"),
        ("[" * (MAX_DEPTH + 2), 1, "nested"),
        ("[" * 500_000, 1, "nested"),
    ],
)
def test_what_is_wrong_is_told_with_its_line(text: str, line: int, reason: str) -> None:
    with pytest.raises(JsonFileError) as caught:
        parse(text)
    assert caught.value.line == line
    assert reason in caught.value.reason
