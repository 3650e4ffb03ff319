"""One value of a call, brought into the form that its rule in the schema asks for. Pure."""

import json
import math
import re
import shlex
from collections.abc import Callable, Mapping
from typing import Any

from clawd.tools import loose_json
from clawd.tools.verbs import NO_CHOICE, choice_of

MAX_DEPTH = loose_json.MAX_DEPTH
TRIMMED = frozenset({"path", "command", "url", "cwd", "source"})
# Text that is kept as it is; an object in its place is meant as JSON, a list could be lines.
FREE = frozenset({"content", "text", "new_text", "old_text", "body", "data"})

_QUOTED = frozenset({"path", "url", "source"})
# One thing by its nature: no list and no object stands for it.
_SINGLE = frozenset(
    {"path", "command", "url", "cwd", "source", "pattern", "query", "question", "expression"}
    | {"name", "glob", "code"}
)
_TRUE = frozenset({"true", "yes", "on", "1"})
_FALSE = frozenset({"false", "no", "off", "0"})
_NOTHING = frozenset({"", "null", "none"})


class UnfitError(Exception):
    """A value that does not fit; the text says what was expected."""


def fit(value: Any, rule: Any, *, name: str = "", depth: int = 0) -> Any:
    """Return the value in the form that a rule asks for.

    Raises:
        UnfitError: it cannot be meant.
    """
    if not isinstance(rule, Mapping) or depth > MAX_DEPTH:
        return value
    if isinstance(choices := rule.get("enum"), list):
        return _one_of(_only(value), choices)
    kinds = rule.get("type")
    alternatives = rule.get("anyOf") or rule.get("oneOf")
    if isinstance(kinds, list):
        alternatives = [{**rule, "type": kind} for kind in kinds]
    if isinstance(alternatives, list):
        return _first_fit(value, alternatives, name, depth)
    one_fit = _FITS.get(kinds) if isinstance(kinds, str) else None
    return one_fit(value, rule, name, depth) if one_fit else value


def trimmed(name: str, value: Any) -> Any:
    """Return a path, a command or an address without blanks, and without quotes, around it."""
    if name not in TRIMMED or not isinstance(value, str):
        return value
    text = value.strip()
    if name in _QUOTED and len(text) > 2 and text[0] == text[-1] and text[0] in "\"'`":
        return text[1:-1].strip()
    return text


def means_nothing(value: Any, rule: Any) -> bool:
    """Tell whether a value says that an argument was left out: null, and `"null"` for a number."""
    if value is None:
        return True
    kind = rule.get("type") if isinstance(rule, Mapping) else None
    is_other = isinstance(kind, str) and kind in _FITS and kind != "string"
    return is_other and isinstance(value, str) and value.strip().lower() in _NOTHING


def _one_of(value: Any, choices: list[Any]) -> Any:
    meant = choice_of(value, choices)
    if meant is NO_CHOICE:
        raise UnfitError("one of " + ", ".join(str(choice) for choice in choices))
    return meant


def _only(value: Any) -> Any:
    """Return the one thing that a list holds, else the value."""
    return value[0] if isinstance(value, list) and len(value) == 1 else value


def _first_fit(value: Any, rules: list[Any], name: str, depth: int) -> Any:
    """Prefer the alternative that takes the value as it is."""
    fits = []
    for rule in rules:
        try:
            fits.append(fit(value, rule, name=name, depth=depth + 1))
        except UnfitError:
            continue
    if not fits:
        raise UnfitError("another type")
    return next((one for one in fits if one == value and type(one) is type(value)), fits[0])


def _as_text(value: Any, _rule: Mapping[str, Any], name: str, _depth: int) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return _listed_text(value, name)
    if isinstance(value, dict) and name in _SINGLE:
        raise UnfitError("one text, not an object")
    if isinstance(value, bool) and name in TRIMMED:
        raise UnfitError("a text")
    return json.dumps(value, ensure_ascii=False)


def _listed_text(value: list[Any], name: str) -> str:
    are_texts = all(isinstance(item, str) for item in value)
    if name == "keywords" and are_texts:
        return " ".join(value)
    if name == "command" and are_texts and _runs_a_shell(value):
        return shlex.join(value)
    if len(value) == 1 and isinstance(value[0], str) and name not in FREE:
        return value[0]
    if name in _SINGLE:
        raise UnfitError("one text, not a list")
    if name in FREE and are_texts:
        raise UnfitError(r"one text, its lines parted by \n, not a list")
    return json.dumps(value, ensure_ascii=False)


def _runs_a_shell(argv: list[str]) -> bool:
    """Tell whether a list is surely one command in words, not several commands."""
    return len(argv) == 3 and argv[0] in {"bash", "sh", "/bin/sh", "/bin/bash"} and argv[1] in {
        "-c", "-lc"
    }  # fmt: skip


def _as_integer(value: Any, _rule: Mapping[str, Any], _name: str, _depth: int) -> int:
    number = _number(_only(value), "a whole number")
    if isinstance(number, float) and not number.is_integer():
        raise UnfitError("a whole number")
    return int(number)


def _as_number(value: Any, _rule: Mapping[str, Any], _name: str, _depth: int) -> int | float:
    return _number(_only(value), "a number")


def _number(value: Any, expected: str) -> int | float:
    if isinstance(value, str) and re.fullmatch(r"[+-]?\d{1,300}", value.strip()):
        return int(value)
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError as error:
            raise UnfitError(expected) from error
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise UnfitError(expected)
    return value


def _as_boolean(value: Any, _rule: Mapping[str, Any], _name: str, _depth: int) -> bool:
    value = _only(value)
    text = str(value).strip().lower() if isinstance(value, (bool, int, str)) else ""
    if text in _TRUE | _FALSE:
        return text in _TRUE
    raise UnfitError("true or false")


def _as_list(value: Any, rule: Mapping[str, Any], name: str, depth: int) -> list[Any]:
    items = rule.get("items", {})
    if isinstance(value, str):
        inner = _inner(value, "[", "a whole list")
        value = [value] if inner is None else inner
    elif not isinstance(value, list):
        value = [value]
    return [fit(item, items, name=f"{name} item", depth=depth + 1) for item in value]


def _as_object(value: Any, rule: Mapping[str, Any], _name: str, depth: int) -> dict[str, Any]:
    value = _only(value)
    if isinstance(value, str):
        value = _inner(value, "{", "an object")
    if not isinstance(value, dict):
        raise UnfitError("an object")
    properties = rule.get("properties") or {}
    if lacking := [name for name in rule.get("required", ()) if name not in value]:
        raise UnfitError(f"an object with `{lacking[0]}`")
    return {
        name: fit(item, properties.get(name), name=name, depth=depth + 1)
        for name, item in value.items()
    }


def _as_null(value: Any, _rule: Mapping[str, Any], _name: str, _depth: int) -> None:
    if value is not None:
        raise UnfitError("null")


_FITS: dict[str, Callable[[Any, Mapping[str, Any], str, int], Any]] = {
    "string": _as_text,
    "integer": _as_integer,
    "number": _as_number,
    "boolean": _as_boolean,
    "array": _as_list,
    "object": _as_object,
    "null": _as_null,
}


def _inner(text: str, opening: str, expected: str) -> Any:
    """Return what a text holds as JSON; None when it does not even begin so.

    Raises:
        UnfitError: it begins so and is broken.
    """
    if not text.lstrip().startswith(opening):
        return None
    try:
        return loose_json.parse(text)
    except (ValueError, RecursionError) as error:
        raise UnfitError(f"{expected} ({error})") from error
