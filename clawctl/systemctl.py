"""Runs systemctl, journalctl and their like, of the machine's manager or of the user's own.

No D-Bus here. `Manager` says why it cannot; `answer_of` asks with a limit, and no answer is one.

The unit files that come with clawd: where they go, and what they say on this machine.

A file that is written here begins with a mark, so that only such are replaced or removed.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from clawd.errors import ClawError
from clawd.paths import Layout

Scope = Literal["system", "user"]

LIMIT_S = 120.0
ANSWER_LIMIT_S = 5.0
RUNS_SYSTEMD = Path("/run/systemd/system")
_REACHABLE = frozenset({"running", "degraded", "starting", "initializing", "maintenance"})


def is_booted_with_systemd() -> bool:
    """Return whether systemd runs this machine (sd_booted(3))."""
    return RUNS_SYSTEMD.is_dir()


def answer_of(
    program: str,
    *arguments: str,
    limit_s: float = ANSWER_LIMIT_S,
    cwd: str | None = None,
    may_fail: bool = False,
) -> str | None:
    """Return what a program prints; None where it is missing, fails or does not end in time."""
    path = shutil.which(program)
    if path is None:
        return None
    try:
        done = subprocess.run(  # noqa: S603 a fixed program, a list of arguments, no shell
            [path, *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=limit_s,
            cwd=cwd,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if may_fail or done.returncode == 0 else None


class Ran(msgspec.Struct, frozen=True, kw_only=True):
    """What a program said and how it ended."""

    status: int
    stdout: str
    stderr: str


class Manager:
    """A systemd that can be asked.

    Args:
        scope: whose.
        environ: where it is looked for.
    """

    def __init__(self, scope: Scope, environ: Mapping[str, str]) -> None:
        self.scope = scope
        self._environ = dict(environ)
        self._flags = ("--user",) if scope == "user" else ()

    def require(self) -> None:
        """Return when the manager answers.

        Raises:
            ClawError: it does not; says why and what to do instead.
        """
        if self._program("systemctl") is None:
            raise ClawError(
                "there is no systemctl on this machine",
                hint="Let your own supervisor run `clawd` in the foreground, or let clawctl start "
                "it when it is needed: nothing has to be installed for that.",
            )
        ran = self.ask("is-system-running")
        if ran.stdout.strip() in _REACHABLE:
            return
        said = (ran.stderr.strip() or ran.stdout.strip() or "it does not answer").splitlines()[0]
        if self.scope == "system" or "not been booted" in ran.stderr:
            raise ClawError(
                f"systemd does not run this machine: {said}",
                hint="In a container, run `clawd` in the foreground. Elsewhere let your own "
                "supervisor run it, or let clawctl start it when it is needed.",
            )
        raise ClawError(
            f"your systemd user manager cannot be reached: {said}", hint=self._no_user_manager()
        )

    def ask(self, *arguments: str) -> Ran:
        """Run systemctl to its end and return what it said."""
        return self.run(self.command(*arguments))

    def command(self, *arguments: str) -> list[str]:
        """Return the words of a systemctl command, as a person would type them."""
        return ["systemctl", *self._flags, *arguments]

    def run(self, command: Sequence[str]) -> Ran:
        """Run a program to its end and return what it said.

        Raises:
            ClawError: it is not there, or does not end.
        """
        program = self._program(command[0])
        if program is None:
            raise ClawError(f"there is no {command[0]} on this machine")
        try:
            done = subprocess.run(  # noqa: S603 a list of arguments, no shell
                [program, *command[1:]],
                env=self._environ,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=LIMIT_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise ClawError(f"{' '.join(command)} did not end: {error}") from error
        return Ran(status=done.returncode, stdout=done.stdout, stderr=done.stderr)

    def show(self, unit: str, properties: Sequence[str]) -> dict[str, str]:
        """Return properties of a unit; those that this systemd does not know are left out."""
        ran = self.ask("show", unit, f"--property={','.join(properties)}")
        pairs = (line.partition("=") for line in ran.stdout.splitlines() if "=" in line)
        return {name: value for name, _, value in pairs if value != "[not set]"}

    def follow_journal(self, arguments: Sequence[str]) -> int:
        """Run journalctl on our own output; return its exit status.

        Raises:
            ClawError: there is no journalctl.
        """
        program = self._journalctl()
        try:
            done = subprocess.run(  # noqa: S603 a list of arguments, no shell
                [program, *self._flags, *arguments],
                env=self._environ,
                stdin=subprocess.DEVNULL,
                check=False,
            )
        except KeyboardInterrupt:
            return 130
        return done.returncode

    def journal_lines(self, arguments: Sequence[str]) -> Iterator[str]:
        """Yield the lines that journalctl prints, as they come; it is ended when this is.

        Raises:
            ClawError: there is no journalctl, or it failed.
        """
        with subprocess.Popen(  # noqa: S603 a list of arguments, no shell
            [self._journalctl(), *self._flags, *arguments],
            env=self._environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            errors="replace",
        ) as running:
            assert running.stdout is not None
            try:
                for line in running.stdout:
                    yield line.rstrip("\n")
                if running.wait():
                    raise ClawError(
                        f"journalctl ended with status {running.returncode}",
                        hint="Members of the groups adm and systemd-journal may read the "
                        "machine's journal.",
                    )
            finally:
                running.terminate()

    def lingers(self) -> bool | None:
        """Return whether the user's manager runs while nobody is logged in; None: nobody knows."""
        if self._program("loginctl") is None:
            return None
        ran = self.run(["loginctl", "show-user", str(os.getuid()), "--property=Linger"])
        answer = ran.stdout.strip().partition("=")[2]
        # A user without a session is unknown to logind, and does not linger either.
        return answer == "yes" if ran.status == 0 or "not logged in" in ran.stderr else None

    def _no_user_manager(self) -> str:
        if not self._environ.get("XDG_RUNTIME_DIR"):
            return (
                "XDG_RUNTIME_DIR is not set, as after su or sudo. Log in as the user itself (ssh, "
                "machinectl shell), or for a user without a session: sudo loginctl enable-linger "
                f"USER, then export XDG_RUNTIME_DIR=/run/user/{os.getuid()}"
            )
        return (
            "Log in as the user itself, or for a user without a session: sudo loginctl "
            "enable-linger USER. Without a user manager clawctl starts clawd when it is needed."
        )

    def _journalctl(self) -> str:
        program = self._program("journalctl")
        if program is None:
            raise ClawError(
                "there is no journalctl on this machine",
                code="not_found",
                hint="A daemon that clawctl started logs to clawd.log in its home: clawctl logs "
                "--from file",
            )
        return program

    def _program(self, name: str) -> str | None:
        return shutil.which(name, path=self._environ.get("PATH"))


SERVICE = "clawd.service"
SOCKET = "clawd.socket"
WAKE_SERVICE, WAKE_TIMER = "clawd-wake.service", "clawd-wake.timer"
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
            UnitFile(path=folder / WAKE_SERVICE, text=_wake_service(where)),
            UnitFile(path=folder / WAKE_TIMER, text=_marked(_source(f"user/{WAKE_TIMER}"))),
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


def _wake_service(where: Layout) -> str:
    text = _marked(_source(f"user/{WAKE_SERVICE}"))
    return text.replace("%h/.clawd/wakes_at", escaped(where.wakes_at))


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
