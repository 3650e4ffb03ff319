"""Handlers that change conversations and hand them out: rename, fork, compress, export, delete."""

import asyncio

import msgspec

from clawd.channels.rpc.connection import Call
from clawd.channels.rpc.handlers.parts import Handler
from clawd.channels.rpc.handlers.turns import conversation_line
from clawd.errors import InvalidRequestError
from clawd.memory.rows import StoredMessage, visible_to
from clawd.runtime.export import checkpoint_text, head_text, message_text
from clawd.security.principal import Principal
from clawd.security.redact import Redactor
from clawd.wire.conversation_methods import (
    CompressConversation,
    DeleteConversation,
    ExportConversation,
    ForkConversation,
    RenameConversation,
)
from clawd.wire.conversation_reports import CompressionReport, ConversationChunk, ConversationLine
from clawd.wire.reports import Done

CHUNK_CHARACTERS = 1 << 20
PAGE = 20  # a message may have megabytes
MAX_CURSOR = 40
MAX_ID = 2**63 - 1  # of a row; a larger number cannot be asked for
END = -1  # in a cursor: all messages were handed out


class ConversationHandlers(Handler):
    """Each method handles the wire method of its name."""

    async def rename_conversation(self, params: RenameConversation, call: Call) -> ConversationLine:
        """Give a conversation another title."""
        keeping = self.parts.housekeeping
        record = await keeping.rename(params.conversation_id, call.principal, params.title)
        return await conversation_line(self.parts.memory, record)

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


def _without_secrets(row: StoredMessage, redactor: Redactor) -> StoredMessage:
    """Return a message as it may leave the machine; the same one gives the same text each time."""
    replace = msgspec.structs.replace
    calls = tuple(
        replace(call, arguments=redactor.json(call.arguments.encode()).decode())
        for call in row.message.tool_calls
    )
    content = row.message.content and redactor.text(row.message.content)
    return replace(row, message=replace(row.message, content=content, tool_calls=calls))


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
