"""Type hints as JSON Schema."""

import enum
from collections.abc import Mapping, Sequence
from types import GenericAlias
from typing import Annotated, Any, Literal, Optional

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawd.errors import InvalidRequestError
from clawd.sdk.schema import schema_of, takes_none
from clawd.tools.arguments import decode_arguments
from tests.support.rows import each_row


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


@each_row(
    ("hint", "schema"),
    [
        (str, {"type": "string"}),
        (int, {"type": "integer"}),
        (float, {"type": "number"}),
        (bool, {"type": "boolean"}),
        (Any, {}),
        (list, {"type": "array"}),
        (list[int], {"type": "array", "items": {"type": "integer"}}),
        (list[list[Any]], {"type": "array", "items": {"type": "array"}}),
        (tuple[int, ...], {"type": "array", "items": {"type": "integer"}}),
        (set[str], {"type": "array", "items": {"type": "string"}}),
        (Sequence[bool], {"type": "array", "items": {"type": "boolean"}}),
        (dict, {"type": "object"}),
        (dict[str, int], {"type": "object", "additionalProperties": {"type": "integer"}}),
        (Mapping[str, Any], {"type": "object"}),
        (Literal["a", "b"], {"type": "string", "enum": ["a", "b"]}),
        (Literal[1, 2], {"type": "integer", "enum": [1, 2]}),
        (Literal[1, "a"], {"enum": [1, "a"]}),
        (Colour, {"type": "string", "enum": ["red", "blue"]}),
        (str | None, {"type": "string"}),
        (Optional[list[int]], {"type": "array", "items": {"type": "integer"}}),  # noqa: UP045
        (int | str, {"anyOf": [{"type": "integer"}, {"type": "string"}]}),
        (Annotated[str, "a city"], {"type": "string", "description": "a city"}),
        (Annotated[int, 3], {"type": "integer"}),
    ],
)  # fmt: skip
def test_a_hint_is_this_schema(hint: Any, schema: dict[str, Any]) -> None:
    assert schema_of(hint, where="f(x)") == schema


@each_row(
    ("hint", "why"),
    [
        (bytes, "the type bytes"),
        (object, "the type object"),
        (complex | None, "the type complex"),
        (list[bytes], "the type bytes"),
        (dict[int, str], "keys of a JSON object are text"),
        (tuple[int, str], "of one type"),
        (Literal[b"x"], "the values to choose from"),
        (None, "the type None"),
    ],
)
def test_what_a_model_cannot_give_is_refused_by_name(hint: Any, why: str) -> None:
    with pytest.raises(InvalidRequestError, match=why) as caught:
        schema_of(hint, where="f(x)")
    assert caught.value.message.startswith("f(x): ")


@each_row(
    ("hint", "answer"),
    [(str, False), (str | None, True), (Annotated[int | None, "n"], True), (int | str, False)],
)
def test_none_is_seen(hint: Any, answer: bool) -> None:
    assert takes_none(hint) is answer


PLAIN: dict[Any, st.SearchStrategy[Any]] = {
    str: st.text(st.characters(exclude_categories=["Cs"]), min_size=1),
    int: st.integers(-(2**53), 2**53),
    float: st.floats(allow_nan=False, allow_infinity=False),
    bool: st.booleans(),
    Colour: st.sampled_from(Colour),
    Literal["a", "b"]: st.sampled_from(["a", "b"]),
}


def deeper(hints: st.SearchStrategy[tuple[Any, Any]]) -> st.SearchStrategy[tuple[Any, Any]]:
    """Return hints over hints, each with the values that it takes."""
    return st.one_of(
        hints.map(lambda one: (GenericAlias(list, (one[0],)), st.lists(one[1], max_size=3))),
        hints.map(
            lambda one: (
                GenericAlias(dict, (str, one[0])),
                st.dictionaries(PLAIN[str], one[1], max_size=3),
            )
        ),
        hints.map(
            lambda one: (
                GenericAlias(tuple, (one[0], ...)),
                st.lists(one[1], max_size=3).map(tuple),
            )
        ),
    )


HINTS = st.recursive(st.sampled_from(sorted(PLAIN.items(), key=str)), deeper, max_leaves=3)


@given(st.data())
def test_what_a_model_sends_comes_to_a_function_as_it_was_meant(data: st.DataObject) -> None:
    hint, values = data.draw(HINTS)
    value = data.draw(values)
    schema = {
        "type": "object",
        "properties": {"x": schema_of(hint, where="f(x)")},
        "required": ["x"],
        "additionalProperties": False,
    }
    sent = msgspec.json.encode({"x": value}).decode()
    arguments = decode_arguments(sent, schema)
    assert msgspec.convert(arguments["x"], hint, strict=False) == value
