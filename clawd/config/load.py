"""Reads the configuration: built-in values, file, environment, command line, in that order.

    [security]
    autonomy = "godmode"

    /home/ada/.clawd/config.toml: security.autonomy = "godmode": expected one of readonly,
    supervised, full

Nothing stops at the first problem; `load` raises one ConfigError that holds them all.
"""

import os
import stat
import tomllib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from clawd.config import checks, problems
from clawd.config.defaults import SOURCE_DEFAULT, default_tree
from clawd.config.expand import expand_paths
from clawd.config.problems import Problem
from clawd.config.schema import Config
from clawd.config.tree import (
    Key,
    Tree,
    dotted,
    environment_values,
    merge,
    nested,
    parsed,
    split_dotted,
    value_at,
)
from clawd.errors import ConfigError
from clawd.paths import Layout, expanded, layout

MAX_FILE_BYTES = 4 * 1024 * 1024
SOURCE_COMMAND_LINE = "command line"


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """A valid configuration and where it came from.

    Attributes:
        config: the values, paths absolute.
        path: the config file, whether it exists or not.
        layout: where this clawd lives.
        sources: for every key that was set, dotted, who set it: the file's path, `environment
            NAME` or `command line`.
        overrides: what `load` was given beside the file, for loading it again.
    """

    config: Config
    path: Path
    layout: Layout
    sources: Mapping[str, str]
    overrides: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def source_of(self, key: str) -> str:
        """Return who set a dotted key; `default` when nobody did."""
        return self.sources.get(key, SOURCE_DEFAULT)

    @property
    def again(self) -> Path | None:
        """What `load` takes to read it again: a file that was there must still be there."""
        had_file = str(self.path) in self.sources.values()
        return self.path if had_file or self.path != self.layout.config else None


def load(
    path: Path | None = None,
    environ: Mapping[str, str] | None = None,
    overrides: Mapping[str, Any] | None = None,
) -> Loaded:
    """Load and check the configuration.

    Args:
        path: the config file; None means the layout's, which need not exist.
        environ: the environment, for `CLAWD_SECTION__KEY`, `~` and `$VAR`; None is the process's.
        overrides: dotted keys from the command line; text is read as in the environment.

    Raises:
        ConfigError: at least one problem; `problems` holds a line for each.
    """
    env = os.environ if environ is None else environ
    where = layout(env)
    file = where.config if path is None else expanded(path).absolute()
    own = read_file(file, must_exist=path is not None)
    tree, sources = _merged(own, file, where, env, overrides or {})
    return replace(_checked(tree, sources, file, where, env), overrides=dict(overrides or {}))


def load_text(text: str, environ: Mapping[str, str]) -> Loaded:
    """Load a configuration that somebody hands in, as if it lay in the place of the layout's file.

    Raises:
        ConfigError: at least one problem.
    """
    where = layout(environ)
    own = _parsed_file(text.encode("utf-8", "surrogateescape"), where.config)
    tree, sources = _merged(own, where.config, where, environ, {})
    return _checked(tree, sources, where.config, where, environ)


def overrides_of(
    loaded: Loaded, environ: Mapping[str, str]
) -> list[tuple[str, Key, object, object]]:
    """Return which variables of another environment ask for what is not in force.

    Returns:
        For each the variable's name, the key, what it asks for and what is in force instead, both
        as JSON-like data; a value that the key does not take is given as it is written.
    """
    current = loaded.config.model_dump(exclude_none=True)
    shown = loaded.config.model_dump(mode="json", exclude_none=True)
    found = []
    for variable, key, value in environment_values(environ, current):
        wanted, has_other = value, True
        tree = loaded.config.model_dump(exclude_none=True)
        merge(tree, nested(key, value), variable, {})
        with suppress(ValidationError):
            if not list(expand_paths(tree, loaded.layout, loaded.path.parent, environ)):
                asked = Config.model_validate(tree)
                # Not as JSON: there one secret looks like another.
                has_other = value_at(asked.model_dump(exclude_none=True), key) != value_at(
                    current, key
                )
                wanted = value_at(asked.model_dump(mode="json", exclude_none=True), key)
        if has_other:
            found.append((variable, key, wanted, value_at(shown, key)))
    return found


def _checked(
    tree: Tree,
    sources: dict[Key, str],
    file: Path,
    where: Layout,
    env: Mapping[str, str],
) -> Loaded:
    found = list(expand_paths(tree, where, file.parent, env))
    config: Config | None = None
    try:
        config = Config.model_validate(tree)
    except ValidationError as error:
        found += problems.of_validation(error)
    found += checks.all_problems(tree)
    found += _literal_keys(tree, sources, file)
    if found or config is None:
        raise _error(file, found, sources)
    return Loaded(
        config=config,
        path=file,
        layout=where,
        sources={dotted(key): source for key, source in sources.items()},
    )


def _merged(
    from_file: Tree,
    file: Path,
    where: Layout,
    environ: Mapping[str, str],
    overrides: Mapping[str, Any],
) -> tuple[Tree, dict[Key, str]]:
    tree = default_tree(where)
    sources: dict[Key, str] = {}
    own = value_at(from_file, ("providers", "models"))
    for name in own if isinstance(own, dict) else ():
        # A provider of the file replaces the built-in one of that name, it does not mix with it.
        tree["providers"]["models"].pop(name, None)
    merge(tree, from_file, str(file), sources)
    for variable, key, value in environment_values(environ, tree):
        merge(tree, nested(key, value), f"environment {variable}", sources)
    for text, value in overrides.items():
        key = split_dotted(text)
        typed = parsed(value, key) if isinstance(value, str) else value
        merge(tree, nested(key, typed), SOURCE_COMMAND_LINE, sources)
    return tree, sources


def read_file(file: Path, *, must_exist: bool) -> Tree:
    """Return the file's tree, empty when it is not there and need not be.

    Raises:
        ConfigError: it cannot be read or is no TOML.
    """
    try:
        with file.open("rb") as stream:
            data = stream.read(MAX_FILE_BYTES + 1)
    except FileNotFoundError as error:
        if not must_exist:
            return {}
        raise ConfigError(
            f"config file {file} does not exist", hint="Write one with: clawctl init"
        ) from error
    except OSError as error:
        raise ConfigError(
            f"config file {file} cannot be read: {error.strerror}",
            hint="It must be a file that the user of the daemon may read.",
        ) from error
    return _parsed_file(data, file)


def _parsed_file(data: bytes, file: Path) -> Tree:
    if len(data) > MAX_FILE_BYTES:
        raise ConfigError(f"config file {file} is over {MAX_FILE_BYTES} bytes")
    try:
        return tomllib.loads(data.decode())
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise _one_problem(file, f"not UTF-8 (at line {line})") from error
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise _one_problem(file, f"not TOML: {error}") from error


def _one_problem(file: Path, text: str) -> ConfigError:
    return ConfigError(f"{file}: {text}", problems=(f"{file}: {text}",), hint="Correct the file.")


def _literal_keys(tree: Tree, sources: Mapping[Key, str], file: Path) -> Iterable[Problem]:
    for at, name, better in (
        (("providers", "models"), "api_key", "api_key_env"),
        (("mcp", "servers"), "auth_token", "auth_env"),
    ):
        sections = value_at(tree, at)
        for section in sections if isinstance(sections, dict) else ():
            key = (*at, section, name)
            if sources.get(key) == str(file) and not is_private(file):
                yield Problem(
                    key,
                    f" stands in a file that others may read: expected mode 0600 (chmod 600 "
                    f"{file}), or better {better}",
                )


def is_private(file: Path) -> bool:
    """Tell whether nobody but its owner may read or write the file."""
    try:
        mode = file.stat().st_mode
    except OSError:
        return False
    return not mode & (stat.S_IRWXG | stat.S_IRWXO)


def _error(file: Path, found: list[Problem], sources: Mapping[Key, str]) -> ConfigError:
    lines = tuple(
        dict.fromkeys(
            f"{_source(problem.key, file, sources)}: {dotted(problem.key)}{problem.text}"
            for problem in found
        )
    )
    count = "1 problem" if len(lines) == 1 else f"{len(lines)} problems"
    return ConfigError(
        f"the configuration has {count}:\n" + "\n".join(f"  {line}" for line in lines),
        problems=lines,
        hint="Correct and check it with: clawctl config validate",
    )


def _source(key: tuple[str | int, ...], file: Path, sources: Mapping[Key, str]) -> str:
    names = tuple(part for part in key if isinstance(part, str))
    for length in range(len(names), 0, -1):
        if names[:length] in sources:
            return sources[names[:length]]
    inside = (source for other, source in sources.items() if other[: len(names)] == names)
    return next(inside, str(file))
