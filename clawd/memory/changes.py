"""Changes of files, kept so that they can be undone: a row each, and the old content in a file.

The contents lie in `<home>/undo` (0700), one file (0600) for each change that replaced something;
those that commands replaced lie among the blobs of `snapshots`.
One owner's changes take at most `undo_mb`; the oldest calls are dropped first.
"""

import asyncio
import contextlib
import logging
import os
import sqlite3
from collections.abc import Callable, Coroutine, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import msgspec

from clawd.errors import InvalidRequestError, StorageError
from clawd.kernel.files import sync_folder
from clawd.memory.blobs import Blobs
from clawd.memory.rows import timestamp_now
from clawd.memory.writer import Database
from clawd.receipts.record import new_ulid
from clawd.security.file_content import CHUNK_BYTES, FileChange, write_all
from clawd.tools.changes import NEWEST, NOT_UNDOING, CallFacts, Change, ChangeScope, Undoing, Which

# What a row costs of the quota beside its content, so that changes without one are bounded too.
ROW_COST = 1024
# Of a command that changed many files each row costs less.
MANY_COST = 256
# What one undo takes back at most.
MAX_CALLS = 1_000
MAX_FORKS = 50
# Begins the name of a content that is kept by its hash.
_BLOB = "@"

_REPLACED = (
    "SELECT change FROM changes WHERE owner = ? AND workspace = ? AND number > ? AND kept != '' "
    "AND json_extract(change, '$.file.before.sha256') = ? ORDER BY number LIMIT 1"
)

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
        self,
        database: Database,
        folder: Path,
        limits: Callable[[], ChangeLimits],
        blobs: Blobs | None = None,
    ) -> None:
        self._database = database
        self._folder = folder
        self._limits = limits
        self._blobs = blobs or Blobs(folder, lambda: 0)
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

    def keep_all(
        self,
        call: CallFacts,
        changes: Sequence[FileChange],
        *,
        reverts: int = 0,
        undoing: Undoing = NOT_UNDOING,
        is_whole: bool = False,
    ) -> list[int]:
        """Keep changes whose old contents are kept by their hashes."""
        if is_whole and min(self._limits().max_bytes, self._blobs.max_bytes()) <= 0:
            return []
        lost = [each for each in changes if each.before is not None and not self._is_kept(each)]
        if is_whole and lost:
            raise InvalidRequestError(
                f"there is no room to keep {lost[0].path} for undo; nothing is changed",
                hint="Raise undo_commands_mb in [limits].",
            )
        return self._wait(self.record(call, changes, reverts=reverts, undoing=undoing))

    async def record(
        self,
        call: CallFacts,
        changes: Sequence[FileChange],
        *,
        reverts: int = 0,
        undoing: Undoing = NOT_UNDOING,
    ) -> list[int]:
        """Do what `keep_all` does, for the loop."""
        at = timestamp_now()
        rows = [
            Change(
                number=0,
                call=call,
                file=each,
                at=at,
                kept=self._kept(each),
                reverts=reverts,
                is_of_many=True,
            )
            for each in changes
        ]
        numbers, dropped = await self._database.write(lambda c: self._insert_all(c, rows, undoing))
        await asyncio.to_thread(self._discard, dropped)
        return numbers

    def keep_content(self, old: int, size: int) -> str:
        """Keep the content of an open file as far as there is room; returns its SHA-256."""
        return self._blobs.put(old, size)

    async def named(self) -> list[str]:
        """Return the hashes of the contents that rows name."""
        query = "SELECT DISTINCT substr(kept, 2) FROM changes WHERE kept LIKE '@%'"
        rows = await self._database.read(lambda c: c.execute(query).fetchall())
        return [row[0] for row in rows]

    def drop(self, *numbers: int) -> None:
        """Forget changes that were not made, or were taken back."""

        def act(connection: sqlite3.Connection) -> list[str]:
            return [
                name for number in numbers for name in _deleted(connection, "number = ?", (number,))
            ]

        self._discard(self._wait(self._database.write(act)))

    def newest(
        self, scope: ChangeScope, *, calls: int, reverting: bool, which: Which = NEWEST
    ) -> list[list[Change]]:
        """Return what the newest calls changed, newest first, where it is not undone already."""
        return self._wait(self.listed(scope, calls=calls, reverting=reverting, which=which))

    async def listed(
        self, scope: ChangeScope, *, calls: int, reverting: bool, which: Which = NEWEST
    ) -> list[list[Change]]:
        """Do what `newest` does, for the loop."""
        return await self._database.read(
            lambda c: _newest(c, scope, calls, which, reverting=reverting)
        )

    def peek(
        self, scope: ChangeScope, *, calls: int, reverting: bool, which: Which = NEWEST
    ) -> list[list[Change]]:
        """Do what `newest` does, from the loop; it looks at few rows."""
        return self._database.read_here(
            lambda c: _newest(c, scope, calls, which, reverting=reverting)
        )

    def content(self, change: Change) -> BinaryIO:
        """Open the content that a change replaced."""
        if change.kept.startswith(_BLOB):
            return self._blobs.open(change.kept.removeprefix(_BLOB))
        path = self._folder / change.kept
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as error:
            raise StorageError(
                f"what was kept of {change.file.path} cannot be read: {error.strerror}"
            ) from error
        return os.fdopen(descriptor, "rb")

    def written(self, change: Change) -> BinaryIO | None:
        """Open the content that a change wrote, where it is kept; None where it is not."""
        after = change.file.after
        if after is None or not after.sha256:
            return None
        if self._blobs.has(after.sha256):
            return self._blobs.open(after.sha256)
        call = change.call
        values = (call.owner, call.workspace, change.number, after.sha256)
        row = self._wait(self._database.read(lambda c: c.execute(_REPLACED, values).fetchone()))
        return row and self.content(_change.decode(row[0]))

    def _insert(
        self, connection: sqlite3.Connection, row: Change, undoing: Undoing
    ) -> tuple[int, list[str]]:
        before = row.file.before
        cost = ROW_COST + (before.size if before is not None else 0)
        dropped = self._make_room(connection, row.call, cost, undoing)
        return self._add(connection, row, cost), dropped

    def _insert_all(
        self, connection: sqlite3.Connection, rows: Sequence[Change], undoing: Undoing
    ) -> tuple[list[int], list[str]]:
        """Insert what a command did; it is done, so it is kept if it takes all the room."""
        costs = [
            MANY_COST + (row.file.before.size if row.kept and row.file.before else 0)
            for row in rows
        ]
        total = min(sum(costs), self._limits().max_bytes)
        dropped = self._make_room(connection, rows[0].call, total, undoing) if rows else []
        return [self._add(connection, *each) for each in zip(rows, costs, strict=True)], dropped

    def _kept(self, change: FileChange) -> str:
        before = change.before
        is_kept = before is not None and before.sha256 and self._blobs.has(before.sha256)
        return f"{_BLOB}{before.sha256}" if before is not None and is_kept else ""

    def _is_kept(self, change: FileChange) -> bool:
        before = change.before
        return before is None or before.kind in {"folder", "fifo"} or bool(self._kept(change))

    def _add(self, connection: sqlite3.Connection, row: Change, cost: int) -> int:
        call = row.call
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
        return cursor.lastrowid

    def _make_room(
        self, connection: sqlite3.Connection, call: CallFacts, cost: int, undoing: Undoing
    ) -> list[str]:
        """Drop the owner's oldest calls until there is room; returns the contents to remove.

        What was undone goes first; what is being undone stays.
        """
        kept = (call.call_id, *undoing.calls)
        others = f"owner = ? AND call_id NOT IN ({', '.join('?' * len(kept))})"
        dropped = _deleted(connection, f"{others} AND at < ?", (call.owner, *kept, self._oldest()))
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
            sync_folder(self._folder)
        except OSError as error:
            self._discard([name])
            raise StorageError(
                f"the old content cannot be kept for undo in {self._folder}: {error.strerror}",
                hint="Make room there; undo_mb in [limits] says how much is kept.",
            ) from error

    def _discard(self, names: list[str]) -> None:
        for name in names:
            if not name or name.startswith(_BLOB):
                continue  # `Snapshots` clears up among what others may name as well
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
    connection: sqlite3.Connection, scope: ChangeScope, calls: int, which: Which, *, reverting: bool
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
    if which.call:
        where += " AND substr(call_id, 1, length(:beginning)) = :beginning"
        values["beginning"], calls = which.call, 2
    elif which.since:
        where += _since(connection, values, which.since)
        calls = MAX_CALLS
    elif which.is_turn:
        start = _start(connection, where, values)
        if start is None:
            return []
        where += " AND conversation_id = :conversation AND at >= :start"
        values["conversation"], values["start"] = start
        calls = MAX_CALLS
    found: dict[str, None] = {}
    query = f"SELECT call_id FROM changes WHERE {where} ORDER BY number DESC"  # noqa: S608
    for (call_id,) in connection.execute(query, values):
        found[call_id] = None
        if len(found) == calls:
            break
    if which.call and len(found) > 1:
        raise InvalidRequestError(f"{which.call} is the beginning of more than one call's id")
    query = f"SELECT number, change FROM changes WHERE {where} AND call_id = :call "  # noqa: S608
    query += "ORDER BY number DESC"
    groups = []
    for call_id in found:
        rows = connection.execute(query, {**values, "call": call_id}).fetchall()
        groups.append(
            [msgspec.structs.replace(_change.decode(text), number=number) for number, text in rows]
        )
    return groups


def _since(connection: sqlite3.Connection, values: dict[str, object], since: int) -> str:
    """Return what is true of changes after a message of the conversation, and fill in values.

    A fork has the past of the conversation that it was made of, so its changes until then count.
    """
    conversation = values["conversation"]
    query = "SELECT timestamp FROM messages WHERE id = ? AND conversation_id = ?"
    row = connection.execute(query, (since, conversation)).fetchone()
    if row is None:
        raise InvalidRequestError(f"message {since} is none of this conversation's")
    values["start"], values["conversation"] = row[0], ""
    query = (
        "SELECT json_extract(metadata, '$.forked_from.conversation'), created_at "
        "FROM conversations WHERE id = ?"
    )
    parts: list[str] = []
    end = "9"  # after every year
    while conversation and len(parts) < MAX_FORKS:
        place = len(parts)
        values[f"of{place}"], values[f"end{place}"] = conversation, end
        parts.append(f"(conversation_id = :of{place} AND at < :end{place})")
        conversation, end = connection.execute(query, (conversation,)).fetchone() or (None, "")
    return f" AND at >= :start AND ({' OR '.join(parts)})"


def _start(
    connection: sqlite3.Connection, where: str, values: dict[str, object]
) -> tuple[str, str] | None:
    """Return the conversation of the newest turn that changed anything, and when it began.

    None where none did. `where` is made of constants of this file.
    """
    query = f"SELECT conversation_id, at FROM changes WHERE {where} "  # noqa: S608
    newest = connection.execute(query + "ORDER BY number DESC LIMIT 1", values).fetchone()
    if newest is None:
        return None
    query = (
        "SELECT max(timestamp) FROM messages "
        "WHERE conversation_id = ? AND role = 'user' AND timestamp <= ?"
    )
    (start,) = connection.execute(query, newest).fetchone()
    return newest[0], start or newest[1]


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
