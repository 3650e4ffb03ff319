"""The unit files that come with clawd: where they go, and what they say on this machine.

A file that is written here begins with a mark, so that only such are replaced or removed.
"""

import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

import msgspec

from clawctl.systemctl import Scope
from clawd.errors import ClawError
from clawd.paths import Layout

SERVICE = "clawd.service"
SOCKET = "clawd.socket"
MARK = "# Written by `clawctl service install`; `clawctl service uninstall` removes it."
SOURCES = Path(__file__).parent / "units"

_PACKAGED_PROGRAM = "/usr/bin/clawd"
_VENDOR = ("usr/local/lib", "usr/lib", "lib")
# What the machine's unit cannot see: ProtectHome=yes, PrivateTmp=yes.
_HIDDEN = ("/home", "/root", "/run/user", "/tmp", "/var/tmp")  # noqa: S108 compared, not used


class UnitFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file as it is to be."""

    path: Path
    text: str


def packaged(scope: Scope, root: Path) -> Path | None:
    """Return the unit that a package installed, if one did."""
    for folder in _VENDOR:
        unit = root / folder / "systemd" / scope / SERVICE
        if unit.exists():
            return unit
    return None


def folder_of(scope: Scope, root: Path, environ: Mapping[str, str]) -> Path:
    """Return where an administrator's, or a user's, own units lie."""
    if scope == "system":
        return root / "etc/systemd/system"
    config = environ.get("XDG_CONFIG_HOME", "")
    base = Path(config) if config.startswith("/") else Path(environ.get("HOME", "~")).expanduser()
    return base / ("systemd/user" if config.startswith("/") else ".config/systemd/user")


def files_of(scope: Scope, root: Path, environ: Mapping[str, str], where: Layout) -> list[UnitFile]:
    """Return the files that make a service, with the program of this very installation.

    Raises:
        ClawError: the machine's service could not run the program where it lies.
    """
    program = own_program()
    folder = folder_of(scope, root, environ)
    if scope == "user":
        return [
            UnitFile(path=folder / SERVICE, text=_user_service(program, environ)),
            UnitFile(path=folder / SOCKET, text=_user_socket(where, environ)),
        ]
    hidden = next((each for each in _HIDDEN if program.is_relative_to(each)), None)
    if hidden is not None:
        raise ClawError(
            f"this clawd is installed at {program}, and the machine's service may not look into "
            f"{hidden}",
            hint="Install clawd for the machine (its Debian package, or a virtual environment "
            "below /opt) and run that one's clawctl; or install for yourself: clawctl service "
            "install --user",
        )
    return [
        UnitFile(path=folder / SERVICE, text=_with_program(_source(SERVICE), program)),
        UnitFile(path=folder / SOCKET, text=_marked(_source(SOCKET))),
        UnitFile(path=root / "etc/sysusers.d/clawd.conf", text=_marked(_source("clawd.sysusers"))),
        UnitFile(path=root / "etc/tmpfiles.d/clawd.conf", text=_marked(_source("clawd.tmpfiles"))),
    ]


def is_ours(path: Path) -> bool:
    """Return whether a file was written by `service install`."""
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            return file.readline().rstrip("\n") == MARK
    except OSError:
        return False


def own_program() -> Path:
    """Return the `clawd` that belongs to this clawctl.

    Raises:
        ClawError: there is none.
    """
    beside = Path(sys.executable).parent / "clawd"
    found = str(beside) if os.access(beside, os.X_OK) else shutil.which("clawd")
    if not found:
        raise ClawError(
            f"there is no program clawd beside {sys.executable}, nor in PATH",
            hint="Install clawd anew; docs/install.md says how.",
        )
    return Path(found).absolute()


def escaped(path: Path) -> str:
    """Return a path as a word of an Exec line (systemd.service: command lines, specifiers)."""
    text = str(path).replace("%", "%%").replace("$", "$$")
    if not set(text) & set(" \t\"'\\;"):
        return text
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _user_service(program: Path, environ: Mapping[str, str]) -> str:
    text = _with_program(_source(f"user/{SERVICE}"), program)
    for name in ("CLAWD_HOME", "CLAWD_SOCKET"):
        if environ.get(name):
            value = escaped(Path(f"{name}={Path(environ[name]).expanduser().absolute()}"))
            text = text.replace("Type=notify\n", f"Type=notify\nEnvironment={value}\n", 1)
    return text


def _user_socket(where: Layout, environ: Mapping[str, str]) -> str:
    text = _marked(_source(f"user/{SOCKET}"))
    if not environ.get("CLAWD_HOME") and not environ.get("CLAWD_SOCKET"):
        return text
    place = str(where.socket).replace("%", "%%")
    return text.replace("ListenStream=%t/clawd/clawd.sock\n", f"ListenStream={place}\n")


def _with_program(text: str, program: Path) -> str:
    return _marked(text.replace(f"={_PACKAGED_PROGRAM}", f"={escaped(program)}"))


def _marked(text: str) -> str:
    return f"{MARK}\n{text}"


def _source(name: str) -> str:
    try:
        return (SOURCES / name).read_text(encoding="utf-8")
    except OSError as error:
        raise ClawError(
            f"the unit {SOURCES / name} that comes with clawd cannot be read: {error.strerror}",
            hint="Install clawd anew.",
        ) from error
