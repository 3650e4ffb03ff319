"""Pictures of messages: each kept once, by the SHA-256 of its bytes, while a message has it.

    pictures          the bytes             message_pictures  which message has which, in order

Both go with the messages: a trigger deletes what no message has any more. The metadata of a message
says what its pictures are, so that only what a model is shown reads their bytes.
"""

import sqlite3
from collections.abc import Sequence
from typing import Any

import msgspec

from clawd.memory.rows import PICTURES, StoredMessage
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
