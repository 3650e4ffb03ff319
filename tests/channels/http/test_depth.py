"""How deeply a JSON text is nested, told without decoding it."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from clawd.channels.http.body import depth_of
from tests.support.rows import each_row

TEXTS = st.text(alphabet='[]{}"\\a,:\n', max_size=12)
TREES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.integers() | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
)


def depth(value: Any) -> int:
    match value:
        case dict():
            return 1 + max(map(depth, value.values()), default=0)
        case list():
            return 1 + max(map(depth, value), default=0)
        case _:
            return 0


@given(TREES, st.sampled_from([None, 1]), st.booleans())
def test_the_depth_is_that_of_the_value(value: Any, indent: int | None, is_ascii: bool) -> None:
    data = json.dumps(value, indent=indent, ensure_ascii=is_ascii).encode()
    assert depth_of(data) == depth(value)


@each_row(
    ("data", "expected"),
    [
        (b"", 0),
        (b"[" * 300, 300),
        (b'["[[[["]', 1),
        (rb'["\\", [], "\"[["]', 2),
        (rb'"\\\"[[["', 0),
        (b'["unfinished [[[', 1),
        (b"]]]]" + b"[" * 5, 1),
    ],
)
def test_brackets_in_texts_do_not_count(data: bytes, expected: int) -> None:
    assert depth_of(data) == expected
