"""The runs of procedures, each a row with what finds it and a text that says how far it is."""

import sqlite3

import msgspec

from clawd.errors import InvalidRequestError, NotFoundError
from clawd.memory.rows import clean
from clawd.memory.writer import Database

MAX_LISTED = 1000
KEPT_ENDED = 1000
"""So many runs of one owner that ended are kept."""
_FIELDS = "id, owner, key, name, status, run"


class SopRunRow(msgspec.Struct, frozen=True, kw_only=True):
    """A run as memory keeps it; `is_ended` lets it go in the end."""

    id: str
    owner: int
    key: str
    name: str
    status: str
    run: str


class SopRunRows:
    """Those in memory. Every method raises `StorageError` when the disk fails."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def put(self, row: SopRunRow, *, is_ended: bool) -> None:
        """Keep how far a run is, durably; old ones that ended go."""
        values = (row.id, row.owner, clean(row.key), clean(row.name), row.status, row.run, is_ended)

        def act(connection: sqlite3.Connection) -> None:
            connection.execute(
                "INSERT INTO sop_runs (id, owner, key, name, status, run, is_ended) "
                "VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET "
                "status = excluded.status, run = excluded.run, is_ended = excluded.is_ended",
                values,
            )
            if is_ended:
                connection.execute(
                    "DELETE FROM sop_runs WHERE owner = :owner AND is_ended AND id <= (SELECT id "
                    "FROM sop_runs WHERE owner = :owner AND is_ended "
                    "ORDER BY id DESC LIMIT 1 OFFSET :most)",
                    {"owner": row.owner, "most": KEPT_ENDED},
                )

        await self._database.write(act)

    async def match(self, beginning: str) -> SopRunRow:
        """Return the run of an id, or of a beginning of one that no other has.

        Raises:
            NotFoundError, InvalidRequestError: there is none, or more than one.
        """
        text = clean(beginning)
        query = f"SELECT {_FIELDS} FROM sop_runs WHERE substr(id, 1, ?) = ? LIMIT 2"  # noqa: S608
        rows = await self._database.read(lambda c: c.execute(query, (len(text), text)).fetchall())
        if not text or not rows:
            hint = "clawctl sop history lists them."
            raise NotFoundError(f"there is no run {beginning[:64]!r}", hint=hint)
        if len(rows) > 1:
            raise InvalidRequestError(f"more than one run begins with {beginning[:64]!r}")
        return _row(rows[0])

    async def listed(
        self, *, owner: int | None = None, name: str = "", open_only: bool = False, limit: int
    ) -> list[SopRunRow]:
        """Return runs, newest first, of one owner or of all."""
        query = (
            f"SELECT {_FIELDS} FROM sop_runs WHERE (:owner IS NULL OR owner = :owner) "  # noqa: S608
            "AND (:name = '' OR name = :name) AND NOT (:open AND is_ended) "
            "ORDER BY id DESC LIMIT :limit"
        )
        given = {
            "owner": owner,
            "name": clean(name),
            "open": open_only,
            "limit": min(max(limit, 1), MAX_LISTED),
        }
        rows = await self._database.read(lambda c: c.execute(query, given).fetchall())
        return [_row(each) for each in rows]


def _row(found: tuple[str, int, str, str, str, str]) -> SopRunRow:
    return SopRunRow(**dict(zip(_FIELDS.split(", "), found, strict=True)))  # type: ignore[arg-type]  # as they stand in the table
