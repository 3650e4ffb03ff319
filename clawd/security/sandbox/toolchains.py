"""The person's toolchains: what of their PATH a command in the sandbox sees, read-only.

    found = find_toolchains("auto", person=Path("/home/ada"), apart=(clawd_home,))
    found.path      # folders for PATH, in the person's order
    found.shown     # what is to be mounted for them: the prefixes behind these folders
    found.secrets   # files and folders below them that no command may read

A program needs what lies beside it: `~/.nvm/versions/node/v22/bin/node` its `lib`, a shim of pyenv
all of `~/.pyenv`. So the prefix of a folder is shown, the one above its `bin`, unless that is a
place for everything (a home, `~/.local`, `/opt`) or holds secrets; then it is the folder alone.
Links are followed, and the first lines of scripts, to whatever they need elsewhere.
"""

import configparser
import contextlib
import json
import os
import pwd
import re
import shutil
import signal
import subprocess
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from clawd.security.sandbox.plan import DEFAULT_PATH, SYSTEM_TREES, USR_LINKS, Toolchains
from clawd.security.sandbox.secrets import (
    TooManyFilesError,
    holds_password,
    is_secret,
    secrets_beneath,
)

Wanted = Literal["auto", "off"] | tuple[Path, ...]

# What a login shell may take: version managers are slow, and some ask the network.
_SHELL_LIMIT_S = 8.0
_MARK = b"\0clawd-environment\0"
_MOST_ENTRIES = 5_000
_MOST_LINKS = 40
_SCRIPT_BYTES = 256

_GIT_KEYS = frozenset(("user.name", "user.email", "init.defaultbranch"))
_INDEX = re.compile(r"(?:sparse\+)?https?://[^\s?#\"'\\$]+")
_ALIAS = re.compile(r"[A-Za-z][A-Za-z0-9-]*")

_PREFIXED = frozenset({"bin", "sbin", "shims", "condabin"})
"""Names of folders of programs that belong to the folder above them."""
# Folders that hold many things; only what lies in them can be a prefix.
_SHARED = frozenset(
    map(Path, ("/", "/opt", "/srv", "/var", "/home", "/mnt", "/media", "/snap", "/tmp", "/data"))  # noqa: S108 - compared, not used
)
_SHARED_AT_HOME = (
    ".local", ".local/share", ".config", ".cache", ".cargo", ".rustup", ".docker", ".m2", ".gradle",
    ".krew", ".composer", ".config/composer", ".gem", ".dotnet", "go",
)  # fmt: skip
_NEVER = tuple(map(Path, ("/etc", "/proc", "/sys", "/dev", "/boot", "/run", "/lost+found")))
_WINDOWS = re.compile(r"/mnt/[a-z](/|$)")  # a drive in WSL, whose programs do not run here

# Where managers keep what they install, shown where it is there: no folder of it is on PATH.
_KEPT_BY_MANAGERS = (
    ".rustup/toolchains", ".rustup/settings.toml", ".local/share/uv/python",
    ".local/share/uv/tools",
    ".local/share/pipx/venvs", ".local/pipx/venvs", ".tool-versions",
)  # fmt: skip
_VARIABLES = (
    "ANDROID_HOME", "ASDF_DATA_DIR", "ASDF_DIR", "BUN_INSTALL", "CONDA_PREFIX", "DENO_INSTALL",
    "DOTNET_ROOT", "FNM_DIR", "GOROOT", "GRADLE_HOME", "HOMEBREW_CELLAR", "HOMEBREW_PREFIX",
    "JAVA_HOME", "M2_HOME", "MAVEN_HOME", "MISE_DATA_DIR", "NODENV_ROOT", "NVM_DIR", "PYENV_ROOT",
    "RBENV_ROOT", "RUSTUP_HOME", "SDKMAN_DIR", "VOLTA_HOME",
)  # fmt: skip
"""Variables of the person's shell that name a prefix; a command gets those that it can see."""
_INDEX_VARIABLES = ("GOPROXY", "GOSUMDB", "GONOSUMDB", "GONOPROXY", "GOPRIVATE", "UV_INDEX_URL",
                    "UV_DEFAULT_INDEX")  # fmt: skip
"""Variables that name where packages come from; a name and password in them are left out."""
_WORDS = ("ASDF_DEFAULT_TOOL_VERSIONS_FILENAME", "NODENV_VERSION", "PYENV_VERSION", "RBENV_VERSION",
          "RUSTUP_TOOLCHAIN")  # fmt: skip
"""Variables that name a version."""


def find_toolchains(
    wanted: Wanted,
    *,
    person: Path,
    apart: Iterable[Path] = (),
    environ: Mapping[str, str] | None = None,
) -> Toolchains:
    """Return what commands see of the toolchains. Takes as long as a login shell; blocks.

    Args:
        wanted: `auto` asks the login shell for its PATH, a tuple names folders, `off` is nothing.
        person: the home of the toolchains' owner.
        apart: what is never shown, with all that lies in it: clawd's home, forbidden paths.
        environ: that of the login shell; None asks it.
    """
    known: Mapping[str, str] = {} if environ is None else environ
    if wanted == "auto" and environ is None:
        known = login_environment(person)
    git_config = git_config_of(person)
    settings = package_settings_of(person, known)
    if git_config:
        settings = ((".gitconfig", git_config), *settings)
    if wanted == "off":
        return Toolchains(settings=settings)
    search = _Search(_real(person), [_real(each) for each in apart])
    if wanted == "auto":
        for place in known.get("PATH", "").split(":"):
            search.add_place(place)
        search.add_managed(known)
    else:
        for folder in wanted:
            search.add_named(folder)
    return msgspec.structs.replace(search.found(), settings=settings)


def git_config_of(person: Path) -> bytes:
    """Return what commands know of the person's settings of git: who they are, and short names.

    No helper that gives passwords, no hook, nothing that starts a program: an alias that does, or
    that sets options of its own, is left out.
    """
    git = shutil.which("git", path=DEFAULT_PATH)
    if git is None:
        return b""
    environ = {"HOME": str(person), "PATH": DEFAULT_PATH, "GIT_CEILING_DIRECTORIES": "/"}
    words = (git, "config", "--includes", "--null", "--list")
    sections: dict[str, list[str]] = {}
    for line in _said(words, environ, Path("/")).split(b"\0"):
        key, _, value = line.decode("utf-8", "replace").partition("\n")
        section, _, name = key.partition(".")
        if key not in _GIT_KEYS and not (section == "alias" and _ALIAS.fullmatch(name)):
            continue
        if section == "alias" and (value.startswith(("!", "-")) or holds_password(value.encode())):
            continue
        quoted = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        sections.setdefault(section, []).append(f'\t{name} = "{quoted}"\n')
    text = "".join(f"[{section}]\n{''.join(lines)}" for section, lines in sections.items())
    return text.encode()


def package_settings_of(person: Path, environ: Mapping[str, str]) -> tuple[tuple[str, bytes], ...]:
    """Return files of a home that send package tools to the indexes that the person's send them to.

    Nothing but addresses is taken, and no name or password in one.
    """
    cargo = Path(environ.get("CARGO_HOME") or person / ".cargo")
    found = (
        (".config/pip/pip.conf", _pip_settings(person, environ)),
        (".npmrc", _npm_settings(person, environ)),
        (".cargo/config.toml", _cargo_settings(cargo)),
        (".config/uv/uv.toml", _uv_settings(person)),
    )
    return tuple((name, text.encode()) for name, text in found if text)


def _address(text: str) -> str:
    """Return an address of an index without who asks; empty for what is none, or holds a token."""
    plain = re.sub(r"//[^/@]*@", "//", text.strip().strip("\"'"))
    is_address = _INDEX.fullmatch(plain) and not holds_password(plain.encode())
    return plain if is_address else ""


def _addresses(text: str) -> list[str]:
    return [address for each in text.split() if (address := _address(each))]


def _pip_settings(person: Path, environ: Mapping[str, str]) -> str:
    values: dict[str, list[str]] = {}
    for place in (Path("/etc"), person / ".pip", person / ".config/pip"):
        read = configparser.RawConfigParser(strict=False)
        with contextlib.suppress(OSError, UnicodeError, configparser.Error):
            read.read_string((place / "pip.conf").read_text(encoding="utf-8"))
        for name in ("index-url", "extra-index-url"):
            for section in ("global", "install"):
                if told := read.get(section, name, fallback=""):
                    values[name] = _addresses(told)
    for name in ("index-url", "extra-index-url"):
        if told := environ.get(f"PIP_{name.upper().replace('-', '_')}", ""):
            values[name] = _addresses(told)
    lines = [f"{name} = {' '.join(found)}\n" for name, found in values.items() if found]
    return f"[global]\n{''.join(lines)}" if lines else ""


def _npm_settings(person: Path, environ: Mapping[str, str]) -> str:
    values: dict[str, str] = {}
    with contextlib.suppress(OSError, UnicodeError):
        for line in (person / ".npmrc").read_text(encoding="utf-8").splitlines():
            name, _, told = line.partition("=")
            if re.fullmatch(r"(@[\w.-]+:)?registry", name.strip()):
                values[name.strip()] = _address(told)
    for name in ("npm_config_registry", "NPM_CONFIG_REGISTRY"):
        if told := environ.get(name, ""):
            values["registry"] = _address(told)
    return "".join(f"{name}={address}\n" for name, address in values.items() if address)


def _cargo_settings(home: Path) -> str:
    tables: list[str] = []
    for name in ("config", "config.toml"):
        read: dict[str, Any] = {}
        with contextlib.suppress(OSError, ValueError):
            read = tomllib.loads((home / name).read_text(encoding="utf-8"))
        for kind in ("source", "registries"):
            entries = _table(read, kind)
            for each in entries:
                lines = _cargo_lines(_table(entries, each))
                other = _table(entries, each).get("replace-with", "")
                # What lies in a folder of the person's is not shown, and so not referred to.
                if _cargo_lines(_table(entries, str(other))):
                    lines += f"replace-with = {json.dumps(str(other))}\n"
                tables += [f"[{kind}.{json.dumps(each)}]\n{lines}"] if lines else []
    return "".join(tables)


def _cargo_lines(told: dict[str, Any]) -> str:
    found = {key: _address(str(told.get(key, ""))) for key in ("registry", "index")}
    return "".join(f"{key} = {json.dumps(value)}\n" for key, value in found.items() if value)


def _uv_settings(person: Path) -> str:
    tables: list[str] = []
    for place in (Path("/etc/uv"), person / ".config/uv"):
        read: dict[str, Any] = {}
        with contextlib.suppress(OSError, ValueError):
            read = tomllib.loads((place / "uv.toml").read_text(encoding="utf-8"))
        entries = read.get("index", [])
        for each in entries if isinstance(entries, list) else []:
            told = each if isinstance(each, dict) else {}
            if address := _address(str(told.get("url", ""))):
                name = f"name = {json.dumps(told['name'])}\n" if "name" in told else ""
                kinds = [kind for kind in ("default", "explicit") if told.get(kind) is True]
                flags = "".join(f"{kind} = true\n" for kind in kinds)
                tables.append(f"[[index]]\n{name}url = {json.dumps(address)}\n{flags}")
        if address := _address(str(read.get("index-url", ""))):
            tables.append(f"[[index]]\nurl = {json.dumps(address)}\ndefault = true\n")
    return "".join(dict.fromkeys(tables))


def _table(read: dict[str, Any], kind: str) -> dict[str, Any]:
    found = read.get(kind, {})
    return found if isinstance(found, dict) else {}


def login_environment(person: Path) -> dict[str, str]:
    """Return the environment of the person's login shell; that of the daemon where it fails."""
    try:
        account = pwd.getpwuid(os.getuid())
        shell, name = account.pw_shell, account.pw_name
    except KeyError:
        shell, name = "", ""
    fixed = {"HOME": str(person), "USER": name, "LOGNAME": name, "SHELL": shell, "TERM": "dumb"}
    fixed |= {"PATH": f"{DEFAULT_PATH}:/usr/sbin:/sbin", "LANG": "C.UTF-8"}
    if runtime := os.environ.get("XDG_RUNTIME_DIR"):
        fixed["XDG_RUNTIME_DIR"] = runtime
    said = b""
    # Shells that refuse to log in (nologin, false) are not asked: they would only print that.
    if shell and os.access(shell, os.X_OK) and Path(shell).name not in {"nologin", "false", "sync"}:
        script = "printf '\\000clawd-environment\\000'; exec /usr/bin/env -0"
        said = _said((shell, "-l", "-i", "-c", script), fixed, person)
    _, mark, tail = said.rpartition(_MARK)
    if not mark:
        return dict(os.environ)
    found = (os.fsdecode(line).partition("=") for line in tail.split(b"\0"))
    return {name: value for name, sign, value in found if sign}


def _said(argv: tuple[str, ...], environ: dict[str, str], folder: Path) -> bytes:
    """Return what a program of the person's prints, within a limit of time; nothing if it fails."""
    try:
        process = subprocess.Popen(  # noqa: S603 - the person's own shell, with fixed words
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=folder if folder.is_dir() else "/",
            env=environ,
            start_new_session=True,  # an interactive shell would take the terminal of the daemon
        )
    except OSError:
        return b""
    try:
        return process.communicate(timeout=_SHELL_LIMIT_S)[0]
    except (subprocess.TimeoutExpired, OSError):
        return b""
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


class _Search:
    """One search; `found` returns what it came to."""

    def __init__(self, person: Path, apart: list[Path]) -> None:
        self._person = person
        self._apart = apart
        self._shared = _SHARED | {person / name for name in _SHARED_AT_HOME}
        self._path: dict[str, None] = {}
        self._shown: dict[Path, None] = {}
        self._variables: dict[str, str] = {}
        self._left_out: dict[str, str] = {}

    def add_place(self, text: str) -> None:
        """Take a folder of PATH."""
        if not text.startswith("/"):
            return  # where one stands is not a place
        folder = _real(Path(text))
        if not folder.is_dir():
            return
        if not self._is_visible(folder):
            if problem := self._refusal(folder):
                self._left_out[text] = problem
                return
            self._show(self._prefix(folder))
        self._path[str(folder)] = None
        self._follow_all(folder)

    def add_named(self, folder: Path) -> None:
        """Take a folder that the person has named."""
        real = _real(folder.expanduser())
        if not real.is_dir():
            self._left_out[str(folder)] = "there is no such folder"
            return
        if problem := self._refusal(real):
            self._left_out[str(folder)] = problem
            return
        if not self._is_visible(real):
            self._show(real)
        inner = [real / name for name in ("shims", "bin", "sbin") if (real / name).is_dir()]
        for place in inner or [real]:
            self._path[str(place)] = None
            self._follow_all(place)

    def add_managed(self, environ: Mapping[str, str]) -> None:
        """Take what version managers keep, and the variables that name it."""
        for name in _KEPT_BY_MANAGERS:
            place = _real(self._person / name)
            if place.exists() and not self._is_visible(place) and not self._refusal(place):
                self._show(place)
                for python in sorted(place.glob("*/bin/python")):
                    self._follow(python)
        for name in _VARIABLES:
            value = environ.get(name, "")
            folder = _real(Path(value))
            if not value.startswith("/") or not folder.is_dir():
                continue
            if not self._is_visible(folder):
                if self._refusal(folder) or folder in self._shared:
                    continue
                self._show(folder)
            self._variables[name] = str(folder)
        for name in (*_WORDS, *_INDEX_VARIABLES):
            value = re.sub(r"//[^/@,]*@", "//", environ.get(name, ""))
            if value and not holds_password(value.encode()):
                self._variables[name] = value

    def found(self) -> Toolchains:
        """Return all of it; looks for secrets below what is shown."""
        for name in DEFAULT_PATH.split(":"):
            if str(_real(Path(name))) not in self._path:
                self._path.setdefault(name)
        shown = sorted(self._shown)
        shown = [each for each in shown if not any(other in each.parents for other in shown)]
        secrets: set[Path] = set()
        for each in tuple(shown):
            try:
                secrets |= set(secrets_beneath(each))
            except TooManyFilesError:
                shown.remove(each)
                self._left_out[str(each)] = "it holds too much to look through for secrets"
        return Toolchains(
            path=tuple(self._path),
            shown=tuple(shown),
            secrets=tuple(sorted(secrets)),
            variables=tuple(self._variables.items()),
            links=self._links(shown),
            left_out=tuple(f"{place}: {why}" for place, why in self._left_out.items()),
        )

    def _links(self, shown: list[Path]) -> tuple[tuple[str, Path], ...]:
        """Return what stands in a home for what is shown of the person's.

        Programs are found by PATH; a link to their folder would take what is installed there.
        """
        inner = [each for each in shown if self._person in each.parents]
        named = ((str(each.relative_to(self._person)), each) for each in inner)
        return tuple((name, each) for name, each in named if each.name not in _PREFIXED)

    def _show(self, path: Path) -> None:
        self._shown[path] = None

    def _is_visible(self, path: Path) -> bool:
        roots = (*map(Path, (*SYSTEM_TREES, *USR_LINKS)), *self._shown)
        return any(path == root or root in path.parents for root in roots)

    def _refusal(self, path: Path) -> str:
        """Return why a file or folder is not shown; empty where it may be."""
        if path == self._person or path in self._person.parents:
            return "it is the home, or holds it"
        if _WINDOWS.match(str(path)):
            return "programs of Windows do not run in the sandbox"
        for root in _NEVER:
            if path == root or root in path.parents:
                return f"nothing of {root} is shown"
        for root in self._apart:
            if path == root or root in path.parents or path in root.parents:
                return f"{root} is kept from all commands"
        for each in (path, *path.parents):
            if is_secret(each):
                return f"{each} is for secrets"
        return ""

    def _prefix(self, folder: Path) -> Path:
        """Return what is shown for a folder of programs: the one above it, or it alone."""
        above = folder.parent
        if folder.name not in _PREFIXED or above in self._shared or self._refusal(above):
            return folder
        with contextlib.suppress(OSError), os.scandir(above) as entries:
            if any(is_secret(Path(entry.path)) for entry in entries):
                return folder
        return above

    def _follow_all(self, folder: Path) -> None:
        """Show what the programs of a folder need that lies elsewhere."""
        is_system = any(_is_under(folder, root) for root in (*SYSTEM_TREES, *USR_LINKS))
        with contextlib.suppress(OSError), os.scandir(folder) as entries:
            for _, entry in zip(range(_MOST_ENTRIES), entries, strict=False):
                if entry.is_symlink():
                    self._follow(Path(entry.path))
                elif not is_system and (interpreter := _interpreter(entry.path)):
                    self._follow(Path(interpreter))

    def _follow(self, path: Path) -> None:
        """Show every place that a chain of links goes through, from a link to its file."""
        for _ in range(_MOST_LINKS):
            # The folders on the way may be links too; only the last part is looked at here.
            path = _real(path.parent) / path.name
            if not self._is_visible(path):
                if not path.exists() or self._refusal(path):
                    return
                folder = path.parent
                prefix = self._prefix(folder) if folder.name in _PREFIXED else path
                self._show(path if prefix == folder else prefix)
            if not path.is_symlink():
                return
            path = path.parent / path.readlink()


def _interpreter(path: str) -> str:
    """Return the absolute path of a script's interpreter; empty for what is none."""
    try:
        with Path(path).open("rb") as stream:
            head = stream.read(_SCRIPT_BYTES)
    except OSError:
        return ""
    if not head.startswith(b"#!"):
        return ""
    words = head[2:].splitlines()[0].split() if head[2:].strip() else []
    return os.fsdecode(words[0]) if words and words[0].startswith(b"/") else ""


def _real(path: Path) -> Path:
    return Path(os.path.realpath(path))


def _is_under(path: Path, root: str) -> bool:
    return path == Path(root) or Path(root) in path.parents
