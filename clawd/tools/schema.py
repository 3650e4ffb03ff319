"""Decoding a call's arguments: what a model wrote, brought into the form that the schema asks for.

Tolerant where the meaning is plain (numbers as text, lists as JSON text, other spellings of a
name), strict where it is not: then the error carries an example to copy. Only what the schema's
top level, its items and its properties say is looked at; a tool's own server may say more.
"""

import difflib
import json
import math
import re
from collections.abc import Callable, Mapping
from typing import Any

from clawd.errors import InvalidRequestError

MAX_ARGUMENT_BYTES = 8 << 20
_MAX_DEPTH = 32
_TRIMMED = frozenset({"path", "command", "url", "cwd"})
_OTHER_NAMES = {
    "path": ("file", "filename", "file_path", "filepath", "dir", "directory", "folder"),
    "command": ("cmd", "script"),
    "expression": ("expr", "input", "formula"),
    "content": ("text", "contents", "data", "body"),
    "query": ("q", "search", "text"),
    "pattern": ("regex", "glob"),
    "url": ("uri", "link", "address"),
    "question": ("prompt", "text", "query"),
}
_EXAMPLES = {
    "path": "notes.txt",
    "command": "ls",
    "url": "https://example.org/",
    "expression": "12 * 7",
    "pattern": "*.txt",
    "content": "some text",
    "query": "some words",
    "question": "Which one?",
    "keywords": "two words",
}
_TRUE = frozenset({"true", "yes", "on", "1"})
_FALSE = frozenset({"false", "no", "off", "0"})


class _UnfitError(Exception):
    """A value that does not fit; the text says what was expected."""


def decode_arguments(raw: str | Mapping[str, Any], schema: Mapping[str, Any]) -> dict[str, Any]:
    """Decode the arguments of a call; keys come in the schema's order, unknown ones are dropped.

    Args:
        raw: the JSON text as the model wrote it, or an object that was decoded already.
        schema: JSON Schema of type object.

    Raises:
        InvalidRequestError: they cannot be meant; the hint shows a call that could be.
    """
    given = _object(raw, schema)
    properties: Mapping[str, Any] = schema.get("properties") or {}
    if not properties and schema.get("additionalProperties") is not False:
        return given
    found = _renamed(given, properties)
    decoded: dict[str, Any] = {}
    for name, rule in properties.items():
        if name not in found or found[name] is None:
            continue
        try:
            value = _fit(found[name], rule, 0)
        except _UnfitError as error:
            shown = json.dumps(found[name], ensure_ascii=False, default=str)[:80]
            raise _refusal(f"argument `{name}` is {shown}, expected {error}", schema) from error
        decoded[name] = value.strip() if name in _TRIMMED and isinstance(value, str) else value
    if missing := [name for name in schema.get("required", ()) if name not in decoded]:
        names = ", ".join(f"`{name}`" for name in missing)
        known = f"; given were {', '.join(sorted(given))[:200]}" if given else ""
        raise _refusal(f"missing argument {names}{known}", schema)
    extra = schema.get("additionalProperties")
    if extra is True or isinstance(extra, dict):
        decoded |= {name: value for name, value in found.items() if name not in properties}
    return decoded


def example_arguments(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments that the schema would take: the required ones."""
    properties: Mapping[str, Any] = schema.get("properties") or {}
    wanted = schema.get("required", ())
    return {name: _example(name, properties.get(name, {}), 0) for name in wanted}


def _refusal(message: str, schema: Mapping[str, Any]) -> InvalidRequestError:
    example = json.dumps(example_arguments(schema), ensure_ascii=False)
    return InvalidRequestError(message, hint=f"Correct arguments look like this: {example}")


def _object(raw: str | Mapping[str, Any], schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the object that a model meant, without lone surrogates."""
    value: Any = raw
    if isinstance(value, str):
        if len(value.encode("utf-8", "surrogatepass")) > MAX_ARGUMENT_BYTES:
            raise _refusal(f"the arguments are longer than {MAX_ARGUMENT_BYTES} bytes", schema)
        value = _parsed(value, schema)
    if isinstance(value, str):  # an object that was encoded twice
        value = _parsed(value, schema)
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        kind = type(value).__name__
        raise _refusal(f"the arguments are a JSON {kind}, expected an object", schema)
    try:
        return {_clean(str(name)): _cleaned(item, 0) for name, item in value.items()}
    except _UnfitError as error:
        raise _refusal(str(error), schema) from error


def _parsed(text: str, schema: Mapping[str, Any]) -> Any:
    """Parse JSON, forgiving fences around it, text after it and raw line breaks in strings."""
    body = re.sub(r"^\s*```[a-z]*\s*", "", text).strip()
    if not body:
        return {}
    decoder = json.JSONDecoder(strict=False, parse_constant=_no_constant)
    try:
        return decoder.raw_decode(body)[0]
    except (ValueError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise _refusal(f"the arguments are no JSON object: {reason}", schema) from error


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def _cleaned(value: Any, depth: int) -> Any:
    if depth > _MAX_DEPTH:
        raise _UnfitError(f"the arguments are nested more than {_MAX_DEPTH} deep")
    if isinstance(value, str):
        return _clean(value)
    if isinstance(value, Mapping):
        return {_clean(str(name)): _cleaned(item, depth + 1) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_cleaned(item, depth + 1) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        # What an approval shows is canonical JSON, which cannot hold it.
        raise _UnfitError(f"the arguments hold a number that is out of range ({value})")
    return value


def _clean(text: str) -> str:
    """Join surrogate pairs; replace lone ones, which no file and no socket would take."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _renamed(given: dict[str, Any], properties: Mapping[str, Any]) -> dict[str, Any]:
    """Put values under the schema's names where their own can mean only one of these."""
    found = {name: value for name, value in given.items() if name in properties}
    by_shape = {_shape(name): name for name in properties}
    for name, value in given.items():
        if name in properties:
            continue
        meant = by_shape.get(_shape(name)) or next(
            (
                real
                for real, others in _OTHER_NAMES.items()
                if real in properties and name in others
            ),
            name,
        )
        found.setdefault(meant, value)
    return found


def _shape(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _fit(value: Any, rule: Any, depth: int) -> Any:
    """Return the value in the form that a rule asks for."""
    if not isinstance(rule, Mapping) or depth > _MAX_DEPTH:
        return value
    if isinstance(choices := rule.get("enum"), list):
        return _one_of(value, choices)
    kinds = rule.get("type")
    alternatives = rule.get("anyOf") or rule.get("oneOf")
    if isinstance(kinds, list):
        alternatives = [{**rule, "type": kind} for kind in kinds]
    if isinstance(alternatives, list):
        return _first_fit(value, alternatives, depth)
    fit = _FITS.get(kinds) if isinstance(kinds, str) else None
    return fit(value, rule, depth) if fit else value


def _first_fit(value: Any, rules: list[Any], depth: int) -> Any:
    """Prefer the alternative that takes the value as it is."""
    fits = []
    for rule in rules:
        try:
            fits.append(_fit(value, rule, depth + 1))
        except _UnfitError:
            continue
    if not fits:
        raise _UnfitError("another type")
    return next((fit for fit in fits if fit == value and type(fit) is type(value)), fits[0])


def _one_of(value: Any, choices: list[Any]) -> Any:
    if value in choices:
        return value
    text = str(value).strip().lower()
    by_text = {str(choice).lower(): choice for choice in choices}
    near = difflib.get_close_matches(text, by_text, n=2, cutoff=0.8)
    if text in by_text:
        return by_text[text]
    if len(near) == 1:
        return by_text[near[0]]
    raise _UnfitError("one of " + ", ".join(str(choice) for choice in choices))


def _as_text(value: Any, _rule: Mapping[str, Any], _depth: int) -> str:
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False)


def _as_integer(value: Any, _rule: Mapping[str, Any], _depth: int) -> int:
    number = _number(value, "a whole number")
    if isinstance(number, float) and not number.is_integer():
        raise _UnfitError("a whole number")
    return int(number)


def _as_number(value: Any, _rule: Mapping[str, Any], _depth: int) -> int | float:
    return _number(value, "a number")


def _number(value: Any, expected: str) -> int | float:
    if isinstance(value, str) and re.fullmatch(r"[+-]?\d{1,300}", value.strip()):
        return int(value)
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError as error:
            raise _UnfitError(expected) from error
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise _UnfitError(expected)
    return value


def _as_boolean(value: Any, _rule: Mapping[str, Any], _depth: int) -> bool:
    text = str(value).strip().lower() if isinstance(value, (bool, int, str)) else ""
    if text in _TRUE | _FALSE:
        return text in _TRUE
    raise _UnfitError("true or false")


def _as_list(value: Any, rule: Mapping[str, Any], depth: int) -> list[Any]:
    items = rule.get("items", {})
    if isinstance(value, str):
        value = _inner_json(value, list) or [value]
    elif not isinstance(value, list):
        value = [value]
    return [_fit(item, items, depth + 1) for item in value]


def _as_object(value: Any, rule: Mapping[str, Any], depth: int) -> dict[str, Any]:
    if isinstance(value, str):
        value = _inner_json(value, dict)
    if not isinstance(value, dict):
        raise _UnfitError("an object")
    properties = rule.get("properties") or {}
    if lacking := [name for name in rule.get("required", ()) if name not in value]:
        raise _UnfitError(f"an object with `{lacking[0]}`")
    return {name: _fit(item, properties.get(name), depth + 1) for name, item in value.items()}


def _as_null(value: Any, _rule: Mapping[str, Any], _depth: int) -> None:
    if value is not None:
        raise _UnfitError("null")


_FITS: dict[str, Callable[[Any, Mapping[str, Any], int], Any]] = {
    "string": _as_text,
    "integer": _as_integer,
    "number": _as_number,
    "boolean": _as_boolean,
    "array": _as_list,
    "object": _as_object,
    "null": _as_null,
}


def _inner_json(text: str, kind: type) -> Any:
    """Return the list or object that a string holds as JSON, or None."""
    try:
        value = json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, kind) else None


def _example(name: str, rule: Any, depth: int) -> Any:
    if not isinstance(rule, Mapping) or depth > _MAX_DEPTH:
        return "text"
    choices = rule.get("examples") or rule.get("enum")
    if isinstance(choices, list):
        return choices[0]
    kind = rule.get("type")
    alternatives = rule.get("anyOf") or rule.get("oneOf")
    if isinstance(alternatives, list):
        return _example(name, alternatives[0], depth + 1)
    if isinstance(kind, list):
        kind = next((each for each in kind if each != "null"), "null")
    if kind == "array":
        return [_example(name, rule.get("items", {}), depth + 1)]
    if kind == "object":
        inner = rule.get("properties") or {}
        return {key: _example(key, inner.get(key), depth + 1) for key in rule.get("required", ())}
    plain = {"integer": 1, "number": 1, "boolean": True}
    return rule.get("default", plain.get(str(kind), _EXAMPLES.get(name, "text")))
