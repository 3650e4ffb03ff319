"""Checkpoints: what stands for the beginning of a conversation once it was compressed.

A checkpoint is a row of its own beside the messages, of which none is ever changed or deleted by
it. The newest one of a conversation is in force; taking it away puts the one before in force
again, and taking all away leaves the messages as if there had never been one.
"""

import sqlite3
from collections.abc import Sequence
from typing import Any

import msgspec

from clawd.errors import InvalidRequestError
from clawd.memory.conversations import find_conversation
from clawd.memory.rows import (
    MESSAGE_COLUMNS,
    StoredMessage,
    clean,
    encode,
    message_of,
    timestamp_now,
)
from clawd.memory.writer import Database

# Every f-string of SQL here is made of constants; values go in as parameters.
# ruff: noqa: S608

COLUMNS = "id, timestamp, text, upto, anchor, seen, replaced, cuts, is_summary, provider, model"
UNCOMPRESSED = "uncompressed"  # a conversation's metadata: how many messages undo brought back

_INSERT = (
    f"INSERT INTO checkpoints (conversation_id, owner, {COLUMNS.removeprefix('id, ')}) "
    "VALUES (?,?,?,?,?,?,?,?,?,?,?,?)"
)
_cuts: msgspec.json.Decoder[dict[int, int]] = msgspec.json.Decoder(dict[int, int], strict=False)


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True):
    """What stands for the beginning of a conversation.

    Attributes:
        text: the checkpoint message; "" where no message is replaced and results are only cut.
        upto: id of the newest message that it replaces, 0 for none.
        anchor: id of a user message among these that is shown all the same, 0 for none.
        seen: id of the newest message there was when it was made.
        replaced: how many messages it stands for.
        cuts: tool results that are shown shortened: characters by message id.
        is_summary: a model wrote it; else it was put together from first words.
    """

    text: str
    upto: int
    seen: int
    replaced: int
    id: int = 0
    timestamp: str = ""
    anchor: int = 0
    cuts: dict[int, int] = {}
    is_summary: bool = True
    provider: str = ""
    model: str = ""


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """What of a conversation a model is shown: the checkpoint in force and the messages kept.

    `messages` are oldest first; the anchor, where there is one, is the first of them.
    """

    messages: tuple[StoredMessage, ...]
    checkpoint: Checkpoint | None = None


class Checkpoints:
    """The checkpoints in memory. Every method raises `StorageError` when the disk fails."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def shown(self, conversation_id: str, *, owner: int | None) -> Shown:
        """Return what of a conversation is shown to a model.

        Raises:
            NotFoundError: there is no such conversation that the owner may see.
        """

        def act(connection: sqlite3.Connection) -> Shown:
            found = find_conversation(connection, conversation_id, owner)
            checkpoint = newest(connection, found.id)
            upto, anchor = (checkpoint.upto, checkpoint.anchor) if checkpoint else (0, 0)
            rows = connection.execute(
                f"SELECT {MESSAGE_COLUMNS} FROM messages "
                "WHERE conversation_id = ? AND (id > ? OR id = ?) ORDER BY id",
                (found.id, upto, anchor),
            )
            return Shown(messages=tuple(map(message_of, rows)), checkpoint=checkpoint)

        return await self._database.read(act)

    async def list(self, conversation_id: str, *, owner: int | None) -> tuple[Checkpoint, ...]:
        """Return the checkpoints of a conversation, oldest first.

        Raises:
            NotFoundError: there is no such conversation that the owner may see.
        """

        def act(connection: sqlite3.Connection) -> tuple[Checkpoint, ...]:
            found = find_conversation(connection, conversation_id, owner)
            return checkpoints_of(connection, found.id)

        return await self._database.read(act)

    async def add(
        self, conversation_id: str, checkpoint: Checkpoint, *, owner: int | None
    ) -> Checkpoint:
        """Put a checkpoint in force and return it as kept, with the number that it replaces.

        Raises:
            NotFoundError: there is no such conversation that the owner may see.
        """

        def act(connection: sqlite3.Connection) -> Checkpoint:
            found = find_conversation(connection, conversation_id, owner)
            replaced = replaced_by(connection, found.id, checkpoint)
            made = msgspec.structs.replace(
                checkpoint,
                timestamp=timestamp_now(),
                replaced=replaced,
                text=clean(checkpoint.text),
            )
            identity = insert(connection, found.id, found.owner, made)
            facts = {key: value for key, value in found.metadata.items() if key != UNCOMPRESSED}
            if facts != found.metadata:
                connection.execute(
                    "UPDATE conversations SET metadata = ? WHERE id = ?", (encode(facts), found.id)
                )
            return msgspec.structs.replace(made, id=identity)

        return await self._database.write(act)

    async def undo(self, conversation_id: str, *, owner: int | None, only_last: bool) -> int:
        """Take the checkpoints away, or the newest one only; return how many are gone.

        The conversation's metadata says how many messages came back: to compress them again at
        once for their number alone would undo the undoing.

        Raises:
            NotFoundError: there is no such conversation that the owner may see.
            InvalidRequestError: it has no checkpoint.
        """

        def act(connection: sqlite3.Connection) -> int:
            found = find_conversation(connection, conversation_id, owner)
            made = checkpoints_of(connection, found.id)
            if not made:
                raise InvalidRequestError(
                    f"conversation {found.id} is not compressed: there is nothing to undo"
                )
            gone = made[-1:] if only_last else made
            connection.executemany(
                "DELETE FROM checkpoints WHERE id = ?", [(each.id,) for each in gone]
            )
            left = newest(connection, found.id)
            (messages,) = connection.execute(
                "SELECT count(*) FROM messages WHERE conversation_id = ?", (found.id,)
            ).fetchone()
            facts = found.metadata | {UNCOMPRESSED: messages - (left.replaced if left else 0)}
            connection.execute(
                "UPDATE conversations SET metadata = ? WHERE id = ?", (encode(facts), found.id)
            )
            return len(gone)

        return await self._database.write(act)

    async def replaced(self, conversation_ids: Sequence[str]) -> dict[str, int]:
        """Return how many messages of these conversations are replaced; none where none are."""
        marks = ",".join("?" * len(conversation_ids))
        query = (
            "SELECT conversation_id, replaced FROM checkpoints "
            f"WHERE conversation_id IN ({marks}) ORDER BY id"
        )
        return await self._database.read(
            lambda c: dict(c.execute(query, tuple(conversation_ids)).fetchall())
        )


def newest(connection: sqlite3.Connection, conversation_id: str) -> Checkpoint | None:
    """Return the checkpoint in force, if there is one."""
    row = connection.execute(
        f"SELECT {COLUMNS} FROM checkpoints WHERE conversation_id = ? ORDER BY id DESC LIMIT 1",
        (conversation_id,),
    ).fetchone()
    return None if row is None else _checkpoint_of(row)


def checkpoints_of(connection: sqlite3.Connection, conversation_id: str) -> tuple[Checkpoint, ...]:
    """Return the checkpoints of a conversation, oldest first."""
    rows = connection.execute(
        f"SELECT {COLUMNS} FROM checkpoints WHERE conversation_id = ? ORDER BY id",
        (conversation_id,),
    )
    return tuple(map(_checkpoint_of, rows))


def replaced_by(
    connection: sqlite3.Connection, conversation_id: str, checkpoint: Checkpoint
) -> int:
    """Return how many messages a checkpoint stands for: those up to its newest, not the anchor."""
    (count,) = connection.execute(
        "SELECT count(*) FROM messages WHERE conversation_id = ? AND id <= ? AND id <> ?",
        (conversation_id, checkpoint.upto, checkpoint.anchor),
    ).fetchone()
    return int(count)


def insert(
    connection: sqlite3.Connection, conversation_id: str, owner: int, checkpoint: Checkpoint
) -> int:
    """Insert a checkpoint as it is and return its id."""
    c = checkpoint
    row: tuple[Any, ...] = (
        *(conversation_id, owner, c.timestamp, c.text, c.upto, c.anchor, c.seen, c.replaced),
        *(encode(c.cuts), c.is_summary, clean(c.provider), clean(c.model)),
    )
    identity = connection.execute(_INSERT, row).lastrowid
    assert identity is not None
    return identity


def _checkpoint_of(row: tuple[Any, ...]) -> Checkpoint:
    identity, timestamp, text, upto, anchor, seen, replaced, cuts, is_summary, provider, model = row
    return Checkpoint(
        id=identity,
        timestamp=timestamp,
        text=text,
        upto=upto,
        anchor=anchor,
        seen=seen,
        replaced=replaced,
        cuts=_cuts.decode(cuts),
        is_summary=bool(is_summary),
        provider=provider,
        model=model,
    )
