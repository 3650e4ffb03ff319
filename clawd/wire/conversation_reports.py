"""What the methods about conversations give back."""

import msgspec


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
