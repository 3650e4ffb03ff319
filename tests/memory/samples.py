"""Conversations and messages to test with."""

from clawd.memory.rows import Conversation, NewMessage, StoredMessage
from clawd.memory.store import Memory
from clawd.providers.base import Message

ANNA = 1000
BEN = 1001


def said(text: str) -> NewMessage:
    return NewMessage(message=Message(role="user", content=text))


async def begun(memory: Memory, *texts: str, owner: int = ANNA, title: str = "") -> Conversation:
    """Return a new conversation in which the texts were said."""
    made = await memory.conversations.create(
        Conversation(owner=owner, workspace="/home/user/clawd-workspace", title=title)
    )
    if texts:
        await memory.messages.append(made.id, [said(t) for t in texts], owner=owner, turn_id="t-1")
    return made


def texts_of(history: list[StoredMessage]) -> list[str | None]:
    return [stored.message.content for stored in history]
