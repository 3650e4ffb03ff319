"""What is wrong with a configuration, said so that a person can mend it."""

import difflib
import re
import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Union, get_args, get_origin

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from clawd.config.schema import Config
from clawd.config.tree import Key, annotation_of, dotted, is_section

HIDDEN_VALUES = frozenset({"api_key", "auth_token", "base_url", "env", "url"})
MAX_SHOWN = 80

_EXPECTED_TYPES = {
    "bool_type": "true or false",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "string_type": "text in quotes",
    "tuple_type": "a list",
    "path_type": "a path in quotes",
    "dict_type": "a table",
    "model_type": "a table",
    "finite_number": "a finite number",
    "string_pattern_mismatch": "a month, YYYY-MM",
}
_BOUNDS = {
    "greater_than": ("gt", "a value above"),
    "greater_than_equal": ("ge", "a value of at least"),
    "less_than": ("lt", "a value below"),
    "less_than_equal": ("le", "a value of at most"),
}

# Keys of earlier versions, dotted, each with what to write instead. A config that is years old
# says by them what to change.
FORMER_KEYS: Mapping[str, str] = {}


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong: the key at fault, and the text that follows it in the message."""

    key: tuple[str | int, ...]
    text: str


def of_validation(
    error: ValidationError, *, former: Mapping[str, str] = FORMER_KEYS
) -> Iterator[Problem]:
    """Return a problem for everything that does not fit the schema."""
    for detail in error.errors(include_url=False):
        key = detail["loc"]
        if detail["type"] == "extra_forbidden":
            instead = former.get(dotted(key))
            told = f" is a key of an earlier version: {instead}" if instead else _unknown(key)
            yield Problem(key, told)
        elif detail["type"] == "missing":
            yield Problem(key, f" is missing{_allowed(key)}")
        else:
            yield Problem(key, f"{_shown(key, detail['input'])}: expected {_expected(detail)}")


def refused(key: tuple[str | int, ...], value: object, expected: str) -> Problem:
    """Return a problem in the form of all others."""
    return Problem(key, f"{_shown(key, value)}: expected {expected}")


def nearest(name: str, known: list[str]) -> str:
    """Return a clause that leads from an unknown name to the known ones."""
    matches = difflib.get_close_matches(name, known, n=1)
    if matches:
        return f"did you mean {matches[0]}?"
    return f"known are {', '.join(known)}" if known else "none is known"


def _expected(detail: ErrorDetails) -> str:
    kind, context = detail["type"], detail.get("ctx", {})
    if kind == "literal_error":
        words = re.findall(r"'([^']*)'", context["expected"])
        return "one of " + ", ".join(word or '""' for word in words)
    if kind in _BOUNDS:
        bound, phrase = _BOUNDS[kind]
        return f"{phrase} {context[bound]:.12g}"
    if kind == "string_too_long":
        return f"at most {context['max_length']} characters"
    return _EXPECTED_TYPES.get(kind, detail["msg"])


def _shown(key: tuple[str | int, ...], value: object) -> str:
    if HIDDEN_VALUES.intersection(part for part in key if isinstance(part, str)):
        return " (value not shown)"
    if isinstance(value, dict):
        return " = { … }"
    text = f'"{value}"' if isinstance(value, str) else _toml_word(value)
    return f" = {text if len(text) <= MAX_SHOWN else text[:MAX_SHOWN] + '…'}"


def _toml_word(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _allowed(key: tuple[str | int, ...]) -> str:
    names = tuple(part for part in key if isinstance(part, str))
    words = [word for word in get_args(annotation_of(names)) if isinstance(word, str)]
    return f": expected one of {', '.join(words)}" if words else ""


def _unknown(key: tuple[str | int, ...]) -> str:
    names = tuple(part for part in key if isinstance(part, str))
    parent, name = names[:-1], names[-1]
    section = annotation_of(parent)
    known = list(section.model_fields) if is_section(section) else []
    close = difflib.get_close_matches(name, known, n=1)
    if close:
        return f" is not a known key: did you mean {dotted((*parent, close[0]))}?"
    elsewhere = [dotted(other) for other in _all_keys(Config) if other[-1] == name]
    if elsewhere:
        return f" is not a known key: did you mean {elsewhere[0]}?"
    where = f"[{dotted(parent)}]" if parent else "the file"
    return f" is not a known key: {where} takes {', '.join(known)}"


def _all_keys(section: Any, at: Key = ()) -> Iterator[Key]:
    for name, field in section.model_fields.items():
        kind: Any = field.annotation
        if get_origin(kind) in {Union, types.UnionType}:
            kind = get_args(kind)[0]
        yield (*at, name)
        if get_origin(kind) is dict:
            value = get_args(kind)[1]
            yield from _all_keys(value, (*at, name, "<name>")) if is_section(value) else ()
        elif is_section(kind):
            yield from _all_keys(kind, (*at, name))
