"""The methods of the control socket that change or hand out conversations; see `wire.methods`.

Each takes an id or a unique beginning of one.
"""

from typing import Literal

from clawd.wire.conversation_reports import CompressionReport, ConversationChunk, ConversationLine
from clawd.wire.method import Method
from clawd.wire.reports import Done


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
