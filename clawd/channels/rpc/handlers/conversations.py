"""Handlers that change conversations and hand out what is kept: export, receipts, session files."""

import asyncio
import os
from pathlib import Path
from typing import BinaryIO

import msgspec

from clawd.channels.rpc.connection import Call
from clawd.channels.rpc.handlers.parts import Handler
from clawd.channels.rpc.handlers.turns import conversation_line
from clawd.errors import InvalidRequestError, ReceiptError
from clawd.memory.rows import StoredMessage, visible_to
from clawd.receipts.logfiles import rotated_files
from clawd.runtime.export import checkpoint_text, head_text, message_text
from clawd.runtime.message_rows import CLAIMS, UNREADABLE, claims, unreadable
from clawd.security.principal import Principal
from clawd.security.redact import Redactor
from clawd.tools.session_files import SessionFile
from clawd.wire.conversations import (
    CompressConversation,
    CompressionReport,
    ConversationChunk,
    ConversationLine,
    DeleteConversation,
    DeleteSessionFile,
    ExportConversation,
    ForkConversation,
    ListSessionFiles,
    ReadSessionFile,
    RenameConversation,
    SessionFileChunk,
    SessionFileLine,
    SessionFileList,
    SetMode,
    WriteSessionFile,
)
from clawd.wire.method import PAGE_LIMIT, Done
from clawd.wire.receipts import (
    AcceptReceipts,
    ContentPiece,
    ContentPieces,
    LoadContents,
    ReadReceiptLog,
    ReceiptLogChunk,
)

CHUNK_CHARACTERS = 1 << 20
PAGE = 20  # a message may have megabytes
MAX_CURSOR = 40
MAX_ID = 2**63 - 1  # of a row; a larger number cannot be asked for
END = -1  # in a cursor: all messages were handed out


CHUNK_BYTES = 4 << 20
PIECE_BYTES = 8 << 20
MAX_NUMBER = 1 << 53
MAX_OFFSET = 1 << 53


class ConversationHandlers(Handler):
    """Each method handles the wire method of its name."""

    async def rename_conversation(self, params: RenameConversation, call: Call) -> ConversationLine:
        """Give a conversation another title."""
        keeping = self.parts.housekeeping
        record = await keeping.rename(params.conversation_id, call.principal, params.title)
        return await conversation_line(self.parts.memory, record)

    async def set_mode(self, params: SetMode, call: Call) -> ConversationLine:
        """Set how far the model may go in a conversation."""
        parts, owner = self.parts, visible_to(call.principal)
        found = await parts.memory.conversations.match(params.conversation_id, owner=owner)
        live = await parts.inbox.book.load(found.id, call.principal)
        await parts.inbox.book.set_mode(live, params.mode, call.principal)
        return await conversation_line(parts.memory, live.record)

    async def fork_conversation(self, params: ForkConversation, call: Call) -> ConversationLine:
        """Copy a conversation."""
        keeping = self.parts.housekeeping
        record = await keeping.fork(params.conversation_id, call.principal, upto=params.message_id)
        return await conversation_line(self.parts.memory, record)

    async def compress_conversation(
        self, params: CompressConversation, call: Call
    ) -> CompressionReport:
        """Compress a conversation, or take that back."""
        keeping, principal = self.parts.housekeeping, call.principal
        if params.undo:
            undone = await keeping.undo(
                params.conversation_id, principal, only_last=params.undo == "last"
            )
            return await self._shown_now(params.conversation_id, principal, undone=undone)
        done = await keeping.compress(params.conversation_id, principal)
        return await self._shown_now(
            done.conversation.id,
            principal,
            tokens_before=done.tokens_before,
            tokens_after=done.tokens_after,
        )

    async def _shown_now(
        self, beginning: str, principal: Principal, **numbers: int
    ) -> CompressionReport:
        record = await self.parts.housekeeping.find(beginning, principal)
        live = await self.parts.inbox.book.load(record.id, principal)
        checkpoint = live.checkpoint
        return CompressionReport(
            conversation_id=record.id,
            messages_replaced=checkpoint.replaced if checkpoint is not None else 0,
            messages_shown=len(live.context.messages),
            summary=checkpoint.text if checkpoint is not None else "",
            **numbers,
        )

    async def export_conversation(
        self, params: ExportConversation, call: Call
    ) -> ConversationChunk:
        """Hand out the next piece of a conversation, with the secrets in it replaced."""
        memory, owner, redact = self.parts.memory, visible_to(call.principal), self.parts.redactor
        record = await memory.conversations.match(params.conversation_id, owner=owner)
        after, offset = _position(params.cursor)
        if after == END:
            made = await memory.checkpoints.list(record.id, owner=owner)
            clean = [msgspec.structs.replace(each, text=redact.text(each.text)) for each in made]
            return _piece("".join(checkpoint_text(c, params.format) for c in clean), offset, END)
        record = msgspec.structs.replace(record, title=redact.text(record.title))
        text = head_text(record, params.format) if not params.cursor else ""
        rows = await memory.messages.history(record.id, owner=owner, after=after, limit=PAGE)
        for stored in rows:
            row = await asyncio.to_thread(_without_secrets, stored, redact)
            text += message_text(row, params.format)[offset:]
            if len(text) >= CHUNK_CHARACTERS:
                left = len(text) - CHUNK_CHARACTERS
                if not left:
                    return ConversationChunk(text=text, cursor=f"{row.id}:0")
                place = len(message_text(row, params.format)) - left
                return ConversationChunk(text=text[:CHUNK_CHARACTERS], cursor=f"{after}:{place}")
            after, offset = row.id, 0
        return ConversationChunk(text=text, cursor=f"{after if rows else END}:0")

    async def delete_conversation(self, params: DeleteConversation, call: Call) -> Done:
        """Delete a conversation with all its messages."""
        if not params.conversation_id:
            raise InvalidRequestError("no conversation is named")
        return await self.forget_conversation(params.conversation_id, call)

    async def read_receipt_log(self, params: ReadReceiptLog, _call: Call) -> ReceiptLogChunk:
        """Return the next lines of the log."""
        if not (0 <= params.file <= MAX_NUMBER and 0 <= params.offset <= MAX_NUMBER):
            raise InvalidRequestError(f"no log has file {params.file}, offset {params.offset}")
        return await asyncio.to_thread(
            _read_chunk, self.parts.receipts_path, params.file, params.offset
        )

    async def load_contents(self, params: LoadContents, _call: Call) -> ContentPieces:
        """Return contents by their hashes."""
        if len(params.hashes) > PAGE_LIMIT or params.offset < 0:
            raise InvalidRequestError(
                f"{len(params.hashes)} hashes from byte {params.offset}: at most {PAGE_LIMIT} "
                "hashes, and no byte below 0"
            )
        found = await self.parts.memory.ledger.load_contents(params.hashes, limit_bytes=CHUNK_BYTES)
        items: list[ContentPiece] = []
        left = PIECE_BYTES
        for content_hash, content in found:
            start = params.offset if not items else 0
            piece = (content or b"")[start : start + PIECE_BYTES]
            if items and len(piece) > left:
                break
            left -= len(piece)
            size = None if content is None else len(content)
            items.append(ContentPiece(hash=content_hash, size=size, data=piece))
        return ContentPieces(items=tuple(items))

    async def accept_receipts(self, _params: AcceptReceipts, call: Call) -> Done:
        """Take the receipt log as it stands."""
        return Done(message=await self.parts.accept_receipts(call.principal))

    async def list_session_files(self, params: ListSessionFiles, call: Call) -> SessionFileList:
        """List the files of a conversation."""
        identity, owner = await self._meant(params.conversation_id, call)
        found = await self.parts.memory.session_files.list(identity, owner=owner)
        return SessionFileList(conversation_id=identity, items=tuple(map(_file_line, found)))

    async def read_session_file(self, params: ReadSessionFile, call: Call) -> SessionFileChunk:
        """Return some bytes of a file."""
        if not 0 <= params.offset <= MAX_OFFSET:
            raise InvalidRequestError(f"offset is {params.offset}; it must be 0 or more")
        identity, owner = await self._meant(params.conversation_id, call)
        file, data = await self.parts.memory.session_files.part(
            identity, params.name, owner=owner, offset=params.offset, length=CHUNK_BYTES
        )
        return SessionFileChunk(
            file=_file_line(file),
            offset=params.offset,
            data=data,
            is_end=params.offset + len(data) >= file.size,
        )

    async def write_session_file(self, params: WriteSessionFile, call: Call) -> SessionFileLine:
        """Create or replace a file."""
        identity, owner = await self._meant(params.conversation_id, call)
        files = self.parts.memory.session_files
        return _file_line(await files.save(identity, params.name, params.content, owner=owner))

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


def _without_secrets(row: StoredMessage, redactor: Redactor) -> StoredMessage:
    """Return a message as it may leave the machine; the same one gives the same text each time."""
    replace = msgspec.structs.replace
    calls = tuple(
        replace(call, arguments=redactor.json(call.arguments.encode()).decode())
        for call in row.message.tool_calls
    )
    message = replace(
        row.message,
        content=row.message.content and redactor.text(row.message.content),
        reasoning=redactor.text(row.message.reasoning),
        tool_calls=calls,
    )
    metadata = row.metadata
    if lost := unreadable(row):
        metadata = metadata | {UNREADABLE: list(map(redactor.text, lost))}
    if said := claims(row):
        clean = [
            replace(each, text=redactor.text(each.text), object=redactor.text(each.object))
            for each in said
        ]
        metadata = metadata | {CLAIMS: msgspec.to_builtins(clean)}
    return replace(row, message=message, metadata=metadata)


def _piece(text: str, offset: int, after: int) -> ConversationChunk:
    """Return the part of the last text that comes next."""
    end = offset + CHUNK_CHARACTERS
    return ConversationChunk(
        text=text[offset:end], cursor=f"{after}:{end}" if end < len(text) else ""
    )


def _position(cursor: str) -> tuple[int, int]:
    """Return the message that the last piece ended with and the place in the one after it."""
    if not cursor:
        return 0, 0
    after, _, offset = cursor.partition(":")
    try:
        found = (int(after), int(offset)) if len(cursor) <= MAX_CURSOR else (END - 1, 0)
    except ValueError:
        found = (END - 1, 0)
    if not END <= found[0] <= MAX_ID or not 0 <= found[1] <= MAX_ID:
        raise InvalidRequestError(f"cursor {cursor[:40]!r} is none of this export's")
    return found


def _read_chunk(path: Path, number: int, offset: int) -> ReceiptLogChunk:
    try:
        return _chunk_of(path, number, offset)
    except OSError as error:
        raise ReceiptError(
            f"cannot read the receipts at {path}: {error.strerror or error}",
            hint="Check [receipts] path and its permissions.",
        ) from error


def _chunk_of(path: Path, number: int, offset: int) -> ReceiptLogChunk:
    # The current file is held before the others are listed: when it is rotated in between, it is
    # one of them too, under the number that it had anyway.
    with path.open("rb") as current:
        full = {int(file.name.rpartition(".")[2]): file for file in rotated_files(path)}
        number = max(number, min(full, default=1))
        if number in full and not _is_same(full[number], current):
            with full[number].open("rb") as file:
                data = _lines(file, offset)
            if data:
                return _chunk(data, number, offset)
            following = min((each for each in full if each > number), default=max(full) + 1)
            return ReceiptLogChunk(data=b"", file=following, offset=0, is_end=False)
        data = _lines(current, offset, is_growing=True)
        return _chunk(data, number, offset, is_end=not data)


def _chunk(data: bytes, number: int, offset: int, *, is_end: bool = False) -> ReceiptLogChunk:
    return ReceiptLogChunk(data=data, file=number, offset=offset + len(data), is_end=is_end)


def _lines(file: BinaryIO, offset: int, *, is_growing: bool = False) -> bytes:
    """Return what ends in a newline, or all there is where nothing does and nothing is written."""
    file.seek(offset)
    data = file.read(CHUNK_BYTES)
    whole = data[: data.rfind(b"\n") + 1]
    is_written = is_growing and len(data) < CHUNK_BYTES
    return whole if whole or is_written else data


def _is_same(file: Path, opened: BinaryIO) -> bool:
    return os.path.samestat(file.stat(), os.fstat(opened.fileno()))


def _file_line(file: SessionFile) -> SessionFileLine:
    return SessionFileLine(**msgspec.structs.asdict(file))
