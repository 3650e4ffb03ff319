"""The methods of the control socket about the files of a conversation; see `wire.methods`.

`conversation_id` may be a unique beginning of it. Names are as in `wire.references`.
"""

from clawd.wire.method import Method
from clawd.wire.reports import Done
from clawd.wire.session_reports import SessionFileChunk, SessionFileLine, SessionFileList


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
