"""The untyped side of the configuration: keys, layers of values, and where each value came from.

A key is a tuple of names, `("security", "autonomy")`; `dotted` writes it as people do. A layer is
a tree of dicts as TOML gives it; later layers win.
"""

import re
import tomllib
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import SecretStr

from clawd.config.schema import Config
from clawd.config.section import Section

ENV_PREFIX = "CLAWD_"
TOP_LEVEL_KEYS = ("workspace_dir", "default_provider", "default_model")

Key = tuple[str, ...]
Tree = dict[str, Any]

_BARE = re.compile(r"[A-Za-z0-9_-]+")


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


def annotation_of(key: Key) -> Any:
    """Return the type annotation of a key, or None when there is no such key."""
    kind: Any = Config
    for name in key:
        if get_origin(kind) is dict:
            kind = get_args(kind)[1]
        elif is_section(kind) and name in kind.model_fields:
            kind = kind.model_fields[name].annotation
        else:
            return None
    return kind


def is_section(kind: object) -> bool:
    """Tell whether an annotation is a section of the schema."""
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
    kind = annotation_of(key)
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
