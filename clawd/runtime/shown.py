"""What a model is shown of stored messages when a checkpoint stands for their beginning. Pure.

The checkpoint message is a user's; where a user message follows, a short answer stands between
them, because many chat templates refuse two messages of one role in a row.
"""

from collections.abc import Sequence

import msgspec

from clawd.memory.checkpoints import Checkpoint, Shown
from clawd.memory.rows import StoredMessage
from clawd.providers.base import Message
from clawd.runtime.stored import shown

ACKNOWLEDGEMENT = "I have read the summary and go on from there."
HEAD_SHARE = 2 / 3


def shown_messages(found: Shown) -> list[Message]:
    """Return the messages as a model is shown them, oldest first."""
    kept = [shown_result(stored, found.checkpoint) for stored in found.messages]
    return [*checkpoint_messages(found.checkpoint, kept), *kept]


def checkpoint_messages(checkpoint: Checkpoint | None, kept: Sequence[Message]) -> list[Message]:
    """Return what stands in front of the messages that are kept."""
    if checkpoint is None or not checkpoint.text:
        return []
    opening = Message(role="user", content=checkpoint.text)
    if kept and kept[0].role != "user":
        return [opening]
    return [opening, Message(role="assistant", content=ACKNOWLEDGEMENT)]


def shown_result(stored: StoredMessage, checkpoint: Checkpoint | None) -> Message:
    """Return a stored message as it is shown; a tool result that was cut stays cut."""
    message = shown(stored)
    if checkpoint is None or stored.id not in checkpoint.cuts:
        return message
    return msgspec.structs.replace(
        message, content=cut_in_the_middle(message.content or "", checkpoint.cuts[stored.id])
    )


def cut_in_the_middle(text: str, limit: int) -> str:
    """Return a text with so many of its characters left, from both ends, and the cut marked."""
    if len(text) <= limit:
        return text
    head = int(limit * HEAD_SHARE)
    tail = limit - head
    mark = f"\n[… {len(text) - limit} of {len(text)} characters were cut here to make room …]\n"
    return text[:head] + mark + (text[-tail:] if tail else "")
