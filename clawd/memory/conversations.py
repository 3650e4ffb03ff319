"""Conversations: opening, listing, renaming and forgetting them. Their messages are in `messages`.

Reads and changes name an `owner`: a uid, which sees only its own rows, or None for all of them (an
admin; `rows.visible_to` tells which). What belongs to somebody else is not there.

Pictures of messages: each kept once, by the SHA-256 of its bytes, while a message has it.

    pictures          the bytes             message_pictures  which message has which, in order

Both go with the messages: a trigger deletes what no message has any more. The metadata of a message
says what its pictures are, so that only what a model is shown reads their bytes.
"""

import re
import sqlite3
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from clawd.errors import InvalidRequestError, NotFoundError, StorageError
from clawd.memory.rows import (
    CONVERSATION_COLUMNS,
    MADE_BY,
    MAX_PAGE,
    MESSAGE_COLUMNS,
    PICTURES,
    TITLED_BY,
    Conversation,
    Counts,
    NewMessage,
    Page,
    StoredMessage,
    clean,
    conversation_of,
    conversation_row,
    encode,
    message_of,
    message_row,
    no_conversation,
    timestamp_now,
)
from clawd.memory.search import MAX_TERMS
from clawd.memory.writer import Database
from clawd.receipts.record import new_ulid
from clawd.tools.plans import Plan, PlanKey
from clawd.wire.pictures import Picture, PictureFacts

_SHOWN = (
    "SELECT l.message_id, p.media_type, p.data, p.sha256, p.width, p.height "
    "FROM message_pictures l JOIN pictures p ON p.sha256 = l.sha256 "
    "JOIN messages m ON m.id = l.message_id WHERE m.conversation_id = ? "
    "ORDER BY l.message_id, l.place"
)


def keep_pictures(
    connection: sqlite3.Connection, message_id: int | None, pictures: Sequence[Picture]
) -> None:
    """Keep the pictures of a message."""
    for place, each in enumerate(pictures):
        connection.execute(
            "INSERT OR IGNORE INTO pictures (sha256, media_type, width, height, data) "
            "VALUES (?, ?, ?, ?, ?)",
            (each.sha256, each.media_type, each.width, each.height, each.data),
        )
        connection.execute(
            "INSERT INTO message_pictures (message_id, place, sha256) VALUES (?, ?, ?)",
            (message_id, place, each.sha256),
        )


def copy_pictures(connection: sqlite3.Connection, from_message: int, to_message: int) -> None:
    """Give a message the pictures of another."""
    connection.execute(
        "INSERT INTO message_pictures (message_id, place, sha256) "
        "SELECT ?, place, sha256 FROM message_pictures WHERE message_id = ?",
        (to_message, from_message),
    )


def with_pictures(
    connection: sqlite3.Connection, conversation_id: str, messages: Sequence[StoredMessage]
) -> tuple[StoredMessage, ...]:
    """Return messages of a conversation with their pictures."""
    if not any(PICTURES in stored.metadata for stored in messages):
        return tuple(messages)
    found: dict[int, list[Picture]] = {}
    for message_id, media_type, data, sha256, width, height in connection.execute(
        _SHOWN, (conversation_id,)
    ):
        picture = Picture(
            media_type=media_type, data=data, sha256=sha256, width=width, height=height
        )
        found.setdefault(message_id, []).append(picture)
    return tuple(_with(stored, found.get(stored.id, ())) for stored in messages)


def facts_of(stored: StoredMessage) -> tuple[PictureFacts, ...]:
    """Return what the pictures of a message are."""
    given: Any = stored.metadata.get(PICTURES, ())
    try:
        return msgspec.convert(given, tuple[PictureFacts, ...])
    except msgspec.ValidationError:
        return ()


def _with(stored: StoredMessage, pictures: Sequence[Picture]) -> StoredMessage:
    message = msgspec.structs.replace(stored.message, pictures=tuple(pictures))
    return msgspec.structs.replace(stored, message=message)


# Every f-string of SQL here is made of constants; values go in as parameters.
# ruff: noqa: S608

_INSERT = f"INSERT INTO conversations ({CONVERSATION_COLUMNS}) VALUES (?,?,?,?,?,?,?,?,?,?)"
_SELECT = f"SELECT {CONVERSATION_COLUMNS} FROM conversations"
ERASE_DUE = "erase_due"  # a setting: the conversation that was deleted last and not erased yet
_OF_KEY = f"json_extract(metadata, '$.{MADE_BY}') = ?"
_OWNED = ":owner IS NULL OR owner = :owner"


class Conversations:
    """The conversations in memory. Every method raises `StorageError` when the disk fails."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def create(self, conversation: Conversation) -> Conversation:
        """Keep a new conversation and return it with its id and times.

        Raises:
            InvalidRequestError: there is one with this id.
        """
        now = timestamp_now()
        made = msgspec.structs.replace(
            conversation,
            id=clean(conversation.id) or f"conv-{new_ulid()}",
            created_at=now,
            updated_at=now,
        )
        row = conversation_row(made)

        def act(connection: sqlite3.Connection) -> Conversation:
            if connection.execute(
                "SELECT 1 FROM conversations WHERE id = ?", (made.id,)
            ).fetchone():
                raise InvalidRequestError(f"there already is a conversation {made.id}")
            connection.execute(_INSERT, row)
            return conversation_of(row)

        return await self._database.write(act)

    async def get(self, conversation_id: str, *, owner: int | None) -> Conversation:
        """Return the conversation.

        Raises:
            NotFoundError: there is none with this id that the owner may see.
        """
        return await self._database.read(lambda c: find_conversation(c, conversation_id, owner))

    async def match(self, beginning: str, *, owner: int | None) -> Conversation:
        """Return the one conversation whose id is this, or begins like this.

        Raises:
            NotFoundError: there is none, or more than one, that the owner may see.
        """
        query = (
            f"{_SELECT} WHERE substr(id, 1, length(:key)) = :key AND ({_OWNED}) ORDER BY id LIMIT 2"
        )
        key = clean(beginning.strip())
        values = {"key": key, "owner": owner}
        rows = await self._database.read(lambda c: c.execute(query, values).fetchall())
        if not key or not rows or (len(rows) > 1 and rows[0][0] != key):
            what = (
                "several conversations begin with" if key and rows else "there is no conversation"
            )
            raise NotFoundError(
                f"{what} {beginning!r}",
                hint="`clawctl conversation list` shows those that there are.",
            )
        return conversation_of(rows[0])

    async def list(
        self,
        *,
        owner: int | None,
        made_by: str = "",
        workspace: str = "",
        title: str = "",
        limit: int = 50,
        cursor: str = "",
    ) -> Page:
        """Return a page of conversations, the last active first.

        `made_by` leaves those that were made with this key of the HTTP gateway, `workspace` those
        of this folder, `title` those with each of these words in the title; empty leaves all.

        Raises:
            InvalidRequestError: the limit is not 1..1000 or the cursor is none that this gave.
        """
        if not 1 <= limit <= MAX_PAGE:
            raise InvalidRequestError(f"limit is {limit}; it must be 1 to {MAX_PAGE}")
        where, values = ["1"], list[Any]()
        if owner is not None:
            where.append("owner = ?")
            values.append(owner)
        if made_by:
            where.append(_OF_KEY)
            values.append(made_by)
        if workspace:
            where.append("workspace = ?")
            values.append(workspace)
        for word in title.split()[:MAX_TERMS]:
            where.append("title LIKE ? ESCAPE '\\'")
            values.append(_containing(word))
        if cursor:
            where.append("(updated_at, id) < (?, ?)")
            values += _position(cursor)
        query = f"{_SELECT} WHERE {' AND '.join(where)} ORDER BY updated_at DESC, id DESC LIMIT ?"
        values.append(limit + 1)
        found = await self._database.read(
            lambda c: [conversation_of(row) for row in c.execute(query, values)]
        )
        shown = tuple(found[:limit])
        following = f"{shown[-1].updated_at} {shown[-1].id}" if len(found) > limit else ""
        return Page(conversations=shown, cursor=following)

    async def note(
        self, conversation_id: str, *, owner: int | None, facts: dict[str, Any], title: str = ""
    ) -> Conversation:
        """Add facts to the metadata, and a title where there is none; return the whole.

        Raises:
            NotFoundError: there is none with this id that the owner may see.
        """

        def act(connection: sqlite3.Connection) -> Conversation:
            found = find_conversation(connection, conversation_id, owner)
            connection.execute(
                "UPDATE conversations SET metadata = ?, title = ? WHERE id = ?",
                (encode(found.metadata | facts), found.title or clean(title), found.id),
            )
            return find_conversation(connection, found.id, owner)

        return await self._database.write(act)

    async def with_fact(self, name: str, value: str, *, owner: int) -> Conversation | None:
        """Return the newest of an owner's conversations whose metadata says so, if there is one."""

        def act(connection: sqlite3.Connection) -> Conversation | None:
            row = connection.execute(
                "SELECT id FROM conversations WHERE owner = ? AND json_extract(metadata, ?) = ?"
                " ORDER BY created_at DESC LIMIT 1",
                (owner, f"$.{name}", value),
            ).fetchone()
            return find_conversation(connection, row[0], owner) if row is not None else None

        return await self._database.read(act)

    async def rename(self, conversation_id: str, title: str, *, owner: int | None) -> Conversation:
        """Set the title, as a person wants it: no model changes it after that.

        Raises:
            NotFoundError: there is none with this id that the owner may see.
        """

        def act(connection: sqlite3.Connection) -> Conversation:
            found = find_conversation(connection, conversation_id, owner)
            facts = found.metadata | {TITLED_BY: "hand"}
            connection.execute(
                "UPDATE conversations SET metadata = ?, title = ? WHERE id = ?",
                (encode(facts), clean(title), found.id),
            )
            return find_conversation(connection, found.id, owner)

        return await self._database.write(act)

    async def suggest_title(
        self, conversation_id: str, title: str, *, owner: int | None
    ) -> Conversation:
        """Set the title unless a person has set one; return the whole.

        Raises:
            NotFoundError: there is none with this id that the owner may see.
        """

        def act(connection: sqlite3.Connection) -> Conversation:
            found = find_conversation(connection, conversation_id, owner)
            if found.metadata.get(TITLED_BY) == "hand":
                return found
            connection.execute(
                "UPDATE conversations SET title = ? WHERE id = ?", (clean(title), found.id)
            )
            return find_conversation(connection, found.id, owner)

        return await self._database.write(act)

    async def delete(self, conversation_id: str, *, owner: int | None) -> None:
        """Forget the conversation and its messages (`clear` also overwrites the search index).

        Raises:
            NotFoundError: there is none with this id that the owner may see.
        """

        def act(connection: sqlite3.Connection) -> None:
            find_conversation(connection, conversation_id, owner)
            forget_conversation(connection, conversation_id)

        await self._database.write(act)

    async def delete_empty(self, conversation_id: str) -> bool:
        """Delete a conversation that holds no message and no file; return whether it was so."""

        def act(connection: sqlite3.Connection) -> bool:
            held = connection.execute(
                "SELECT EXISTS (SELECT 1 FROM messages WHERE conversation_id = :id) OR "
                "EXISTS (SELECT 1 FROM session_files WHERE conversation_id = :id)",
                {"id": conversation_id},
            ).fetchone()[0]
            if not held:
                forget_conversation(connection, conversation_id)
            return not held

        return await self._database.write(act)

    async def counts(self, *, owner: int | None) -> Counts:
        """Return how many conversations and messages there are."""
        return await self._database.read(lambda c: _count(c, owner))

    async def clear(self, *, owner: int | None) -> Counts:
        """Forget all conversations of the owner (None: of everybody), overwriting their bytes.

        The search index is built anew and the file is packed, so that nothing of them stays in it
        or in the log beside it. Returns how much is gone.
        """

        def forget(connection: sqlite3.Connection) -> Counts:
            gone = _count(connection, owner)
            connection.execute(f"DELETE FROM messages WHERE {_OWNED}", {"owner": owner})
            connection.execute(f"DELETE FROM conversations WHERE {_OWNED}", {"owner": owner})
            connection.execute(f"DELETE FROM plans WHERE {_OWNED}", {"owner": owner})
            for index in ("messages_fts", "messages_trigrams"):
                connection.execute(f"INSERT INTO {index} ({index}) VALUES ('rebuild')")
            return gone

        gone = await self._database.write(forget)
        await self._database.write_alone(_pack)
        return gone


def forget_conversation(connection: sqlite3.Connection, conversation_id: str) -> None:
    """Delete a conversation and its messages, and note that their words are to be erased."""
    connection.execute("DELETE FROM messages WHERE conversation_id = ?", (conversation_id,))
    connection.execute("DELETE FROM conversations WHERE id = ?", (conversation_id,))
    connection.execute(
        "REPLACE INTO settings (name, value) VALUES (?, ?)", (ERASE_DUE, conversation_id)
    )


def find_conversation(
    connection: sqlite3.Connection, conversation_id: str, owner: int | None
) -> Conversation:
    """Return the conversation.

    Raises:
        NotFoundError: there is none with this id that the owner may see.
    """
    row = connection.execute(
        f"{_SELECT} WHERE id = :id AND ({_OWNED})", {"id": clean(conversation_id), "owner": owner}
    ).fetchone()
    if row is None:
        raise no_conversation(conversation_id)
    return conversation_of(row)


def _count(connection: sqlite3.Connection, owner: int | None) -> Counts:
    """Return how many rows the owner may see."""
    numbers = [
        connection.execute(
            f"SELECT count(*) FROM {table} WHERE {_OWNED}",
            {"owner": owner},
        ).fetchone()[0]
        for table in ("conversations", "messages")
    ]
    return Counts(conversations=numbers[0], messages=numbers[1])


def _pack(connection: sqlite3.Connection) -> None:
    connection.execute("VACUUM")
    (is_busy, *_) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    if is_busy:
        raise StorageError(
            "memory was cleared, but the log beside it still holds old pages: a reader is in it",
            hint="Clear once more when no other program has memory open.",
        )


def _containing(word: str) -> str:
    """Return a pattern of LIKE, which folds ASCII alone: any other letter matches every one."""
    letters = (f"\\{each}" if each in "\\%_" else each if each.isascii() else "_" for each in word)
    return f"%{clean(''.join(letters))}%"


def _position(cursor: str) -> list[str]:
    if not re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:.]{8,15}Z \S.*", cursor):
        raise InvalidRequestError(
            f"cursor {cursor!r} is none of this list's",
            hint="Use the cursor of the page before, or none for the first page.",
        )
    return cursor.split(" ", 1)


# The messages of conversations: kept a turn at a time, read back in order. Nothing is changed.

# Every f-string of SQL here is made of constants; values go in as parameters.
# ruff: noqa: S608

_INSERT_MESSAGE = (
    f"INSERT INTO messages ({MESSAGE_COLUMNS.removeprefix('id, ')}) "
    "VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?)"
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
                identity = connection.execute(_INSERT_MESSAGE, row).lastrowid
                if new.message.pictures:
                    keep_pictures(connection, identity, new.message.pictures)
                kept.append(message_of((identity, *row)))
            connection.execute(
                "UPDATE conversations SET updated_at = ? WHERE id = ?",
                (timestamp_now(), conversation.id),
            )
            return tuple(kept)

        return await self._database.write(act)

    async def history(
        self,
        conversation_id: str,
        *,
        owner: int | None,
        after: int = 0,
        before: int | None = None,
        limit: int | None = None,
    ) -> list[StoredMessage]:
        """Return the messages in order, those with an id beyond `after` only.

        The limit leaves the first of them; with `before`, an id, the last of those below it.

        Raises:
            NotFoundError: there is no such conversation that the owner may see.
            InvalidRequestError: the limit is not at least 1.
        """
        if limit is not None and limit < 1:
            raise InvalidRequestError(f"limit is {limit}; it must be at least 1")

        def act(connection: sqlite3.Connection) -> list[StoredMessage]:
            conversation = find_conversation(connection, conversation_id, owner)
            where, order = ("", "") if before is None else ("AND id < ?", "DESC")
            bounds = [after] if before is None else [after, before]
            rows = connection.execute(
                f"SELECT {MESSAGE_COLUMNS} FROM messages "
                f"WHERE conversation_id = ? AND id > ? {where} ORDER BY id {order} LIMIT ?",
                (conversation.id, *bounds, -1 if limit is None else limit),
            )
            found = [message_of(row) for row in rows]
            return found if before is None else found[::-1]

        return await self._database.read(act)

    async def last_words(self, conversation_ids: Sequence[str], limit: int) -> dict[str, str]:
        """Return the beginning of what was said last in each of these, by anybody but a tool."""
        query = (
            "SELECT substr(trim(content), 1, ?) FROM messages WHERE conversation_id = ? "
            "AND role IN ('user', 'assistant') AND trim(content) <> '' ORDER BY id DESC LIMIT 1"
        )

        def act(connection: sqlite3.Connection) -> dict[str, str]:
            found = {
                name: connection.execute(query, (limit, name)).fetchone()
                for name in conversation_ids
            }
            return {name: str(row[0]) for name, row in found.items() if row is not None}

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


# Plans in memory: one of each conversation, gone with it, and one of each owner and workspace.

_plan: msgspec.json.Decoder[Plan] = msgspec.json.Decoder(Plan)

_OF_CONVERSATION = "conversation_id = :conversation"
_OF_WORKSPACE = "conversation_id IS NULL AND owner = :owner AND workspace = :workspace"


class Plans:
    """`clawd.tools.plans.PlanStore` in memory.sqlite."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def load(self, key: PlanKey) -> Plan:
        """Return a plan; an empty one when there is none."""
        return await self._database.read(lambda c: _load(c, key))

    async def change(self, key: PlanKey, act: Callable[[Plan], Plan]) -> Plan:
        """Put what `act` makes of a plan in its place, durably, and return it."""

        def write(connection: sqlite3.Connection) -> Plan:
            plan = act(_load(connection, key))
            owner = _owner(connection, key)
            where, values = _where(key)
            connection.execute(f"DELETE FROM plans WHERE {where}", values)
            connection.execute(
                "INSERT INTO plans (conversation_id, owner, workspace, plan, updated_at) "
                "VALUES (?, ?, ?, ?, ?)",
                (
                    clean(key.conversation_id) or None,
                    owner,
                    clean(key.workspace),
                    encode(plan),
                    timestamp_now(),
                ),
            )
            return plan

        return await self._database.write(write)


def copy_plan(connection: sqlite3.Connection, from_id: str, to_id: str) -> None:
    """Give a conversation that has no plan a copy of another's, if that one has any."""
    connection.execute(
        "INSERT INTO plans (conversation_id, owner, workspace, plan, updated_at) "
        "SELECT ?, owner, workspace, plan, ? FROM plans WHERE conversation_id = ?",
        (to_id, timestamp_now(), from_id),
    )


def _where(key: PlanKey) -> tuple[str, dict[str, object]]:
    """Return a condition made of constants, and its values."""
    values: dict[str, object] = {
        "conversation": clean(key.conversation_id),
        "owner": key.owner,
        "workspace": clean(key.workspace),
    }
    return (_OF_CONVERSATION if key.conversation_id else _OF_WORKSPACE), values


def _load(connection: sqlite3.Connection, key: PlanKey) -> Plan:
    where, values = _where(key)
    row = connection.execute(f"SELECT plan FROM plans WHERE {where}", values).fetchone()
    return Plan() if row is None else _plan.decode(row[0])


def _owner(connection: sqlite3.Connection, key: PlanKey) -> int:
    """Return whom the plan belongs to: the conversation's owner, not the user who acts."""
    if not key.conversation_id:
        return key.owner
    row = connection.execute(
        "SELECT owner FROM conversations WHERE id = ?", (clean(key.conversation_id),)
    ).fetchone()
    if row is None:
        raise NotFoundError(f"there is no conversation {key.conversation_id!r}")
    return int(row[0])
