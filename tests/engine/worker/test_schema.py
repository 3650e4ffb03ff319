"""JSON Schema as a grammar: what it lets through validates, what it cannot say is refused."""

import json
import re
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clawd.engine.worker.gbnf import MAX_REPETITIONS, Rules, SchemaError
from clawd.engine.worker.ranges import integer_between, number_between
from clawd.engine.worker.schema import schema_rule
from tests.support.grammar_text import GrammarText
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


def grammar(schema: Any) -> GrammarText:
    rules = Rules()
    return GrammarText(rules.text(schema_rule(rules, schema)), max_depth=14)


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
            ['[1, "a"]'],
            ["[1]", '["a", 1]'],
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
            ["3", '{"a": null}'],
            ['"x"', "{}"],
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
    tree = {
        "$ref": "#/$defs/t",
        "$defs": {"t": {"properties": {"kids": {"items": {"$ref": "#/$defs/t"}}}}},
    }
    text = grammar(tree)
    assert text.describes('{"kids": [{"kids": []}, {}]}')
    assert not text.describes('{"kids": [1]}')


@each_row(
    ("schema", "reason"),
    [
        ({"not": {"type": "null"}}, "not cannot"),
        ({"if": {}, "then": {"type": "null"}, "not": {"const": 1}}, "not cannot"),
        ({"type": "number", "multipleOf": 0.1}, "multipleOf"),
        ({"type": "array", "uniqueItems": True}, "uniqueItems"),
        ({"type": "object", "patternProperties": {"^a": {}}}, "patternProperties"),
        ({"$ref": "https://example.com/schema"}, "does not point into the schema"),
        ({"$ref": "#/$defs/nothing"}, "points to nothing"),
        ({"type": "strnig"}, "'strnig' is none of"),
        ({"type": "string", "pattern": "^([a-z"}, "a [ without a ]"),
        ({"type": "string", "pattern": "(a"}, "a ( without a )"),
        ({"type": "string", "pattern": "a)"}, "a ) without a ("),
        ({"type": "string", "pattern": "*a"}, "means nothing"),
        ({"type": "string", "pattern": "(?=a)b"}, "(? other than (?:"),
        ({"type": "string", "pattern": r"(a)\1"}, "not known"),
        ({"type": "string", "pattern": "^a|b$"}, "beside a choice"),
        ({"type": "string", "pattern": "^a$", "maxLength": 3}, "together"),
        ({"type": "string", "maxLength": MAX_REPETITIONS + 1}, "repetitions"),
        ({"type": "string", "minLength": 3, "maxLength": 2}, "contradict"),
        ({"type": "integer", "minimum": 3, "maximum": 2}, "no whole number"),
        ({"allOf": [{"type": "string"}, {"type": "null"}]}, "of type"),
        ({"enum": []}, "no value"),
        ({"enum": ["x" * 300_000]}, "longer than"),
        (False, "allows nothing"),
        (7, "an object or a boolean"),
        ({"type": "object", "properties": 3}, "malformed"),
        ({"type": "object", "required": "abc"}, "no list of names"),
        ({"type": "integer", "minimum": "3"}, "malformed"),
    ],
)
def test_what_no_grammar_can_say_is_refused_with_its_reason(schema: Any, reason: str) -> None:
    with pytest.raises(SchemaError, match=re.escape(reason)):
        schema_rule(Rules(), schema)


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
        with pytest.raises(SchemaError):
            schema_rule(Rules(), schema)


def test_a_huge_enum_shares_its_beginnings() -> None:
    rules = Rules()
    text = rules.text(schema_rule(rules, {"enum": [f"value{number}" for number in range(5000)]}))
    widest = max(line.count(" | ") for line in text.splitlines())
    assert widest <= 12
    assert GrammarText(text).describes('"value4999"')
    assert not GrammarText(text).describes('"value5000"')


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
@settings(max_examples=60, deadline=None)
def test_integer_bounds_are_exact(low: int, span: int) -> None:
    high = low + span
    text = GrammarText(f"root ::= {integer_between(low, high)}")
    edges = {low - 1, low, low + 1, (low + high) // 2, high - 1, high, high + 1, -low, 0, high * 10}
    for number in edges:
        assert text.describes(str(number)) == (low <= number <= high)


@given(
    st.integers(-20, 20),
    st.integers(1, 30),
    st.booleans(),
    st.booleans(),
    st.decimals(-60, 60, places=3),
)
@settings(max_examples=150, deadline=None)
def test_numbers_between_bounds_are_within(
    low: int, span: int, low_open: bool, high_open: bool, number: Any
) -> None:
    high = low + span
    expression = number_between(low, high, low_open=low_open, high_open=high_open)
    text = GrammarText(f"root ::= {expression}")
    written = format(number.normalize(), "f")
    within = (low < number or (low == number and not low_open)) and (
        number < high or (number == high and not high_open)
    )
    assert text.describes(written) == (within and written != "-0")


def test_half_open_bounds_of_integers_have_no_end() -> None:
    assert GrammarText(f"root ::= {integer_between(7, float('inf'))}").describes("123456789")
    assert not GrammarText(f"root ::= {integer_between(7, float('inf'))}").describes("6")
    assert GrammarText(f"root ::= {integer_between(float('-inf'), -3)}").describes("-44")
    assert not GrammarText(f"root ::= {integer_between(float('-inf'), -3)}").describes("-2")


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
        schema_rule(Rules(), doubling(keyword))
    except SchemaError as error:
        assert str(error)
    assert time.process_time() - started < 5
