"""What the receipt chain keeps in memory: open intents, contents by hash, the chain's head.

Only an intent waits for the disk. What follows a receipt needs no fsync of its own: after a power
cut the intent is open again, and the next start finds its receipt in the chain and removes it.
"""

import sqlite3

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

    async def record_head(self, seq: int, receipt_hash: str) -> None:
        """Remember the chain's head, unless a later one is known already.

        Raises:
            StorageError: it could not be written.
        """

        def act(connection: sqlite3.Connection) -> None:
            connection.execute(
                "INSERT INTO head (only_row, seq, receipt_hash, updated_at) VALUES (1, ?, ?, ?) "
                "ON CONFLICT (only_row) DO UPDATE SET seq = excluded.seq, "
                "receipt_hash = excluded.receipt_hash, updated_at = excluded.updated_at "
                "WHERE excluded.seq > seq",
                (seq, receipt_hash, timestamp_now()),
            )

        await self._database.write(act, durable=False)

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
        "INSERT OR IGNORE INTO contents (hash, content, created_at) VALUES (?, ?, ?)",
        (content_hash, content, timestamp_now()),
    )
