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
from clawd.memory.conversations import copy_pictures, copy_plan, find_conversation, with_pictures
from clawd.memory.rows import (
    CONVERSATION_COLUMNS,
    MADE_BY,
    MESSAGE_COLUMNS,
    Conversation,
    StoredMessage,
    clean,
    conversation_row,
    encode,
    message_of,
    message_row,
    timestamp_now,
)
from clawd.memory.session_files import copy_files
from clawd.memory.writer import Database
from clawd.receipts.record import new_ulid

# Every f-string of SQL here is made of constants; values go in as parameters.
# ruff: noqa: S608

_COLUMNS = "id, timestamp, text, upto, anchor, seen, replaced, cuts, is_summary, provider, model"
UNCOMPRESSED = "uncompressed"  # a conversation's metadata: how many messages undo brought back

_INSERT = (
    f"INSERT INTO checkpoints (conversation_id, owner, {_COLUMNS.removeprefix('id, ')}) "
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


class ModelView(msgspec.Struct, frozen=True, kw_only=True):
    """What of a conversation a model is shown: the checkpoint in force and the messages kept.

    `messages` are oldest first; the anchor, where there is one, is the first of them.
    """

    messages: tuple[StoredMessage, ...]
    checkpoint: Checkpoint | None = None


class Checkpoints:
    """The checkpoints in memory. Every method raises `StorageError` when the disk fails."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def shown(self, conversation_id: str, *, owner: int | None) -> ModelView:
        """Return what of a conversation is shown to a model.

        Raises:
            NotFoundError: there is no such conversation that the owner may see.
        """

        def act(connection: sqlite3.Connection) -> ModelView:
            found = find_conversation(connection, conversation_id, owner)
            checkpoint = _newest(connection, found.id)
            upto, anchor = (checkpoint.upto, checkpoint.anchor) if checkpoint else (0, 0)
            rows = connection.execute(
                f"SELECT {MESSAGE_COLUMNS} FROM messages "
                "WHERE conversation_id = ? AND (id > ? OR id = ?) ORDER BY id",
                (found.id, upto, anchor),
            )
            messages = with_pictures(connection, found.id, [message_of(row) for row in rows])
            return ModelView(messages=messages, checkpoint=checkpoint)

        return await self._database.read(act)

    async def list(self, conversation_id: str, *, owner: int | None) -> tuple[Checkpoint, ...]:
        """Return the checkpoints of a conversation, oldest first.

        Raises:
            NotFoundError: there is no such conversation that the owner may see.
        """

        def act(connection: sqlite3.Connection) -> tuple[Checkpoint, ...]:
            found = find_conversation(connection, conversation_id, owner)
            return _checkpoints_of(connection, found.id)

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
            replaced = _replaced_by(connection, found.id, checkpoint)
            made = msgspec.structs.replace(
                checkpoint,
                timestamp=timestamp_now(),
                replaced=replaced,
                text=clean(checkpoint.text),
            )
            identity = _insert(connection, found.id, found.owner, made)
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
            made = _checkpoints_of(connection, found.id)
            if not made:
                raise InvalidRequestError(
                    f"conversation {found.id} is not compressed: there is nothing to undo"
                )
            gone = made[-1:] if only_last else made
            connection.executemany(
                "DELETE FROM checkpoints WHERE id = ?", [(each.id,) for each in gone]
            )
            left = _newest(connection, found.id)
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


def _newest(connection: sqlite3.Connection, conversation_id: str) -> Checkpoint | None:
    """Return the checkpoint in force, if there is one."""
    row = connection.execute(
        f"SELECT {_COLUMNS} FROM checkpoints WHERE conversation_id = ? ORDER BY id DESC LIMIT 1",
        (conversation_id,),
    ).fetchone()
    return None if row is None else _checkpoint_of(row)


def _checkpoints_of(connection: sqlite3.Connection, conversation_id: str) -> tuple[Checkpoint, ...]:
    """Return the checkpoints of a conversation, oldest first."""
    rows = connection.execute(
        f"SELECT {_COLUMNS} FROM checkpoints WHERE conversation_id = ? ORDER BY id",
        (conversation_id,),
    )
    return tuple(map(_checkpoint_of, rows))


def _replaced_by(
    connection: sqlite3.Connection, conversation_id: str, checkpoint: Checkpoint
) -> int:
    """Return how many messages a checkpoint stands for: those up to its newest, not the anchor."""
    (count,) = connection.execute(
        "SELECT count(*) FROM messages WHERE conversation_id = ? AND id <= ? AND id <> ?",
        (conversation_id, checkpoint.upto, checkpoint.anchor),
    ).fetchone()
    return int(count)


def _insert(
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


# Forks: a new conversation that begins with a copy of another's history.
#
# The copy has the messages, the checkpoints that replaced none beyond them, the metadata and the
# plan, so that a model is shown the same text and its cached prefix stays good; and all session
# files, to which the messages may refer.

# Every f-string of SQL here is made of constants; values go in as parameters.
# ruff: noqa: S608

FORKED_FROM = "forked_from"  # a conversation's metadata: {"conversation": id, "message": id}

_ADD_CONVERSATION = (
    f"INSERT INTO conversations ({CONVERSATION_COLUMNS}) VALUES (?,?,?,?,?,?,?,?,?,?)"
)
_ADD_MESSAGE = (
    f"INSERT INTO messages ({MESSAGE_COLUMNS.removeprefix('id, ')}) "
    "VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?)"
)
_MESSAGES = f"SELECT {MESSAGE_COLUMNS} FROM messages WHERE conversation_id = ? ORDER BY id"


class Forks:
    """Makes copies of conversations. Every method raises `StorageError` when the disk fails."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def fork(
        self, conversation_id: str, *, owner: int | None, upto: int = 0, title: str = ""
    ) -> Conversation:
        """Copy a conversation up to a message (0: to its end) and return the new one.

        The new one belongs to whom the old one belongs to. A round of calls is copied with all of
        its results; one that has not got them all yet is left out.

        Raises:
            NotFoundError: there is no such conversation that the owner may see.
            InvalidRequestError: the message is none of the conversation's.
        """

        def act(connection: sqlite3.Connection) -> Conversation:
            source = find_conversation(connection, conversation_id, owner)
            history = [message_of(row) for row in connection.execute(_MESSAGES, (source.id,))]
            copied = history[: _end(history, upto)]
            now = timestamp_now()
            last = copied[-1].id if copied else 0
            facts = dict(source.metadata)
            if UNCOMPRESSED in facts:
                facts[UNCOMPRESSED] = min(facts[UNCOMPRESSED], len(copied))
            made = msgspec.structs.replace(
                source,
                id=f"conv-{new_ulid()}",
                title=title or source.title,
                created_at=now,
                updated_at=now,
                metadata=facts | {FORKED_FROM: {"conversation": source.id, "message": last}},
            )
            connection.execute(_ADD_CONVERSATION, conversation_row(made))
            _copy(connection, made, copied, _checkpoints_of(connection, source.id))
            copy_files(connection, source.id, made.id, None)
            copy_plan(connection, source.id, made.id)
            return made

        return await self._database.write(act)


def _copy(
    connection: sqlite3.Connection,
    made: Conversation,
    messages: Sequence[StoredMessage],
    checkpoints: Sequence[Checkpoint],
) -> None:
    new_ids: dict[int, int] = {0: 0}
    for stored in messages:
        row = message_row(msgspec.structs.replace(stored, conversation_id=made.id))
        new_ids[stored.id] = connection.execute(_ADD_MESSAGE, row).lastrowid or 0
        copy_pictures(connection, stored.id, new_ids[stored.id])
    last = max(new_ids)
    for each in checkpoints:
        # Messages may have been taken out of memory since; what is newest below stands for them.
        upto = max(old for old in new_ids if old <= each.upto)
        if each.upto > last:
            continue
        copy = msgspec.structs.replace(
            each,
            upto=new_ids[upto],
            anchor=new_ids.get(each.anchor, 0),
            seen=new_ids[max(old for old in new_ids if old <= each.seen)],
            cuts={new_ids[old]: cut for old, cut in each.cuts.items() if old in new_ids},
        )
        copy = msgspec.structs.replace(copy, replaced=_replaced_by(connection, made.id, copy))
        _insert(connection, made.id, made.owner, copy)


def _end(history: Sequence[StoredMessage], upto: int) -> int:
    """Return how many messages to copy, so that no call is parted from its results.

    Raises:
        InvalidRequestError: the message is none of them.
    """
    end = len(history)
    if upto:
        places = [index for index, stored in enumerate(history) if stored.id == upto]
        if not places:
            raise InvalidRequestError(
                f"message {upto} is none of this conversation's",
                hint="`clawctl conversation show ID` numbers its messages.",
            )
        end = places[0] + 1
        while end < len(history) and history[end].message.role == "tool":
            end += 1
    calling = end - 1
    while calling >= 0 and history[calling].message.role == "tool":
        calling -= 1
    if calling < 0:
        return end
    answered = {stored.message.tool_call_id for stored in history[calling + 1 : end]}
    is_whole = all(call.id in answered for call in history[calling].message.tool_calls)
    return end if is_whole or end < len(history) else calling


# Where conversations stood when a client saw them last, by a digest of what it saw.
#
# Clients of the HTTP gateway bring a chat's whole history with every message. The digest of it
# leads back to the conversation it was held in, and to the message at which it stood.

# The f-string of SQL here is made of constants and marks; values go in as parameters.
# ruff: noqa: S608

MAX_POINTS = 20_000  # of each owner; the oldest go
_MAX_ASKED = 2_000

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
        asked = tuple(histories[:_MAX_ASKED])
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
