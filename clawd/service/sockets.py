"""The lock of a home and its listening socket: one daemon, no stale socket, a private folder."""

import asyncio
import errno
import fcntl
import logging
import os
import socket
import stat
import time
from pathlib import Path

from clawd.errors import ClawError, ForbiddenError

BACKLOG = 128
PROBE_TIMEOUT_S = 2.0
LOCK_PATIENCE_S = 15.0
LOCK_RETRY_S = 0.05

_log = logging.getLogger(__name__)


class HomeLock:
    """Held by the one daemon of a home; the file says its pid."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor = -1

    def take(self) -> None:
        """Take the lock for the life of this process.

        Raises:
            ClawError: another daemon has it; the message names its pid.
        """
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            descriptor = os.open(self._path, flags, 0o600)
        except OSError as error:
            raise ClawError(
                f"the lock {self._path} cannot be opened: {error.strerror}",
                hint="The home must be there and belong to the daemon's user; the lock is a file.",
            ) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.read(descriptor, 32).decode(errors="replace").strip() or "unknown"
            os.close(descriptor)
            if error.errno not in {errno.EAGAIN, errno.EACCES}:
                raise ClawError(f"{self._path} cannot be locked: {error.strerror}") from error
            raise ClawError(
                f"a clawd runs already in {self._path.parent} (pid {holder})",
                code="already_running",
                hint="Talk to it with clawctl, or choose another home with CLAWD_HOME. When it "
                f"cannot be reached, its socket was removed: end it with kill {holder}.",
            ) from error
        os.ftruncate(descriptor, 0)
        os.write(descriptor, f"{os.getpid()}\n".encode())
        self._descriptor = descriptor

    def is_left_behind(self) -> bool:
        """Whether the daemon that the file names is dead, whoever still has its lock.

        A child that it had not let go of yet, or its last thread, holds the lock for a moment.
        """
        try:
            pid = int(self._path.read_text(encoding="ascii"))
            about = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            return True
        except (OSError, ValueError):
            return False
        return about.rpartition(")")[2].split()[0] in {"Z", "X"}

    def release(self) -> None:
        """Give the lock back; idempotent."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


async def take_when_free(lock: HomeLock, path: Path, limit_s: float | None = None) -> None:
    """Take the lock; a daemon that listens no more, or was killed, is ending and waited for.

    Args:
        lock: of the home.
        path: the home's socket.
        limit_s: for how long; None for `LOCK_PATIENCE_S`.

    Raises:
        ClawError: another daemon has it, and answers or does not end.
    """
    deadline = time.monotonic() + (LOCK_PATIENCE_S if limit_s is None else limit_s)
    while True:
        try:
            lock.take()
        except ClawError as error:
            if not _is_ending(error, lock, path) or time.monotonic() > deadline:
                raise
            await asyncio.sleep(LOCK_RETRY_S)
        else:
            return


def _is_ending(error: ClawError, lock: HomeLock, path: Path) -> bool:
    """Whether the daemon that has the lock has given its socket up, or is dead."""
    return error.code == "already_running" and (not path.exists() or lock.is_left_behind())


def listen(path: Path, *, makes_parents: bool = True) -> socket.socket:
    """Return a listening socket at the path, in a folder that only this user may enter.

    The folder is made where it is not there; those above it only with `makes_parents`.

    The mode is set before bind, never by chmod after it, and not by the umask, which all threads
    share.

    Raises:
        ClawError: somebody answers there already, or the folder cannot be made private.
    """
    _private_folder(path.parent, makes_parents=makes_parents)
    _remove_stale(path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        os.fchmod(listener.fileno(), 0o600)  # bind gives the file the mode of the descriptor
        listener.bind(str(path))
    except OSError as error:
        listener.close()
        raise ClawError(f"socket {path} cannot be bound: {error.strerror or error}") from error
    listener.listen(BACKLOG)
    listener.setblocking(False)  # noqa: FBT003 - the signature of socket
    return listener


def remove(path: Path, made: os.stat_result) -> None:
    """Remove the socket that `made` describes; another one that lies there by now stays."""
    try:
        if os.path.samestat(path.lstat(), made):
            path.unlink()
    except OSError as error:
        _log.info("the socket %s was not removed: %s", path, error.strerror)


def _private_folder(folder: Path, *, makes_parents: bool) -> None:
    try:
        folder.mkdir(mode=0o700, parents=makes_parents, exist_ok=True)
        about = folder.lstat()
    except FileExistsError:
        about = folder.lstat()
    except OSError as error:
        raise ClawError(
            f"the socket's folder {folder} cannot be made: {error.strerror}",
            hint="Make it with mode 0700, or choose another socket with CLAWD_SOCKET.",
        ) from error
    if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.geteuid():
        raise ForbiddenError(
            f"{folder} is not a folder of uid {os.geteuid()}",
            hint="Remove it, or choose another socket with CLAWD_SOCKET.",
        )
    if stat.S_IMODE(about.st_mode) & 0o077:
        raise ForbiddenError(
            f"{folder} is open to others (mode {stat.S_IMODE(about.st_mode):04o})",
            hint=f"Close it with: chmod 700 {folder}",
        )


def _remove_stale(path: Path) -> None:
    """Remove a socket at which nobody answers."""
    try:
        about = path.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(about.st_mode):
        raise ClawError(f"{path} is there and is no socket", hint="Move it away.")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(PROBE_TIMEOUT_S)
        try:
            probe.connect(str(path))
        except (ConnectionRefusedError, FileNotFoundError):
            path.unlink(missing_ok=True)
            return
        except OSError as error:
            raise ClawError(f"socket {path} cannot be probed: {error.strerror or error}") from error
    raise ClawError(
        f"somebody answers at {path} already",
        code="already_running",
        hint="Talk to it with clawctl, or choose another home with CLAWD_HOME.",
    )
