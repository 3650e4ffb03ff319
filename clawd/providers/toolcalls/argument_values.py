"""Types what a format writes without quotes: by the tool's schema, else by what it looks like."""

import re
from typing import Any

import msgspec

from clawd.providers.toolcalls.base import ParserOptions

_LITERAL = re.compile(r"true|false|null|-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?")
_PYTHON = {"True": "true", "False": "false", "None": "null"}
_KINDS: dict[str, type] = {
    "object": dict,
    "array": list,
    "boolean": bool,
    "integer": int,
    "number": float,
    "null": type(None),
}


def argument_schema(options: ParserOptions, tool: str, argument: str) -> Any:
    """Return the schema of a tool's argument; None when it is not known."""
    properties = options.schemas.get(tool, {}).get("properties")
    return properties.get(argument) if isinstance(properties, dict) else None


def literal(text: str, schema: Any) -> str | None:
    """Return the JSON of a value that stands bare where strings are quoted.

    None when it is neither a literal nor anything that the schema takes as a string.
    """
    kinds = _kinds(schema)
    if kinds == {"string"}:
        return encode(text)
    text = _PYTHON.get(text, text)
    if _LITERAL.fullmatch(text):
        return text
    return encode(text) if "string" in kinds else None


def value(text: str, schema: Any) -> str:
    """Return the JSON of a value in a format that quotes nothing.

    A string stays one where the schema takes strings, unless it is null or an object or a list
    that the schema takes as well.
    """
    kinds = _kinds(schema)
    if kinds == {"string"}:
        return encode(text)
    bare = text.strip()
    bare = _PYTHON.get(bare, bare)
    kind = _kind(bare)
    if kind is None or (kinds and kind not in kinds and "string" in kinds):
        return encode(text)
    if "string" in kinds and kind in {"number", "integer"}:
        return encode(text)
    return bare


def encode(text: str) -> str:
    """Return text as a JSON string; halves of a surrogate pair are joined, lone ones replaced."""
    whole = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return msgspec.json.encode(whole).decode("utf-8")


def _kind(text: str) -> str | None:
    """Return the schema's name for a value's type; None when it is no JSON, or a string."""
    try:
        decoded = msgspec.json.decode(text.encode("utf-8", "surrogatepass"))
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    return next((name for name, kind in _KINDS.items() if isinstance(decoded, kind)), None)


def _kinds(schema: Any) -> set[str]:
    """Return the types that a schema takes, nested one level; empty when it does not say."""
    if not isinstance(schema, dict):
        return set()
    kinds: set[str] = set()
    for one in (schema, *_listed(schema.get("anyOf")), *_listed(schema.get("oneOf"))):
        if isinstance(one, dict):
            kinds |= _own_kinds(one)
    return kinds | ({"integer"} if "number" in kinds else set())


def _own_kinds(schema: dict[str, Any]) -> set[str]:
    given = schema.get("type")
    if isinstance(given, str):
        return {given}
    if isinstance(given, list):
        return {kind for kind in given if isinstance(kind, str)}
    options = [schema["const"]] if "const" in schema else _listed(schema.get("enum"))
    return {_kind_of(option) for option in options}


def _listed(given: Any) -> list[Any]:
    return given if isinstance(given, list) else []


def _kind_of(option: Any) -> str:
    found = (name for name, kind in _KINDS.items() if isinstance(option, kind))
    return next(found, "string")
