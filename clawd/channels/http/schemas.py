"""JSON Schemas of clients: what in them is not there although it is written. Pure."""

from typing import Any

OF_SCHEMAS = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
SINGLE = ("items", "additionalProperties", "not", "if", "then", "else", "contains")
_MEANT = frozenset({"const", "default", "example"})


def without_nulls(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema without keywords that are null: clients in Go write empty lists so.

    Values stay what they are: `const`, `default`, `example`, members of an `enum`.
    """
    return {
        name: _inner(name, value)
        for name, value in schema.items()
        if value is not None or name in _MEANT
    }


def _inner(name: str, value: Any) -> Any:
    if name in OF_SCHEMAS and isinstance(value, dict):
        return {each: _schema(inner) for each, inner in value.items()}
    if name in LISTS and isinstance(value, list):
        return [_schema(inner) for inner in value]
    if name in SINGLE:
        return [*map(_schema, value)] if isinstance(value, list) else _schema(value)
    return value


def _schema(value: Any) -> Any:
    return without_nulls(value) if isinstance(value, dict) else value
