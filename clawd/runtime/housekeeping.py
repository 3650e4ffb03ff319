r"""What a person does with conversations besides talking: compress, undo, rename, fork, export.

An export is text: Markdown for people, JSON lines for programs.

    {"type": "conversation", "id": "conv-…", "title": "…", "owner": 1000, …}
    {"type": "message", "id": 7, "role": "user", "content": "…", …}
    {"type": "checkpoint", "upto": 120, "replaced": 120, "text": "…", …}

Every message is there, whatever was compressed; checkpoints come last.
"""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Literal

import msgspec

from clawd.errors import BusyError, InvalidRequestError
from clawd.memory.checkpoints import Checkpoint
from clawd.memory.conversations import facts_of
from clawd.memory.rows import TAINT, Conversation, StoredMessage, visible_to
from clawd.memory.store import Memory
from clawd.runtime.compressor import Compressor, Room
from clawd.runtime.context import claims, unreadable
from clawd.runtime.conversation import LiveConversation
from clawd.runtime.inbox import Inbox
from clawd.runtime.incoming import IncomingMessage
from clawd.runtime.preparation import TurnSource
from clawd.runtime.turn_plan import TurnPlan, request_of
from clawd.security.principal import Principal
from clawd.wire.events import ContextCompressed, Event
from clawd.wire.safe_text import DESCRIPTION_LIMIT, NAME_LIMIT, fenced, single_line

FORK = " (fork)"
Format = Literal["jsonl", "markdown"]

_HEADING = re.compile(r"^(?=## (?:user|assistant|tool|system|checkpoint)\b)", re.MULTILINE)


class Compressed(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a compression by hand; tokens are 0 where the context's size is unknown."""

    conversation: Conversation
    checkpoint: Checkpoint
    tokens_before: int = 0
    tokens_after: int = 0


class Housekeeping:
    """Works on conversations in which no turn runs. One of a daemon.

    Args:
        inbox: knows the conversations in use and prepares requests.
        memory: keeps them.
        compressor: compresses them.
    """

    def __init__(self, inbox: Inbox, memory: Memory, compressor: Compressor) -> None:
        self._inbox = inbox
        self._memory = memory
        self._compressor = compressor

    async def find(self, beginning: str, principal: Principal) -> Conversation:
        """Return the conversation of the principal's whose id is this, or begins like this.

        Raises:
            NotFoundError: there is none, or more than one.
        """
        return await self._memory.conversations.match(beginning, owner=visible_to(principal))

    async def compress(self, beginning: str, principal: Principal) -> Compressed:
        """Compress a conversation now; the newest half of its messages stays, 30 at most.

        Raises:
            BusyError: a turn runs in it.
            InvalidRequestError: there is nothing that could go.
            ClawError: there is no such conversation, or the model gave no summary.
        """
        async with self._held(beginning, principal) as live:
            plan = await self._plan(live, principal)
            told: list[ContextCompressed] = []

            def emit(event: Event) -> None:
                live.broadcast.emit(event)
                if isinstance(event, ContextCompressed):
                    told.append(event)

            room = Room(self._compressor, live, plan.provider, emit)
            request = request_of(plan, live.context.messages)
            checkpoint = await room.by_hand(request, plan.known_tokens)
            return Compressed(
                conversation=live.record,
                checkpoint=checkpoint,
                tokens_before=told[-1].tokens_before,
                tokens_after=told[-1].tokens_after,
            )

    async def undo(self, beginning: str, principal: Principal, *, only_last: bool) -> int:
        """Show all messages again, or as before the newest compression; return how many are gone.

        Raises:
            BusyError: a turn runs in it.
            InvalidRequestError: it is not compressed.
            NotFoundError: there is no such conversation.
        """
        async with self._held(beginning, principal) as live:
            return await self._compressor.undo(live, only_last=only_last)

    async def rename(self, beginning: str, principal: Principal, title: str) -> Conversation:
        """Give a conversation the title that a person wants; no model changes it after that.

        Raises:
            InvalidRequestError: the title is empty.
            NotFoundError: there is no such conversation.
        """
        line = " ".join(single_line(title, DESCRIPTION_LIMIT).split())
        if not line:
            raise InvalidRequestError("the title is empty")
        found = await self.find(beginning, principal)
        renamed = await self._memory.conversations.rename(found.id, line, owner=found.owner)
        self._inbox.book.refresh(renamed)
        return renamed

    async def fork(self, beginning: str, principal: Principal, *, upto: int) -> Conversation:
        """Copy a conversation up to a message (0: all of it) into a new one of the same owner.

        Raises:
            InvalidRequestError: the message is none of the conversation's.
            NotFoundError: there is no such conversation.
        """
        found = await self.find(beginning, principal)
        title = found.title and f"{found.title.removesuffix(FORK)}{FORK}"
        forked = await self._memory.forks.fork(found.id, owner=found.owner, upto=upto, title=title)
        self._inbox.book.inherit(found.id, forked.id)
        return forked

    @asynccontextmanager
    async def _held(self, beginning: str, principal: Principal) -> AsyncIterator[LiveConversation]:
        """Hold a conversation, so that no turn begins in it meanwhile."""
        found = await self.find(beginning, principal)
        async with self._inbox.book.in_use(found.id, principal):
            live = await self._inbox.book.load(found.id, principal)
            if live.waiting or live.lock.locked():
                raise BusyError(
                    f"a turn runs in conversation {found.id}",
                    retry_after_s=5.0,
                    hint="Wait for its end, or stop it.",
                )
            async with live.lock:
                yield live

    async def _plan(self, live: LiveConversation, principal: Principal) -> TurnPlan:
        """Return what a turn of the model that spoke last would be."""
        last = live.read if live.read.provider else None
        incoming = IncomingMessage(
            text="",
            provider=last.provider if last else live.record.provider,
            model=last.model if last else live.record.model,
        )
        prepared = await self._inbox.preparation.prepare(
            live, incoming, principal, source=TurnSource(turn_id=""), emit=_ignore
        )
        return prepared.plan


def _ignore(_event: Event) -> None:
    """Tell nobody: no turn begins."""


def head_text(conversation: Conversation, how: Format) -> str:
    """Return what an export begins with."""
    facts = conversation.metadata
    values: dict[str, Any] = {
        "type": "conversation",
        "id": conversation.id,
        "title": conversation.title,
        "owner": conversation.owner,
        "workspace": conversation.workspace,
        "created_at": conversation.created_at,
        "updated_at": conversation.updated_at,
        "provider": conversation.provider,
        "model": conversation.model,
        "agent": conversation.agent,
        "untrusted_sources": facts.get(TAINT, []),
    }
    if "forked_from" in facts:
        values["forked_from"] = facts["forked_from"]
    if how == "jsonl":
        return _line(values)
    title = " ".join(conversation.title.split()) or conversation.id
    told = f"{conversation.id} · {conversation.created_at[:19]} · {conversation.workspace}"
    sources = ", ".join(map(str, values["untrusted_sources"]))
    untrusted = f"\nHolds untrusted text from {sources}\n" if sources else ""
    return f"# {title}\n\n{told}\n{untrusted}\n"


def message_text(stored: StoredMessage, how: Format) -> str:
    """Return a message, a blank line after it in Markdown."""
    message = stored.message
    if how == "jsonl":
        return _line(
            {
                "type": "message",
                "id": stored.id,
                "turn_id": stored.turn_id,
                "timestamp": stored.timestamp,
                "role": message.role,
                "content": message.content,
                "tool_calls": [msgspec.structs.asdict(call) for call in message.tool_calls],
                "tool_call_id": message.tool_call_id,
                "name": message.name,
                "provider": stored.provider,
                "model": stored.model,
                "is_complete": stored.is_complete,
                "reasoning": message.reasoning,
                "unreadable": unreadable(stored),
                "claims": claims(stored),
                "pictures": facts_of(stored),
            }
        )
    name = f" {_name(message.name)}" if message.name else ""
    parts = [f"## {message.role}{name} · {stored.timestamp[:19]}"]
    parts += [f"Not to be read as a call:\n\n{fenced(text)}" for text in unreadable(stored)]
    if message.reasoning:
        parts.append(f"Reasoning:\n\n{fenced(message.reasoning)}")
    parts += [f"({each.label})" for each in facts_of(stored)]
    content = message.content or ""
    if message.role == "tool":
        parts.append(fenced(content))
    elif content:
        parts.append(_said(content))
    parts += [f"({single_line(each.problem)})" for each in claims(stored) if each.problem]
    parts += [
        f"Call `{_name(call.name)}`\n\n{fenced(call.arguments)}" for call in message.tool_calls
    ]
    if not stored.is_complete:
        parts.append("*(broken off)*")
    return "\n\n".join(parts) + "\n\n"


def checkpoint_text(checkpoint: Checkpoint, how: Format) -> str:
    """Return what stands for the beginning of a conversation."""
    if how == "jsonl":
        return _line({"type": "checkpoint", **msgspec.structs.asdict(checkpoint)})
    head = f"## checkpoint for {checkpoint.replaced} messages · {checkpoint.timestamp[:19]}"
    return f"{head}\n\n{_said(checkpoint.text)}\n\n"


def _line(values: dict[str, Any]) -> str:
    return msgspec.json.encode(values).decode() + "\n"


def _said(text: str) -> str:
    """Return what was said, in which no line looks as if somebody else began to speak."""
    return _HEADING.sub(r"\\", text)


def _name(name: str) -> str:
    """Return a tool's name as a model wrote it, on one line that it cannot leave."""
    return single_line(name, NAME_LIMIT).replace("`", "'")
