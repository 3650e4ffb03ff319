"""JSON Schema as a grammar: what it lets through validates, what it cannot say is refused."""

import json
import re
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clawd.engine.protocol import Grammar
from clawd.engine.worker.grammar import GrammarPlanner
from clawd.engine.worker.schema import MAX_BYTES, MAX_DIVISOR, SchemaError
from tests.support.grammar_text import GrammarText, compiled
from tests.support.rows import each_row
from tests.support.schema_check import is_valid

ANYTHING = [
    "0",
    "-12",
    "3.5",
    "1e5",
    "true",
    "null",
    '""',
    '"a"',
    '"abcdef"',
    '"ä€😀"',
    r'"\"\\\n\u00e9\ud83d\ude00"',
    "[]",
    "[1]",
    '[1, "a"]',
    "[[], {}]",
    "{}",
    '{"a": 1}',
    '{"a":1,"b":"x"}',
    '{"b": "x"}',
    '{\n  "a": 7,\n  "b": "yes"\n}',
    '{"a": {"a": {"a": 1}}}',
]
NO_JSON = [
    "",
    "01",
    "+1",
    "1.",
    "nul",
    '"',
    '"\n"',
    r'"\ud83d"',
    r'"\x"',
    "[1,]",
    "{a: 1}",
    "{} {}",
]


TOLD_APART = {
    kind: {
        "type": "object",
        "properties": {"kind": {"const": kind}, **more},
        "required": ["kind"],
    }
    for kind, more in (("a", {"x": {"type": "integer"}}), ("b", {"y": {"type": "integer"}}))
}


def grammar(schema: Any) -> GrammarText:
    plan = GrammarPlanner(compiled).plan(Grammar(kind="json_schema", schema=schema))
    assert plan is not None and plan.quarantined == {}
    return GrammarText(plan.matcher)


def test_any_value_is_any_json_and_nothing_else() -> None:
    text = grammar(True)
    assert [one for one in ANYTHING if not text.describes(one)] == []
    assert [one for one in NO_JSON if text.describes(one)] == []


@each_row(
    ("schema", "yes", "no"),
    [
        ({"type": "integer"}, ["0", "-5"], ["1.5", '"1"']),
        ({"type": ["string", "null"]}, ['"x"', "null"], ["1"]),
        ({"const": {"a": [1, None]}}, ['{"a": [1, null]}'], ['{"a": [1]}']),
        ({"enum": ["read", "rewrite", "r", 1, 12]}, ['"read"', '"r"', "1", "12"], ['"re"', "2"]),
        ({"enum": [1, "a", None], "type": "string"}, ['"a"'], ["1", "null"]),
        (
            {"type": "string", "minLength": 2, "maxLength": 3},
            ['"ab"', r'"\na\""'],
            ['"a"', '"abcd"'],
        ),
        (
            {"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": 2},
            ["[1]", "[1, 2]"],
            ["[]", "[1, 2, 3]", '["a"]'],
        ),
        ({"items": {"type": "null"}, "maxItems": 0}, ["[]"], ["[null]"]),
        (
            {"prefixItems": [{"type": "integer"}, {"type": "string"}], "items": False},
            ['[1, "a"]', "[1]", "[]"],
            ['["a", 1]', '[1, "a", 2]'],
        ),
        (
            {"properties": {"a": {"type": "integer"}, "b": {"type": "string"}}, "required": ["a"]},
            ['{"a": 1}', '{"a":1, "b": "x"}'],
            ["{}", '{"b": "x"}', '{"a": 1,}', '{"a": 1, "c": 2}', '{"a": "x"}'],
        ),
        (
            {"type": "object", "properties": {"a": True, "b": True}},
            ["{}", '{"a": 1}', '{"b": 1}', '{"a": 1, "b": []}'],
            ['{"c": 1}', '{, "b": 1}'],
        ),
        ({"type": "object", "required": ["x"]}, ['{"x": [1]}'], ["{}"]),
        ({"type": "object", "properties": {}, "additionalProperties": False}, ["{}"], ['{"a": 1}']),
        (
            {"additionalProperties": {"type": "integer"}, "minProperties": 1, "maxProperties": 2},
            ['{"x": 1}', '{"x": 1, "y": 2}'],
            ["{}", '{"x": "a"}', '{"x": 1, "y": 2, "z": 3}'],
        ),
        (
            {"anyOf": [{"type": "integer"}, {"properties": {"a": True}, "required": ["a"]}]},
            ["3", '{"a": null}', '"x"'],
            ["{}"],
        ),
        (
            {
                "type": "object",
                "properties": {"a": {"type": "integer"}},
                "oneOf": [{"required": ["a"]}],
            },
            ['{"a": 1}'],
            ["{}"],
        ),
        (
            {
                "allOf": [
                    {"properties": {"a": {"minimum": 3}}},
                    {"properties": {"a": {"maximum": 5}}},
                ]
            },
            ['{"a": 4}', "{}"],
            ['{"a": 6}', '{"a": 2}'],
        ),
        ({"type": "string", "format": "date"}, ['"2026-11-21"'], ['"2026-13-01"', '"today"']),
        ({"type": "string", "format": "hostname"}, ['"anything"'], ["1"]),
        ({"description": "whatever"}, ["1", "{}"], ["x"]),
        ({"$ref": "#/$defs/a~1b", "$defs": {"a/b": {"type": "null"}}}, ["null"], ["1"]),
        (
            {"$ref": "#/$defs/s", "maxLength": 1, "$defs": {"s": {"type": "string"}}},
            ['"a"'],
            ['"ab"'],
        ),
    ],
)
def test_a_grammar_describes_what_its_schema_asks_for(
    schema: Any, yes: list[str], no: list[str]
) -> None:
    text = grammar(schema)
    assert [one for one in yes if not text.describes(one)] == []
    assert [one for one in no if text.describes(one)] == []
    assert all(is_valid(json.loads(one), schema) for one in yes)


def test_h4_properties_come_in_the_order_of_the_schema() -> None:
    few = {
        "properties": {name: {"type": "null"} for name in ("reasoning", "answer", "sure")},
        "required": ["reasoning", "answer"],
    }
    text = grammar(few)
    assert text.describes('{"reasoning": null, "answer": null, "sure": null}')
    assert text.describes('{"reasoning": null, "answer": null}')
    assert not text.describes('{"answer": null, "reasoning": null}')
    assert not text.describes('{"sure": null, "reasoning": null, "answer": null}')
    assert not text.describes('{"reasoning": null, "reasoning": null, "answer": null}')
    assert not text.describes('{"reasoning": null}')
    many = {"properties": {name: {"type": "null"} for name in "abcdef"}, "required": ["b", "e"]}
    text = grammar(many)
    assert text.describes('{"b": null, "d": null, "e": null}')
    assert not text.describes('{"e": null, "b": null}')
    assert not text.describes('{"b": null, "d": null}')


def test_a_schema_may_refer_to_itself() -> None:
    kids = {"type": "array", "items": {"$ref": "#/$defs/t"}}
    tree = {
        "$ref": "#/$defs/t",
        "$defs": {"t": {"type": "object", "properties": {"kids": kids}}},
    }
    text = grammar(tree)
    assert text.describes('{"kids": [{"kids": []}, {}]}')
    assert not text.describes('{"kids": [1]}')


@each_row(
    ("schema", "yes", "no"),
    [
        (
            {"type": "string", "format": "date"},
            ['"2026-01-29"', '"2026-12-30"', '"2026-10-31"', '"2024-02-29"'],
            ['"2026-13-01"', '"2026-04-32"', '"2026-00-10"', '"today"'],
        ),
        (
            {"type": "string", "format": "date-time"},
            ['"2026-07-31T23:59:59Z"', '"2026-07-30T00:00:00.5+02:00"'],
            ['"2026-07-31"', '"2026-07-31T24:00:00Z"'],
        ),
        ({"type": "number", "minimum": 0.5}, ["0.5", "0.51", "0.99", "1", "7.25"], ["0.49", "0"]),
        (
            {"type": "number", "exclusiveMinimum": 0.1, "maximum": 0.9},
            ["0.11", "0.9", "0.5"],
            ["0.1", "0.91", "1"],
        ),
        ({"minimum": 3, "exclusiveMinimum": True, "type": "integer"}, ["4"], ["3"]),
        ({"type": "number", "multipleOf": 0.01}, ["0.25", "3", "1.5"], ["0.255"]),
        ({"type": "integer"}, ["1234567890123456789", "-3"], ["1.5"]),
        ({"enum": ["a", 1, None, {"b": [1.5]}]}, ['"a"', "null", '{"b": [1.5]}'], ['"b"', "2"]),
        (
            {"type": "string", "pattern": "^[a-c]+$", "minLength": 2, "maxLength": 3},
            ['"ab"', '"abc"'],
            ['"a"', '"abca"', '"xy"'],
        ),
        (
            {"type": "object", "patternProperties": {"^n_": {"type": "integer"}}},
            ['{"n_a": 1, "other": "x"}'],
            ['{"n_a": "x"}'],
        ),
        (
            {
                "type": "object",
                "properties": {"a": {"type": "integer"}},
                "additionalProperties": {"type": "boolean"},
            },
            ['{"a": 1, "b": true}', "{}"],
            ['{"a": 1, "b": 2}', '{"a": true}'],
        ),
        (
            {"type": "object", "properties": {"a": {}}, "additionalProperties": True},
            ['{"a": 1, "b": 2}'],
            ["[]"],
        ),
        ({"items": [{"type": "null"}], "additionalItems": False}, ["[null]", "[]"], ["[1]"]),
        (
            {"properties": {"a": {"not": False, "uniqueItems": False, "format": "color"}}},
            ['{"a": 1}'],
            ['{"b": 1}'],
        ),
        (
            {"x-guidance": {"whitespace_flexible": False, "lenient": True}, "type": "object"},
            ['{ "a": 1 }'],
            ["1"],
        ),
        (
            {
                "allOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/b"}],
                "$defs": {
                    "a": {"type": "object", "properties": {"a": {}}, "required": ["a"]},
                    "b": {"type": "object", "properties": {"b": {}}, "required": ["b"]},
                },
            },
            ['{"a": 1, "b": 2}'],
            ['{"a": 1}', '{"b": 1}'],
        ),
        (
            {"oneOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/b"}], "$defs": TOLD_APART},
            ['{"kind": "a", "x": 1}', '{"kind": "b"}'],
            ['{"kind": "a", "y": 1}', '{"kind": "b", "x": 1}', '{"kind": "c"}'],
        ),
        (
            {
                "oneOf": [{"$ref": "#/$defs/n"}, {"type": "string"}],
                "$defs": {"n": {"type": "integer"}},
            },
            ["1", '"a"'],
            ["null"],
        ),
        (
            {"oneOf": [{"type": ["string", "null"]}, {"type": "integer"}]},
            ["null", "1", '"a"'],
            ["true"],
        ),
        (
            {"allOf": [{"$ref": "#/$defs/a"}], "$defs": {"a": {"properties": {"x": {}}}}},
            ['{"x": 1}'],
            ['{"y": 1}'],
        ),
        (
            {
                "$schema": "http://json-schema.org/draft-07/schema#",
                "$ref": "#/definitions/a",
                "maxLength": 1,
                "definitions": {"a": {"type": "string"}},
            },
            ['"long"'],
            ["1"],
        ),
    ],
)
def test_r2_what_grammars_forced_wrong_is_right(schema: Any, yes: list[str], no: list[str]) -> None:
    text = grammar(schema)
    assert [one for one in yes if not text.describes(one)] == []
    assert [one for one in no if text.describes(one)] == []


@each_row(
    ("schema", "reason"),
    [
        ({"not": {"type": "null"}}, '["not"] (at #/not)'),
        ({"if": {}, "then": {"type": "null"}}, "(at #/"),
        ({"items": {"propertyNames": {"maxLength": 3}}}, "(at #/items/propertyNames)"),
        ({"type": "array", "contains": {"const": 1}}, "(at #/contains)"),
        ({"type": "array", "uniqueItems": True}, "(at #/uniqueItems)"),
        ({"dependentRequired": {"a": ["b"]}}, "(at #/dependentRequired)"),
        ({"properties": {"a": True}, "unevaluatedProperties": False}, "unevaluatedProperties"),
        ({"oneOf": [{"type": "string"}, {"maxLength": 3}]}, "(at #/oneOf)"),
        (
            {"oneOf": [{"type": "integer"}, {"type": "number", "minimum": 3}]},
            "(at #/oneOf)",
        ),
        (
            {"oneOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/a"}], "$defs": TOLD_APART},
            "(at #/oneOf)",
        ),
        ({"$ref": "https://example.com/schema"}, "https://example.com/schema"),
        ({"$ref": "#/$defs/nothing"}, "/$defs/nothing"),
        ({"$ref": "#"}, "leads back to itself (at #)"),
        ({"anyOf": [{"allOf": [{"$ref": "#"}]}]}, "leads back to itself"),
        ({"type": "strnig"}, "strnig"),
        ({"type": "string", "pattern": "^([a-z"}, "regex parse error"),
        ({"type": "string", "pattern": "(?=a)b"}, "look-around"),
        ({"type": "string", "pattern": r"(a)\1"}, "backreferences"),
        ({"type": "string", "minLength": 3, "maxLength": 2}, "minLength (3) is greater than"),
        ({"type": "integer", "minimum": 3, "maximum": 2}, "minimum (3) is greater than"),
        ({"type": "integer", "multipleOf": MAX_DIVISOR + 7}, "(at #/multipleOf)"),
        ({"type": "integer", "multipleOf": 99_999_989}, "(at #/multipleOf)"),
        ({"items": {"allOf": [{"multipleOf": 9973}, {"multipleOf": 9967}]}}, "together"),
        ({"type": "number", "multipleOf": 0}, "over 0"),
        ({"allOf": [{"pattern": f"a{{{n}}}"} for n in range(40)]}, "40 for one value"),
        ({"type": "number", "multipleOf": float("inf")}, "more than can be held"),
        ({"allOf": [{"type": "string"}, {"type": "null"}]}, "incompatible types"),
        ({"enum": []}, "anyOf is empty"),
        ({"enum": ["x" * MAX_BYTES]}, "is longer than"),
        (False, "allows nothing"),
        (7, "an object or a boolean"),
        ({"properties": {f"p{number}": {} for number in range(1001)}}, "1001 properties"),
        ({"type": "object", "properties": 3}, "malformed"),
        ({"type": "object", "required": "abc"}, "required"),
        ({"type": "integer", "minimum": "3"}, "minimum"),
    ],
)
def test_what_cannot_be_held_is_refused_with_its_reason(schema: Any, reason: str) -> None:
    with pytest.raises(SchemaError, match=re.escape(reason)):
        grammar(schema)


def test_deep_and_wide_schemas_end_in_a_grammar_or_a_reason() -> None:
    deep: Any = True
    for _ in range(5000):
        deep = {"type": "array", "items": deep}
    hostile: list[Any] = [
        deep,
        {"enum": ["a" * length for length in range(700)]},
        {"$ref": "#/allOf/0", "allOf": [{"$ref": "#"}]},
        {"type": "object", "properties": {f"p{number}": True for number in range(5000)}},
    ]
    for schema in hostile:
        started = time.process_time()
        try:
            grammar(schema)
        except SchemaError as error:
            assert str(error)
        assert time.process_time() - started < 5


@each_row(
    ("pattern", "yes", "no"),
    [
        (r"^[a-z]+-\d{2}$", ["ab-12"], ["ab-1", "-12", "ab-123"]),
        (r"b+", ["b", "abbc"], ["", "ac"]),
        (r"^(?:a|bc)?x{1,2}$", ["x", "axx", "bcx"], ["ab", "xxx"]),
        (r'^[^a"]\.["\\]$', ["b.\\", '\n."'], ["a.\\", "bx\\"]),
        (r"^\w\s\S[\d-]$", ["a b-", "_\t91"], ["a  -", "ab-1"]),
        (r"^a{2,}$", ["aa", "aaaa"], ["a"]),
        (r"^ä\u00e9\x41.$", ["äéA€"], ["äéA\n"]),
        (r"^$", [""], ["a"]),
        (r"\$$", ["a$"], ["a"]),
    ],
)
def test_a_pattern_holds_the_value_and_not_its_spelling(
    pattern: str, yes: list[str], no: list[str]
) -> None:
    text = grammar({"type": "string", "pattern": pattern})
    assert [one for one in yes if not text.describes(json.dumps(one, ensure_ascii=False))] == []
    assert [one for one in no if text.describes(json.dumps(one, ensure_ascii=False))] == []


@given(st.integers(-3000, 3000), st.integers(0, 3000))
@settings(max_examples=40, deadline=None)
def test_integer_bounds_are_exact(low: int, span: int) -> None:
    high = low + span
    text = grammar({"type": "integer", "minimum": low, "maximum": high})
    edges = {low - 1, low, low + 1, (low + high) // 2, high - 1, high, high + 1, -low, 0, high * 10}
    for number in edges:
        assert text.describes(str(number)) == (low <= number <= high)


@given(
    st.decimals(-20, 20, places=2),
    st.decimals(0, 30, places=1),
    st.booleans(),
    st.decimals(-60, 60, places=3),
)
@settings(max_examples=100, deadline=None)
def test_r2_numbers_between_decimal_bounds_are_within_and_all_of_them(
    low: Any, span: Any, is_open: bool, number: Any
) -> None:
    high = low + span + 1
    bounds = ("exclusiveMinimum", "exclusiveMaximum") if is_open else ("minimum", "maximum")
    text = grammar({"type": "number", bounds[0]: float(low), bounds[1]: float(high)})
    for value in (number, low, high):
        written = format(value.normalize(), "f")
        within = low < value < high or (not is_open and value in {low, high})
        assert text.describes(written) == (within and written != "-0"), written


def doubling(keyword: str) -> dict[str, Any]:
    """Return a schema of forty definitions, each of which refers twice to the next."""
    parts = {
        f"d{n}": {
            keyword: [{"$ref": f"#/$defs/d{n + 1}"}, {"$ref": f"#/$defs/d{n + 1}"}],
            "title": "again",
        }
        for n in range(40)
    }
    return {"$ref": "#/$defs/d0", "$defs": parts | {"d40": {"type": "integer"}}}


@each_row("keyword", ["allOf", "anyOf", "oneOf"])
def test_references_that_multiply_end_in_a_grammar_or_a_reason(keyword: str) -> None:
    started = time.process_time()
    try:
        grammar(doubling(keyword))
    except SchemaError as error:
        assert str(error)
    assert time.process_time() - started < 5
