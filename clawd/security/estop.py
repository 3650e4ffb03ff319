"""The emergency stop: the file `ESTOP` in the home, a thread that watches for it, what it kills.

Set means: the file is there, or nobody can tell that it is not. The thread blocks in inotify on
the directory, apart from the event loop, so a busy loop delays nothing. Its order: SIGKILL to
every registered process, then the listeners on their loops, then the callbacks. Inotify may miss
events, so `is_set` is a stat of its own at every call. The file may be empty (`touch ESTOP`) or
say why:

    {"reason": "it deletes the wrong files", "by": "uid 1000", "at": "2026-11-21T08:00:00Z"}
"""

import asyncio
import contextlib
import ctypes
import logging
import os
import select
import signal
import struct
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

import msgspec

from clawd.errors import StorageError
from clawd.kernel.concurrency import Pool
from clawd.kernel.files import replace_file, sync_folder
from clawd.wire.safe_text import single_line

IN_ATTRIB = 0x4
IN_CLOSE_WRITE = 0x8
IN_MOVED_FROM = 0x40
IN_MOVED_TO = 0x80
IN_CREATE = 0x100
IN_DELETE = 0x200
IN_DELETE_SELF = 0x400
IN_MOVE_SELF = 0x800
IN_UNMOUNT = 0x2000
IN_IGNORED = 0x8000
IN_ONLYDIR = 0x1000000

_EVENT = struct.Struct("iIII")
_READ_BYTES = 65_536

_libc = ctypes.CDLL(None, use_errno=True)


def watch_directory(path: Path, mask: int) -> int:
    """Return a new non-blocking inotify descriptor that watches the directory.

    Raises:
        OSError: no such directory, or no inotify instance or watch is left.
    """
    descriptor: int = _libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK)
    if descriptor < 0:
        raise _last_error(path)
    if _libc.inotify_add_watch(descriptor, os.fsencode(path), mask | IN_ONLYDIR) < 0:
        error = _last_error(path)
        os.close(descriptor)
        raise error
    return descriptor


def read_masks(descriptor: int) -> int:
    """Return the masks of all waiting events, or-ed; 0 when none waits.

    Raises:
        OSError: the descriptor is broken.
    """
    try:
        data = os.read(descriptor, _READ_BYTES)
    except BlockingIOError:
        return 0
    masks = offset = 0
    while offset + _EVENT.size <= len(data):
        _watch, mask, _cookie, name_length = _EVENT.unpack_from(data, offset)
        masks |= mask
        offset += _EVENT.size + name_length
    return masks


def _last_error(path: Path) -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number), str(path))


FILE_NAME = "ESTOP"
ESTOP_REASON = "emergency stop is set"
_MAX_FILE_BYTES = 4_096
_RECHECK_MS = 1_000
_CHANGES = (
    IN_CREATE | IN_MOVED_TO | IN_CLOSE_WRITE | IN_ATTRIB
    | IN_DELETE | IN_MOVED_FROM
)  # fmt: skip
_LOST = IN_DELETE_SELF | IN_MOVE_SELF | IN_UNMOUNT | IN_IGNORED

_log = logging.getLogger(__name__)


class Stop(Protocol):
    """What those who only ask need of the emergency stop."""

    def is_set(self) -> bool:
        """Return whether it is set; anything uncertain counts as set."""
        ...


class StopState(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the stop is set, why, by whom and since when (empty where nobody said)."""

    is_set: bool
    reason: str = ""
    by: str = ""
    at: str = ""


class _Note(msgspec.Struct, frozen=True, kw_only=True):
    reason: str = ""
    by: str = ""
    at: str = ""


Listener = Callable[[bool], None]


class EmergencyStop:
    """The stop of one home. Every method may be called from any thread.

    Without `start` it works too (a client's offline `estop`): nothing is watched or killed then,
    `set`, `clear` and `is_set` are the file alone.
    """

    def __init__(self, home: Path) -> None:
        self._home = home
        self._path = home / FILE_NAME
        self._lock = threading.RLock()
        self._pidfds: set[int] = set()
        self._callbacks: list[Callable[[], None]] = []
        self._listeners: list[tuple[asyncio.AbstractEventLoop, Listener]] = []
        self._engaged = False
        self._setting = 0
        self._writer = Pool(1, "estop writer", ready=0)
        self._failure = ""
        self._thread: threading.Thread | None = None
        self._inotify_fd = -1
        self._wake_fd = -1

    @property
    def path(self) -> Path:
        """The file."""
        return self._path

    def start(self) -> None:
        """Start watching. A watcher that cannot start counts as a set stop; see `state`."""
        try:
            self._wake_fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
            self._inotify_fd = watch_directory(self._home, _CHANGES | _LOST)
            self._writer.make_ready()
        except (OSError, RuntimeError) as error:
            self._fail(f"the watcher could not start: {error}")
            return
        self._thread = threading.Thread(target=self._watch, name="estop", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop watching; a stop that is set stays set."""
        if self._thread is not None:
            os.eventfd_write(self._wake_fd, 1)
            self._thread.join()
            self._thread = None
        self._writer.shutdown()
        # A stop that is set after the end is written all the same, by a thread made then.
        self._writer = Pool(1, "estop writer", ready=0)
        for descriptor in (self._inotify_fd, self._wake_fd):
            if descriptor >= 0:
                os.close(descriptor)
        self._inotify_fd = self._wake_fd = -1

    def is_set(self) -> bool:
        """Return whether it is set, by a stat; every error but "no such file" counts as set."""
        if self._failure or self._setting:
            return True
        try:
            os.lstat(self._path)
        except FileNotFoundError:
            return False
        except OSError:
            return True
        return True

    def state(self) -> StopState:
        """Return whether it is set and what the file says about it."""
        if not self.is_set():
            return StopState(is_set=False)
        note = self._read_note()
        reason = "; ".join(part for part in (note.reason, self._failure) if part)
        return StopState(is_set=True, reason=reason, by=note.by, at=note.at)

    def set(self, reason: str = "", by: str = "") -> None:
        """Stop everything now, then write the file durably.

        When it returns, every registered process has been sent SIGKILL.

        Raises:
            StorageError: the file could not be written; the stop holds until this process ends.
        """
        with self._lock:
            self._setting += 1
        self._engage()
        at = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        note = _Note(reason=single_line(reason), by=single_line(by), at=at)
        try:
            self._write(msgspec.json.encode(note) + b"\n")
        except OSError as error:
            self._fail(f"{self._path} could not be written: {error}")
            raise StorageError(
                f"{self._path} could not be written: {error}; the stop holds, but only until "
                "the daemon ends",
                hint="free some disk space, then set it again",
            ) from error
        finally:
            with self._lock:
                self._setting -= 1

    async def set_from_loop(self, reason: str = "", by: str = "") -> None:
        """Do what `set` does without holding up the event loop, whose listeners have to act now.

        Cancelling the wait takes nothing back.

        Raises:
            StorageError: as `set`.
        """
        with self._lock:
            self._setting += 1
        self._engage()

        def write() -> None:
            try:
                self.set(reason, by)
            finally:
                with self._lock:
                    self._setting -= 1

        # A thread of its own: those that the loop lends may all be busy with what is to be stopped.
        await asyncio.shield(asyncio.wrap_future(self._writer.submit(write)))

    def clear(self) -> None:
        """Remove the file. Only for admins: the caller has checked that.

        Raises:
            StorageError: it could not be removed, or the watcher failed and only a restart helps.
        """
        if self._failure:
            raise StorageError(
                f"the emergency stop stays set: {self._failure}",
                hint="put it right, remove the file and restart clawd",
            )
        try:
            self._path.unlink(missing_ok=True)
            sync_folder(self._home)
        except OSError as error:
            raise StorageError(f"{self._path} could not be removed: {error}") from error
        self._check()

    def register_kill(self, pidfd: int) -> None:
        """Send SIGKILL to this process when the stop is set; now, when it is set already.

        The caller keeps the pidfd open until `unregister_kill`. For a sandboxed tool it is the
        pidfd of the namespace's init, whose death takes the whole tree along.
        """
        with self._lock:
            self._pidfds.add(pidfd)
        if self.is_set():
            _kill(pidfd)

    def unregister_kill(self, pidfd: int) -> None:
        """Forget a process that has ended; must come before the pidfd is closed."""
        with self._lock:
            self._pidfds.discard(pidfd)

    def on_stop(self, callback: Callable[[], None]) -> None:
        """Call this at once when the stop is set, in the watcher's or the setter's thread.

        It must not block: what it delays is the next callback.
        """
        with self._lock:
            self._callbacks.append(callback)

    def add_listener(self, listener: Listener) -> None:
        """Call this on the running event loop with True when it is set, False when cleared."""
        with self._lock:
            self._listeners.append((asyncio.get_running_loop(), listener))

    def _watch(self) -> None:
        try:
            poll = select.poll()
            poll.register(self._inotify_fd, select.POLLIN)
            poll.register(self._wake_fd, select.POLLIN)
            watched = self._home.stat()
            while True:
                self._check()
                if not os.path.samestat(self._home.stat(), watched):
                    self._fail(f"{self._home} is another directory now")
                    return
                ready = dict(poll.poll(_RECHECK_MS))
                if self._wake_fd in ready:
                    return
                masks = read_masks(self._inotify_fd)
                if masks & _LOST:
                    self._fail(f"{self._home} was removed, moved or unmounted")
                    return
        except FileNotFoundError:
            self._fail(f"{self._home} was removed, moved or unmounted")
        except Exception as error:  # noqa: BLE001 - a watcher that dies counts as a set stop
            self._fail(f"the watcher failed: {error!r}")

    def _check(self) -> None:
        # Seen and acted on under one lock: between them the stop could be cleared, and something
        # begin that must live.
        with self._lock:
            if self.is_set():
                callbacks = self._stop_all()
            else:
                callbacks = []
                if self._engaged:
                    self._engaged = False
                    self._notify(is_set=False)
        if callbacks:
            _call(callbacks)

    def _engage(self) -> None:
        with self._lock:
            callbacks = self._stop_all()
        _call(callbacks)

    def _stop_all(self) -> list[Callable[[], None]]:
        """Kill and notify, under the lock; return who is to be called after it."""
        for pidfd in self._pidfds:
            _kill(pidfd)
        if self._engaged:
            return []
        self._engaged = True
        self._notify(is_set=True)
        return list(self._callbacks)

    def _notify(self, *, is_set: bool) -> None:
        """Tell the loops; called under the lock, so that they hear changes in their order."""
        for loop, listener in self._listeners:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody listens
                loop.call_soon_threadsafe(listener, is_set)

    def _fail(self, why: str) -> None:
        _log.error("emergency stop: %s; it counts as set", why)
        self._failure = why
        self._engage()

    def _write(self, data: bytes) -> None:
        try:
            replace_file(self._path, data)
        except OSError:
            # A full disk often still takes an empty file, and an empty file is a stop.
            os.close(os.open(self._path, os.O_WRONLY | os.O_CREAT, 0o600))
            sync_folder(self._home)

    def _read_note(self) -> _Note:
        try:
            descriptor = os.open(self._path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            with os.fdopen(descriptor, "rb") as file:
                data = file.read(_MAX_FILE_BYTES) or b""
        except OSError:
            return _Note()
        try:
            note = msgspec.json.decode(data, type=_Note)
        except msgspec.DecodeError:
            return _Note(reason=single_line(data.decode("utf-8", "replace")))
        return _Note(
            reason=single_line(note.reason), by=single_line(note.by), at=single_line(note.at)
        )


def _call(callbacks: list[Callable[[], None]]) -> None:
    for callback in callbacks:
        try:
            callback()
        except Exception as error:  # noqa: BLE001 - one broken callback must not save the rest
            _log.error("a callback of the emergency stop failed", exc_info=error)


def _kill(pidfd: int) -> None:
    try:
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
    except ProcessLookupError:
        pass  # it ended by itself
    except OSError as error:
        _log.error("emergency stop: a process could not be killed: %s", error)
