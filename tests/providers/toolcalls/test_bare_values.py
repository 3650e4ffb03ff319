"""Bare values and what they become under a parameter's schema."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from clawd.providers.toolcalls.literals import Arguments
from tests.support.rows import each_row

STRING = {"type": "string"}


def typed(text: str, schema: Any, **more: Any) -> Any:
    arguments = Arguments({"properties": {"key": schema}, **more})
    arguments.add("key", text)
    return json.loads(arguments.text())["key"]


@each_row(
    ("text", "schema", "value"),
    [
        ("5", STRING, "5"),
        ("null", STRING, "null"),
        (" x ", STRING, " x "),
        ("5", {"type": "integer"}, 5),
        (" 5\n", {"type": "integer"}, 5),
        ("5.0", {"type": "integer"}, 5.0),
        ("5.5", {"type": "integer"}, "5.5"),
        ("5", {"type": "number"}, 5),
        ("007", {"type": "number"}, "007"),
        ("-1.5e10", {"type": "number"}, -1.5e10),
        ("NaN", {"type": "number"}, "NaN"),
        ("true", {"type": "boolean"}, True),
        ("False", {"type": "boolean"}, False),
        ("yes", {"type": "boolean"}, "yes"),
        ("None", {"type": "null"}, None),
        ("None", {"type": ["string", "integer"]}, "None"),
        ("null", {"type": ["string", "null"]}, None),
        ("5", {"type": ["string", "integer"]}, 5),
        ('"5"', {"type": "integer"}, '"5"'),
        ("[1", {"type": "array"}, "[1"),
        ("{}", {"type": "array"}, "{}"),
        ("{}", {"anyOf": [{"type": "array"}, {"oneOf": [{"type": "object"}]}]}, {}),
        ("5", {"const": "5"}, "5"),
        ("5", {"const": 5}, 5),
        ("null", {"enum": ["a", None]}, None),
        (" a ", {"enum": ["a", "b"]}, "a"),
        (" a ", {"enum": [" a ", "a", 1]}, " a "),
        ("[1]", {"items": {}}, [1]),
        ("5", {"pattern": "."}, "5"),
        ("5", {}, 5),
        ("five", True, "five"),
        ("5", {"anyOf": [STRING, {}]}, 5),
        ("5", {"$ref": "#/$defs/a~1b"}, "5"),
        ("5", {"$ref": "#/$defs/none"}, 5),
        ("5", {"$ref": "#/properties/key"}, 5),
        ("5", {"anyOf": [{"anyOf": [STRING] * 300}] * 300}, 5),
        ("5", {"type": 7}, 5),
        ("5", {"enum": "5"}, 5),
    ],
)
def test_a_value_has_the_type_its_schema_accepts(text: str, schema: Any, value: Any) -> None:
    got = typed(text, schema, **{"$defs": {"a/b": STRING}})
    assert (got, type(got)) == (value, type(value))


def test_a_key_that_is_not_listed_falls_under_additional_properties() -> None:
    arguments = Arguments({"properties": {}, "additionalProperties": STRING})
    arguments.add("key", "5")
    assert arguments.text() == '{"key": "5"}'


@given(key=st.text(), text=st.text())
def test_any_value_without_a_schema_is_itself_or_a_string(key: str, text: str) -> None:
    arguments = Arguments(None)
    arguments.add(key, text)
    value = json.loads(arguments.text())[key]
    assert value == text or value == json.loads(text)
