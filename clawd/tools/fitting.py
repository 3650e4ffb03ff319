"""One value of a call, brought into the form that its rule in the schema asks for. Pure."""

import json
import math
import re
import shlex
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

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


class _Place(NamedTuple):
    """Where a value stands: under which name, how deep, and whether choices are exact there."""

    name: str
    depth: int
    is_exact: bool

    def inside(self, name: str) -> "_Place":
        return _Place(name, self.depth + 1, self.is_exact)


def fit(value: Any, rule: Any, *, name: str = "", is_exact: bool = False) -> Any:
    """Return the value in the form that a rule asks for.

    Args:
        value: what was given.
        rule: its JSON Schema.
        name: that of the argument.
        is_exact: whether a choice must be one of the rule's, but for case and separators.

    Raises:
        UnfitError: it cannot be meant.
    """
    return _fit(value, rule, _Place(name, 0, is_exact))


def _fit(value: Any, rule: Any, place: _Place) -> Any:
    if not isinstance(rule, Mapping) or place.depth > MAX_DEPTH:
        return value
    if isinstance(choices := rule.get("enum"), list):
        return _one_of(_only(value), choices, is_exact=place.is_exact)
    kinds = rule.get("type")
    alternatives = rule.get("anyOf") or rule.get("oneOf")
    if isinstance(kinds, list):
        alternatives = [{**rule, "type": kind} for kind in kinds]
    if isinstance(alternatives, list):
        return _first_fit(value, alternatives, place)
    one_fit = _FITS.get(kinds) if isinstance(kinds, str) else None
    return one_fit(value, rule, place) if one_fit else value


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


def _one_of(value: Any, choices: list[Any], *, is_exact: bool) -> Any:
    meant = choice_of(value, choices, is_exact=is_exact)
    if meant is NO_CHOICE:
        raise UnfitError("one of " + ", ".join(str(choice) for choice in choices))
    return meant


def _only(value: Any) -> Any:
    """Return the one thing that a list holds, else the value."""
    return value[0] if isinstance(value, list) and len(value) == 1 else value


def _first_fit(value: Any, rules: list[Any], place: _Place) -> Any:
    """Prefer the alternative that takes the value as it is."""
    fits = []
    for rule in rules:
        try:
            fits.append(_fit(value, rule, place.inside(place.name)))
        except UnfitError:
            continue
    if not fits:
        raise UnfitError("another type")
    return next((one for one in fits if one == value and type(one) is type(value)), fits[0])


def _as_text(value: Any, _rule: Mapping[str, Any], place: _Place) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return _listed_text(value, place.name)
    if isinstance(value, dict) and place.name in _SINGLE:
        raise UnfitError("one text, not an object")
    if isinstance(value, bool) and place.name in TRIMMED:
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


def _as_integer(value: Any, _rule: Mapping[str, Any], _place: _Place) -> int:
    number = _number(_only(value), "a whole number")
    if isinstance(number, float) and not number.is_integer():
        raise UnfitError("a whole number")
    return int(number)


def _as_number(value: Any, _rule: Mapping[str, Any], _place: _Place) -> int | float:
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


def _as_boolean(value: Any, _rule: Mapping[str, Any], _place: _Place) -> bool:
    value = _only(value)
    text = str(value).strip().lower() if isinstance(value, (bool, int, str)) else ""
    if text in _TRUE | _FALSE:
        return text in _TRUE
    raise UnfitError("true or false")


def _as_list(value: Any, rule: Mapping[str, Any], place: _Place) -> list[Any]:
    items = rule.get("items", {})
    if isinstance(value, str):
        inner = _inner(value, "[", "a whole list")
        value = [value] if inner is None else inner
    elif not isinstance(value, list):
        value = [value]
    return [_fit(item, items, place.inside(f"{place.name} item")) for item in value]


def _as_object(value: Any, rule: Mapping[str, Any], place: _Place) -> dict[str, Any]:
    value = _only(value)
    if isinstance(value, str):
        value = _inner(value, "{", "an object")
    if not isinstance(value, dict):
        raise UnfitError("an object")
    properties = rule.get("properties") or {}
    if lacking := [name for name in rule.get("required", ()) if name not in value]:
        raise UnfitError(f"an object with `{lacking[0]}`")
    return {
        name: _fit(item, properties.get(name), place.inside(name)) for name, item in value.items()
    }


def _as_null(value: Any, _rule: Mapping[str, Any], _place: _Place) -> None:
    if value is not None:
        raise UnfitError("null")


_FITS: dict[str, Callable[[Any, Mapping[str, Any], _Place], Any]] = {
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
