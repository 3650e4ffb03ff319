"""Session files: what belongs to a conversation and is too much for it, or is to be kept beside it.

Here is what tools and dispatch need of them; memory keeps them. A name leads to them by
`wire.references` only, never by a path of the file system.
"""

import logging
from typing import Protocol

import msgspec

from clawd.errors import ClawError, InvalidRequestError
from clawd.security.principal import Principal
from clawd.tools.base import ToolContext
from clawd.wire.references import EXAMPLE, check_name, name_in, reference

TEXT_SUFFIX = ".txt"

_log = logging.getLogger(__name__)


class SessionFile(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a session file.

    Attributes:
        mime: its type, as `text/plain`.
        summary: one line, made from its content.
        size: bytes.
        is_kept: it was kept by the daemon (long output, a long message) and goes when room is
            needed; else somebody wrote it by its name, and it stays.
        created_at: UTC with microseconds; likewise `updated_at`.
    """

    name: str
    mime: str
    summary: str
    size: int
    is_kept: bool
    created_at: str
    updated_at: str


class SessionStore(Protocol):
    """Keeps session files. What a method returns from is on disk.

    `owner` is the uid that asks, None for an admin. All methods raise `NotFoundError` for a
    conversation that it may not see or a file that is not there, `InvalidRequestError` for a name
    or size that cannot be kept, and `StorageError` when the disk fails; then nothing is changed.
    """

    async def list(self, conversation_id: str, *, owner: int | None) -> tuple[SessionFile, ...]:
        """Return the session files, the last changed first."""
        ...

    async def load(
        self, conversation_id: str, name: str, *, owner: int | None
    ) -> tuple[SessionFile, bytes]:
        """Return a session file and its content."""
        ...

    async def save(
        self, conversation_id: str, name: str, content: bytes, *, owner: int | None
    ) -> SessionFile:
        """Create or replace a session file."""
        ...

    async def append(
        self, conversation_id: str, name: str, content: bytes, *, owner: int | None
    ) -> SessionFile:
        """Add to a session file, creating it when it is missing."""
        ...

    async def keep(
        self,
        conversation_id: str,
        stem: str,
        content: bytes,
        *,
        owner: int | None,
        suffix: str = TEXT_SUFFIX,
    ) -> SessionFile:
        """Keep something under a new name, `<stem>-<number>.txt`, that was never given before."""
        ...


class SessionAccess(msgspec.Struct, frozen=True, kw_only=True):
    """How tools get at session files.

    Attributes:
        room_bytes: how much of one the model may be told at once.
    """

    store: SessionStore
    room_bytes: int


class SessionFolder:
    """The session files of the conversation in which a tool is called, by their references.

    Args:
        access: None where session files are not kept.
        context: of the call.
    """

    def __init__(self, access: SessionAccess | None, context: ToolContext) -> None:
        self._access = access
        self._conversation_id = context.conversation_id
        self._owner = visible_to(context.principal)

    @property
    def room_bytes(self) -> int:
        """How much the model may be told at once."""
        return self._opened.room_bytes

    async def list(self) -> tuple[SessionFile, ...]:
        """Return all of them."""
        return await self._opened.store.list(self._conversation_id, owner=self._owner)

    async def read(self, path: str) -> tuple[SessionFile, bytes]:
        """Return the one that a reference names, and its content."""
        name = one_name(path)
        return await self._opened.store.load(self._conversation_id, name, owner=self._owner)

    async def write(self, path: str, content: bytes, *, adds: bool) -> SessionFile:
        """Create, replace or add to the one that a reference names."""
        name, store = one_name(path), self._opened.store
        act = store.append if adds else store.save
        return await act(self._conversation_id, name, content, owner=self._owner)

    async def keep(self, stem: str, content: bytes, *, suffix: str) -> SessionFile:
        """Keep something under a new name."""
        store = self._opened.store
        return await store.keep(
            self._conversation_id, stem, content, owner=self._owner, suffix=suffix
        )

    @property
    def _opened(self) -> SessionAccess:
        if self._access is None or not self._conversation_id:
            raise InvalidRequestError(
                "session files belong to a conversation, and this call is made outside of one; use "
                "a file of the workspace instead, as notes.txt"
            )
        return self._access


class OutputKeeper:
    """Keeps output that is too long for the model as a session file.

    Args:
        store: None keeps nothing.
    """

    def __init__(self, store: SessionStore | None) -> None:
        self._store = store

    async def keep(self, text: str, *, tool: str, context: ToolContext) -> str:
        """Return the reference to the whole text, or "" where it could not be kept.

        Never raises `ClawError`: a result is worth more than its tail.
        """
        if self._store is None or not context.conversation_id:
            return ""
        owner = visible_to(context.principal)
        data = text.encode(errors="replace")
        try:
            file = await self._store.keep(context.conversation_id, tool, data, owner=owner)
        except ClawError as error:
            _log.warning(
                "long output was cut and not kept", extra={"tool": tool, "why": error.message}
            )
            return ""
        return reference(file.name)


def line_of(file: SessionFile) -> str:
    """Return what the model is told of a session file, on one line."""
    return f"{file.name} ({file.mime}, {file.size} bytes): {file.summary}"


def one_name(path: str) -> str:
    """Return the name of the one file that a reference names.

    Raises:
        InvalidRequestError: it names none.
    """
    name = name_in(path)
    if not name:
        raise InvalidRequestError(
            "file+session:// alone names no file, only file_list takes it; name one of those that "
            f"it lists, as in {EXAMPLE}"
        )
    return check_name(name)


def visible_to(principal: Principal) -> int | None:
    """Return the `owner` to ask with: the principal's own conversations, an admin's all."""
    return None if principal.is_admin else principal.uid
