"""Methods that change or hand out conversations, and what they report; see `wire.methods`."""

from typing import Literal

import msgspec

from clawd.wire.events import Claim
from clawd.wire.method import Method
from clawd.wire.reports import Done


class ConversationLine(msgspec.Struct, frozen=True, kw_only=True):
    """One conversation in a list; what untrusted text it holds came from `untrusted_sources`.

    A summary stands for `replaced` of its messages; `forked_from` is another conversation's id.
    `think` is what was said last of whether the model is to think, "" for nothing.
    `mode` is how far the model may go there without a person, empty for as configured.
    `last_words` is the beginning of what was said last, on one line, where that was asked for.
    """

    id: str
    title: str
    created_at: str
    updated_at: str
    messages: int
    workspace: str = ""
    owner: int = 0
    untrusted_sources: tuple[str, ...] = ()
    replaced: int = 0
    forked_from: str = ""
    think: str = ""
    mode: str = ""
    last_words: str = ""


class ConversationPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of conversations, newest first; an empty cursor ends it."""

    items: tuple[ConversationLine, ...]
    cursor: str = ""


class MessageLine(msgspec.Struct, frozen=True, kw_only=True):
    """One stored message.

    Attributes:
        tool_calls: JSON text, empty for none.
        reasoning: what the model thought before it.
        unreadable: what the model wrote before it that was to be a tool call and could not be
            read as one, cut at 8 KiB each; none of it was run.
        claims: what it plainly says was done, as it was checked against the receipts.
    """

    id: int
    turn_id: str
    timestamp: str
    role: str
    content: str
    tool_calls: str = ""
    tool_call_id: str = ""
    name: str = ""
    provider: str = ""
    model: str = ""
    reasoning: str = ""
    unreadable: tuple[str, ...] = ()
    claims: tuple[Claim, ...] = ()


class ConversationDetail(msgspec.Struct, frozen=True, kw_only=True):
    """A conversation with a page of its messages, oldest first."""

    conversation: ConversationLine
    messages: tuple[MessageLine, ...]
    cursor: str = ""


class CompressionReport(msgspec.Struct, frozen=True, kw_only=True):
    """How a conversation is shown to a model now.

    Attributes:
        messages_replaced: how many of its messages a summary stands for.
        messages_shown: how many a model is shown, the summary's included.
        undone: how many compressions were taken back.
        summary: the checkpoint message, empty where nothing is replaced.
        tokens_before: before the compression, 0 for unknown.
        tokens_after: after it.
    """

    conversation_id: str
    messages_replaced: int
    messages_shown: int
    undone: int = 0
    summary: str = ""
    tokens_before: int = 0
    tokens_after: int = 0


class ConversationChunk(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of an export; an empty cursor ends it."""

    text: str
    cursor: str = ""


# The methods of the control socket that change or hand out conversations; see `wire.methods`.
#
# Each takes an id or a unique beginning of one.


class RenameConversation(Method[ConversationLine], frozen=True, kw_only=True):
    """Give a conversation another title; no model changes it after that."""

    conversation_id: str
    title: str


class SetMode(Method[ConversationLine], frozen=True, kw_only=True):
    """Set how far the model may go without a person in a conversation; it leaves a receipt.

    From its next call on, in a running turn too. Empty is as configured. Never further than
    `[security] max_autonomy`, and for those who are no admins than `autonomy`.
    """

    conversation_id: str
    mode: Literal["", "readonly", "supervised", "edits", "full"]


class ForkConversation(Method[ConversationLine], frozen=True, kw_only=True):
    """Copy a conversation into a new one of the same owner, and return that one.

    `message_id` is the last message to copy, 0 for all of them. A round of calls is copied whole.
    """

    conversation_id: str
    message_id: int = 0


class CompressConversation(Method[CompressionReport], frozen=True, kw_only=True):
    """Let a summary stand for the beginning of a conversation, or (`undo`) take that back.

    `undo` is "all" for every compression of it and "last" for the newest. Refused while a turn
    runs.
    """

    conversation_id: str
    undo: Literal["", "all", "last"] = ""


class ExportConversation(Method[ConversationChunk], frozen=True, kw_only=True):
    """Hand out a conversation as text, a piece that fits a frame at a time.

    Go on with the cursor of the piece before.
    """

    conversation_id: str
    format: Literal["jsonl", "markdown"] = "jsonl"
    cursor: str = ""


class DeleteConversation(Method[Done], frozen=True, kw_only=True):
    """Delete a conversation of the caller's with all its messages; what runs in it is cancelled."""

    conversation_id: str
