"""The lock of a home and its control socket: one daemon, a private folder, a file bound anew."""

import asyncio
import errno
import fcntl
import logging
import os
import socket
import stat
import time
from collections.abc import Sequence
from pathlib import Path

import psutil

from clawd.channels.rpc.connection import RpcServer
from clawd.errors import ClawError, ForbiddenError
from clawd.service.upkeep import Watch

# The lock of a home and its listening socket: one daemon, no stale socket, a private folder.

_BACKLOG = 128
_PROBE_TIMEOUT_S = 2.0
LOCK_PATIENCE_S = 15.0
_LOCK_RETRY_S = 0.05

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
        """Whether the daemon that the file names is dead, even where a process still has its lock.

        A child that it had not let go of yet, or its last thread, holds the lock for a moment.
        """
        try:
            pid = int(self._path.read_text(encoding="ascii"))
            status = psutil.Process(pid).status()
        except (FileNotFoundError, psutil.NoSuchProcess):
            return True
        except (OSError, ValueError, psutil.Error):
            return False
        return status in {psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD}

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
            await asyncio.sleep(_LOCK_RETRY_S)
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
    listener.listen(_BACKLOG)
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
        probe.settimeout(_PROBE_TIMEOUT_S)
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


# The control socket of a running daemon: opened, watched, bound anew when its file is gone, shut.
#
# A file in a folder of temporary files may be swept away, or removed by a hand that slipped. A
# daemon that nobody can reach any more could not be stopped either, so it looks every few seconds.

LOOK_INTERVAL_S = 2.0


class Door:
    """Where clients of the control socket come in.

    Args:
        server: serves who comes in.
        path: of the socket.
        watch: is told of the task that looks after the socket, and its name.
        look_interval_s: seconds between two looks.

    Attributes:
        server: serves who comes in.
        path: of the socket, unless systemd made it.
        is_systemds: whether the socket came from systemd, which then cares for its file.
    """

    def __init__(
        self,
        server: RpcServer,
        path: Path,
        *,
        watch: Watch | None = None,
        look_interval_s: float = LOOK_INTERVAL_S,
    ) -> None:
        self.server = server
        self.path = path
        self.is_systemds = False
        self._watch_task = watch
        self._look_interval_s = look_interval_s
        self._made: os.stat_result | None = None
        self._above = -1
        self._watching: asyncio.Task[None] | None = None
        self._trouble = ""

    async def open(self, passed: Sequence[socket.socket]) -> None:
        """Listen on the socket that was passed in, or make one and watch its file.

        Raises:
            ClawError: it cannot be made, or somebody answers there.
        """
        if passed:
            self.is_systemds = True
            await self.server.start(passed[0])
            return
        listener = listen(self.path)
        self._made = self.path.lstat()
        # Held open, so that no other directory gets its number.
        self._above = os.open(self.path.parent.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        await self.server.start(listener)
        self._watching = asyncio.create_task(self._watch())
        if self._watch_task is not None:
            self._watch_task(self._watching, "the watch over the control socket")

    async def shut(self) -> None:
        """Take no more clients and remove the file that was made here."""
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)
        await self.server.stop_listening()
        if self._made is not None:
            remove(self.path, self._made)
        if self._above >= 0:
            os.close(self._above)
            self._above = -1

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(self._look_interval_s)
            if not self._is_ours():
                await self._bind_anew()

    def _is_ours(self) -> bool:
        try:
            return self._made is not None and os.path.samestat(self.path.lstat(), self._made)
        except OSError:
            return False

    def _is_home_ours(self) -> bool:
        """Return whether the folder above the socket's is the one of the start.

        A home that was removed, moved or unmounted is not begun anew for the sake of its socket.
        """
        try:
            above = self.path.parent.parent.stat()
            return os.path.samestat(above, os.fstat(self._above))
        except OSError:
            return False

    async def _bind_anew(self) -> None:
        """Make the socket again; clients that are connected notice nothing."""
        try:
            if not self._is_home_ours():
                raise ClawError(f"{self.path.parent.parent} was removed, moved or unmounted")
            listener = listen(self.path, makes_parents=False)
            self._made = self.path.lstat()
        except (ClawError, OSError) as error:
            trouble = error.message if isinstance(error, ClawError) else str(error)
            if trouble != self._trouble:  # said once, tried for ever
                _log.error("the control socket is gone and cannot be made again: %s", trouble)
            self._trouble = trouble
            return
        self._trouble = ""
        await self.server.stop_listening()
        await self.server.start(listener)
        where = str(self.path)
        _log.warning("the control socket was gone, it is there again", extra={"socket": where})
