"""Files that only their owner may read, writes that have reached the disk, and one thread for many.

The thread does the writing of many waiting tasks: whatever waits goes to disk together. It knows no
files: `commit` gets the items that wait, in order, and answers each.
"""

import asyncio
import contextlib
import errno
import logging
import os
import stat
import threading
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

from clawd.errors import ClawError, StorageError

_log = logging.getLogger(__name__)

# How many items one commit gets.
MAX_BATCH = 256

_T = TypeVar("_T")
_R = TypeVar("_R")


def open_private(path: Path, flags: int) -> int:
    """Open a regular file that only its owner may read, creating it where it is missing."""
    descriptor = os.open(path, flags | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a regular file")
    if stat.S_IMODE(status.st_mode) != 0o600:
        os.fchmod(descriptor, 0o600)
    return descriptor


def write_all(descriptor: int, data: bytes) -> None:
    """Write all of the data, in as many pieces as it takes."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def write_private(path: Path, data: bytes, flags: int = os.O_TRUNC) -> None:
    """Write the file and have it, but for its name, on disk."""
    descriptor = open_private(path, os.O_WRONLY | flags)
    try:
        write_all(descriptor, data)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_private(path: Path, max_bytes: int) -> bytes | None:
    """Return the beginning of a file that nobody else could have written; None where it is not.

    Anything but a regular file is taken for an empty one.

    Raises:
        StorageError: it cannot be read, or is not this user's own with mode 0600.
    """
    try:
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW
        with os.fdopen(os.open(path, flags), "rb") as file:
            facts = os.fstat(file.fileno())
            data = file.read(max_bytes) if stat.S_ISREG(facts.st_mode) else b""
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StorageError(f"{path} cannot be read: {error}") from error
    if facts.st_uid != os.geteuid() or stat.S_IMODE(facts.st_mode) & 0o077:
        raise StorageError(
            f"{path} must belong to uid {os.geteuid()} with mode 0600: it has uid "
            f"{facts.st_uid}, mode {stat.S_IMODE(facts.st_mode):04o}"
        )
    return data


class _Waiting(NamedTuple, Generic[_T, _R]):
    item: _T
    loop: asyncio.AbstractEventLoop
    future: "asyncio.Future[_R]"


class GroupCommit(Generic[_T, _R]):
    """A queue of at most `max_waiting` items and the thread that commits them.

    Args:
        name: of the thread, and in messages.
        commit: runs in the thread; returns a result or an error for each item, in order. It
            returns when all of that is durable. An exception it raises goes to every item.
        error: raised when an item cannot be taken.
        max_waiting: how many items may wait; one more is refused.
        housekeep: runs in the thread before each wait; returns after how many seconds it wants to
            run although nothing came, or None.
    """

    def __init__(
        self,
        name: str,
        commit: Callable[[list[_T]], Sequence[_R | Exception]],
        *,
        error: type[ClawError],
        max_waiting: int = 1024,
        housekeep: Callable[[], float | None] | None = None,
    ) -> None:
        self._name = name
        self._commit = commit
        self._error = error
        self._max_waiting = max_waiting
        self._housekeep = housekeep
        self._queue: deque[_Waiting[_T, _R]] = deque()
        self._changed = threading.Condition()
        self._taken: list[_Waiting[_T, _R]] = []
        self._is_closed = False
        self._failure = ""
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    async def submit(self, item: _T) -> _R:
        """Return the item's result when it is durable.

        Cancelling the wait does not take back an item that is queued: it is written.

        Raises:
            ClawError: of the class given, when the queue is full or closed.
            Exception: what `commit` answered for the item.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[_R] = loop.create_future()
        with self._changed:
            if self._is_closed:
                raise self._error(self._failure or f"{self._name} is closed and takes nothing more")
            if len(self._queue) >= self._max_waiting:
                raise self._error(
                    f"{self._name}: {len(self._queue)} writes already wait for the disk",
                    hint="The disk is too slow or hangs; look at the system's journal.",
                )
            self._queue.append(_Waiting(item, loop, future))
            self._changed.notify()
        return await future

    async def close(self) -> None:
        """Finish what waits and end the thread; idempotent."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        await asyncio.to_thread(self._thread.join)

    @property
    def failure(self) -> str:
        """Why the thread has ended though nobody closed it; empty while all is well."""
        return self._failure

    def _run(self) -> None:
        try:
            self._work()
        except BaseException as error:  # noqa: BLE001  the outermost handler of the thread
            # All callers, waiting and later, must hear of it: nothing is written any more.
            _log.critical(
                "a writing thread has ended", extra={"writer": self._name}, exc_info=error
            )
            self._end(f"{self._name}: the writing thread has ended ({error!r}); restart clawd")

    def _end(self, failure: str) -> None:
        with self._changed:
            self._failure, self._is_closed = failure, True
            left = [*self._taken, *self._queue]
            self._queue.clear()
        for waiting in left:
            with contextlib.suppress(RuntimeError):  # the loop has ended: nobody waits
                answers: list[tuple[_Waiting[_T, _R], _R | Exception]]
                answers = [(waiting, self._error(failure))]
                waiting.loop.call_soon_threadsafe(_resolve, answers)

    def _work(self) -> None:
        while (batch := self._next_batch()) is not None:
            if not batch:
                continue
            answers: Sequence[_R | Exception]
            try:
                answers = self._commit([waiting.item for waiting in batch])
            except Exception as error:  # noqa: BLE001  the thread's outermost handler: waiters must hear
                if not isinstance(error, ClawError):
                    extra = {"writer": self._name}
                    _log.exception("writing failed in an unforeseen way", extra=extra)
                answers = [error] * len(batch)
            by_loop: dict[asyncio.AbstractEventLoop, list[tuple[_Waiting[_T, _R], _R | Exception]]]
            by_loop = {}
            for waiting, answer in zip(batch, answers, strict=True):
                by_loop.setdefault(waiting.loop, []).append((waiting, answer))
            for loop, answered in by_loop.items():
                with contextlib.suppress(RuntimeError):  # the loop has ended: nobody waits
                    loop.call_soon_threadsafe(_resolve, answered)

    def _next_batch(self) -> list[_Waiting[_T, _R]] | None:
        """Return what waits: nothing when housekeeping is due, None at the end."""
        limit_s = None
        try:
            limit_s = self._housekeep() if self._housekeep is not None else None
        except Exception:  # noqa: BLE001  the thread must go on: its writers wait
            _log.exception("housekeeping failed", extra={"writer": self._name})
        with self._changed:
            self._changed.wait_for(lambda: self._queue or self._is_closed, limit_s)
            if self._is_closed and not self._queue:
                return None
            count = min(len(self._queue), MAX_BATCH)
            self._taken = [self._queue.popleft() for _ in range(count)]
            return self._taken


def _resolve(answered: "list[tuple[_Waiting[_T, _R], _R | Exception]]") -> None:
    for waiting, answer in answered:
        if waiting.future.done():
            continue
        if isinstance(answer, Exception):
            waiting.future.set_exception(answer)
        else:
            waiting.future.set_result(answer)
