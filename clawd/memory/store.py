"""Memory as the rest of clawd holds it: one SQLite file and what is kept in it."""

import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from clawd.errors import StorageError
from clawd.memory.approvals import LapsedCalls, take
from clawd.memory.blobs import Blobs
from clawd.memory.changes import ChangeLimits, Changes
from clawd.memory.checkpoints import Checkpoints, Forks, Points
from clawd.memory.conversations import Conversations, Messages, Plans
from clawd.memory.rows import clean, encode, timestamp_now
from clawd.memory.schedules import Schedules
from clawd.memory.search import Search
from clawd.memory.session_files import SessionFiles
from clawd.memory.sop_runs import SopRunRows
from clawd.memory.upkeep import Upkeep
from clawd.memory.writer import Database
from clawd.receipts.record import Intent, sha256_hex
from clawd.security.keys import ApiKey, Scope
from clawd.security.taint import TaintMark

# The marks of untrusted files, kept in memory.sqlite.

_sources: msgspec.json.Decoder[tuple[str, ...]] = msgspec.json.Decoder(tuple[str, ...])


class MemoryOrigins:
    """`clawd.security.taint.OriginStore` in memory.sqlite."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def load(self) -> tuple[TaintMark, ...]:
        """Return every mark.

        Raises:
            StorageError: memory cannot be read.
        """
        query = "SELECT path, began_at_ns, ended_at_ns, sources FROM untrusted_files"
        rows = await self._database.read(lambda c: c.execute(query).fetchall())
        return tuple(
            TaintMark(
                path=bytes(path).decode("utf-8", "surrogateescape"),
                began_at_ns=began,
                ended_at_ns=ended,
                sources=_sources.decode(sources),
            )
            for path, began, ended, sources in rows
        )

    async def keep(
        self, marks: tuple[TaintMark, ...], *, dropped: tuple[TaintMark, ...] = ()
    ) -> None:
        """Keep marks in place of those dropped.

        Raises:
            StorageError: they are not on disk.
        """
        gone = [(_path(mark), mark.began_at_ns) for mark in dropped]
        rows = [
            (
                _path(mark),
                mark.began_at_ns,
                mark.ended_at_ns,
                encode([clean(source) for source in mark.sources]),
            )
            for mark in marks
        ]

        def act(connection: sqlite3.Connection) -> None:
            connection.executemany(
                "DELETE FROM untrusted_files WHERE path = ? AND began_at_ns = ?", gone
            )
            connection.executemany("REPLACE INTO untrusted_files VALUES (?, ?, ?, ?)", rows)

        await self._database.write(act)


def _path(mark: TaintMark) -> bytes:
    return mark.path.encode("utf-8", "surrogateescape")


# The keys of the HTTP gateway, kept in memory.sqlite; of a key only its hash.

_HAD_KEYS = "had_api_keys"  # a setting: there was a key of the HTTP gateway once

_scopes: msgspec.json.Decoder[tuple[Scope, ...]] = msgspec.json.Decoder(tuple[Scope, ...])


class _MemoryKeys:
    """`clawd.security.keys.KeyStore` in memory.sqlite."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def load(self) -> tuple[ApiKey, ...]:
        """Return every key, oldest first.

        Raises:
            StorageError: memory cannot be read.
        """
        query = (
            "SELECT id, digest, owner, name, scopes, created_at, expires_at, used_at FROM api_keys "
            "ORDER BY created_at, rowid"
        )
        rows = await self._database.read(lambda c: c.execute(query).fetchall())
        return tuple(
            ApiKey(
                id=row[0],
                digest=row[1],
                owner=row[2],
                name=row[3],
                scopes=_scopes.decode(row[4]),
                created_at=row[5],
                expires_at=row[6],
                used_at=row[7],
            )
            for row in rows
        )

    async def put(self, key: ApiKey) -> None:
        """Keep a key, or when one was used; a revoked one does not come back by its use.

        Raises:
            StorageError: it is not on disk.
        """
        row = (
            key.id,
            key.digest,
            key.owner,
            clean(key.name),
            encode(key.scopes),
            key.created_at,
            key.expires_at,
            key.used_at,
        )

        def act(connection: sqlite3.Connection) -> None:
            if key.used_at:
                query = "UPDATE api_keys SET used_at = ? WHERE id = ?"
                connection.execute(query, (key.used_at, key.id))
                return
            connection.execute("INSERT INTO api_keys VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)
            _note_one(connection)

        await self._database.write(act)

    async def drop(self, key_id: str) -> None:
        """Keep a key no longer.

        Raises:
            StorageError: it is still on disk.
        """

        def act(connection: sqlite3.Connection) -> None:
            connection.execute("DELETE FROM api_keys WHERE id = ?", (key_id,))
            _note_one(connection)

        await self._database.write(act)

    async def had_any(self) -> bool:
        """Return whether a key was ever kept.

        Raises:
            StorageError: memory cannot be read.
        """
        query = "SELECT 1 FROM settings WHERE name = ?"
        row = await self._database.read(lambda c: c.execute(query, (_HAD_KEYS,)).fetchone())
        return row is not None


def _note_one(connection: sqlite3.Connection) -> None:
    connection.execute("REPLACE INTO settings (name, value) VALUES (?, 'yes')", (_HAD_KEYS,))


# What the receipt chain keeps in memory: open intents, contents by hash, the chain's head.
#
# Only an intent waits for the disk. What follows a receipt needs no fsync of its own: after a power
# cut the intent is open again, and the next start finds its receipt in the chain and removes it.

_intent: msgspec.json.Decoder[Intent] = msgspec.json.Decoder(Intent)


class MemoryLedger:
    """`clawd.tools.journal.Ledger` in memory.sqlite. Concurrent calls share one fsync."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._is_held = False

    async def open_intent(self, intent: Intent, arguments: bytes) -> None:
        """Store the intent and its arguments (by their hash).

        Raises:
            NotFoundError: the approval that it answers was answered before.
            StorageError: it is not on disk, its id is taken, or the hash is not the arguments'.
        """
        text = encode(intent)

        def act(connection: sqlite3.Connection) -> None:
            _keep(connection, arguments, intent.args_hash)
            if intent.answers:
                take(connection, intent.answers)
            connection.execute(
                "INSERT INTO intents (id, uid, intent) VALUES (?, ?, ?) "
                "ON CONFLICT (id) DO UPDATE SET uid = excluded.uid, intent = excluded.intent",
                (intent.id, intent.uid, text),
            )

        await self._database.write(act)

    async def close_intent(self, intent_id: str, *, content: bytes, content_hash: str) -> None:
        """Remove the intent (where it is still there) and store the result by its hash.

        Raises:
            StorageError: that could not be written, or the hash is not the content's.
        """

        def act(connection: sqlite3.Connection) -> None:
            _keep(connection, content, content_hash)
            connection.execute("DELETE FROM intents WHERE id = ?", (intent_id,))

        await self._database.write(act, durable=False)

    async def store_content(self, content: bytes, content_hash: str) -> None:
        """Store bytes by their hash.

        Raises:
            StorageError: they could not be written, or the hash is not theirs.
        """
        await self._database.write(lambda c: _keep(c, content, content_hash), durable=False)

    async def open_intents(self) -> list[Intent]:
        """Return the intents that no receipt closed, oldest first.

        Raises:
            StorageError: memory cannot be read.
        """
        query = "SELECT intent FROM intents ORDER BY number"
        return await self._database.read(
            lambda c: [_intent.decode(text) for (text,) in c.execute(query)]
        )

    async def load_content(self, content_hash: str) -> bytes | None:
        """Return the bytes stored under the hash.

        Raises:
            StorageError: memory cannot be read.
        """
        row = await self._database.read(
            lambda c: c.execute(
                "SELECT content FROM contents WHERE hash = ?", (content_hash,)
            ).fetchone()
        )
        return None if row is None else bytes(row[0])

    async def load_contents(
        self, hashes: Sequence[str], *, limit_bytes: int
    ) -> list[tuple[str, bytes | None]]:
        """Return the contents of the first hashes, up to the first that goes over the limit.

        Raises:
            StorageError: memory cannot be read.
        """

        def act(connection: sqlite3.Connection) -> list[tuple[str, bytes | None]]:
            found: list[tuple[str, bytes | None]] = []
            size = 0
            for each in hashes:
                row = connection.execute(
                    "SELECT content FROM contents WHERE hash = ?", (each,)
                ).fetchone()
                found.append((each, None if row is None else bytes(row[0])))
                size += 0 if row is None else len(row[0])
                if size >= limit_bytes:
                    break
            return found

        return await self._database.read(act)

    async def record_head(self, seq: int, receipt_hash: str) -> None:
        """Remember the chain's head, unless a later one is known already or the old one is held.

        Raises:
            StorageError: it could not be written.
        """
        if self._is_held:
            return

        def act(connection: sqlite3.Connection) -> None:
            connection.execute(
                "INSERT INTO head (only_row, seq, receipt_hash, updated_at) VALUES (1, ?, ?, ?) "
                "ON CONFLICT (only_row) DO UPDATE SET seq = excluded.seq, "
                "receipt_hash = excluded.receipt_hash, updated_at = excluded.updated_at "
                "WHERE excluded.seq > seq",
                (seq, receipt_hash, timestamp_now()),
            )

        await self._database.write(act, durable=False)

    def hold_head(self) -> None:
        """Keep the remembered head as it is, because the log does not contain it."""
        self._is_held = True

    async def adopt_head(self, seq: int, receipt_hash: str) -> None:
        """Remember this head, whatever is remembered now, and later ones again.

        Raises:
            StorageError: it is not on disk.
        """

        def act(connection: sqlite3.Connection) -> None:
            connection.execute("DELETE FROM head")
            connection.execute(
                "INSERT INTO head (only_row, seq, receipt_hash, updated_at) VALUES (1, ?, ?, ?)",
                (seq, receipt_hash, timestamp_now()),
            )

        await self._database.write(act)
        self._is_held = False

    async def last_head(self) -> tuple[int, str] | None:
        """Return the remembered head (seq, hash).

        Raises:
            StorageError: memory cannot be read.
        """
        row = await self._database.read(
            lambda c: c.execute("SELECT seq, receipt_hash FROM head").fetchone()
        )
        return None if row is None else (row[0], row[1])


def _keep(connection: sqlite3.Connection, content: bytes, content_hash: str) -> None:
    if sha256_hex(content) != content_hash:
        raise StorageError(f"the content to store does not have the hash {content_hash}")
    connection.execute(
        # Kept as long as the newest receipt that hashes it.
        "INSERT INTO contents (hash, content, created_at) VALUES (?, ?, ?) "
        "ON CONFLICT (hash) DO UPDATE SET created_at = excluded.created_at",
        (content_hash, content, timestamp_now()),
    )


if TYPE_CHECKING:
    from clawd.memory.vectors import Embedder, VectorStore

_HAS_VECTORS = "SELECT EXISTS (SELECT 1 FROM embedding_models)"


class Memory:
    """An open memory.

    Every method of its parts returns when what it did is on disk, and raises `StorageError` when
    it is not.

    Attributes:
        conversations: who talks about what, where.
        messages: what was said.
        checkpoints: what stands for messages that a model is no longer shown.
        forks: copies of conversations.
        search: finding it again.
        ledger: what receipts need beside their chain.
        origins: which files hold untrusted text.
        session_files: what belongs to a conversation beside its messages.
        upkeep: backups, checks, and what goes in the end.
        plans: what is to be done.
        points: where conversations stood when a client saw them.
        keys: what is kept of the keys of the HTTP gateway.
        lapsed: calls that nobody answered for in time.
        schedules: jobs that begin by themselves.
        sop_runs: runs of procedures.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self.conversations = Conversations(database)
        self.messages = Messages(database)
        self.checkpoints = Checkpoints(database)
        self.forks = Forks(database)
        self.search = Search(database)
        self.ledger = MemoryLedger(database)
        self.origins = MemoryOrigins(database)
        self.session_files = SessionFiles(database)
        self.upkeep = Upkeep(database)
        self.plans = Plans(database)
        self.points = Points(database)
        self.keys = _MemoryKeys(database)
        self.lapsed = LapsedCalls(database)
        self.schedules = Schedules(database)
        self.sop_runs = SopRunRows(database)

    @classmethod
    async def open(cls, path: Path) -> "Memory":
        """Open the file, creating it where it is missing; check and migrate it.

        Raises:
            StorageError: it cannot be opened, is damaged, or a newer clawd wrote it.
        """
        database = Database(path)
        await database.open()
        return cls(database)

    @property
    def path(self) -> Path:
        """The SQLite file."""
        return self._database.path

    @property
    def failure(self) -> str:
        """Why nothing can be written any more, whatever room there is; empty while all is well."""
        return self._database.failure

    def search_by_meaning(self, embedder: "Embedder") -> "VectorStore":
        """Let searches go by meaning as well from now on; return the vectors, to be made."""
        from clawd.memory.vectors import Meaning, VectorStore

        self.search.meaning = Meaning(self._database, embedder)
        return VectorStore(self._database)

    async def forget_vectors(self) -> None:
        """Delete what searches by meaning left, where they are switched off."""
        (has_some,) = await self._database.read(lambda c: c.execute(_HAS_VECTORS).fetchone())
        if has_some:
            from clawd.memory.vectors import VectorStore

            await VectorStore(self._database).forget()

    async def changes(
        self, folder: Path, limits: Callable[[], ChangeLimits], blobs: Blobs | None = None
    ) -> Changes:
        """Return what is kept for undo: rows here, old contents in the folder and among `blobs`.

        Raises:
            StorageError: the folder cannot be had.
        """
        changes = Changes(self._database, folder, limits, blobs)
        await changes.open()
        return changes

    async def close(self) -> None:
        """Finish what waits and close the file; idempotent."""
        await self._database.close()
