"""The keys of the HTTP gateway, kept in memory.sqlite; of a key only its hash."""

import sqlite3

import msgspec

from clawd.memory.rows import clean, encode
from clawd.memory.writer import Database
from clawd.security.keys import ApiKey, Scope

HAD_KEYS = "had_api_keys"  # a setting: there was a key of the HTTP gateway once

_scopes: msgspec.json.Decoder[tuple[Scope, ...]] = msgspec.json.Decoder(tuple[Scope, ...])


class MemoryKeys:
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
        row = await self._database.read(lambda c: c.execute(query, (HAD_KEYS,)).fetchone())
        return row is not None


def _note_one(connection: sqlite3.Connection) -> None:
    connection.execute("REPLACE INTO settings (name, value) VALUES (?, 'yes')", (HAD_KEYS,))
