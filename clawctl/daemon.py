"""Starts the user's own daemon when none answers, and runs `clawd` for offline work.

A daemon that is started here outlives this process: its own session, no descriptor of ours, its
output in `<home>/clawd.log`. A lock lets two clients that start at once end up with one daemon.
"""

import fcntl
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

import clawd
from clawctl.client import LOST, Client, connect, is_nobody, reason_of
from clawctl.safe_stream import plain
from clawd.errors import UnreachableError
from clawd.paths import Layout
from clawd.wire.safe_text import terminal_safe

LOG_BYTES = 10 * 1024 * 1024
LOG_LINES_SHOWN = 15

START_LIMIT_S = 30.0
RETRY_S = 0.02
USER_UNIT = "clawd.socket"
USER_UNIT_FOLDERS = (
    Path("/etc/systemd/user"),
    Path("/usr/local/lib/systemd/user"),
    Path("/usr/lib/systemd/user"),
)


def start(
    where: Layout, environ: Mapping[str, str], command: Sequence[str] | None = None
) -> Client:
    """Start the user's daemon, unless another client just did, and connect to it.

    Args:
        where: whose home and socket.
        environ: the daemon's environment.
        command: the program and its arguments; None is `clawd`.

    Raises:
        UnreachableError: it did not come up; the message ends with its last lines.
    """
    try:
        where.home.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _start_lock(where.home / "clawctl.lock"):
            client = _connect_quietly(where.socket)
            if client is not None:
                return client
            where.stopped.unlink(missing_ok=True)
            if _start_by_systemd(where, environ):
                return _wait_for(where, None, 0)
            _rotate(where.log)
            offset = where.log.stat().st_size if where.log.exists() else 0
            return _wait_for(where, _spawn(where, environ, command or clawd_command()), offset)
    except OSError as error:
        raise UnreachableError(
            f"cannot start a daemon in {where.home}: {error}",
            hint="Choose another home with CLAWD_HOME, or start one yourself: clawd",
        ) from error


def run_clawd(arguments: list[str], *, capture: bool = False) -> "subprocess.CompletedProcess[str]":
    """Run `clawd` with these arguments to its end; its output is ours unless it is captured."""
    return subprocess.run(  # noqa: S603 our own program, a list of arguments, no shell
        [*clawd_command(), *arguments],
        env=_environment(os.environ),
        stdin=subprocess.DEVNULL,
        capture_output=capture,
        text=True,
        check=False,
    )


class _PlaceOf(msgspec.Struct, frozen=True, kw_only=True):
    path: str


class _Security(msgspec.Struct, frozen=True, kw_only=True):
    autonomy: str


class ConfigValues(msgspec.Struct, frozen=True, kw_only=True):
    """Values that a daemon started here would have, of those that clawctl works with."""

    receipts: _PlaceOf
    memory: _PlaceOf
    security: _Security
    workspace_dir: str
    default_provider: str


class _Shown(msgspec.Struct, frozen=True, kw_only=True):
    values: ConfigValues


def config_values() -> ConfigValues | None:
    """Return the values of the config and the environment; None where they cannot be read."""
    done = run_clawd(["--show-config", "--json"], capture=True)
    try:
        return msgspec.json.decode(done.stdout, type=_Shown).values
    except msgspec.MsgspecError:
        return None


def relay_clawd(arguments: list[str]) -> bool:
    """Run `clawd` to its end, print what it printed, made safe, and return whether it succeeded."""
    done = run_clawd(arguments, capture=True)
    for text, stream in ((done.stdout, sys.stdout), (done.stderr, sys.stderr)):
        if text:
            print(
                terminal_safe(text), end="", file=plain(stream) if "--json" in arguments else stream
            )
    return done.returncode == 0


def _connect_quietly(path: Path) -> Client | None:
    try:
        return connect(path)
    except UnreachableError as error:
        # A daemon that is just ending hangs up on us: that is nobody, too.
        if not is_nobody(error) and reason_of(error) != LOST:
            raise
        return None


def _wait_for(where: Layout, process: "subprocess.Popen[bytes] | None", offset: int) -> Client:
    deadline = time.monotonic() + START_LIMIT_S
    while time.monotonic() < deadline:
        client = _connect_quietly(where.socket)
        if client is not None:
            if process is not None:
                # It outlives us, so Popen must not warn that nobody waited for it.
                process.returncode = 0
            return client
        if process is not None and process.poll() is not None:
            raise _died(where, f"ended with status {process.returncode}", offset)
        time.sleep(RETRY_S)
    if process is not None:
        process.returncode = 0
    raise _died(where, f"does not answer on {where.socket} after {START_LIMIT_S:g} s", offset)


def _died(where: Layout, what: str, offset: int) -> UnreachableError:
    lines = "".join(f"\n  {line}" for line in _last_lines(where.log, offset))
    return UnreachableError(
        f"a daemon was started and {what}{lines}",
        hint=f"Its log is {where.log}. Check the config with: clawctl config validate",
    )


def _spawn(
    where: Layout, environ: Mapping[str, str], command: Sequence[str]
) -> "subprocess.Popen[bytes]":
    log = os.open(where.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        return subprocess.Popen(  # noqa: S603 our own program, a list of arguments, no shell
            command,
            env=_environment(environ),
            cwd=where.home,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            close_fds=True,
        )
    finally:
        os.close(log)


def _start_by_systemd(where: Layout, environ: Mapping[str, str]) -> bool:
    runtime = environ.get("XDG_RUNTIME_DIR", "")
    is_default = not environ.get("CLAWD_HOME") and not environ.get("CLAWD_SOCKET")
    if not is_default or not runtime or not (Path(runtime) / "systemd" / "private").exists():
        return False
    config = Path(environ.get("XDG_CONFIG_HOME") or where.home.parent / ".config")
    folders = (config / "systemd" / "user", *USER_UNIT_FOLDERS)
    systemctl = shutil.which("systemctl")
    if systemctl is None or not any((folder / USER_UNIT).exists() for folder in folders):
        return False
    try:
        done = subprocess.run(  # noqa: S603 a fixed command
            [systemctl, "--user", "start", USER_UNIT],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=START_LIMIT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def clawd_command() -> list[str]:
    """Return the words that start this very clawd."""
    # -P keeps the working directory out of the import path: no file there may pose as a module.
    return [sys.executable, "-P", "-m", "clawd"]


def _environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment with this very clawd importable, also from a checkout."""
    root = Path(clawd.__file__).parents[1]
    if root.name in {"site-packages", "dist-packages"}:
        return dict(environ)
    known = environ.get("PYTHONPATH")
    return {**environ, "PYTHONPATH": f"{root}{os.pathsep}{known}" if known else str(root)}


@contextmanager
def _start_lock(path: Path) -> Iterator[None]:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        deadline = time.monotonic() + START_LIMIT_S + 5
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise TimeoutError(f"{path} is held by another clawctl") from None
                time.sleep(RETRY_S)
        yield
    finally:
        os.close(descriptor)


def _rotate(log: Path) -> None:
    """Set a log over 10 MiB aside as `.1`. Its writer appends, so it may be cut under its hands."""
    try:
        if log.stat().st_size <= LOG_BYTES:
            return
        import shutil

        # What is written between the copy and the cut is lost; renaming would lose all the rest,
        # as a running daemon keeps its descriptor.
        shutil.copyfile(log, log.with_name(f"{log.name}.1"))
        log.with_name(f"{log.name}.1").chmod(0o600)
        os.truncate(log, 0)
    except OSError:
        return


def _last_lines(log: Path, offset: int) -> list[str]:
    """Return the last lines that were written after the offset."""
    try:
        with log.open("rb") as stream:
            stream.seek(max(offset, stream.seek(0, os.SEEK_END) - 64 * 1024))
            text = stream.read().decode(errors="replace")
    except OSError:
        return []
    return text.splitlines()[-LOG_LINES_SHOWN:]
