"""Paths in the configuration: `~` and `$VAR` filled in, made absolute, in place."""

import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

from clawd.config.adapters import split_adapter
from clawd.config.problems import Problem, refused
from clawd.config.tree import Key, Tree, value_at
from clawd.paths import Layout

_VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")


def expand_paths(
    tree: Tree, layout: Layout, folder: Path, environ: Mapping[str, str]
) -> Iterator[Problem]:
    """Expand every path of the tree in place; return what cannot be expanded.

    Relative paths count from the home for files that clawd keeps, from the config's folder for
    files that it reads; elsewhere a path must be absolute.
    """
    bases: list[tuple[Key, Path | None]] = [
        (("workspace_dir",), None),
        (("memory", "path"), layout.home),
        (("knowledge", "path"), layout.home),
        (("receipts", "path"), layout.home),
        (("security", "forbidden_paths"), None),
        (("security", "workspace_roots"), None),
        (("security", "policy_cases"), folder),
        (("external_tools", "dir"), layout.home),
    ]
    providers = value_at(tree, ("providers", "models"))
    for name in providers if isinstance(providers, dict) else ():
        at = ("providers", "models", name)
        bases += [((*at, "script"), folder), ((*at, "api_key_file"), folder)]
    for key, base in bases:
        yield from _expand_at(tree, key, partial(_path, base=base, environ=environ))
    for name in ("tls_cert", "tls_key"):
        if value_at(tree, at := ("channels", "http", name)):
            yield from _expand_at(tree, at, partial(_path, base=folder, environ=environ))
    yield from _expand_models(tree, environ)
    yield from _expand_servers(tree, environ)
    for section in engine_sections(tree):
        expand = partial(_adapter, base=folder, environ=environ)
        yield from _expand_at(tree, (*section, "lora"), expand)


def engine_sections(tree: Tree) -> list[Key]:
    """Return where the engine's keys may stand: its section and each model's."""
    models = tree.get("model")
    return [
        ("engine",),
        *(("model", name) for name in (models if isinstance(models, dict) else ())),
    ]


def _expand_models(tree: Tree, environ: Mapping[str, str]) -> Iterator[Problem]:
    keys: list[Key] = [("default_model",)]
    providers = value_at(tree, ("providers", "models"))
    for name, section in providers.items() if isinstance(providers, dict) else ():
        if isinstance(section, dict) and section.get("kind") == "local":
            keys.append(("providers", "models", name, "model"))
    for key in keys:
        yield from _expand_at(tree, key, partial(_filled_in, environ=environ))


def _expand_servers(tree: Tree, environ: Mapping[str, str]) -> Iterator[Problem]:
    servers = value_at(tree, ("mcp", "servers"))
    for alias in servers if isinstance(servers, dict) else ():
        at = ("mcp", "servers", alias)
        yield from _expand_at(tree, (*at, "command"), partial(_filled_in, environ=environ))
        expand = partial(_path, base=None, environ=environ)
        yield from _expand_at(tree, (*at, "readonly_paths"), expand)


def _expand_at(tree: Tree, key: Key, expand: Callable[[str], str]) -> Iterator[Problem]:
    section, value = value_at(tree, key[:-1]), value_at(tree, key)
    if isinstance(value, str):
        try:
            section[key[-1]] = expand(value)
        except ValueError as error:
            yield refused(key, value, str(error))
    elif isinstance(value, list | tuple):
        expanded = list(value)
        for index, item in enumerate(value):
            if not isinstance(item, str):
                continue
            try:
                expanded[index] = expand(item)
            except ValueError as error:
                yield refused((*key, index), item, str(error))
        section[key[-1]] = expanded


def _path(text: str, base: Path | None, environ: Mapping[str, str]) -> str:
    filled = _filled_in(text, environ)
    if not filled or "\0" in filled:
        raise ValueError("a path")
    if Path(filled).is_absolute():
        return filled
    if base is None:
        raise ValueError("an absolute path, or one that begins with ~ or a $VARIABLE")
    return str(base / filled)


def _adapter(text: str, base: Path, environ: Mapping[str, str]) -> str:
    file, _ = split_adapter(text)
    return _path(file, base, environ) + text[len(file) :]


def _filled_in(text: str, environ: Mapping[str, str]) -> str:
    def value(match: re.Match[str]) -> str:
        name = match[1] or match[2]
        if name not in environ:
            raise ValueError(f"variables that are set; {name} is not")
        return environ[name]

    filled = _VARIABLE.sub(value, text)
    if filled == "~" or filled.startswith("~/"):
        home = environ.get("HOME") or str(Path("~").expanduser())
        return home.rstrip("/") + filled[1:] if filled != "~" else home
    if filled.startswith("~"):
        try:
            return str(Path(filled).expanduser())
        except RuntimeError as error:
            raise ValueError("a user that exists after ~") from error
    return filled
