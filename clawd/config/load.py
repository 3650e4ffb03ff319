"""Reads the configuration: built-in values, file, environment, command line, in that order.

    [security]
    autonomy = "godmode"

    /home/ada/.clawd/config.toml: security.autonomy = "godmode": expected one of readonly,
    supervised, full

Paths are filled in and made absolute. Rules between keys, and the form of addresses and names,
which the schema cannot say, run on the untyped tree even when the schema found something; values of
the wrong type are left to the schema. Nothing stops at the first problem; `load` raises one
ConfigError that holds them all. The settings of the engine for one model are the `[engine]` section
under its `[model."pattern"]`.
"""

import ipaddress
import os
import re
import stat
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pydantic import ValidationError

from clawd.config import mcp, problems, sections
from clawd.config.engine import EngineSection, split_adapter
from clawd.config.problems import (
    Key,
    Problem,
    Tree,
    dotted,
    environment_values,
    merge,
    nearest,
    nested,
    parsed,
    refused,
    split_dotted,
    value_at,
)
from clawd.config.schema import Config
from clawd.config.sections import EVENTS, SOURCE_DEFAULT, default_tree
from clawd.errors import ConfigError
from clawd.paths import Layout, expanded, layout
from clawd.wire.policy import is_listed_form

MAX_FILE_BYTES = 4 * 1024 * 1024
SOURCE_COMMAND_LINE = "command line"
_VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")
ROUNDS_WITHOUT_BUDGET = 100
_OVER_OTHERS = ("reliable", "router")
_DOMAIN = re.compile(r"(\*\.)?([a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?\.)*[a-z0-9-]{1,63}", re.I)
PRESET = "preset"


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
            if not list(_expand_paths(tree, loaded.layout, loaded.path.parent, environ)):
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
    found = list(_expand_paths(tree, where, file.parent, env))
    config: Config | None = None
    try:
        config = Config.model_validate(tree)
    except ValidationError as error:
        found += problems.of_validation(error)
    found += all_problems(tree)
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
    """Return whether nobody but its owner may read or write the file."""
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


def _expand_paths(
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
    for name in ("tls_cert", "tls_key", "page_icon"):
        if value_at(tree, at := ("channels", "http", name)):
            yield from _expand_at(tree, at, partial(_path, base=folder, environ=environ))
    yield from _expand_models(tree, environ)
    yield from _expand_servers(tree, environ)
    yield from _expand_toolchains(tree, environ)
    yield from _expand_hooks(tree, environ)
    for section in _engine_sections(tree):
        expand = partial(_adapter, base=folder, environ=environ)
        yield from _expand_at(tree, (*section, "lora"), expand)
        projector = (*section, "mmproj")
        if value_at(tree, projector) not in ("", "off"):
            yield from _expand_at(tree, projector, partial(_path, base=folder, environ=environ))


def _engine_sections(tree: Tree) -> list[Key]:
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


def _expand_toolchains(tree: Tree, environ: Mapping[str, str]) -> Iterator[Problem]:
    key: Key = ("sandbox", "toolchains")
    if isinstance(value_at(tree, key), list | tuple):  # else a word that is no path
        yield from _expand_at(tree, key, partial(_path, base=None, environ=environ))


def _expand_servers(tree: Tree, environ: Mapping[str, str]) -> Iterator[Problem]:
    servers = value_at(tree, ("mcp", "servers"))
    for alias in servers if isinstance(servers, dict) else ():
        at = ("mcp", "servers", alias)
        yield from _expand_at(tree, (*at, "command"), partial(_filled_in, environ=environ))
        expand = partial(_path, base=None, environ=environ)
        yield from _expand_at(tree, (*at, "readonly_paths"), expand)


def _expand_hooks(tree: Tree, environ: Mapping[str, str]) -> Iterator[Problem]:
    for event in EVENTS:
        entries = value_at(tree, ("hooks", event))
        if not isinstance(entries, list | tuple):
            continue
        copies = [dict(entry) if isinstance(entry, dict) else entry for entry in entries]
        tree["hooks"] = tree["hooks"] | {event: copies}
        for number, entry in enumerate(copies):
            if isinstance(entry, dict):
                expand = partial(_filled_in, environ=environ)
                for problem in _expand_at(entry, ("command",), expand):
                    yield Problem(("hooks", event, number, *problem.key), problem.text)


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


def all_problems(tree: Tree) -> Iterator[Problem]:
    """Return every problem that is not one of a single value's type or range."""
    for check in _CHECKS:
        yield from check(tree)


def _providers(tree: Tree) -> dict[str, dict[str, Any]]:
    models = value_at(tree, ("providers", "models"))
    if not isinstance(models, dict):
        return {}
    return {name: section for name, section in models.items() if isinstance(section, dict)}


def _default_provider(tree: Tree) -> Iterator[Problem]:
    name, known = tree.get("default_provider"), list(_providers(tree))
    if isinstance(name, str) and known and name not in known:
        yield refused(
            ("default_provider",), name, f"a provider of [providers.models]; {nearest(name, known)}"
        )


def _embedding(tree: Tree) -> Iterator[Problem]:
    key, known = ("memory", "embedding"), _providers(tree)
    named = value_at(tree, key)
    if not isinstance(named, str) or not named or not known:
        return
    name = named.partition("/")[0]
    if name not in known:
        told = f"a provider of [providers.models] before the first /; {nearest(name, list(known))}"
        yield refused(key, named, told)
    elif known[name].get("kind") == "anthropic":
        yield refused(key, named, "a provider that makes embeddings: anthropic has none")


def _provider_sections(tree: Tree) -> Iterator[Problem]:
    providers = _providers(tree)
    for name, section in providers.items():
        kind, url = section.get("kind"), section.get("base_url", "")
        if kind == "openai-compatible" or (kind == "anthropic" and url):
            yield from _base_url(name, url)
        if kind in _OVER_OTHERS:
            yield from _chain(name, section.get("providers", []), list(providers))
    yield from _loops(providers)


def _base_url(name: str, url: object) -> Iterator[Problem]:
    key = ("providers", "models", name, "base_url")
    if not isinstance(url, str):
        return
    try:
        parts = urlsplit(url)
        host, user, _port = parts.hostname, parts.username, parts.port
    except ValueError as error:
        yield Problem(key, f" is no URL ({error}): expected one like http://localhost:8080/v1")
        return
    if parts.scheme not in {"http", "https"} or not host:
        yield Problem(key, ": expected a URL like http://localhost:8080/v1")
    elif user is not None:
        yield Problem(key, " holds a name or password: expected none; name the key in api_key_env")


def _chain(name: str, chain: object, known: list[str]) -> Iterator[Problem]:
    key = ("providers", "models", name, "providers")
    if not isinstance(chain, list | tuple):
        return
    if not chain:
        yield Problem(key, " is empty: expected names of other providers")
    for index, member in enumerate(chain):
        if isinstance(member, str) and member not in known:
            yield refused((*key, index), member, f"a provider; {nearest(member, known)}")
        elif member in chain[:index]:
            yield refused((*key, index), member, "each provider once")


def _loops(providers: dict[str, dict[str, Any]]) -> Iterator[Problem]:
    for name in providers:
        seen: set[str] = set()
        waiting = [name]
        while waiting:
            section = providers.get(waiting.pop(), {})
            chain = section.get("providers", []) if section.get("kind") in _OVER_OTHERS else []
            members = [m for m in chain if isinstance(m, str)] if isinstance(chain, list) else []
            if name in members:
                yield Problem(
                    ("providers", "models", name, "providers"),
                    f" leads back to {name} itself: expected an order that ends",
                )
                break
            waiting += [member for member in members if member not in seen]
            seen.update(members)


def _rounds(tree: Tree) -> Iterator[Problem]:
    rounds = value_at(tree, ("agent", "max_tool_rounds"))
    if not isinstance(rounds, int) or rounds <= ROUNDS_WITHOUT_BUDGET:
        return
    budget = value_at(tree, ("agent", "wall_clock_budget_s"))
    if value_at(tree, ("security", "autonomy")) != "full" or not budget:
        yield refused(
            ("agent", "max_tool_rounds"),
            rounds,
            f"at most {ROUNDS_WITHOUT_BUDGET}, or security.autonomy full and a "
            "agent.wall_clock_budget_s",
        )


def _batches(tree: Tree) -> Iterator[Problem]:
    sizes: dict[str, Any] = {"n_batch": 512, "n_ubatch": 512}
    for at in _engine_sections(tree):
        own = {name: value_at(tree, (*at, name)) for name in sizes}
        merged = sizes | {name: value for name, value in own.items() if value is not None}
        sizes = merged if at == ("engine",) else sizes
        batch, ubatch = merged.values()
        if isinstance(batch, int) and isinstance(ubatch, int) and 0 < batch < ubatch:
            yield refused((*at, "n_ubatch"), ubatch, f"at most n_batch ({batch})")


def _rpc_servers(tree: Tree) -> Iterator[Problem]:
    for at in _engine_sections(tree):
        for index, server in _texts(tree, (*at, "rpc_servers")):
            if server.startswith("[") or not _is_host_and_port(server):
                yield refused((*at, "rpc_servers", index), server, "host:port, as 10.0.0.2:50052")


def _domains(tree: Tree) -> Iterator[Problem]:
    key = ("security", "allowed_domains")
    for index, domain in _texts(tree, key):
        if not _DOMAIN.fullmatch(domain):
            yield refused((*key, index), domain, "a host name, or *. and a host name")


def _addresses(tree: Tree) -> Iterator[Problem]:
    key = ("security", "allowed_addresses")
    for index, address in _texts(tree, key):
        if not _is_host_and_port(address):
            yield refused((*key, index), address, "host:port, as 127.0.0.1:8080 or [::1]:8080")


def _hosts(tree: Tree) -> Iterator[Problem]:
    key = ("security", "egress_hosts")
    for index, host in _texts(tree, key):
        if not is_listed_form(host):
            expected = "host:port, as get.example.org:443, or *.domain:port"
            yield refused((*key, index), host, expected)


def _tls(tree: Tree) -> Iterator[Problem]:
    at = ("channels", "http")
    key, cert = value_at(tree, (*at, "tls_key")), value_at(tree, (*at, "tls_cert"))
    if key and not cert:
        yield Problem((*at, "tls_key"), " stands alone: expected a tls_cert beside it")


def _is_host_and_port(address: str) -> bool:
    host, _, port = address.rpartition(":")
    if not (port.isascii() and port.isdigit() and 0 < int(port) < 65_536):
        return False
    if host.startswith("[") and host.endswith("]"):
        try:
            ipaddress.IPv6Address(host[1:-1])
        except ValueError:
            return False
        return True
    return _DOMAIN.fullmatch(host) is not None and not host.startswith("*")


def _mcp(tree: Tree) -> Iterator[Problem]:
    section = tree.get("mcp")
    for key, value, expected in mcp.wrong_values(section) if isinstance(section, dict) else ():
        yield refused(("mcp", *key), value, expected)


def _hooks(tree: Tree) -> Iterator[Problem]:
    section = tree.get("hooks")
    for key, value, expected in sections.wrong_values(section) if isinstance(section, dict) else ():
        yield refused(("hooks", *key), value, expected)


def _texts(tree: Tree, key: tuple[str, ...]) -> Iterator[tuple[int, str]]:
    values = value_at(tree, key)
    if isinstance(values, list | tuple):
        for index, value in enumerate(values):
            if isinstance(value, str):
                yield index, value


_CHECKS: tuple[Callable[[Tree], Iterator[Problem]], ...] = (
    _default_provider,
    _embedding,
    _provider_sections,
    _rounds,
    _batches,
    _rpc_servers,
    _domains,
    _addresses,
    _hosts,
    _tls,
    _mcp,
    _hooks,
)


def matching_pattern(config: Config, model_file: str) -> str | None:
    """Return the longest pattern that the model's file name contains, in any case."""
    name = model_file.rpartition("/")[2].lower()
    matching = [pattern for pattern in config.model if pattern.lower() in name]
    return max(matching, key=len, default=None)


def engine_settings(
    loaded: Loaded, model_file: str, presets: Mapping[str, Mapping[str, Any]]
) -> EngineSection:
    """Return the engine's settings for a model file.

    Command line and environment win over the pattern, the pattern over the section. A preset
    fills in its values below the keys that stand beside it, and above everything further away;
    an empty one takes away what a preset further away filled in.
    """
    engine = loaded.config.engine
    inside: dict[str, Any] = {}
    outside: dict[str, Any] = {}
    for name, value in engine:
        source = loaded.source_of(f"engine.{name}")
        if source == "command line" or source.startswith("environment "):
            outside[name] = value
        elif source != "default":
            inside[name] = value
    pattern = matching_pattern(loaded.config, model_file)
    profile = loaded.config.model[pattern] if pattern is not None else ()
    shape: Mapping[str, Any] = {}
    values: dict[str, Any] = {}
    for layer in (inside, {name: value for name, value in profile if value is not None}, outside):
        if PRESET in layer:
            shape = presets.get(layer[PRESET], {})
            values = {name: value for name, value in values.items() if name not in shape}
        values |= layer
    return engine.model_copy(update={**shape, **values})
