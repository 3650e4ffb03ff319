"""Forks: a new conversation that begins with a copy of another's history.

The copy has the messages, the checkpoints that replaced none beyond them, the metadata and the
plan, so that a model is shown the same text and its cached prefix stays good; and all session
files, to which the messages may refer.
"""

import sqlite3
from collections.abc import Sequence

import msgspec

from clawd.errors import InvalidRequestError
from clawd.memory.checkpoints import (
    UNCOMPRESSED,
    Checkpoint,
    checkpoints_of,
    insert,
    replaced_by,
)
from clawd.memory.conversations import find_conversation
from clawd.memory.plans import copy_plan
from clawd.memory.rows import (
    CONVERSATION_COLUMNS,
    MESSAGE_COLUMNS,
    Conversation,
    StoredMessage,
    conversation_row,
    message_of,
    message_row,
    timestamp_now,
)
from clawd.memory.session_files import copy_files
from clawd.memory.writer import Database
from clawd.receipts.record import new_ulid

# Every f-string of SQL here is made of constants; values go in as parameters.
# ruff: noqa: S608

FORKED_FROM = "forked_from"  # a conversation's metadata: {"conversation": id, "message": id}

_ADD_CONVERSATION = (
    f"INSERT INTO conversations ({CONVERSATION_COLUMNS}) VALUES (?,?,?,?,?,?,?,?,?,?)"
)
_ADD_MESSAGE = (
    f"INSERT INTO messages ({MESSAGE_COLUMNS.removeprefix('id, ')}) "
    "VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?)"
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
            _copy(connection, made, copied, checkpoints_of(connection, source.id))
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
        copy = msgspec.structs.replace(copy, replaced=replaced_by(connection, made.id, copy))
        insert(connection, made.id, made.owner, copy)


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
