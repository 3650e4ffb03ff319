"""Methods about conversations and what belongs to one, and what they report."""

from typing import Literal

import msgspec

from clawd.wire.events import Claim, TurnUsage
from clawd.wire.method import Done, Method
from clawd.wire.pictures import PictureFacts


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


class ListConversations(Method[ConversationPage], frozen=True, kw_only=True):
    """List conversations, newest first; with `workspace`, an absolute folder, those of it alone.

    With `title`, those whose title has each of these words, or parts of words, in any case.
    With `last_words` each line has the beginning of what was said in it last.
    """

    cursor: str = ""
    limit: int = 100
    workspace: str = ""
    title: str = ""
    last_words: bool = False


class MessageLine(msgspec.Struct, frozen=True, kw_only=True):
    """One stored message.

    Attributes:
        tool_calls: JSON text, empty for none.
        reasoning: what the model thought before it.
        unreadable: what the model wrote before it that was to be a tool call and could not be
            read as one, cut at 8 KiB each; none of it was run.
        claims: what it plainly says was done, as it was checked against the receipts.
        pictures: what its pictures are; their files are not in it.
        usage: what the turn took that ended with it; None for a message that ended none.
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
    pictures: tuple[PictureFacts, ...] = ()
    usage: TurnUsage | None = None


class ConversationDetail(msgspec.Struct, frozen=True, kw_only=True):
    """A conversation with a page of its messages, oldest first.

    Attributes:
        cursor: leads to newer messages; empty ends them.
        before: of a page from the newest end, leads to older messages; 0 ends them.
    """

    conversation: ConversationLine
    messages: tuple[MessageLine, ...]
    cursor: str = ""
    before: int = 0


class ShowConversation(Method[ConversationDetail], frozen=True, kw_only=True):
    """Show one conversation, by id or a unique beginning of it.

    Pages go from the oldest message on, by `cursor`. With `before`, the id of a message, they go
    back from there, and 0 is the end: the newest page.
    """

    conversation_id: str
    cursor: str = ""
    limit: int = 200
    before: int | None = None


class OpenConversation(Method[ConversationLine], frozen=True, kw_only=True):
    """Open a new conversation, or (`resume`) find the newest one of this workspace.

    `workspace` is absolute, or empty for the configured one.
    """

    workspace: str = ""
    agent: str = ""
    resume: bool = False
    conversation_id: str = ""


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


class CompressConversation(Method[CompressionReport], frozen=True, kw_only=True):
    """Let a summary stand for the beginning of a conversation, or (`undo`) take that back.

    `undo` is "all" for every compression of it and "last" for the newest. Refused while a turn
    runs.
    """

    conversation_id: str
    undo: Literal["", "all", "last"] = ""


class ConversationChunk(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of an export; an empty cursor ends it."""

    text: str
    cursor: str = ""


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


class SessionFileLine(msgspec.Struct, frozen=True, kw_only=True):
    """A file of a conversation.

    Attributes:
        mime: its type, as `text/plain`.
        summary: one line, made from its content.
        size: bytes.
        is_kept: long output or a long message, which goes when room is needed.
        created_at: UTC, as `2026-11-21T08:00:00.000000Z`; likewise `updated_at`.
    """

    name: str
    mime: str
    summary: str
    size: int
    is_kept: bool
    created_at: str
    updated_at: str


class SessionFileList(msgspec.Struct, frozen=True, kw_only=True):
    """The files of a conversation."""

    conversation_id: str
    items: tuple[SessionFileLine, ...]


# The methods of the control socket about the files of a conversation; see `wire.methods`.
#
# `conversation_id` may be a unique beginning of it. Names are as in `wire.references`.
class ListSessionFiles(Method[SessionFileList], frozen=True, kw_only=True):
    """List the files of a conversation, the last changed first."""

    conversation_id: str


class SessionFileChunk(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes of a file as it is now; `offset` is where they begin."""

    file: SessionFileLine
    offset: int
    data: bytes
    is_end: bool


class ReadSessionFile(Method[SessionFileChunk], frozen=True, kw_only=True):
    """Return bytes of a file from `offset` on; go on behind them until `is_end`."""

    conversation_id: str
    name: str
    offset: int = 0


class WriteSessionFile(Method[SessionFileLine], frozen=True, kw_only=True):
    """Create or replace a file, at most 8 MiB."""

    conversation_id: str
    name: str
    content: bytes


class DeleteSessionFile(Method[Done], frozen=True, kw_only=True):
    """Delete a file; what refers to it in the conversation stays as it is."""

    conversation_id: str
    name: str


class PlanLine(msgspec.Struct, frozen=True, kw_only=True):
    """One item of a plan; `status` is pending, working, done, error or deleted."""

    id: int
    text: str
    status: str


class PlanReport(msgspec.Struct, frozen=True, kw_only=True):
    """A plan.

    Attributes:
        conversation_id: whose plan it is; empty for one of a workspace.
        workspace: whose plan it is; empty for one of a conversation.
        items: what was not deleted, in order.
        markdown: the same as a list, as the model sees it; empty for an empty plan.
    """

    conversation_id: str
    workspace: str
    items: tuple[PlanLine, ...]
    markdown: str


class ShowPlan(Method[PlanReport], frozen=True, kw_only=True):
    """Show the plan of a conversation, by id or a unique beginning of it.

    Without one, the plan that the caller's calls outside of conversations keep in a workspace
    (absolute, or empty for the configured one).
    """

    conversation_id: str = ""
    workspace: str = ""


class PromptFragment(msgspec.Struct, frozen=True, kw_only=True):
    """One fragment of the system prompt, by its id."""

    id: str
    text: str


class PromptText(msgspec.Struct, frozen=True, kw_only=True):
    """What a message sent now would come with.

    Attributes:
        system: the whole system prompt, its fragments joined.
        block: what is news since the conversation's last message; "" for nothing.
        untrusted: where untrusted text in the block came from; sending a message would taint.
        tools: names of the tools offered beside it.
    """

    system: str
    fragments: tuple[PromptFragment, ...]
    block: str
    untrusted: tuple[str, ...]
    tools: tuple[str, ...]
    workspace: str
    conversation_id: str


class ShowPrompt(Method[PromptText], frozen=True, kw_only=True):
    """Show the system prompt, and the block that a message sent now would carry.

    Of a conversation (its id, or a unique beginning of it), else of a new one in this workspace.
    Nothing counts as shown to the model by it.
    """

    agent: str = ""
    workspace: str = ""
    conversation_id: str = ""
