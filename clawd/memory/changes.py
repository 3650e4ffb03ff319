"""Changes of files, kept so that they can be undone: a row each, and the old content in a file.

The contents lie in `<home>/undo` (0700), one file (0600) for each change that replaced something.
One owner's changes take at most `undo_mb`; the oldest calls are dropped first.
"""

import asyncio
import contextlib
import logging
import os
import sqlite3
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import msgspec

from clawd.errors import InvalidRequestError, StorageError
from clawd.memory.rows import timestamp_now
from clawd.memory.writer import Database
from clawd.receipts.record import new_ulid
from clawd.security.file_content import CHUNK_BYTES, FileChange, write_all
from clawd.tools.changes import NOT_UNDOING, CallFacts, Change, ChangeScope, Undoing

# What a row costs of the quota beside its content, so that changes without one are bounded too.
ROW_COST = 1024

_T = TypeVar("_T")
_change: msgspec.json.Decoder[Change] = msgspec.json.Decoder(Change)
_encode = msgspec.json.Encoder().encode
_log = logging.getLogger(__name__)


class ChangeLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How much is kept for one owner, and for how long; 0 bytes keep nothing."""

    max_bytes: int = 256 << 20
    max_age_days: float = 30.0


class Changes:
    """`clawd.tools.changes.ChangeLog` in memory.sqlite and a folder.

    Its methods block, and are called from threads other than the loop's.
    """

    def __init__(
        self, database: Database, folder: Path, limits: Callable[[], ChangeLimits]
    ) -> None:
        self._database = database
        self._folder = folder
        self._limits = limits
        self._loop = asyncio.get_running_loop()

    async def open(self) -> None:
        """Make the folder; remove what is too old, and contents that no row knows.

        Raises:
            StorageError: it cannot be made.
        """
        oldest = self._oldest()

        def act(connection: sqlite3.Connection) -> set[str]:
            connection.execute("DELETE FROM changes WHERE at < ?", (oldest,))
            return {row[0] for row in connection.execute("SELECT kept FROM changes")}

        known = await self._database.write(act)
        await asyncio.to_thread(self._sweep, known)

    def keep(
        self,
        call: CallFacts,
        change: FileChange,
        old: int,
        *,
        reverts: int = 0,
        undoing: Undoing = NOT_UNDOING,
    ) -> int:
        """Keep the old content and the change, and make room for both."""
        limits = self._limits()
        if limits.max_bytes <= 0:
            return 0
        size = change.before.size if change.before is not None else 0
        if size + ROW_COST > limits.max_bytes:
            raise InvalidRequestError(
                f"{change.path} has {size} bytes, more than is kept for undo; it is left as it is",
                hint="Raise undo_mb in [limits], or set it to 0 to change files without undo.",
            )
        _check_name(change.path)
        kept = new_ulid() if change.before is not None else ""
        if kept:
            self._save(kept, old)
        row = Change(
            number=0, call=call, file=change, at=timestamp_now(), kept=kept, reverts=reverts
        )
        try:
            number, dropped = self._wait(
                self._database.write(lambda c: self._insert(c, row, undoing))
            )
        except BaseException:
            self._discard([kept])
            raise
        self._discard(dropped)
        return number

    def drop(self, number: int) -> None:
        """Forget a change that was not made, or was taken back."""

        def act(connection: sqlite3.Connection) -> list[str]:
            return _deleted(connection, "number = ?", (number,))

        self._discard(self._wait(self._database.write(act)))

    def newest(self, scope: ChangeScope, *, calls: int, reverting: bool) -> list[list[Change]]:
        """Return what the newest calls changed, newest first, where it is not undone already."""
        return self._wait(self.listed(scope, calls=calls, reverting=reverting))

    async def listed(
        self, scope: ChangeScope, *, calls: int, reverting: bool
    ) -> list[list[Change]]:
        """Do what `newest` does, for the loop."""
        return await self._database.read(lambda c: _newest(c, scope, calls, reverting=reverting))

    def peek(self, scope: ChangeScope, *, calls: int, reverting: bool) -> list[list[Change]]:
        """Do what `newest` does, from the loop; it looks at few rows."""
        return self._database.read_here(lambda c: _newest(c, scope, calls, reverting=reverting))

    def content(self, change: Change) -> BinaryIO:
        """Open the content that a change replaced."""
        path = self._folder / change.kept
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as error:
            raise StorageError(
                f"what was kept of {change.file.path} cannot be read: {error.strerror}"
            ) from error
        return os.fdopen(descriptor, "rb")

    def _insert(
        self, connection: sqlite3.Connection, row: Change, undoing: Undoing
    ) -> tuple[int, list[str]]:
        call, before = row.call, row.file.before
        cost = ROW_COST + (before.size if before is not None else 0)
        dropped = self._make_room(connection, call, cost, undoing)
        cursor = connection.execute(
            "INSERT INTO changes (owner, conversation_id, workspace, call_id, at, cost, kept, "
            "reverts, change) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                call.owner,
                call.conversation_id,
                call.workspace,
                call.call_id,
                row.at,
                cost,
                row.kept,
                row.reverts,
                _encode(row).decode(),
            ),
        )
        assert cursor.lastrowid is not None
        return cursor.lastrowid, dropped

    def _make_room(
        self, connection: sqlite3.Connection, call: CallFacts, cost: int, undoing: Undoing
    ) -> list[str]:
        """Drop the owner's oldest calls until there is room; returns the contents to remove.

        What was undone goes first; what is being undone stays.
        """
        kept = (call.call_id, *undoing.calls)
        others = f"owner = ? AND call_id NOT IN ({', '.join('?' * len(kept))})"
        dropped = _deleted(
            connection,
            f"{others} AND at < ?",
            (call.owner, *kept, self._oldest()),
        )
        allowed = self._limits().max_bytes
        (used,) = connection.execute(
            "SELECT coalesce(sum(cost), 0) FROM changes WHERE owner = ? AND number != ?",
            (call.owner, undoing.number),
        ).fetchone()
        calls = 0
        while used + cost > allowed:
            found = connection.execute(
                f"SELECT call_id FROM changes WHERE {others} "  # noqa: S608
                "ORDER BY is_undone DESC, number LIMIT 1",
                (call.owner, *kept),
            ).fetchone()
            if found is None:
                raise InvalidRequestError(
                    "this call changes more than is kept for undo; the change is not made",
                    hint="Raise undo_mb in [limits], or set it to 0 to change files without undo.",
                )
            where, values = "owner = ? AND call_id = ?", (call.owner, found[0])
            (freed,) = connection.execute(
                f"SELECT sum(cost) FROM changes WHERE {where}",  # noqa: S608
                values,
            ).fetchone()
            dropped += _deleted(connection, where, values)
            used -= freed
            calls += 1
        if calls:
            _log.info("old changes can no longer be undone", extra={"calls": calls})
        return dropped

    def _oldest(self) -> str:
        oldest = datetime.now(UTC) - timedelta(days=self._limits().max_age_days)
        return oldest.strftime("%Y-%m-%dT%H:%M:%S.%fZ")

    def _save(self, name: str, old: int) -> None:
        path = self._folder / name
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            descriptor = os.open(path, flags, 0o600)
            try:
                at = 0
                while chunk := os.pread(old, CHUNK_BYTES, at):
                    write_all(descriptor, chunk)
                    at += len(chunk)
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            _sync_folder(self._folder)
        except OSError as error:
            self._discard([name])
            raise StorageError(
                f"the old content cannot be kept for undo in {self._folder}: {error.strerror}",
                hint="Make room there; undo_mb in [limits] says how much is kept.",
            ) from error

    def _discard(self, names: list[str]) -> None:
        for name in filter(None, names):
            with contextlib.suppress(OSError):
                (self._folder / name).unlink()

    def _sweep(self, known: set[str]) -> None:
        try:
            self._folder.mkdir(mode=0o700, exist_ok=True)
            self._folder.chmod(0o700)
            strays = [path.name for path in self._folder.iterdir() if path.name not in known]
        except OSError as error:
            raise StorageError(
                f"the folder for undo, {self._folder}, cannot be had: {error.strerror}"
            ) from error
        self._discard(strays)

    def _wait(self, work: Coroutine[Any, Any, _T]) -> _T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


def _newest(
    connection: sqlite3.Connection, scope: ChangeScope, calls: int, *, reverting: bool
) -> list[list[Change]]:
    where = (
        "owner = :owner AND workspace = :workspace AND is_undone = 0 "
        "AND (reverts != 0) = :reverting "
        "AND (:conversation = '' OR conversation_id = :conversation)"
    )
    values: dict[str, object] = {
        "owner": scope.owner,
        "reverting": reverting,
        "workspace": scope.workspace,
        "conversation": scope.conversation_id,
    }
    found: dict[str, None] = {}
    query = f"SELECT call_id FROM changes WHERE {where} ORDER BY number DESC"  # noqa: S608
    for (call_id,) in connection.execute(query, values):
        found[call_id] = None
        if len(found) == calls:
            break
    query = f"SELECT number, change FROM changes WHERE {where} AND call_id = :call "  # noqa: S608
    query += "ORDER BY number DESC"
    groups = []
    for call_id in found:
        rows = connection.execute(query, {**values, "call": call_id}).fetchall()
        groups.append(
            [msgspec.structs.replace(_change.decode(text), number=number) for number, text in rows]
        )
    return groups


def _deleted(connection: sqlite3.Connection, where: str, values: tuple[object, ...]) -> list[str]:
    """Delete rows; return the names of their contents. `where` is a constant of this file."""
    query = f"DELETE FROM changes WHERE {where} RETURNING kept"  # noqa: S608
    return [row[0] for row in connection.execute(query, values).fetchall()]


def _check_name(path: str) -> None:
    try:
        path.encode()
    except UnicodeEncodeError as error:
        raise InvalidRequestError(
            f"{path!r} is no UTF-8 name, and changes of such files cannot be kept for undo"
        ) from error


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
