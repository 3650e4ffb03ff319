"""Methods about the files of a conversation, and what they report; see `wire.methods`."""

import msgspec

from clawd.wire.method import Method
from clawd.wire.reports import Done


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


# The methods of the control socket about the files of a conversation; see `wire.methods`.
#
# `conversation_id` may be a unique beginning of it. Names are as in `wire.references`.


class ListSessionFiles(Method[SessionFileList], frozen=True, kw_only=True):
    """List the files of a conversation, the last changed first."""

    conversation_id: str


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
