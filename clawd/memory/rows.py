"""What memory's rows look like outside of it, and how text and JSON go in and out of them."""

import re
from datetime import UTC, datetime
from typing import Any

import msgspec

from clawd.errors import InvalidRequestError, NotFoundError
from clawd.providers.base import Message, ToolCall
from clawd.security.principal import Principal

MAX_PAGE = 1000
TITLED_BY = "titled_by"  # a conversation's metadata: "hand" where a person gave the title
MADE_BY = "made_by"  # a conversation's metadata: the key of the HTTP gateway it was made with
PICTURES = "pictures"  # a message's metadata: what its pictures are
TAINT = "untrusted_sources"  # a conversation's metadata: where its untrusted text came from


class Conversation(msgspec.Struct, frozen=True, kw_only=True):
    """A conversation's own facts.

    Attributes:
        id: `conv-` and a ULID; given by `create` when it is empty.
        owner: uid of the person it belongs to.
        workspace: the absolute folder it works in.
        created_at: UTC with microseconds, `2026-11-21T08:00:00.000000Z`; set by memory.
        updated_at: when its last message came; set by memory.
        metadata: further facts, JSON-like.
    """

    owner: int
    workspace: str
    id: str = ""
    title: str = ""
    created_at: str = ""
    updated_at: str = ""
    provider: str = ""
    model: str = ""
    agent: str = ""
    metadata: dict[str, Any] = {}


class NewMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message to be kept.

    Attributes:
        timestamp: when it was said; the time of storing when empty.
        is_complete: False for an answer that was broken off.
    """

    message: Message
    timestamp: str = ""
    provider: str = ""
    model: str = ""
    metadata: dict[str, Any] = {}
    is_complete: bool = True


class StoredMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message as it was kept; `id` grows with the order of storing."""

    id: int
    conversation_id: str
    owner: int
    turn_id: str
    message: Message
    timestamp: str
    provider: str = ""
    model: str = ""
    metadata: dict[str, Any] = {}
    is_complete: bool = True


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """Some conversations, newest first; `cursor` leads to the next page, empty on the last."""

    conversations: tuple[Conversation, ...]
    cursor: str = ""


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """How much there is."""

    conversations: int
    messages: int


def visible_to(principal: Principal) -> int | None:
    """Return the `owner` to read with: the principal's own rows, or None (all) for an admin."""
    return None if principal.is_admin else principal.uid


def made_with(principal: Principal) -> dict[str, Any]:
    """Return the facts of a new conversation about the key that it is made with."""
    return {MADE_BY: principal.key_id} if principal.key_id else {}


def check_shown(found: Conversation, principal: Principal) -> Conversation:
    """Return the conversation, if it may be shown to the principal.

    Raises:
        NotFoundError: it may not; one that is not there reads the same.
    """
    if not principal.may_see(found.owner, str(found.metadata.get(MADE_BY, ""))):
        raise no_conversation(found.id)
    return found


def no_conversation(name: str) -> NotFoundError:
    """Return the error about a conversation that is not there."""
    return NotFoundError(
        f"there is no conversation {name!r}",
        hint="`clawctl conversation list` shows those that there are.",
    )


def timestamp_now() -> str:
    """Return the time in UTC with microseconds, in the form that sorts."""
    return f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S.%fZ}"


def clean(text: str) -> str:
    """Return the text with U+FFFD for halves of surrogate pairs, which UTF-8 cannot hold."""
    return text if text.isascii() else re.sub("[\ud800-\udfff]", "�", text)


def encode(value: object) -> str:
    """Return the value as JSON text.

    Raises:
        InvalidRequestError: JSON cannot hold it.
    """
    try:
        return msgspec.json.encode(value).decode()
    except UnicodeEncodeError:
        return msgspec.json.encode(_cleaned(msgspec.to_builtins(value))).decode()
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidRequestError(f"memory cannot keep this as JSON: {error}") from error


def _cleaned(value: Any) -> Any:
    match value:
        case str():
            return clean(value)
        case dict():
            return {clean(str(key)): _cleaned(item) for key, item in value.items()}
        case list() | tuple():
            return [_cleaned(item) for item in value]
        case _:
            return value


CONVERSATION_COLUMNS = (
    "id, owner, title, workspace, created_at, updated_at, provider, model, agent, metadata"
)
MESSAGE_COLUMNS = (
    "id, conversation_id, owner, turn_id, timestamp, role, content, tool_calls, tool_call_id, "
    "name, provider, model, metadata, is_complete, reasoning"
)

Row = tuple[Any, ...]

_facts: msgspec.json.Decoder[dict[str, Any]] = msgspec.json.Decoder(dict[str, Any])
_calls: msgspec.json.Decoder[tuple[ToolCall, ...]] = msgspec.json.Decoder(tuple[ToolCall, ...])


def conversation_row(conversation: Conversation) -> Row:
    """Return the values of `CONVERSATION_COLUMNS`."""
    c = conversation
    texts = (c.title, c.workspace, c.created_at, c.updated_at, c.provider, c.model, c.agent)
    return (c.id, c.owner, *map(clean, texts), encode(c.metadata))


def conversation_of(row: Row) -> Conversation:
    """Return the conversation of a row of `CONVERSATION_COLUMNS`."""
    identity, owner, title, workspace, created_at, updated_at, provider, model, agent, facts = row
    return Conversation(
        id=identity,
        owner=owner,
        title=title,
        workspace=workspace,
        created_at=created_at,
        updated_at=updated_at,
        provider=provider,
        model=model,
        agent=agent,
        metadata=_facts.decode(facts),
    )


def message_row(stored: StoredMessage) -> Row:
    """Return the values of `MESSAGE_COLUMNS` without the id."""
    message, facts = stored.message, stored.metadata
    if message.pictures:
        facts = facts | {PICTURES: [each.facts for each in message.pictures]}
    return (
        stored.conversation_id,
        stored.owner,
        clean(stored.turn_id),
        clean(stored.timestamp),
        message.role,
        None if message.content is None else clean(message.content),
        encode(message.tool_calls),
        clean(message.tool_call_id),
        clean(message.name),
        clean(stored.provider),
        clean(stored.model),
        encode(facts),
        stored.is_complete,
        clean(message.reasoning),
    )


def message_of(row: Row) -> StoredMessage:
    """Return the message of a row of `MESSAGE_COLUMNS`."""
    identity, conversation_id, owner, turn_id, timestamp = row[:5]
    role, content, calls, call_id, name = row[5:10]
    provider, model, facts, is_complete, reasoning = row[10:]
    return StoredMessage(
        id=identity,
        conversation_id=conversation_id,
        owner=owner,
        turn_id=turn_id,
        message=Message(
            role=role,
            content=content,
            tool_calls=_calls.decode(calls),
            tool_call_id=call_id,
            name=name,
            reasoning=reasoning,
        ),
        timestamp=timestamp,
        provider=provider,
        model=model,
        metadata=_facts.decode(facts),
        is_complete=bool(is_complete),
    )
