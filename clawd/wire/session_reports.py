"""What the methods about the files of a conversation give; see `wire.session_methods`."""

import msgspec


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


class SessionFileChunk(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes of a file as it is now; `offset` is where they begin."""

    file: SessionFileLine
    offset: int
    data: bytes
    is_end: bool
