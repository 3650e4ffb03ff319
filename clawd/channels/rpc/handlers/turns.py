"""Handlers about conversations and turns: send, follow, cancel, list, show."""

from collections.abc import Sequence

import msgspec

from clawd.channels.rpc.connection import Call
from clawd.channels.rpc.handlers.parts import Handler, cursor_number
from clawd.errors import ForbiddenError, InvalidRequestError
from clawd.memory.forks import FORKED_FROM
from clawd.memory.rows import TAINT, Conversation, StoredMessage, check_shown, visible_to
from clawd.memory.store import Memory
from clawd.runtime.incoming import IncomingMessage
from clawd.wire.conversation_reports import (
    ConversationDetail,
    ConversationLine,
    ConversationPage,
    MessageLine,
)
from clawd.wire.events import TurnFinished
from clawd.wire.method import PAGE_LIMIT
from clawd.wire.methods import (
    CancelTurn,
    FollowConversation,
    ListConversations,
    OpenConversation,
    SendMessage,
    ShowConversation,
)
from clawd.wire.reports import Done


class TurnHandlers(Handler):
    """Each method handles the wire method of its name."""

    async def send_message(self, params: SendMessage, call: Call) -> TurnFinished:
        """Run a turn, and stream its events; it ends with this request unless it is detached."""
        wishes = msgspec.structs.asdict(params.sampling) if params.sampling else None
        given = msgspec.structs.asdict(params) | {"door": call.door, "sampling": wishes}
        if params.url:
            given["provider"] = self._provider_at(params.url, call)
        incoming = msgspec.convert(given, IncomingMessage)
        ticket = await self.parts.inbox.submit(incoming, call.principal)
        call.on_answer = lambda answer: self.take_answer(answer, call.principal)
        try:
            async for event in ticket.events:
                await call.emit(event)
            if ticket.events.stalled:
                raise ConnectionAbortedError("the owner of the turn was too slow")
            return await ticket.finished()
        finally:
            if not params.detach:
                ticket.cancel()

    def _provider_at(self, url: str, call: Call) -> str:
        """Return the name of the provider at an address that a person gave.

        Raises:
            ForbiddenError: the daemon asks no address that somebody else names.
            ConfigError: it is no address.
        """
        if call.door != "socket" or not call.principal.is_admin:
            raise ForbiddenError(
                "an address to ask is for admins",
                hint="Name a provider of the config instead: clawctl provider list",
            )
        return self.parts.provider_at(url)

    async def follow_conversation(self, params: FollowConversation, call: Call) -> Done:
        """Stream the events of a conversation until the request is cancelled."""
        live = await self.parts.inbox.book.load(params.conversation_id, call.principal)
        call.on_answer = lambda answer: self.take_answer(answer, call.principal)
        call.ends = False
        subscription = live.broadcast.subscribe()
        try:
            async for event in subscription:
                await call.emit(event)
        finally:
            live.broadcast.unsubscribe(subscription)
        return Done(message="this follower was too slow and was cut off")

    async def cancel_turn(self, params: CancelTurn, call: Call) -> Done:
        """Cancel the turns of a conversation."""
        live = await self.parts.inbox.book.load(params.conversation_id, call.principal)
        count = self.parts.inbox.cancel_conversation(live.record.id)
        return Done(message=f"cancelled {count} turn{'' if count == 1 else 's'}")

    async def open_conversation(self, params: OpenConversation, call: Call) -> ConversationLine:
        """Open, resume or look up a conversation."""
        live = await self.parts.inbox.open(
            call.principal,
            workspace=params.workspace,
            agent=params.agent,
            resume=params.resume,
            conversation_id=params.conversation_id,
        )
        return await conversation_line(self.parts.memory, live.record)

    async def list_conversations(self, params: ListConversations, call: Call) -> ConversationPage:
        """List conversations, newest first."""
        owner = visible_to(call.principal)
        page = await self.parts.memory.conversations.list(
            owner=owner,
            made_by=call.principal.bound_to,
            limit=params.limit,
            cursor=params.cursor,
        )
        items = await conversation_lines(self.parts.memory, page.conversations)
        return ConversationPage(items=items, cursor=page.cursor)

    async def show_conversation(self, params: ShowConversation, call: Call) -> ConversationDetail:
        """Show one conversation and a page of its messages."""
        memory, owner = self.parts.memory, visible_to(call.principal)
        if not 1 <= params.limit <= PAGE_LIMIT:
            raise InvalidRequestError(f"limit is {params.limit}; it must be 1 to {PAGE_LIMIT}")
        found = await memory.conversations.match(params.conversation_id, owner=owner)
        record = check_shown(found, call.principal)
        after = cursor_number(params.cursor) or 0
        rows = await memory.messages.history(
            record.id, owner=owner, after=after, limit=params.limit
        )
        return ConversationDetail(
            conversation=await conversation_line(memory, record),
            messages=tuple(_message(row) for row in rows),
            cursor=str(rows[-1].id) if len(rows) == params.limit else "",
        )


async def conversation_line(memory: Memory, record: Conversation) -> ConversationLine:
    """Return a conversation as lists show it."""
    (line,) = await conversation_lines(memory, [record])
    return line


async def conversation_lines(
    memory: Memory, records: Sequence[Conversation]
) -> tuple[ConversationLine, ...]:
    """Return conversations as lists show them."""
    names = [record.id for record in records]
    counts = await memory.messages.counts(names)
    replaced = await memory.checkpoints.replaced(names)
    return tuple(
        ConversationLine(
            id=record.id,
            title=record.title,
            created_at=record.created_at,
            updated_at=record.updated_at,
            messages=counts.get(record.id, 0),
            workspace=record.workspace,
            owner=record.owner,
            untrusted_sources=tuple(record.metadata.get(TAINT, ())),
            replaced=replaced.get(record.id, 0),
            forked_from=str(record.metadata.get(FORKED_FROM, {}).get("conversation", "")),
        )
        for record in records
    )


def _message(row: StoredMessage) -> MessageLine:
    calls = row.message.tool_calls
    return MessageLine(
        id=row.id,
        turn_id=row.turn_id,
        timestamp=row.timestamp,
        role=row.message.role,
        content=row.message.content or "",
        tool_calls=msgspec.json.encode(calls).decode() if calls else "",
        tool_call_id=row.message.tool_call_id,
        name=row.message.name,
        provider=row.provider,
        model=row.model,
    )
