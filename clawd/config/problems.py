"""The untyped side of the configuration, and what is wrong with it, so that a person can mend it.

Keys, layers of values, and where each value came from: a key is a tuple of names, `("security",
"autonomy")`; `dotted` writes it as people do. A layer is a tree of dicts as TOML gives it; later
layers win.
"""

import difflib
import re
import tomllib
import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import SecretStr, ValidationError
from pydantic_core import ErrorDetails

from clawd.config.schema import Config
from clawd.config.sections import Section

ENV_PREFIX = "CLAWD_"
TOP_LEVEL_KEYS = ("workspace_dir", "default_provider", "default_model")
Key = tuple[str, ...]
Tree = dict[str, Any]
_BARE = re.compile(r"[A-Za-z0-9_-]+")
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


def dotted(key: tuple[str | int, ...]) -> str:
    """Return the key as people write it: `model."qwen2.5".top_k`, `security.forbidden_paths[2]`."""
    text = ""
    for part in key:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            name = part if _BARE.fullmatch(part) else f'"{part}"'
            text += f".{name}" if text else name
    return text


def merge(base: Tree, layer: Tree, source: str, sources: dict[Key, str], at: Key = ()) -> None:
    """Lay `layer` over `base` in place and note the source of every value it brings."""
    for name, value in layer.items():
        key = (*at, name)
        below = base.get(name)
        if isinstance(value, dict) and isinstance(below, dict):
            merge(below, value, source, sources, key)
            continue
        if isinstance(value, dict):
            base[name] = {}
            merge(base[name], value, source, sources, key)
        else:
            base[name] = value
        sources[key] = source


def environment_values(environ: Mapping[str, str], known: Tree) -> list[tuple[str, Key, object]]:
    """Return the name, the key and the value of each variable `CLAWD_SECTION__KEY`."""
    values = []
    for variable in sorted(environ):
        if not variable.startswith(ENV_PREFIX):
            continue
        words = variable.removeprefix(ENV_PREFIX).lower()
        if "__" not in words and words not in TOP_LEVEL_KEYS:
            continue
        key = _spelled_as_known(tuple(words.split("__")), known)
        values.append((variable, key, parsed(environ[variable], key)))
    return values


def nested(key: Key, value: object) -> Tree:
    """Return a tree that holds one value."""
    for name in reversed(key):
        value = {name: value}
    assert isinstance(value, dict)
    return value


def split_dotted(text: str) -> Key:
    """Return the key that dotted text means; a part in double quotes may hold dots."""
    return tuple(quoted or bare for quoted, bare in re.findall(r'"([^"]*)"|([^."]+)', text))


def parsed(text: str, key: Key) -> object:
    """Return text from outside the file as the value that the key takes.

    Numbers, booleans and lists are read as TOML; anything else, and all that a text key is given
    without quotes, is the text itself.
    """
    try:
        document = tomllib.loads(f"value = {text}")
    except tomllib.TOMLDecodeError:
        return text
    value = document.pop("value")
    if document or (not isinstance(value, str) and _takes_text(key)):
        return text
    return value


def _annotation_of(key: Key) -> Any:
    """Return the type annotation of a key, or None when there is no such key."""
    kind: Any = Config
    for name in key:
        if get_origin(kind) is dict:
            kind = get_args(kind)[1]
        elif _is_section(kind) and name in kind.model_fields:
            kind = kind.model_fields[name].annotation
        else:
            return None
    return kind


def _is_section(kind: object) -> bool:
    """Return whether an annotation is a section of the schema."""
    return isinstance(kind, type) and issubclass(kind, Section)


def value_at(tree: Tree, key: Key) -> Any:
    """Return the value of a key, or None when it is not there."""
    node: Any = tree
    for name in key:
        if not isinstance(node, dict):
            return None
        node = node.get(name)
    return node


def _takes_text(key: Key) -> bool:
    kind = _annotation_of(key)
    options = get_args(kind) if get_origin(kind) in {Union, types.UnionType} else (kind,)
    return any(
        option in {str, Path, SecretStr} or get_origin(option) is Literal for option in options
    )


def _spelled_as_known(key: Key, known: Tree) -> Key:
    """Give names that an environment variable cannot spell (`my-server`) their own spelling."""
    spelled: list[str] = []
    node: Any = known
    for name in key:
        names = node if isinstance(node, dict) else {}
        match = next((n for n in names if re.sub(r"\W", "_", n).lower() == name), name)
        spelled.append(match)
        node = names.get(match)
    return tuple(spelled)


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
    words = [word for word in get_args(_annotation_of(names)) if isinstance(word, str)]
    return f": expected one of {', '.join(words)}" if words else ""


def _unknown(key: tuple[str | int, ...]) -> str:
    names = tuple(part for part in key if isinstance(part, str))
    parent, name = names[:-1], names[-1]
    section = _annotation_of(parent)
    known = list(section.model_fields) if _is_section(section) else []
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
            yield from _all_keys(value, (*at, name, "<name>")) if _is_section(value) else ()
        elif _is_section(kind):
            yield from _all_keys(kind, (*at, name))
