"""Where conversations stood when a client saw them last, by a digest of what it saw.

Clients of the HTTP gateway bring a chat's whole history with every message. The digest of it leads
back to the conversation it was held in, and to the message at which it stood.
"""

import sqlite3
from collections.abc import Sequence

import msgspec

from clawd.memory.rows import MADE_BY, encode
from clawd.memory.writer import Database

# The f-string of SQL here is made of constants and marks; values go in as parameters.
# ruff: noqa: S608

MAX_POINTS = 20_000  # of each owner; the oldest go
MAX_ASKED = 2_000

_sources: msgspec.json.Decoder[tuple[str, ...]] = msgspec.json.Decoder(tuple[str, ...])
_LAST = "SELECT max(id) FROM messages WHERE conversation_id = p.conversation_id"


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """A place in a conversation.

    Attributes:
        history: the digest of what a client had seen of it.
        system: the digest of the client's system prompt; empty for none.
        message_id: of its last message there.
        is_end: nothing came after it.
        sources: where the untrusted text came from that was in it then.
    """

    conversation_id: str
    history: str
    system: str
    message_id: int
    is_end: bool
    sources: tuple[str, ...] = ()


class Points:
    """The places in memory. Every method raises `StorageError` when the disk fails."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(
        self,
        conversation_id: str,
        *,
        owner: int,
        history: str,
        system: str,
        sources: Sequence[str] = (),
    ) -> None:
        """Note that a client saw a conversation as it stands now; one that is gone is left out.

        `sources` says where its untrusted text came from.
        """

        def act(connection: sqlite3.Connection) -> None:
            row = connection.execute(
                "SELECT max(m.id) FROM messages m JOIN conversations c ON c.id = m.conversation_id "
                "WHERE c.id = ? AND c.owner = ?",
                (conversation_id, owner),
            ).fetchone()
            if row[0] is None:
                return
            connection.execute(
                "REPLACE INTO points "
                "(conversation_id, owner, history, system, message_id, sources) "
                "VALUES (?, ?, ?, ?, ?, ?)",
                (conversation_id, owner, history, system, row[0], encode(tuple(sources))),
            )
            connection.execute(
                "DELETE FROM points WHERE owner = :owner AND number <= (SELECT number FROM points "
                "WHERE owner = :owner ORDER BY number DESC LIMIT 1 OFFSET :most)",
                {"owner": owner, "most": MAX_POINTS},
            )

        await self._database.write(act)

    async def find(
        self, histories: Sequence[str], *, owner: int, made_by: str = ""
    ) -> tuple[Point, ...]:
        """Return the places in the owner's own conversations at any of these digests.

        `made_by` leaves conversations that were made with this key; empty leaves all.

        Those noted last come first; of more than 2000 digests the first are looked for.
        """
        asked = tuple(histories[:MAX_ASKED])
        marks = ",".join("?" * len(asked))
        query = (
            "SELECT p.conversation_id, p.history, p.system, p.message_id, p.sources, "
            f"p.message_id = ({_LAST}) FROM points p JOIN conversations c "
            "ON c.id = p.conversation_id AND c.owner = p.owner "
            f"WHERE p.owner = ? AND p.history IN ({marks}) "
            f"AND (? = '' OR json_extract(c.metadata, '$.{MADE_BY}') = ?) ORDER BY p.number DESC"
        )
        values = (owner, *asked, made_by, made_by)
        rows = await self._database.read(lambda c: c.execute(query, values).fetchall())
        return tuple(
            Point(
                conversation_id=row[0],
                history=row[1],
                system=row[2],
                message_id=row[3],
                sources=_sources.decode(row[4]),
                is_end=bool(row[5]),
            )
            for row in rows
        )
