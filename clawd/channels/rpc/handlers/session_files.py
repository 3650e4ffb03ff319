"""Handlers about the files of conversations."""

import msgspec

from clawd.channels.rpc.connection import Call
from clawd.channels.rpc.handlers.parts import Handler
from clawd.errors import InvalidRequestError
from clawd.memory.rows import visible_to
from clawd.tools.session_files import SessionFile
from clawd.wire.reports import Done
from clawd.wire.session_methods import (
    DeleteSessionFile,
    ListSessionFiles,
    ReadSessionFile,
    WriteSessionFile,
)
from clawd.wire.session_reports import SessionFileChunk, SessionFileLine, SessionFileList

CHUNK_BYTES = 4 << 20
MAX_OFFSET = 1 << 53


class SessionFileHandlers(Handler):
    """Each method handles the wire method of its name."""

    async def list_session_files(self, params: ListSessionFiles, call: Call) -> SessionFileList:
        """List the files of a conversation."""
        identity, owner = await self._meant(params.conversation_id, call)
        found = await self.parts.memory.session_files.list(identity, owner=owner)
        return SessionFileList(conversation_id=identity, items=tuple(map(_line, found)))

    async def read_session_file(self, params: ReadSessionFile, call: Call) -> SessionFileChunk:
        """Return some bytes of a file."""
        if not 0 <= params.offset <= MAX_OFFSET:
            raise InvalidRequestError(f"offset is {params.offset}; it must be 0 or more")
        identity, owner = await self._meant(params.conversation_id, call)
        file, data = await self.parts.memory.session_files.part(
            identity, params.name, owner=owner, offset=params.offset, length=CHUNK_BYTES
        )
        return SessionFileChunk(
            file=_line(file),
            offset=params.offset,
            data=data,
            is_end=params.offset + len(data) >= file.size,
        )

    async def write_session_file(self, params: WriteSessionFile, call: Call) -> SessionFileLine:
        """Create or replace a file."""
        identity, owner = await self._meant(params.conversation_id, call)
        files = self.parts.memory.session_files
        return _line(await files.save(identity, params.name, params.content, owner=owner))

    async def delete_session_file(self, params: DeleteSessionFile, call: Call) -> Done:
        """Delete a file."""
        identity, owner = await self._meant(params.conversation_id, call)
        await self.parts.memory.session_files.delete(identity, params.name, owner=owner)
        self.parts.erase_soon()
        return Done(message=f"deleted {params.name}")

    async def _meant(self, beginning: str, call: Call) -> tuple[str, int | None]:
        """Return the id of the conversation that is meant, and the owner to ask with."""
        owner = visible_to(call.principal)
        found = await self.parts.memory.conversations.match(beginning, owner=owner)
        return found.id, owner


def _line(file: SessionFile) -> SessionFileLine:
    return SessionFileLine(**msgspec.structs.asdict(file))
