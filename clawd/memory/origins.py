"""The marks of untrusted files, kept in memory.sqlite."""

import sqlite3

import msgspec

from clawd.memory.rows import clean, encode
from clawd.memory.writer import Database
from clawd.security.origin_marks import Mark

_sources: msgspec.json.Decoder[tuple[str, ...]] = msgspec.json.Decoder(tuple[str, ...])


class MemoryOrigins:
    """`clawd.security.origins.OriginStore` in memory.sqlite."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def load(self) -> tuple[Mark, ...]:
        """Return every mark.

        Raises:
            StorageError: memory cannot be read.
        """
        query = "SELECT path, began_at_ns, ended_at_ns, sources FROM untrusted_files"
        rows = await self._database.read(lambda c: c.execute(query).fetchall())
        return tuple(
            Mark(
                path=bytes(path).decode("utf-8", "surrogateescape"),
                began_at_ns=began,
                ended_at_ns=ended,
                sources=_sources.decode(sources),
            )
            for path, began, ended, sources in rows
        )

    async def keep(self, marks: tuple[Mark, ...], *, dropped: tuple[Mark, ...] = ()) -> None:
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


def _path(mark: Mark) -> bytes:
    return mark.path.encode("utf-8", "surrogateescape")
