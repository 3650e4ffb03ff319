"""Arguments that stand one by one: which of them, in what form, and what cannot be held."""

import time
from typing import Any

import pytest

from clawd.engine.protocol import ParameterForm, StringForm
from clawd.engine.worker.grammar import Rules, arguments_rule
from clawd.engine.worker.schema import SchemaError
from tests.support.grammar_text import GrammarText, compiled
from tests.support.rows import each_row

TAGS = ParameterForm(
    key="<%key%>", end="</p>", separator="%ws%", strings=(StringForm(key="<%key%>", stop="</p>"),)
)
KEYWORDS = ParameterForm(key="%key%=", separator=", ")
QUOTED = ParameterForm(
    key="%key%:", separator=",", strings=(StringForm(key="%key%:''", stop="''"),), nests=True
)
FREE = {"type": "string"}
NUMBER = {"type": "integer"}
LISTED = {"type": "array", "items": FREE, "minItems": 1, "maxItems": 2}


def takes(form: ParameterForm, schema: Any, text: str) -> bool:
    rules = Rules()
    lark = rules.text(rules.add(arguments_rule(rules, form, schema)))
    return GrammarText(compiled(lark)).describes(text)


def having(properties: dict[str, Any], *required: str) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required)}


@each_row(
    ("form", "schema", "yes", "no"),
    [
        (TAGS, having({"a": FREE}, "a"), "<a>x < y</ p></p>", "<a>x</p></p>"),
        (TAGS, having({"a": FREE}, "a"), '<a>\n"x"\n</p>', ""),
        (TAGS, having({"a": FREE}), "", "<b>x</p>"),
        (TAGS, having({"a": NUMBER}, "a"), "<a>5</p>", "<a>five</p>"),
        (TAGS, having({"a": FREE, "b": NUMBER}, "b"), "<b>1</p> <a></p>", "<a></p>"),
        (TAGS, having({"a": FREE, "b": NUMBER}, "b"), "<a>x</p>\n<b>1</p>", "<b>1</p><b>1</p>"),
        (TAGS, having({"a": {**FREE, "maxLength": 2}}), "<a>xy</p>", "<a>xyz</p>"),
        (TAGS, having({"a": {"enum": ["x", "5", 5]}}), "<a>5</p>", "<a>y</p>"),
        (TAGS, having({"a": {"type": ["string", "null"]}}), "<a>any</p>", "<a>"),
        (TAGS, having({"a": {"anyOf": [NUMBER, {"type": "null"}]}}), "<a>null</p>", "<a>x</p>"),
        (TAGS, having({"a": {"anyOf": [NUMBER, FREE]}}), "<a>x</p>", "<a>x"),
        (TAGS, having({"a": {"type": "object"}}), '<a>{"b": "</p>"}</p>', "<a>b</p>"),
        (TAGS, having({"a": {}}), "<a>[1]</p>", "<a>[1]"),
        (TAGS, having({}, "a"), "<a>x</p>", ""),
        (TAGS, {**having({"a": {"$ref": "#/$defs/n"}}), "$defs": {"n": NUMBER}}, "<a>1</p>",
         "<a>x</p>"),
        (TAGS, {"anyOf": [having({"a": NUMBER})]}, "<any>x</p><b>y</p>", "<a b>x</p>"),
        (TAGS, {"type": "object", "additionalProperties": False}, "", "<a>x</p>"),
        (TAGS, True, "<a>x</p>", "x"),
        (KEYWORDS, having({"a": FREE, "b": NUMBER}, "a"), 'a="x", b=1', "a=x"),
        (KEYWORDS, True, 'a="x", b=[1, {"c": true}]', "a"),
        (QUOTED, having({"a": FREE}, "a"), "a:''it's {x}''", 'a:"x"'),
        (QUOTED, having({"a": LISTED}), "a:[''x'',''y'']", "a:[''x'',1]"),
        (QUOTED, having({"a": LISTED}), "a:[''x'']", "a:[]"),
        (QUOTED, having({"a": {**LISTED, "maxItems": 0}}), "a:[]", "a:['''']"),
        (QUOTED, having({"a": having({"b": NUMBER}, "b")}), "a:{b:1}", "a:{}"),
        (QUOTED, having({"a": {"type": "object"}}), "a:{b:[''x'',{c:null}]}", "a:[]"),
        (QUOTED, having({"a": {"type": "array"}}), "a:[1,''x'']", "a:{}"),
        (QUOTED, having({"a": {"enum": ["x", 1]}}), "a:1", "a:''y''"),
        (QUOTED, having({"a": True}), "a:{b:''c''}", "a:c"),
    ],
)  # fmt: skip
def test_arguments_are_held_one_by_one(form: ParameterForm, schema: Any, yes: str, no: str) -> None:
    assert takes(form, schema, yes)
    assert not takes(form, schema, no)


@each_row(
    "schema",
    [
        7,
        {"properties": 3},
        having({"a": {"$ref": "nowhere"}, "b": {"type": "array", "items": {"$ref": "#/x"}}}),
        having({"a": {"type": "integer", "not": {}, "multipleOf": 7.5}}),
        having({f"p{number}": True for number in range(5000)}),
    ],
)
def test_what_cannot_be_held_is_refused(schema: Any) -> None:
    with pytest.raises(SchemaError):
        takes(TAGS, schema, "")


@each_row("form", [TAGS, KEYWORDS, QUOTED])
def test_references_that_multiply_end_in_a_grammar_or_a_reason(form: ParameterForm) -> None:
    again = {"$ref": "#/$defs/d"}
    for node in (
        having({f"p{number}": again for number in range(5)}),
        {"anyOf": [again, again, {"type": "null"}]},
        {"type": "array", "items": again},
    ):
        started = time.process_time()
        try:
            arguments_rule(Rules(), form, {**having({"a": again}), "$defs": {"d": node}})
        except SchemaError as error:
            assert str(error)
        assert time.process_time() - started < 5


def test_arguments_as_json_are_an_object_even_without_a_schema() -> None:
    for schema in (True, {}, {"properties": {"a": NUMBER}}):
        rules = Rules()
        text = GrammarText(compiled(rules.text(arguments_rule(rules, None, schema=schema))))
        assert text.describes('{"a": 5}')
        assert not any(map(text.describes, ("5", "[]", "null", '"a"')))
