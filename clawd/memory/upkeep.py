"""What keeps memory in order: backups, checks, what is too old or too much, and erasing.

Deleted rows are overwritten at once (`secure_delete`), but the words of a deleted message stay in
the segments of the search index until these are merged: `erase` merges them in small steps, so that
turns are stored in between.
"""

import errno
import os
import secrets
import sqlite3
from collections import Counter, deque
from collections.abc import Callable, Collection
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import msgspec

from clawd.errors import InvalidRequestError, StorageError
from clawd.memory.conversations import ERASE_DUE, forget_conversation
from clawd.memory.writer import Database

INDEXES = ("messages_fts", "messages_trigrams")
LOOKED_AT = "memory_looked_at"
AT_ONCE = 20
ROOM_LEFT = 0.9  # a quota that is passed is gone below, or every message would prune again
MERGE_PAGES = 500
MAX_ROUNDS = 4
MAX_PROBLEMS = 20

# What a file system without hard links (a memory stick's) answers to link(2).
_NO_LINKS = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK})

_SIZES = (
    "SELECT c.id, c.updated_at, c.owner, (SELECT total(length(content)) + "
    "total(length(reasoning)) FROM messages m "
    "WHERE m.conversation_id = c.id) + (SELECT total(size) FROM session_files f "
    "WHERE f.conversation_id = c.id) FROM conversations c ORDER BY c.updated_at, c.id"
)
_OLDER = "SELECT id, updated_at FROM conversations WHERE updated_at < ? ORDER BY updated_at LIMIT ?"


class KeepLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How long and how much is kept: days since a conversation's last message, bytes in use.

    0 is no limit.
    """

    max_age_days: float = 0.0
    max_bytes: int = 0


class Pruned(msgspec.Struct, frozen=True, kw_only=True):
    """The ids of conversations that are gone, and how many old contents of receipts."""

    conversations: tuple[str, ...] = ()
    contents: int = 0


class _Old(NamedTuple):
    """A conversation that may go, and when something was last said in it."""

    id: str
    updated_at: str


class Upkeep:
    """Upkeep of one memory. Every method raises `StorageError` when the disk fails."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def backup(self, target: Path) -> int:
        """Write a whole and consistent copy while memory is in use; return its size in bytes.

        The copy appears under its name when it is complete, readable by the daemon's user only.

        Raises:
            InvalidRequestError: the target is no absolute path in a folder that is there, or is
                there already.
        """
        return await self._database.read(lambda connection: _copy(connection, target))

    async def check(self) -> tuple[str, ...]:
        """Return what is wrong with the file and its indexes, at most twenty sentences."""
        problems = await self._database.read(_file_problems)
        return problems + await self._database.write(_index_problems)

    async def rebuild_indexes(self) -> None:
        """Make the search indexes anew from the messages."""

        def act(connection: sqlite3.Connection) -> None:
            for index in INDEXES:
                connection.execute(f"INSERT INTO {index} ({index}) VALUES ('rebuild')")  # noqa: S608

        await self._database.write(act)

    async def is_erase_due(self) -> bool:
        """Return whether something was deleted and not erased, as by a daemon that was killed."""
        return await self._database.read(_deleted_last) is not None

    async def erase(self) -> None:
        """Take what was deleted out of the search indexes and of the log beside the file.

        Raises:
            StorageError: somebody reads what the log holds; it stays due.
        """
        last = await self._database.read(_deleted_last)
        await self._merge()
        await self._database.write_alone(_empty_log)
        # Not before: a daemon that ends here erases again at its next start.
        await self._database.write(
            lambda c: (
                c.execute(
                    "DELETE FROM settings WHERE name = ? AND value = ?", (ERASE_DUE, last)
                ).rowcount
            )
        )

    async def _merge(self) -> None:
        """Take what was deleted out of the search indexes."""
        for index in INDEXES:
            while await self._database.write(_merge_step(index)):
                pass

    async def prune(self, limits: KeepLimits, *, in_use: Callable[[], Collection[str]]) -> Pruned:
        """Delete what is older than the limits allow, oldest first; what is in use stays.

        Over the quota it is the oldest of the owner with most.

        Args:
            limits: how long and how much.
            in_use: returns ids of conversations that stay whatever their age.
        """
        gone: list[str] = []
        contents = 0
        if limits.max_age_days:
            before = _time(datetime.now(UTC) - timedelta(days=limits.max_age_days))
            contents = await self._database.write(_forget_contents(before))
            while some := await self._database.read(_older(before, in_use())):
                gone += await self._forget(some, in_use)
        for _round in range(MAX_ROUNDS):
            size = await self.size()
            if not limits.max_bytes or size <= limits.max_bytes:
                break
            excess = size - int(limits.max_bytes * ROOM_LEFT)
            some = await self._database.read(_oldest(excess / size, in_use()))
            if not some:
                break
            gone += await self._forget(some, in_use)
            newest = max(old.updated_at for old in some)
            contents += await self._database.write(_forget_contents(newest))
            await self._merge()  # until then the index takes as much room as before
        return Pruned(conversations=tuple(gone), contents=contents)

    async def _forget(self, old: list[_Old], in_use: Callable[[], Collection[str]]) -> list[str]:
        """Delete conversations, a few at once; return the ids of those that are gone."""
        gone: list[str] = []
        for start in range(0, len(old), AT_ONCE):
            used = in_use()
            some = [each for each in old[start : start + AT_ONCE] if each.id not in used]
            gone += await self._database.write(_forget(some))
        return gone

    async def looked_at(self) -> float | None:
        """Return when memory was last looked at for what is too old (seconds, UTC), if ever."""
        query = "SELECT value FROM settings WHERE name = ?"
        row = await self._database.read(lambda c: c.execute(query, (LOOKED_AT,)).fetchone())
        try:
            return None if row is None else float(row[0])
        except ValueError:
            return None

    async def note_look(self, at: float) -> None:
        """Keep when it was."""
        query = "REPLACE INTO settings (name, value) VALUES (?, ?)"
        await self._database.write(lambda c: c.execute(query, (LOOKED_AT, str(at))).rowcount)

    async def size(self) -> int:
        """Return how many bytes of the file are in use."""
        return await self._database.read(_used_bytes)


def _copy(connection: sqlite3.Connection, target: Path) -> int:
    if not target.is_absolute() or not target.parent.is_dir():
        raise InvalidRequestError(f"{target} is not an absolute path in a folder that exists")
    if target.exists() or target.is_symlink():
        raise InvalidRequestError(f"{target} is there already; name a new file")
    part = target.with_name(f".clawd-{secrets.token_hex(8)}.part")  # nobody else's
    flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC
    os.close(os.open(part, flags, 0o600))
    try:
        connection.execute("VACUUM INTO ?", (str(part),))
        _to_disk(part)
        _named(part, target)
        _to_disk(target.parent)
    finally:
        part.unlink(missing_ok=True)
    return target.stat().st_size


def _named(part: Path, target: Path) -> None:
    """Give a finished copy its name, which replaces nothing.

    Raises:
        InvalidRequestError: somebody else took the name meanwhile.
    """
    try:
        os.link(part, target)
    except FileExistsError as error:
        raise InvalidRequestError(f"{target} is there already; name a new file") from error
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        if os.path.lexists(target):
            raise InvalidRequestError(f"{target} is there already; name a new file") from error
        part.rename(target)


def _used_bytes(connection: sqlite3.Connection) -> int:
    pages, free, size = (
        connection.execute(f"PRAGMA {name}").fetchone()[0]
        for name in ("page_count", "freelist_count", "page_size")
    )
    return (int(pages) - int(free)) * int(size)


def _older(before: str, in_use: Collection[str]) -> Callable[[sqlite3.Connection], list[_Old]]:
    """Return what finds a few conversations without a message since then."""

    def act(connection: sqlite3.Connection) -> list[_Old]:
        rows = connection.execute(_OLDER, (before, AT_ONCE + len(in_use))).fetchall()
        return [_Old(*row) for row in rows if row[0] not in in_use][:AT_ONCE]

    return act


def _oldest(share: float, in_use: Collection[str]) -> Callable[[sqlite3.Connection], list[_Old]]:
    """Return what finds the oldest conversations that hold this share of all text.

    Each is the oldest of the owner who has most just then: nobody loses his to make room for what
    another one writes, while that one has more.
    """

    def act(connection: sqlite3.Connection) -> list[_Old]:
        used: Counter[int] = Counter()
        waiting: dict[int, deque[tuple[_Old, int]]] = {}
        for identity, updated_at, owner, length in connection.execute(_SIZES):
            used[owner] += int(length)
            if identity not in in_use:
                waiting.setdefault(owner, deque()).append((_Old(identity, updated_at), int(length)))
        left, found = share * used.total(), []
        while waiting and left >= 0:
            owner = max(waiting, key=used.__getitem__)
            old, length = waiting[owner].popleft()
            if not waiting[owner]:
                del waiting[owner]
            found.append(old)
            used[owner] -= length
            left -= length
        return found

    return act


def _forget(some: Collection[_Old]) -> Callable[[sqlite3.Connection], list[str]]:
    """Return what deletes conversations; one that was taken up again meanwhile stays."""

    def act(connection: sqlite3.Connection) -> list[str]:
        gone = []
        for old in some:
            known = "SELECT 1 FROM conversations WHERE id = ? AND updated_at = ?"
            if connection.execute(known, old).fetchone() is not None:
                forget_conversation(connection, old.id)
                gone.append(old.id)
        return gone

    return act


def _forget_contents(before: str) -> Callable[[sqlite3.Connection], int]:
    """Return what deletes arguments and results of old receipts; their hashes stay in the chain."""
    return lambda c: c.execute("DELETE FROM contents WHERE created_at < ?", (before,)).rowcount


def _deleted_last(connection: sqlite3.Connection) -> str | None:
    query = "SELECT value FROM settings WHERE name = ?"
    row = connection.execute(query, (ERASE_DUE,)).fetchone()
    return None if row is None else str(row[0])


def _merge_step(index: str) -> Callable[[sqlite3.Connection], bool]:
    """Return one step of merging an index; it tells whether there is more to do."""

    def act(connection: sqlite3.Connection) -> bool:
        before = connection.total_changes
        connection.execute(
            f"INSERT INTO {index} ({index}, rank) VALUES ('merge', ?)",  # noqa: S608
            (-MERGE_PAGES,),
        )
        return connection.total_changes - before >= 2  # as the documentation of FTS5 has it

    return act


def _empty_log(connection: sqlite3.Connection) -> None:
    (is_busy, _, _) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    if is_busy:
        raise StorageError(
            "what was deleted is still in the log beside memory: a long read needs it",
            hint="It is tried again; a backup that takes long is such a read.",
        )


def _file_problems(connection: sqlite3.Connection) -> tuple[str, ...]:
    rows = connection.execute(f"PRAGMA integrity_check({MAX_PROBLEMS})").fetchall()
    return tuple(str(text) for (text,) in rows if text != "ok")


def _index_problems(connection: sqlite3.Connection) -> tuple[str, ...]:
    problems = []
    for index in INDEXES:
        try:
            connection.execute(
                f"INSERT INTO {index} ({index}, rank) VALUES ('integrity-check', 1)"  # noqa: S608
            )
        except sqlite3.DatabaseError as error:
            problems.append(f"the search index {index} is not in step with the messages ({error})")
    return tuple(problems)


def _to_disk(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        raise StorageError(f"{path} cannot be put on disk: {error.strerror}") from error
    finally:
        os.close(descriptor)


def _time(moment: datetime) -> str:
    return f"{moment:%Y-%m-%dT%H:%M:%S.%fZ}"
