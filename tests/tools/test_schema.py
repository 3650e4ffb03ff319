"""Decoding arguments: what is tolerated and what is refused with an example."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawd.errors import InvalidRequestError
from clawd.tools.arguments import Form, decode_arguments, example_arguments
from tests.support.rows import each_row

_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "path": {"type": "string"},
        "start_line": {"type": "integer"},
        "ratio": {"type": "number"},
        "recursive": {"type": "boolean"},
        "options": {"type": "array", "items": {"type": "string"}},
        "items": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"id": {"type": "integer"}},
                "required": ["id"],
            },
        },
        "headers": {"type": "object"},
        "method": {"type": "string", "enum": ["GET", "HEAD", "POST"]},
        "content": {"type": "string"},
        "either": {"anyOf": [{"type": "integer"}, {"type": "string"}]},
        "maybe": {"type": ["integer", "null"]},
    },
    "required": ["path"],
    "additionalProperties": False,
}


def decoded(**given: Any) -> dict[str, Any]:
    """Decode with a path beside what is given; return the rest."""
    result = decode_arguments(json.dumps({"path": "x", **given}), _SCHEMA)
    return {name: value for name, value in result.items() if name != "path"}


@each_row(
    "raw",
    [
        '{"path":"a.txt"}',
        '  {"path": " a.txt\\n"}  ',
        '{"path":"a.txt"} and that is all',
        '```json\n{"path":"a.txt"}\n```',
        '"{\\"path\\":\\"a.txt\\"}"',
        '{"Path":"a.txt"}',
        '{"file_path":"a.txt"}',
        '{"path":"a.txt","unheard_of":1}',
        {"path": "a.txt"},
    ],
)
def test_one_meaning_in_many_spellings(raw: str | dict[str, Any]) -> None:
    assert decode_arguments(raw, _SCHEMA) == {"path": "a.txt"}


@each_row(
    ("given", "value"),
    [
        ({"start_line": "5"}, {"start_line": 5}),
        ({"start_line": 5.0}, {"start_line": 5}),
        ({"startLine": " 5 "}, {"start_line": 5}),
        ({"ratio": "0.5"}, {"ratio": 0.5}),
        ({"ratio": 2}, {"ratio": 2}),
        ({"recursive": "true"}, {"recursive": True}),
        ({"recursive": "No"}, {"recursive": False}),
        ({"recursive": 1}, {"recursive": True}),
        ({"options": '["a","b"]'}, {"options": ["a", "b"]}),
        ({"options": "a"}, {"options": ["a"]}),
        ({"options": [1, "b"]}, {"options": ["1", "b"]}),
        ({"items": '[{"id":"3"}]'}, {"items": [{"id": 3}]}),
        ({"items": {"id": 3}}, {"items": [{"id": 3}]}),
        ({"headers": '{"a":"b"}'}, {"headers": {"a": "b"}}),
        ({"method": "get"}, {"method": "GET"}),
        ({"method": "POSTS"}, {"method": "POST"}),
        ({"content": {"a": 1}}, {"content": '{"a": 1}'}),
        ({"content": 12}, {"content": "12"}),
        ({"content": "  kept  "}, {"content": "  kept  "}),
        ({"text": "other name"}, {"content": "other name"}),
        ({"either": "7x"}, {"either": "7x"}),
        ({"either": "7"}, {"either": "7"}),
        ({"maybe": None}, {}),
        ({"maybe": "4"}, {"maybe": 4}),
        ({"start_line": None}, {}),
    ],
)
def test_values_come_in_the_form_that_the_schema_asks_for(
    given: dict[str, Any], value: dict[str, Any]
) -> None:
    assert decoded(**given) == value


@each_row(
    "raw",
    [
        "", "{}", "null", "[]", "7", "nonsense", '{"path":', '{"path":null}', '{"start_line":1}',
        '{"path":"x","start_line":"five"}', '{"path":"x","start_line":1.5}',
        '{"path":"x","start_line":true}', '{"path":"x","ratio":NaN}',
        '{"path":"x","ratio":"inf"}', '{"path":"x","recursive":"maybe"}',
        '{"path":"x","method":"DELETE"}', '{"path":"x","headers":"no"}',
        '{"path":"x","headers":[1]}', '{"path":"x","items":[{"no":1}]}',
        '{"path":' + "[" * 100_000, '{"path":' + "[" * 50 + "]" * 50 + "}",
    ],
)  # fmt: skip
def test_what_cannot_be_meant_is_refused_with_an_example_that_works(raw: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        decode_arguments(raw, _SCHEMA)
    example = caught.value.hint.partition(": ")[2]
    assert decode_arguments(example, _SCHEMA) == {"path": "notes.txt"}
    assert len(caught.value.message) < 500


def test_lone_surrogates_never_come_through() -> None:
    assert decoded(content="\ud83d\ude00 \ud800") == {"content": "😀 \ufffd"}


def test_raw_line_breaks_in_strings_are_forgiven() -> None:
    assert decode_arguments('{"path":"x","content":"a\nb"}', _SCHEMA)["content"] == "a\nb"


def test_a_schema_without_properties_keeps_everything() -> None:
    assert decode_arguments('{"a":1}', {"type": "object"}) == {"a": 1}
    closed = {"type": "object", "properties": {}, "additionalProperties": False}
    assert decode_arguments('{"a":1}', closed) == {}
    open_ended = {"properties": {"a": {"type": "integer"}}, "additionalProperties": True}
    assert decode_arguments('{"a":"1","b":2}', open_ended) == {"a": 1, "b": 2}


def test_examples_fit_their_schema() -> None:
    schema = {**_SCHEMA, "required": list(_SCHEMA["properties"])}
    example = example_arguments(schema)
    assert decode_arguments(json.dumps(example), schema) == example


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(
    st.text() | st.dictionaries(st.sampled_from(list(_SCHEMA["properties"])), _JSON).map(json.dumps)
)
def test_nothing_but_a_refusal_or_fitting_arguments_comes_out(raw: str) -> None:
    try:
        result = decode_arguments(raw, _SCHEMA)
    except InvalidRequestError:
        return
    assert isinstance(result["path"], str)
    assert set(result) <= set(_SCHEMA["properties"])
    assert decode_arguments(json.dumps(result), _SCHEMA) == result


@each_row("number", ["1e999", "-1e999"])
def test_a_number_that_no_canonical_json_holds_is_refused(number: str) -> None:
    schema = {"type": "object", "properties": {"x": {}}}
    with pytest.raises(InvalidRequestError, match="out of range"):
        decode_arguments(f'{{"x": {number}}}', schema)


_STRICT = Form(schema=_SCHEMA, tool="tool", is_strict=True)


@each_row(
    "more",
    [
        {"unheard_of": 1}, {"append": True}, {"mode": "a"}, {"dry_run": "yes"},
        {"file": "b.txt"}, {"Path": "b.txt"},
    ],
)  # fmt: skip
def test_what_would_make_a_difference_is_refused_where_a_tool_acts(more: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequestError):
        decode_arguments({"path": "a.txt", **more}, _SCHEMA, _STRICT)


@each_row(
    "more",
    [
        {"unheard_of": None}, {"append": False}, {"mode": ""}, {"reason": "as asked"},
        {"file": "a.txt"}, {"file": None}, {"tool": "tool"},
    ],
)  # fmt: skip
def test_noise_and_what_asks_for_nothing_is_left_out(more: dict[str, Any]) -> None:
    assert decode_arguments({"path": "a.txt", **more}, _SCHEMA, _STRICT) == {"path": "a.txt"}


def test_a_wrapped_call_of_another_tool_is_refused() -> None:
    wrapped = {"name": "tool", "arguments": {"path": "a.txt"}}
    assert decode_arguments(wrapped, _SCHEMA, _STRICT) == {"path": "a.txt"}
    with pytest.raises(InvalidRequestError, match="names 'other'"):
        decode_arguments(wrapped | {"name": "other"}, _SCHEMA, _STRICT)
    with pytest.raises(InvalidRequestError, match="two values"):
        decode_arguments(wrapped | {"path": "b.txt"}, _SCHEMA, _STRICT)


@each_row(
    ("name", "value", "expected"),
    [
        ("keywords", ["router", "password"], "router password"),
        ("command", ["bash", "-lc", "ls -l | wc"], "bash -lc 'ls -l | wc'"),
        ("command", ["ls"], "ls"),
        ("command", ["ls", "pwd"], None),
        ("content", ["a", "b"], None),
        ("content", [1, 2], "[1, 2]"),
        ("query", {"a": 1}, None),
        ("filter", {"a": 1}, '{"a": 1}'),
    ],
)
def test_a_list_or_an_object_stands_for_a_text_only_where_one_can_be_meant(
    name: str, value: Any, expected: str | None
) -> None:
    schema = {"type": "object", "properties": {name: {"type": "string"}}}
    if expected is None:
        with pytest.raises(InvalidRequestError):
            decode_arguments({name: value}, schema)
    else:
        assert decode_arguments({name: value}, schema) == {name: expected}
