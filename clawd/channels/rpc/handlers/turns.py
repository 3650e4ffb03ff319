"""Handlers about conversations and turns: send, follow, cancel, list, show, plans."""

from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from clawd.channels.rpc.connection import Call
from clawd.channels.rpc.handlers.parts import Handler, attending, cursor_number
from clawd.errors import ForbiddenError, InvalidRequestError
from clawd.memory.checkpoints import FORKED_FROM
from clawd.memory.rows import TAINT, Conversation, StoredMessage, check_shown, visible_to
from clawd.memory.store import Memory
from clawd.providers.abilities import Sampled, able
from clawd.providers.base import ChatRequest, Sampling
from clawd.providers.presets import SHARED, with_preset
from clawd.runtime.approval_prompts import approval_event
from clawd.runtime.conversation import MODE, THINK
from clawd.runtime.incoming import IncomingMessage
from clawd.runtime.message_rows import claims, unreadable
from clawd.tools.plans import PlanKey, markdown
from clawd.wire.conversations import (
    ConversationDetail,
    ConversationLine,
    ConversationPage,
    ListConversations,
    MessageLine,
    OpenConversation,
    PlanLine,
    PlanReport,
    PromptFragment,
    PromptText,
    ShowConversation,
    ShowPlan,
    ShowPrompt,
)
from clawd.wire.events import TurnFinished
from clawd.wire.method import PAGE_LIMIT, Done
from clawd.wire.safe_text import shortened, single_line
from clawd.wire.turns import (
    CancelTurn,
    FollowConversation,
    SamplingLine,
    SamplingReport,
    SamplingWishes,
    SendMessage,
    ShowSampling,
    SteerReport,
    SteerTurn,
)

LAST_WORDS = 200
WORDS_READ = 2_000  # more than is shown, so that a secret is known as one
# What an answer tells, and what names tokens of one vocabulary.
_OF_ANSWERS = frozenset({"logprobs", "top_logprobs", "logit_bias"})


class TurnHandlers(Handler):
    """Each method handles the wire method of its name."""

    async def send_message(self, params: SendMessage, call: Call) -> TurnFinished:
        """Run a turn, and stream its events; it ends with this request unless it is detached."""
        wishes = _wishes(params.sampling, call)
        given = msgspec.structs.asdict(params) | {"door": call.door, "sampling": wishes}
        given["is_resumable"] = True
        if params.url:
            given["provider"] = self._provider_at(params.url, call)
        incoming = msgspec.convert(given, IncomingMessage)
        ticket = await self.parts.inbox.submit(incoming, call.principal)
        call.on_answer = lambda answer: self.take_answer(answer, call.principal)
        try:
            with attending(ticket.attendance, call, interactive=params.interactive):
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

    async def show_sampling(self, params: ShowSampling, call: Call) -> SamplingReport:
        """Show how a message would be sampled; loads no model."""
        given = msgspec.structs.asdict(params) | {"text": "", "door": call.door}
        given["sampling"] = _wishes(params.sampling, call)
        incoming = msgspec.convert(given, IncomingMessage)
        provider, model, wishes = self.parts.inbox.preparation.sampled(incoming)
        asked, shaped = _values(wishes), _values(with_preset(wishes))
        found = able(provider, Sampled, model)  # type: ignore[type-abstract]
        if found is None:
            values = {each: shaped[each] for each in shaped if each in asked or each in SHARED}
        else:
            owner, model = found
            values = owner.sampled(ChatRequest(model=model, sampling=wishes))

        def origin(name: str) -> Literal["message", "preset", "config"]:
            # A wish that was not heeded, as a penalty may be, is not where the value comes from.
            if name in asked and asked[name] == values[name]:
                return "message"
            return "preset" if name not in asked and name in shaped else "config"

        lines = tuple(
            SamplingLine(
                name=name, value=msgspec.json.encode(values[name]).decode(), origin=origin(name)
            )
            for name in values
            if name not in _OF_ANSWERS
        )
        return SamplingReport(
            provider=provider.name(), model=model, items=lines, is_whole=found is not None
        )

    async def follow_conversation(self, params: FollowConversation, call: Call) -> Done:
        """Stream the events of a conversation until the request is cancelled; what waits first."""
        live = await self.parts.inbox.book.load(params.conversation_id, call.principal)
        call.on_answer = lambda answer: self.take_answer(answer, call.principal)
        call.ends = False
        subscription = live.broadcast.subscribe()
        try:
            with attending(live.attendance, call):
                for pending in self.parts.approvals.pending(call.principal):
                    if pending.question.action.conversation_id == live.record.id:
                        subscription.put(approval_event(pending))
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

    async def steer_turn(self, params: SteerTurn, call: Call) -> SteerReport:
        """Say something to a turn that runs."""
        joined = await self.parts.inbox.steer(
            params.conversation_id, params.turn_id, params.text, call.principal, params.steer_id
        )
        return SteerReport(joined=joined)

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
            workspace=params.workspace,
            limit=params.limit,
            cursor=params.cursor,
        )
        items = await conversation_lines(self.parts.memory, page.conversations)
        if params.last_words:
            said = await self.parts.memory.messages.last_words(
                [line.id for line in items], WORDS_READ
            )
            items = tuple(
                msgspec.structs.replace(line, last_words=self._last_words(said.get(line.id, "")))
                for line in items
            )
        return ConversationPage(items=items, cursor=page.cursor)

    def _last_words(self, said: str) -> str:
        return shortened(single_line(self.parts.redactor.text(said)), LAST_WORDS)

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

    async def show_prompt(self, params: ShowPrompt, call: Call) -> PromptText:
        """Show the system prompt and the block of facts."""
        conversation_id = ""
        if params.conversation_id:
            owner = visible_to(call.principal)
            conversations = self.parts.memory.conversations
            conversation_id = (await conversations.match(params.conversation_id, owner=owner)).id
        found = await self.parts.inbox.preview(
            call.principal,
            conversation_id=conversation_id,
            agent=params.agent,
            workspace=params.workspace,
        )
        return PromptText(
            system=found.system,
            fragments=tuple(PromptFragment(id=name, text=text) for name, text in found.fragments),
            block=found.block,
            untrusted=found.untrusted,
            tools=found.tools,
            workspace=str(found.workspace),
            conversation_id=conversation_id,
        )

    async def show_plan(self, params: ShowPlan, call: Call) -> PlanReport:
        """Show a plan."""
        memory, conversation_id, workspace = self.parts.memory, "", ""
        if params.conversation_id:
            owner = visible_to(call.principal)
            record = await memory.conversations.match(params.conversation_id, owner=owner)
            conversation_id = record.id
        else:
            workspace = str(self.parts.calls.workspace(params.workspace))
        key = PlanKey(
            conversation_id=conversation_id, owner=call.principal.uid, workspace=workspace
        )
        items = (await memory.plans.load(key)).open
        return PlanReport(
            conversation_id=conversation_id,
            workspace=workspace,
            items=tuple(PlanLine(id=item.id, text=item.text, status=item.status) for item in items),
            markdown=markdown(items),
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
            think=str(record.metadata.get(THINK, "")),
            mode=str(record.metadata.get(MODE, "")),
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
        reasoning=row.message.reasoning,
        unreadable=unreadable(row),
        claims=claims(row),
    )


def _wishes(sampling: SamplingWishes | None, call: Call) -> dict[str, Any] | None:
    """Return the wishes as a message holds them; the operator's own penalties always count."""
    if sampling is None:
        return None
    by_operator = call.door == "socket" and call.principal.is_admin
    return msgspec.structs.asdict(sampling) | {"by_operator": by_operator or None}


def _values(sampling: Sampling) -> dict[str, Any]:
    """Return what is said of how to sample."""
    given = msgspec.to_builtins(sampling)
    return {name: given[name] for name in given if name not in {"preset", "by_operator"}}
