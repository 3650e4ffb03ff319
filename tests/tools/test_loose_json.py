"""Reading what is nearly JSON: what is forgiven, what is refused, and that nothing is completed."""

import json
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from clawd.tools.loose_json import parse
from tests.support.rows import each_row


@each_row(
    ("text", "value"),
    [
        ("", {}),
        ("{}", {}),
        ("{'a': 1}", {"a": 1}),
        ("{a: 1, b_c: 'x',}", {"a": 1, "b_c": "x"}),
        ('{"a": [1, 2,],}', {"a": [1, 2]}),
        ("{'a': True, 'b': None, 'c': false}", {"a": True, "b": None, "c": False}),
        ("{'a': -1.5e3, 'b': .5, 'c': +7}", {"a": -1500.0, "b": 0.5, "c": 7}),
        ("{'a': 'it\\'s', 'b': \"it's\"}", {"a": "it's", "b": "it's"}),
        ("{'a': '''x 'y' \n z'''}", {"a": "x 'y' \n z"}),
        (r'{"a": "\d+\s*\.py", "b": "\u00e9\x41"}', {"a": r"\d+\s*\.py", "b": "éA"}),
        ('{"a": "line\nline"}', {"a": "line\nline"}),
        ('call(a=1, b="x")', {"a": 1, "b": "x"}),
        ("a=1, b=[1]", {"a": 1, "b": [1]}),
        ('{"a": 1}\n```', {"a": 1}),
        ('{"a": 1} as you asked', {"a": 1}),
        ('Here you are: {"a": 1}', {"a": 1}),
        ('{"a": 1, "a": 1}', {"a": 1}),
    ],
)  # fmt: skip
def test_the_meaning_is_plain(text: str, value: Any) -> None:
    assert parse(text) == value


@each_row(
    "text",
    [
        "{", "[", '{"a"', '{"a":', '{"a": 1', '{"a": "x', '{"a": "x"', "{'a': 'x", "{'a': 'x'",
        "{'a': '''x''", '{"a": [1, 2', "call(a=1", 'call(a="x', "a=", '{"a": 1, "a": 2}',
        "{'a': 1, 'a': 2}", '{"a": 1} {"b": 2}', '{"a": 1}, "b": 2}', '{"a": 1} "b": 2',
        '{"a": 1}[2]', "{'a': 'it's'}", '{"a": NaN}', "{'a': nan}", "{'a': 1 2}", "{'a' 1}",
        r"{'a': '\q'}", r"{'a': '\x4'}", r"{'a': '\u12'}", "{a: b}", "nonsense", "{1: 2}",
        "{'a': lambda: 1}", "{'a': 1 + 1}", "{'a': __import__('os')}", "f(g(a=1))",
        "{'a':" * 50 + "1" + "}" * 50,
    ],
)  # fmt: skip
def test_what_breaks_off_or_could_mean_two_things_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse(text)


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
_OBJECTS = st.dictionaries(st.text(), _VALUES, max_size=4)


@settings(deadline=None)
@given(_OBJECTS)
def test_json_is_read_as_json(value: dict[str, Any]) -> None:
    assert parse(json.dumps(value)) == value


@settings(deadline=None)
@given(_OBJECTS, st.data())
def test_no_beginning_of_an_object_is_taken_for_an_object(
    value: dict[str, Any], data: st.DataObject
) -> None:
    text = data.draw(st.sampled_from([json.dumps(value), repr(value)]))
    cut = data.draw(st.integers(1, len(text) - 1))
    with pytest.raises(ValueError, match=r"."):
        parse(text[:cut])


_PLAIN = st.text(st.characters(min_codepoint=32, max_codepoint=126, exclude_characters="\\"))


@settings(deadline=None)
@given(st.dictionaries(_PLAIN, _PLAIN | st.integers() | st.booleans() | st.none(), max_size=4))
def test_a_python_dict_is_read_as_python_means_it(value: dict[str, Any]) -> None:
    assume(all("'''" not in repr(item) and '"""' not in repr(item) for item in value.items()))
    text = repr(value)
    assume("\\" not in text)
    assert parse(text) == value
