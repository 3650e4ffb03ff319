"""The messages a model sees, and the transaction in which a turn adds to them. Pure.

A context is append-only. A turn works on a transaction: `add` collects, `commit` hands over what is
complete, and what was not committed is as if it had never been. An assistant message with tool
calls is complete only with a result for each of its calls; `complete_results` makes up the missing.
"""

from collections import deque
from collections.abc import Sequence

import msgspec

from clawd.errors import InvalidRequestError
from clawd.providers.base import Message, ToolCall

CONTEXT_OPEN = "<context>\n"
CONTEXT_CLOSE = "\n</context>\n\n"
UNSAID = "(stopped)"
"""What a model is shown of an answer that clawd ended before anything was said."""


class Context:
    """The committed messages of one conversation.

    Attributes:
        messages: they, oldest first.
    """

    def __init__(self, messages: Sequence[Message] = ()) -> None:
        self.messages = repair_orphans(messages)

    def extend(self, messages: Sequence[Message]) -> None:
        """Append complete messages."""
        self.messages = (*self.messages, *messages)

    def replace(self, messages: Sequence[Message]) -> None:
        """Put other messages in the place of all committed ones: a compression, or its undoing."""
        self.messages = repair_orphans(messages)


class Transaction:
    """What a turn has added and not yet committed."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._pending: list[Message] = []

    @property
    def messages(self) -> tuple[Message, ...]:
        """What the model is to see: committed and pending."""
        return (*self._context.messages, *self._pending)

    @property
    def pending(self) -> tuple[Message, ...]:
        """What a commit would append."""
        return tuple(self._pending)

    def add(self, message: Message) -> None:
        """Append a message to what is pending."""
        self._pending.append(message)

    def commit(self) -> tuple[Message, ...]:
        """Append what is pending to the context and return it.

        Raises:
            InvalidRequestError: a tool call among it has no result, or a result no call; nothing
                was appended.
        """
        committed = tuple(self._pending)
        repaired = repair_orphans(committed)
        if repaired != committed:
            known = [id(message) for message in committed]
            missing = [m.name for m in repaired if id(m) not in known]
            raise InvalidRequestError(
                f"tool calls without a result: {', '.join(missing)}"
                if missing
                else "a tool result without a call"
            )
        self._context.extend(committed)
        self._pending.clear()
        return committed

    def rollback(self) -> None:
        """Forget what is pending."""
        self._pending.clear()

    def keep(self, count: int) -> None:
        """Commit the first `count` messages as a later load would find them; forget the rest."""
        self._context.extend(repair_orphans(self._pending[:count]))
        self._pending.clear()

    def complete_results(self, reason: str) -> None:
        """Add a result that gives the reason to every pending call that has none."""
        for call in open_calls(self._pending):
            self.add(result_message(call, f"error: {reason}"))


def result_message(call: ToolCall, text: str) -> Message:
    """Return the tool message that answers a call."""
    return Message(role="tool", content=text, tool_call_id=call.id, name=call.name)


def told_text(message: Message) -> str:
    """Return a message's text as a person is told it, its note included."""
    if not message.note:
        return message.content or ""
    said = message.content if message.content != UNSAID else ""
    return f"{said}\n{message.note}" if said else message.note


def open_calls(messages: Sequence[Message]) -> list[ToolCall]:
    """Return the calls of the last assistant message with calls that no later message answers."""
    for index in range(len(messages) - 1, -1, -1):
        calls = messages[index].tool_calls
        if calls:
            answered = {m.tool_call_id for m in messages[index + 1 :] if m.role == "tool"}
            return [call for call in calls if call.id not in answered]
    return []


def with_unique_ids(calls: Sequence[ToolCall], history: Sequence[Message]) -> tuple[ToolCall, ...]:
    """Give calls whose id was used before in the conversation an id of their own."""
    used = {call.id for message in history for call in message.tool_calls}
    unique: list[ToolCall] = []
    for call in calls:
        call_id, number = call.id, 2
        while call_id in used:
            call_id = f"{call.id}-{number}"
            number += 1
        used.add(call_id)
        unique.append(msgspec.structs.replace(call, id=call_id))
    return tuple(unique)


def repair_orphans(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Return the messages with a made-up result for every call without one.

    Results without a call are left out: no template can render them.
    """
    repaired: list[Message] = []
    # By their place: several of one round may have the same id, and a round may be very long.
    waiting: dict[int, ToolCall] = {}
    places: dict[str, deque[int]] = {}
    for message in messages:
        if message.role == "tool":
            if left := places.get(message.tool_call_id):
                del waiting[left.popleft()]
                repaired.append(message)
            continue
        repaired.extend(map(_lost, waiting.values()))
        waiting = dict(enumerate(message.tool_calls))
        places = {}
        for place, call in waiting.items():
            places.setdefault(call.id, deque()).append(place)
        repaired.append(message)
    repaired.extend(map(_lost, waiting.values()))
    return tuple(repaired)


def _lost(call: ToolCall) -> Message:
    return result_message(call, "error: the result was lost when the turn was interrupted")


def with_block(block: str, text: str) -> str:
    """Return a user's text with a block of changed facts in front; an empty block adds nothing.

    Text of the user's own that looks like a block is defused, so that no reader mistakes it.
    """
    if text.startswith(CONTEXT_OPEN):
        text = text.replace("<context>", "< context>", 1)
    if not block:
        return text
    inner = block.replace("</context>", "< /context>")
    return f"{CONTEXT_OPEN}{inner}{CONTEXT_CLOSE}{text}"
