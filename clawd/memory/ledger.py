"""What the receipt chain keeps in memory: open intents, contents by hash, the chain's head.

Only an intent waits for the disk. What follows a receipt needs no fsync of its own: after a power
cut the intent is open again, and the next start finds its receipt in the chain and removes it.
"""

import sqlite3
from collections.abc import Sequence

import msgspec

from clawd.errors import StorageError
from clawd.memory.rows import encode, timestamp_now
from clawd.memory.writer import Database
from clawd.receipts.ledger import Intent
from clawd.receipts.record import sha256_hex

_intent: msgspec.json.Decoder[Intent] = msgspec.json.Decoder(Intent)


class MemoryLedger:
    """`clawd.receipts.ledger.Ledger` in memory.sqlite. Concurrent calls share one fsync."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._is_held = False

    async def open_intent(self, intent: Intent, arguments: bytes) -> None:
        """Store the intent and its arguments (by their hash).

        Raises:
            StorageError: it is not on disk, its id is taken, or the hash is not the arguments'.
        """
        text = encode(intent)

        def act(connection: sqlite3.Connection) -> None:
            _keep(connection, arguments, intent.args_hash)
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
