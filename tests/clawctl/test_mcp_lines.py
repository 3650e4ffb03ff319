"""Lines of `clawctl mcp serve`: the same JSON, in ASCII, whatever stands in it."""

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from clawctl.commands.mcp import as_ascii

VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.integers() | st.text(max_size=8), lambda inner: st.lists(inner, max_size=3)
)


@settings(deadline=None, max_examples=60)
@given(VALUES)
def test_a_line_stays_the_value_that_it_was(value: Any) -> None:
    told = as_ascii(json.dumps(value, ensure_ascii=False))
    assert json.loads(told) == value
    assert all(0x20 <= byte < 0x7F for byte in told)


def test_what_hides_or_reorders_text_and_what_is_past_16_bits_is_escaped() -> None:
    assert as_ascii('{"a":"😀 \u202e\x9b"}') == b'{"a":"\\ud83d\\ude00 \\u202e\\u009b"}'
