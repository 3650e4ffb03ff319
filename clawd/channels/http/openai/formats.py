"""The form that an answer is to have: text, JSON, or JSON by a schema."""

from collections.abc import Iterator
from typing import Any

from clawd.channels.http.body import invalid
from clawd.channels.http.schemas import LISTS, OF_SCHEMAS, SINGLE, without_nulls

_TYPES = frozenset({"string", "number", "integer", "boolean", "object", "array", "null"})
_MAX_SCHEMA_DEPTH = 64


def read_format(body: dict[str, Any]) -> dict[str, Any] | None:
    """Return the `response_format` of a chat body, or of its `json_schema`; None for text.

    Raises:
        InvalidRequestError: it is of a type that is not there, or its schema is none.
    """
    given = body.get("response_format")
    if given is None:
        schema = body.get("json_schema")
        return None if schema is None else _by_schema({"schema": schema}, "json_schema")
    if not isinstance(given, dict):
        raise invalid("response_format", "expected an object with a type")
    kind = given.get("type")
    if kind == "json_schema":
        return _by_schema(given.get("json_schema"), "response_format.json_schema")
    if kind == "json_object" and given.get("schema") is not None:
        return _by_schema({"schema": given["schema"]}, "response_format")
    return _plain(kind, "response_format")


def read_text_format(text: dict[str, Any]) -> dict[str, Any] | None:
    """Return the `format` of the `text` of a /v1/responses body; None for text.

    Raises:
        InvalidRequestError: as `read_format`.
    """
    given = text.get("format")
    if given is None:
        return None
    if not isinstance(given, dict):
        raise invalid("text.format", "expected an object with a type")
    if given.get("type") == "json_schema":
        return _by_schema(given, "text.format")
    return _plain(given.get("type"), "text.format")


def _plain(kind: object, place: str) -> dict[str, Any] | None:
    if kind == "text":
        return None
    if kind == "json_object":
        return {"type": "json_object"}
    raise invalid(f"{place}.type", f"{kind!r} is none of text, json_object, json_schema")


def _by_schema(inner: object, place: str) -> dict[str, Any]:
    if not isinstance(inner, dict):
        raise invalid(place, "expected an object with a schema")
    schema = inner.get("schema")
    if not isinstance(schema, dict):
        raise invalid(f"{place}.schema", "expected a JSON Schema object")
    schema = without_nulls(schema)
    _check(schema, f"{place}.schema", _MAX_SCHEMA_DEPTH)
    name = inner.get("name")
    told = {"name": name if isinstance(name, str) and name else "answer", "schema": schema}
    if isinstance(inner.get("strict"), bool):
        told["strict"] = inner["strict"]
    return {"type": "json_schema", "json_schema": told}


def _check(schema: object, place: str, depth: int) -> None:
    """Refuse what is no schema, wherever it stands in one."""
    if isinstance(schema, bool):
        return
    if not isinstance(schema, dict):
        raise invalid(place, "expected a JSON Schema")
    if not depth:
        raise invalid(place, f"is nested more than {_MAX_SCHEMA_DEPTH} schemas deep")
    _check_type(schema.get("type"), place)
    for inner_place, inner in _inner(schema, place):
        _check(inner, inner_place, depth - 1)


def _inner(schema: dict[str, Any], place: str) -> Iterator[tuple[str, object]]:
    """Yield what stands where a schema holds schemas, and where that is."""
    for name in OF_SCHEMAS:
        named = schema.get(name, {})
        if not isinstance(named, dict):
            raise invalid(f"{place}.{name}", "expected an object of schemas")
        yield from ((f"{place}.{name}.{key}", each) for key, each in named.items())
    for name in LISTS:
        listed = schema.get(name, [])
        if not isinstance(listed, list):
            raise invalid(f"{place}.{name}", "expected a list of schemas")
        yield from ((f"{place}.{name}[{at}]", each) for at, each in enumerate(listed))
    for name in SINGLE:
        single = schema.get(name, True)
        each_of = single if isinstance(single, list) and name == "items" else [single]
        yield from ((f"{place}.{name}", each) for each in each_of)


def _check_type(kind: object, place: str) -> None:
    if kind is None:
        return
    kinds = kind if isinstance(kind, list) else [kind]
    for each in kinds:
        if not isinstance(each, str) or each not in _TYPES:
            raise invalid(f"{place}.type", f"{each!r} is no type of JSON Schema")
