"""The messages a model sees, the transaction in which a turn adds to them, and their rows. Pure.

A context is append-only. A turn works on a transaction: `add` collects, `commit` hands over what is
complete, and what was not committed is as if it had never been. An assistant message with tool
calls is complete only with a result for each of its calls; `complete_results` makes up the missing.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from clawd.errors import InvalidRequestError
from clawd.memory.checkpoints import Checkpoint, ModelView
from clawd.memory.rows import NewMessage, StoredMessage
from clawd.providers.base import Message, ToolCall
from clawd.wire.events import Claim, TurnUsage

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

    def replace(self, messages: Sequence[Message]) -> None:
        """Put other messages in the place of all committed ones: a compression, or its undoing."""
        self.messages = repair_orphans(messages)


@dataclass(eq=False, slots=True)
class Transaction:
    """What a turn has added and not yet committed.

    Attributes:
        pending: what a commit would append to the context.
    """

    context: Context
    pending: list[Message] = field(default_factory=list, init=False)

    @property
    def messages(self) -> tuple[Message, ...]:
        """What the model is to see: committed and pending."""
        return (*self.context.messages, *self.pending)

    def commit(self) -> tuple[Message, ...]:
        """Append what is pending to the context and return it.

        Raises:
            InvalidRequestError: a tool call among it has no result, or a result no call; nothing
                was appended.
        """
        committed = tuple(self.pending)
        repaired = repair_orphans(committed)
        if repaired != committed:
            known = [id(message) for message in committed]
            missing = [m.name for m in repaired if id(m) not in known]
            raise InvalidRequestError(
                f"tool calls without a result: {', '.join(missing)}"
                if missing
                else "a tool result without a call"
            )
        self.context.messages += committed
        self.pending.clear()
        return committed

    def rollback(self) -> None:
        """Forget what is pending."""
        self.pending.clear()

    def keep(self, count: int) -> None:
        """Commit the first `count` messages as a later load would find them; forget the rest."""
        self.context.messages += repair_orphans(self.pending[:count])
        self.pending.clear()

    def complete_results(self, reason: str) -> None:
        """Add a result that gives the reason to every pending call that has none."""
        for call in open_calls(self.pending):
            self.pending.append(result_message(call, f"error: {reason}"))


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


# A turn's messages as memory keeps them, and back to what the model was shown. Pure.
#
# A user message is stored in the user's own words, whole, so that memory finds all of them; its
# block of changed facts is kept beside it, so that it can be put in front again, and so is what the
# model was shown in the place of a long text. An answer says how many tokens the model had read by
# then, and is stored as a person read it: why clawd ended it stands below, and beside it again, so
# that no model is shown that.

BLOCK = "context_block"
FACTS = "context_facts"
READ = "tokens_read"
MARK = "mark"
SPEAKER = "speaker"
SHORT = "shown_text"
UNREADABLE = "unreadable"
NOTE = "note"
CLAIMS = "claims"


class TokensRead(msgspec.Struct, frozen=True, kw_only=True):
    """How many tokens a model has read and written of a conversation, up to a message.

    Attributes:
        tokens: 0 for unknown.
        checkpoint: id of the checkpoint that stood for the beginning, 0 for none: what is read
            below another one is another prompt.
        fixed: the `fixed_mark` of what stood before it.
        usage: what the turn took until then; None where nobody knows.
    """

    provider: str = ""
    model: str = ""
    tokens: int = 0
    checkpoint: int = 0
    fixed: str = ""
    usage: TurnUsage | None = None


class UserWords(msgspec.Struct, frozen=True, kw_only=True):
    """What a user message is made of.

    Attributes:
        text: the user's own.
        block: what stood before it.
        facts: what the block showed, as `context_facts.shown_as` keeps it.
        speaker: uid of who said it; None for the conversation's owner.
        short: what the model was shown in the place of the text; "" for the text itself.
    """

    text: str
    block: str = ""
    facts: dict[str, str] = {}
    speaker: int | None = None
    short: str = ""


def to_rows(
    messages: Sequence[Message],
    words: deque[UserWords],
    read: TokensRead,
    mark: str,
    unreadable: Sequence[str] = (),
    claims: Sequence[Claim] = (),
) -> list[NewMessage]:
    """Return committed messages as memory keeps them.

    Each user message takes the next of the words. A mark goes to the last, which broke off; what
    could not be read as a call to the first answer, claims to the last, which made them.
    """
    rows: list[NewMessage] = []
    for message in messages:
        metadata: dict[str, Any] = {}
        if message.role == "user":
            said = words.popleft()
            metadata = {BLOCK: said.block, FACTS: said.facts}
            if said.speaker is not None:
                metadata[SPEAKER] = said.speaker
            if said.short:
                metadata[SHORT] = said.short
            message = msgspec.structs.replace(message, content=said.text)
        elif message.role == "assistant":
            metadata = {READ: msgspec.to_builtins(read)} if read.provider else {}
            if unreadable:
                metadata[UNREADABLE], unreadable = list(unreadable), ()
            if message.note:
                metadata[NOTE] = message.note
                message = msgspec.structs.replace(message, content=told_text(message), note="")
        rows.append(NewMessage(message=message, metadata=metadata))
    if claims and rows and rows[-1].message.role == "assistant":
        metadata = rows[-1].metadata | {CLAIMS: msgspec.to_builtins(claims)}
        rows[-1] = msgspec.structs.replace(rows[-1], metadata=metadata)
    if mark and rows:
        metadata = rows[-1].metadata | {MARK: mark}
        rows[-1] = msgspec.structs.replace(rows[-1], is_complete=False, metadata=metadata)
    return rows


def usage(stored: StoredMessage) -> TurnUsage | None:
    """Return what the turn took that ended with a message; None for one that ended none."""
    read = _last_read([stored])
    return read.usage if read is not None and not stored.message.tool_calls else None


def shown(stored: StoredMessage) -> Message:
    """Return a stored message as it was shown to the model: shortened, its block in front again."""
    if note := str(stored.metadata.get(NOTE, "")):
        said = (stored.message.content or "").removesuffix(note).removesuffix("\n")
        return msgspec.structs.replace(stored.message, content=said or UNSAID, note=note)
    if stored.message.role != "user":
        return stored.message
    block = str(stored.metadata.get(BLOCK, ""))
    words = str(stored.metadata.get(SHORT, "")) or stored.message.content or ""
    text = with_block(block, words)
    return msgspec.structs.replace(stored.message, content=text)


def unreadable(stored: StoredMessage) -> tuple[str, ...]:
    """Return what was written before a message and could not be read as the call it was to be."""
    found = stored.metadata.get(UNREADABLE, ())
    return tuple(map(str, found)) if isinstance(found, list) else ()


def claims(stored: StoredMessage) -> tuple[Claim, ...]:
    """Return what an answer said was done, as it was checked then."""
    try:
        return msgspec.convert(stored.metadata.get(CLAIMS, ()), tuple[Claim, ...])
    except msgspec.ValidationError:
        return ()


def shown_facts(history: Sequence[StoredMessage]) -> dict[str, str]:
    """Return the facts as they were shown last."""
    facts: dict[str, str] = {}
    for stored in history:
        facts.update(stored.metadata.get(FACTS, {}))
    return facts


def speakers(history: Sequence[StoredMessage]) -> frozenset[int]:
    """Return the uids of those who spoke beside the owner."""
    found = (stored.metadata.get(SPEAKER) for stored in history)
    return frozenset(uid for uid in found if isinstance(uid, int))


def tokens_read(found: ModelView) -> TokensRead:
    """Return who answered last, and how many tokens of what is shown it has read."""
    checkpoint = found.checkpoint
    last = _last_read(found.messages)
    if last is None:
        if checkpoint is None:
            return TokensRead()
        return TokensRead(provider=checkpoint.provider, model=checkpoint.model)
    is_same = last.checkpoint == (checkpoint.id if checkpoint is not None else 0)
    return last if is_same else msgspec.structs.replace(last, tokens=0)


def _last_read(history: Sequence[StoredMessage]) -> TokensRead | None:
    for stored in reversed(history):
        if READ in stored.metadata:
            try:
                return msgspec.convert(stored.metadata[READ], TokensRead)
            except msgspec.ValidationError:
                return None
    return None


# What a model is shown of stored messages when a checkpoint stands for their beginning. Pure.
#
# The checkpoint message is a user's; where a user message follows, a short answer stands between
# them, because many chat templates refuse two messages of one role in a row.

ACKNOWLEDGEMENT = "I have read the summary and go on from there."
HEAD_SHARE = 2 / 3


def shown_messages(found: ModelView) -> list[Message]:
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
