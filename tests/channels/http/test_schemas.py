"""Schemas of clients: null is an absent keyword, wherever a keyword may stand."""

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from clawd.channels.http.anthropic import request_of
from clawd.channels.http.body import without_nulls
from clawd.channels.http.ollama.chat import chat_request
from clawd.channels.http.openai.fields import read_format, read_tools
from clawd.engine.worker.grammar import Rules
from tests.support.grammar_text import compiled
from tests.support.rows import each_row

GO: dict[str, Any] = {
    "type": "object",
    "properties": {
        "place": {"type": "string", "enum": None, "description": None},
        "days": {"type": "array", "items": {"type": "integer", "minimum": None}},
        "empty": {"type": "object", "properties": None, "required": None},
    },
    "required": None,
    "additionalProperties": None,
    "$defs": None,
}
CLEAN: dict[str, Any] = {
    "type": "object",
    "properties": {
        "place": {"type": "string"},
        "days": {"type": "array", "items": {"type": "integer"}},
        "empty": {"type": "object"},
    },
}
USER = {"role": "user", "content": "hi"}


def test_tools_and_formats_of_every_dialect_are_taken_without_their_nulls() -> None:
    function = {"type": "function", "function": {"name": "f", "parameters": GO}}
    assert read_tools({"tools": [function]})[0].parameters == CLEAN
    flat = {"type": "function", "name": "f", "parameters": GO}
    assert read_tools({"tools": [flat]}, is_flat=True)[0].parameters == CLEAN
    asked = {"model": "m", "messages": [USER]}
    messages = request_of(asked | {"tools": [{"name": "f", "input_schema": GO}]})
    assert messages.tools[0].parameters == CLEAN
    lines = chat_request(asked | {"tools": [function], "format": GO})
    assert lines.tools[0].parameters == CLEAN
    formats = [
        read_format({"response_format": {"type": "json_schema", "json_schema": {"schema": GO}}}),
        request_of(
            asked | {"output_format": {"type": "json_schema", "schema": GO}}
        ).response_format,
        lines.response_format,
    ]
    assert [each and each["json_schema"]["schema"] for each in formats] == [CLEAN] * 3


@each_row(
    "schema",
    [
        {"const": None},
        {"type": ["string", "null"], "default": None, "example": None},
        {"enum": ["a", None]},
        {"properties": {"required": {"type": "string"}, "const": {"type": "null"}}},
        {"items": [{"type": "string"}, True], "additionalProperties": False},
        {"examples": [None, {"required": None}]},
    ],
)
def test_what_is_meant_as_null_stays(schema: dict[str, Any]) -> None:
    assert without_nulls(schema) == schema


def test_a_schema_of_a_client_in_go_makes_a_grammar() -> None:
    rules = Rules()
    assert not compiled(rules.text(rules.json(without_nulls(GO)))).error


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["properties", "items", "anyOf", "required", "const", "a"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@settings(deadline=None, max_examples=50)
@given(st.dictionaries(st.sampled_from(["properties", "items", "required", "const"]), _JSON))
def test_nothing_is_left_to_take_away_and_the_clients_own_is_not_changed(
    schema: dict[str, Any],
) -> None:
    before = json.dumps(schema)
    once = without_nulls(schema)
    assert without_nulls(once) == once
    assert json.dumps(schema) == before
