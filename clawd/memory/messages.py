"""The messages of conversations: kept a turn at a time, read back in order. Nothing is changed."""

import sqlite3
from collections.abc import Sequence

from clawd.errors import InvalidRequestError
from clawd.memory.conversations import find_conversation, touch
from clawd.memory.rows import (
    MESSAGE_COLUMNS,
    NewMessage,
    StoredMessage,
    message_of,
    message_row,
    timestamp_now,
)
from clawd.memory.writer import Database

# Every f-string of SQL here is made of constants; values go in as parameters.
# ruff: noqa: S608

_INSERT = (
    f"INSERT INTO messages ({MESSAGE_COLUMNS.removeprefix('id, ')}) "
    "VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?)"
)


class Messages:
    """The messages in memory. Every method raises `StorageError` when the disk fails."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def append(
        self,
        conversation_id: str,
        messages: Sequence[NewMessage],
        *,
        owner: int | None,
        turn_id: str,
    ) -> tuple[StoredMessage, ...]:
        """Keep the messages, all or none, and return them as kept.

        They belong to whom the conversation belongs to; `owner` says who asks.

        Raises:
            NotFoundError: there is no such conversation that the owner may see.
        """

        def act(connection: sqlite3.Connection) -> tuple[StoredMessage, ...]:
            conversation = find_conversation(connection, conversation_id, owner)
            now = timestamp_now()
            kept = []
            for new in messages:
                stored = StoredMessage(
                    id=0,
                    conversation_id=conversation.id,
                    owner=conversation.owner,
                    turn_id=turn_id,
                    message=new.message,
                    timestamp=new.timestamp or now,
                    provider=new.provider,
                    model=new.model,
                    metadata=new.metadata,
                    is_complete=new.is_complete,
                )
                row = message_row(stored)
                kept.append(message_of((connection.execute(_INSERT, row).lastrowid, *row)))
            touch(connection, conversation.id)
            return tuple(kept)

        return await self._database.write(act)

    async def history(
        self,
        conversation_id: str,
        *,
        owner: int | None,
        after: int = 0,
        limit: int | None = None,
    ) -> list[StoredMessage]:
        """Return the messages in order, those with an id beyond `after` only.

        Raises:
            NotFoundError: there is no such conversation that the owner may see.
            InvalidRequestError: the limit is not at least 1.
        """
        if limit is not None and limit < 1:
            raise InvalidRequestError(f"limit is {limit}; it must be at least 1")

        def act(connection: sqlite3.Connection) -> list[StoredMessage]:
            conversation = find_conversation(connection, conversation_id, owner)
            rows = connection.execute(
                f"SELECT {MESSAGE_COLUMNS} FROM messages "
                "WHERE conversation_id = ? AND id > ? ORDER BY id LIMIT ?",
                (conversation.id, after, -1 if limit is None else limit),
            )
            return [message_of(row) for row in rows]

        return await self._database.read(act)

    async def counts(self, conversation_ids: Sequence[str]) -> dict[str, int]:
        """Return how many messages each of these conversations has; none where it has none."""
        marks = ",".join("?" * len(conversation_ids))
        query = (
            "SELECT conversation_id, count(*) FROM messages "
            f"WHERE conversation_id IN ({marks}) GROUP BY conversation_id"
        )
        return await self._database.read(
            lambda c: dict(c.execute(query, tuple(conversation_ids)).fetchall())
        )
