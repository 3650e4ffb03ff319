"""Two JSON Schemas as the one that holds where both do."""

from collections.abc import Callable
from typing import Any

from clawd.engine.worker.gbnf import SchemaError

_ABOUT = frozenset(
    {
        "title",
        "description",
        "default",
        "examples",
        "deprecated",
        "readOnly",
        "writeOnly",
        "discriminator",
        "$schema",
        "$id",
        "$comment",
        "$defs",
        "definitions",
    }
)
_HIGHER = frozenset({"minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties"})
_LOWER = frozenset({"maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties"})


class ImpossibleError(SchemaError):
    """A schema that allows nothing."""


def merged(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """Return the schema that holds where both do.

    Raises:
        SchemaError: the two have a keyword that cannot be laid together.
    """
    result = dict(one)
    for key, value in other.items():
        if key not in result:
            result[key] = value
        elif key not in _ABOUT:
            result[key] = _both(key, result[key], value)
    _check_closed(one, other)
    return result


def _both(key: str, one: Any, other: Any) -> Any:
    if one == other:
        return one
    if key in _HIGHER:
        return max(one, other)
    if key in _LOWER:
        return min(one, other)
    if key == "const":
        raise ImpossibleError("two different const")
    if key not in _TOGETHER:
        raise SchemaError(f"two different {key} for one value")
    return _TOGETHER[key](one, other)


def _common_types(one: Any, other: Any) -> list[str]:
    first = [one] if isinstance(one, str) else list(one)
    second = [other] if isinstance(other, str) else list(other)
    common = [name for name in first if name in second]
    if "integer" in (*first, *second) and "number" in (*first, *second) and "integer" not in common:
        common.append("integer")
    if not common:
        raise ImpossibleError(f"no value is of type {one!r:.60} and of type {other!r:.60}")
    return common


def _check_closed(one: dict[str, Any], other: dict[str, Any]) -> None:
    """Refuse what one schema names and the other excludes."""
    for schema, partner in ((one, other), (other, one)):
        if schema.get("additionalProperties", True) is True:
            continue
        names = set(partner.get("properties", {})) - set(schema.get("properties", {}))
        if names:
            raise SchemaError(
                "additionalProperties beside an allOf or $ref that names more properties"
            )


def _all_names(one: list[str], other: list[str]) -> list[str]:
    return [*one, *(name for name in other if name not in one)]


def _common_values(one: list[Any], other: list[Any]) -> list[Any]:
    return [value for value in one if value in other]


def _all_properties(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    return one | {
        name: {"allOf": [one[name], value]} if name in one else value
        for name, value in other.items()
    }


_TOGETHER: dict[str, Callable[[Any, Any], Any]] = {
    "type": _common_types,
    "enum": _common_values,
    "required": _all_names,
    "properties": _all_properties,
}
