"""The connections to memory's SQLite file: one thread that writes, a few that read.

Writes that wait together go into one transaction and one fsync (WAL, synchronous=FULL), or none
where all of them may be lost in a power cut (NORMAL). Each is a function of the connection, with
its own savepoint: one that fails takes back only its own work.
All of SQLite's errors become `StorageError` here and nowhere else.
"""

import asyncio
import contextlib
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec

from clawd.errors import ClawError, StorageError
from clawd.kernel.concurrency import Pool
from clawd.memory.schema import RESTORE, prepare
from clawd.receipts.durable import GroupCommit

MAX_WAITING_WRITES = 1024
MAX_WAITING_READS = 256
READERS = 3
READER_CACHE_KIB = 8 * 1024
BUSY_TIMEOUT_S = 10.0

_T = TypeVar("_T")

Act = Callable[[sqlite3.Connection], _T]


class _Write(NamedTuple):
    act: Act[Any]
    is_alone: bool = False
    is_durable: bool = True


class Database:
    """An open SQLite file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._connection: sqlite3.Connection | None = None
        self._writer: GroupCommit[_Write, Any] | None = None
        self._readers: Pool | None = None
        self._reading = threading.local()
        self._read_connections: list[sqlite3.Connection] = []
        self._waiting_reads = 0

    async def open(self) -> None:
        """Open the file (creating it, readable by its owner only), check it and migrate it.

        Raises:
            StorageError: it cannot be opened, is damaged, or a newer clawd wrote it.
        """
        await asyncio.to_thread(self._open)
        self._writer = GroupCommit(
            "memory", self._commit, error=StorageError, max_waiting=MAX_WAITING_WRITES
        )
        self._readers = Pool(READERS, "memory reader")

    @property
    def failure(self) -> str:
        """Why its writing thread has ended; empty while it runs, and when it was closed."""
        return self._writer.failure if self._writer is not None else ""

    async def write(self, act: Act[_T], *, durable: bool = True) -> _T:
        """Run the function in the writing thread and return its result when it is durable.

        With `durable=False` it returns earlier: the daemon may crash then and nothing is lost, but
        a power cut may take the write back. Cancelling the wait does not take a queued write back.

        Raises:
            StorageError: nothing of it was kept.
            ClawError: what the function raised; nothing of it was kept.
        """
        if self._writer is None:
            raise self._closed()
        result: _T = await self._writer.submit(_Write(act, is_durable=durable))
        return result

    async def write_alone(self, act: Act[_T]) -> _T:
        """Run the function in the writing thread outside any transaction (for VACUUM)."""
        if self._writer is None:
            raise self._closed()
        result: _T = await self._writer.submit(_Write(act, is_alone=True))
        return result

    async def read(self, act: Act[_T]) -> _T:
        """Run the function on a read-only connection in a reading thread.

        Raises:
            StorageError: it failed, or 256 reads already wait.
        """
        if self._readers is None:
            raise self._closed()
        if self._waiting_reads >= MAX_WAITING_READS:
            raise StorageError(f"{self._waiting_reads} reads of memory already wait")
        self._waiting_reads += 1
        try:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._readers, self._read, act)
        finally:
            self._waiting_reads -= 1

    def read_here(self, act: Act[_T]) -> _T:
        """Run a function that looks at few rows on a read-only connection of this thread.

        Raises:
            StorageError: it failed.
        """
        if self._readers is None:
            raise self._closed()
        return self._read(act)

    async def close(self) -> None:
        """Write what waits and close all connections; idempotent."""
        if self._writer is not None:
            await self._writer.close()
            self._writer = None
        if self._readers is not None:
            await asyncio.to_thread(self._readers.shutdown)
            self._readers = None
        await asyncio.to_thread(self._close)

    def _closed(self) -> StorageError:
        return StorageError(f"memory {self.path} is not open")

    def _open(self) -> None:
        with storage_errors(self.path):
            create_private(self.path)
            connection = connect(self.path)
            try:
                connection.execute("PRAGMA journal_mode = WAL")
                connection.execute("PRAGMA synchronous = NORMAL")
                # SQLite's temporary files hold parts of memory and of what is written: they lie
                # on its disk, and a /tmp that is full or open to others is no matter.
                # It is asked for as the real user, who may not be the one that opens files;
                # a memory that is written all the same does with SQLite's own choice.
                folder = str(self.path.parent).replace("'", "''")
                with contextlib.suppress(sqlite3.OperationalError):
                    connection.execute(f"PRAGMA temp_store_directory = '{folder}'")
                prepare(connection, self.path)
                connection.execute("PRAGMA foreign_keys = ON")
                connection.execute("PRAGMA secure_delete = ON")
            except BaseException:
                connection.close()
                raise
        self._connection = connection

    def _close(self) -> None:
        for reader in self._read_connections:
            reader.close()
        self._read_connections.clear()
        if self._connection is not None:
            with storage_errors(self.path):
                self._connection.close()
            self._connection = None

    def _commit(self, writes: list[_Write]) -> Sequence[Any]:
        """Run the writes in one transaction, but for those that stand alone, in their order.

        If it fails as a whole, all of them fail.
        """
        connection = self._connection
        assert connection is not None
        if not writes:
            return []
        at = next((place for place, each in enumerate(writes) if each.is_alone), None)
        if at is not None:
            answers = self._commit(writes[:at])
            connection.execute("PRAGMA synchronous = FULL")
            alone = _answer(self.path, connection, writes[at])
            return [*answers, alone, *self._commit(writes[at + 1 :])]
        is_durable = any(write.is_durable for write in writes)
        try:
            with storage_errors(self.path):
                connection.execute(f"PRAGMA synchronous = {'FULL' if is_durable else 'NORMAL'}")
                connection.execute("BEGIN IMMEDIATE")
                try:
                    together = [_answer(self.path, connection, each) for each in writes]
                    connection.execute("COMMIT")
                except BaseException:
                    if connection.in_transaction:
                        connection.execute("ROLLBACK")
                    raise
                return together
        except StorageError as error:
            return [error] * len(writes)

    def _read(self, act: Act[_T]) -> _T:
        with storage_errors(self.path):
            connection: sqlite3.Connection | None = getattr(self._reading, "connection", None)
            if connection is None:
                connection = connect(self.path, mode="ro")
                connection.execute(f"PRAGMA cache_size = -{READER_CACHE_KIB}")
                self._reading.connection = connection
                self._read_connections.append(connection)
            return act(connection)


def connect(path: Path, *, mode: str = "rw") -> sqlite3.Connection:
    """Return a connection without implicit transactions; it may be handed between threads."""
    return sqlite3.connect(
        f"{path.absolute().as_uri()}?mode={mode}",
        uri=True,
        timeout=BUSY_TIMEOUT_S,
        isolation_level=None,
        check_same_thread=False,
    )


def create_private(path: Path) -> None:
    """Create the file, or take away what others may do with it."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        os.fchmod(descriptor, 0o600)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def storage_errors(path: Path) -> Iterator[None]:
    """Turn what SQLite and the file system raise into `StorageError`."""
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        raise _storage_error(path, error) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise StorageError(
            f"memory {path}: a row holds what clawd never writes ({error})",
            hint="Somebody changed the file by hand; restore a backup.",
        ) from error


_ADVICE = {
    # Longer names first: the first that fits is told.
    "SQLITE_CORRUPT_VTAB": (
        "its search index is damaged",
        "No message is lost. Make the index anew with: clawctl memory check --repair",
    ),
    "SQLITE_FULL": ("the disk (or the file's quota) is full", "Make room on that disk."),
    "SQLITE_CORRUPT": ("the file is damaged", RESTORE),
    "SQLITE_NOTADB": (
        "its beginning is damaged, or it is no SQLite file",
        f"Does [memory] path name the right file? {RESTORE}",
    ),
    "SQLITE_READONLY": ("it may not be written", "It must belong to the daemon's user."),
    "SQLITE_CANTOPEN": ("it cannot be opened", "Its folder must be there and be writable."),
    "SQLITE_IOERR": (
        "its disk cannot be read or written",
        "Is that disk full (df), read-only (mount) or failing (dmesg)? Then start clawd again.",
    ),
    "SQLITE_BUSY": ("another program keeps it locked", "End the program that has it open."),
}


def _storage_error(path: Path, error: sqlite3.Error | OSError) -> StorageError:
    if isinstance(error, OSError):
        why, hint = error.strerror or str(error), "Check the path, its permissions and the disk."
        return StorageError(f"memory {path}: {why}", hint=hint)
    name: str = getattr(error, "sqlite_errorname", "") or ""
    for known, (why, hint) in _ADVICE.items():
        if name.startswith(known):
            return StorageError(f"memory {path}: {why} ({error})", hint=hint)
    return StorageError(f"memory {path}: {error}{f' [{name}]' if name else ''}")


def _answer(path: Path, connection: sqlite3.Connection, write: _Write) -> Any:
    """Return what a write gives, or its error; of one among others only its own work is undone."""
    if not write.is_alone:
        connection.execute("SAVEPOINT one")
    answer: Any
    try:
        with storage_errors(path):
            answer = write.act(connection)
    except ClawError as error:
        if write.is_alone:
            return error
        if not connection.in_transaction:
            # SQLite has rolled back everything (a full disk does that): so all must fail.
            raise
        connection.execute("ROLLBACK TO one")
        answer = error
    if not write.is_alone:
        connection.execute("RELEASE one")
    return answer
