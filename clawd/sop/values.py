"""Values against JSON Schema, as far as procedures need it: types, enums, bounds, parts. Pure."""

import json
import math
from collections.abc import Callable, Mapping
from typing import Any

MAX_DEPTH = 16

TYPES: Mapping[str, Callable[[object], bool]] = {
    "boolean": lambda value: isinstance(value, bool),
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "string": lambda value: isinstance(value, str),
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
    "null": lambda value: value is None,
}


def read_json(text: str) -> Any:
    """Return what JSON text holds; numbers are finite.

    Raises:
        ValueError: it is none, or nested too deep.
    """

    def finite(word: str) -> float:
        value = float(word)
        if not math.isfinite(value):
            raise ValueError(f"{word} is no number")
        return value

    try:
        return json.loads(text, parse_constant=finite, parse_float=finite)
    except RecursionError as error:
        raise ValueError("it is nested too deep") from error


def type_of(rule: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the types that a schema allows; empty for any."""
    kind = rule.get("type")
    if isinstance(kind, str):
        return (kind,)
    return tuple(each for each in kind if isinstance(each, str)) if isinstance(kind, list) else ()


def schema_problem(rule: object, depth: int = 0) -> str:
    """Return what is wrong with a schema; "" for nothing."""
    if not isinstance(rule, dict) or depth > MAX_DEPTH:
        return f"a schema is a table, nested at most {MAX_DEPTH} deep"
    kinds = rule.get("type", [])
    for kind in kinds if isinstance(kinds, list) else [kinds]:
        if kind not in TYPES:
            return f"the type {kind!r:.40} is none of {', '.join(TYPES)}"
    properties, required = rule.get("properties", {}), rule.get("required", [])
    if not isinstance(properties, dict) or not isinstance(required, list):
        return "`properties` is a table and `required` a list of its names"
    if missing := [each for each in required if each not in properties]:
        return f"`required` names {missing[0]!r:.40}, which is no property"
    below = [*properties.values(), *([rule["items"]] if "items" in rule else [])]
    return next(filter(None, (schema_problem(each, depth + 1) for each in below)), "")


def problem_of_value(value: object, rule: object, at: str = "") -> str:
    """Return why a value does not fit a schema, with the way to the part; "" where it does."""
    if not isinstance(rule, Mapping):
        return ""
    where = f"{at}: " if at else ""
    kinds = type_of(rule)
    if kinds and not any(kind in TYPES and TYPES[kind](value) for kind in kinds):
        return f"{where}{_shown(value)} is no {' or '.join(kinds)}"
    if "enum" in rule and value not in rule["enum"]:
        return f"{where}{_shown(value)} is none of {', '.join(map(_shown, rule['enum']))}"
    if "const" in rule and value != rule["const"]:
        return f"{where}{_shown(value)} is not {_shown(rule['const'])}"
    return _problem_of_size(value, rule, where) or _problem_of_parts(value, rule, at)


def _problem_of_size(value: object, rule: Mapping[str, Any], where: str) -> str:
    is_number = TYPES["number"](value)
    size: Any = value if is_number else len(value) if isinstance(value, str | list) else None
    if size is None:
        return ""
    kind = "" if is_number else "Length" if isinstance(value, str) else "Items"
    least, most = (rule.get(f"{word}{kind}" if kind else f"{word}imum") for word in ("min", "max"))
    if TYPES["number"](least) and size < least:
        return f"{where}{_shown(value)} is under {least}"
    if TYPES["number"](most) and size > most:
        return f"{where}{_shown(value)} is over {most}"
    return ""


def _problem_of_parts(value: object, rule: Mapping[str, Any], at: str) -> str:
    if isinstance(value, list):
        found = (
            problem_of_value(each, rule.get("items"), f"{at}[{number}]")
            for number, each in enumerate(value)
        )
        return next(filter(None, found), "")
    if not isinstance(value, dict):
        return ""
    where = f"{at}: " if at else ""
    properties = rule.get("properties") or {}
    for name in rule.get("required") or ():
        if name not in value:
            return f"{where}{name!r} is missing"
    for name, each in value.items():
        if name not in properties:
            if rule.get("additionalProperties") is False:
                return f"{where}{name!r:.40} is not known there"
            continue
        if why := problem_of_value(each, properties[name], f"{at}.{name}" if at else name):
            return why
    return ""


def _shown(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 60 else f"{text[:57]}..."
