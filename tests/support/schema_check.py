"""Says whether a JSON value is what a JSON Schema asks for; the keywords that tests use."""

import re
from typing import Any

_KINDS: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "number": (int, float),
    "integer": (int,),
    "boolean": (bool,),
    "null": (type(None),),
}


def is_valid(value: Any, schema: Any, root: Any = None) -> bool:
    """Return whether a value validates."""
    root = schema if root is None else root
    if isinstance(schema, bool):
        return schema
    if "$ref" in schema and not is_valid(value, _target(schema["$ref"], root), root):
        return False
    if not all(is_valid(value, part, root) for part in schema.get("allOf", [])):
        return False
    for keyword in ("anyOf", "oneOf"):
        if keyword in schema and not any(is_valid(value, part, root) for part in schema[keyword]):
            return False
    return (
        _is_of_type(value, schema.get("type"))
        and ("const" not in schema or value == schema["const"])
        and ("enum" not in schema or value in schema["enum"])
        and _fits(value, schema, root)
    )


def _target(ref: str, root: Any) -> Any:
    for key in ref.split("/")[1:]:
        root = root[key.replace("~1", "/")]
    return root


def _is_of_type(value: Any, kind: Any) -> bool:
    if kind is None:
        return True
    if isinstance(kind, list):
        return any(_is_of_type(value, one) for one in kind)
    if isinstance(value, bool):
        return bool(kind == "boolean")
    if kind == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, _KINDS[kind])


def _fits(value: Any, schema: dict[str, Any], root: Any) -> bool:
    if isinstance(value, dict):
        return _object_fits(value, schema, root)
    if isinstance(value, list):
        low, high = schema.get("minItems", 0), schema.get("maxItems", len(value))
        first = schema.get("prefixItems", [])
        rest = schema.get("items", True)
        return low <= len(value) <= high and all(
            is_valid(item, first[at] if at < len(first) else rest, root)
            for at, item in enumerate(value)
        )
    if isinstance(value, str):
        low, high = schema.get("minLength", 0), schema.get("maxLength", len(value))
        return low <= len(value) <= high and bool(re.search(schema.get("pattern", ""), value))
    if isinstance(value, int | float) and not isinstance(value, bool):
        return (
            schema.get("minimum", value) <= value <= schema.get("maximum", value)
            and ("exclusiveMinimum" not in schema or value > schema["exclusiveMinimum"])
            and ("exclusiveMaximum" not in schema or value < schema["exclusiveMaximum"])
        )
    return True


def _object_fits(value: dict[str, Any], schema: dict[str, Any], root: Any) -> bool:
    known = schema.get("properties", {})
    others = schema.get("additionalProperties", True)
    low, high = schema.get("minProperties", 0), schema.get("maxProperties", len(value))
    return (
        low <= len(value) <= high
        and set(schema.get("required", [])) <= set(value)
        and all(is_valid(item, known.get(name, others), root) for name, item in value.items())
    )
