"""Whether home, config, keys, lock and socket are closed to others, and none of them stale."""

import errno
import fcntl
import os
import socket
import stat
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from clawctl.checks.finding import Found, noted, ok, wrong
from clawd.paths import Layout

PRIVATE_FILES = (
    "receipts.key",
    "checkpoint.key",
    "approval_rules.json",
    "memory.sqlite",
    "history",
    "plugin_pins.json",
    "mcp_tools.json",
    "clawd.log",
)
KNOCK_S = 1.0


def findings(where: Layout) -> Iterator[Found]:
    """Judge the files of a home."""
    if not where.home.exists():
        yield wrong(
            "home",
            f"there is no {where.home}",
            "Set it up with clawctl init, or all of it with clawctl onboard.",
            partial(where.home.mkdir, mode=0o700, parents=True),
        )
        return
    try:
        yield from _home(where)
        yield from _private(where)
        yield from _socket(where)
    except PermissionError as error:
        yield noted(
            "home",
            f"{error.filename} may not be read by you",
            f"Look at it as its owner: sudo -u '#{_owner(where.home)}' clawctl doctor",
        )


def folder(check: str, path: Path) -> Found:
    """Judge a folder that the config names and that must be there to be worked in."""
    if not path.exists():
        return wrong(
            check,
            f"there is no {path}",
            f"Make it: mkdir -p {path}",
            partial(path.mkdir, parents=True, exist_ok=True),
        )
    if not path.is_dir():
        return wrong(check, f"{path} is no folder", "Move it away, or name another in the config.")
    if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
        return noted(check, f"{path} may not be written by you", f"Look at: ls -ld {path}")
    return ok(check, str(path))


def _home(where: Layout) -> Iterator[Found]:
    about = where.home.stat()
    if about.st_mode & 0o077 and not where.is_system:
        yield wrong(
            "home",
            f"others can look into {where.home} (mode {stat.S_IMODE(about.st_mode):04o})",
            f"Close it: chmod 700 {where.home}",
            _closing(where.home, 0o700),
        )
    elif about.st_uid not in {os.geteuid(), 0} and os.geteuid() != 0:
        yield noted("home", f"{where.home} belongs to uid {about.st_uid}, not to you")
    else:
        yield ok("home", str(where.home))


def _private(where: Layout) -> Iterator[Found]:
    good = 0
    for path in (where.config, *(where.home / name for name in PRIVATE_FILES)):
        if not path.exists():
            continue
        mode = stat.S_IMODE(path.stat().st_mode)
        least = 0o640 if where.is_system and path == where.config else 0o600
        if mode & 0o077 & ~least:
            yield wrong(
                "permissions",
                f"others can read or write {path} (mode {mode:04o})",
                f"Close it: chmod {least:o} {path}",
                _closing(path, least),
            )
        else:
            good += 1
    if good:
        yield ok("permissions", f"{good} private files are closed to others")


def _socket(where: Layout) -> Iterator[Found]:
    path = where.socket
    runs = _is_locked(where.lock)
    if path.parent.exists() and not where.is_system:
        mode = stat.S_IMODE(path.parent.stat().st_mode)
        if mode & 0o077:
            yield wrong(
                "socket",
                f"others can reach into {path.parent} (mode {mode:04o})",
                f"Close it: chmod 700 {path.parent}",
                _closing(path.parent, 0o700),
            )
    if not path.exists():
        if runs:
            yield wrong(
                "socket",
                f"a daemon runs (pid {_pid(where.lock)}), and its socket {path} is gone",
                f"Restart it: kill {_pid(where.lock)}, then clawctl status",
            )
        else:
            yield ok("socket", f"{path} is made when a daemon starts")
    elif not _answers(path) and not runs:
        yield wrong(
            "socket",
            f"{path} was left behind by a daemon that ended",
            f"Remove it: rm {path} (the next daemon does so by itself)",
            partial(_remove_stale, path, where.lock),
        )
    else:
        yield ok("socket", str(path))


def _remove_stale(path: Path, lock: Path) -> None:
    # Looked at again: a daemon may have started since.
    if not _is_locked(lock) and not _answers(path):
        path.unlink(missing_ok=True)


def _closing(path: Path, mode: int) -> Callable[[], None] | None:
    """Return what closes a path that is ours; None for one of somebody else."""
    judged = path.stat()
    if os.geteuid() not in {0, judged.st_uid} or path.is_symlink():
        return None
    return partial(_close, path, mode, judged)


def _close(path: Path, mode: int, judged: os.stat_result) -> None:
    """Close what was judged, and nothing that took its place: a link would lead root elsewhere."""
    descriptor = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        about = os.fstat(descriptor)
        # A number is given away again at once: a link may have that of the file that it replaced.
        is_same = os.path.samestat(about, judged) and about.st_mode == judged.st_mode
        if not is_same:
            raise OSError(errno.ESTALE, "it was replaced meanwhile", str(path))
        # What O_PATH opened takes no fchmod.
        Path(f"/proc/self/fd/{descriptor}").chmod(mode)
    finally:
        os.close(descriptor)


def _is_locked(lock: Path) -> bool:
    """Tell whether a daemon holds the lock of a home."""
    try:
        descriptor = os.open(lock, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    else:
        return False
    finally:
        os.close(descriptor)


def _pid(lock: Path) -> str:
    try:
        text = lock.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return "?"
    return text if text.isdecimal() else "?"


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as knocking:
        knocking.settimeout(KNOCK_S)
        try:
            knocking.connect(str(path))
        except (ConnectionRefusedError, FileNotFoundError):
            return False
        except OSError:
            return True  # something is there that will not talk to us
    return True


def _owner(path: Path) -> int:
    try:
        return path.stat().st_uid
    except OSError:
        return 0
