"""The inbox: every message to a conversation enters here, waits its turn, and runs as one.

A conversation runs one turn at a time, in order of arrival; different conversations run side by
side. Each turn is a task of the inbox, so it outlives nothing but the inbox.
"""

import asyncio
import logging
import secrets
from collections.abc import Callable

import msgspec

from clawd.errors import (
    BusyError,
    CancelledByUserError,
    ClawError,
    ForbiddenError,
)
from clawd.providers.base import Message
from clawd.runtime.broadcast import Subscription
from clawd.runtime.care import Care
from clawd.runtime.conversation import ConversationBook, LiveConversation
from clawd.runtime.hop import Emit
from clawd.runtime.incoming import IncomingMessage, check
from clawd.runtime.preparation import Preparation, PreparedTurn, PromptPreview
from clawd.runtime.settings import RuntimeSettings
from clawd.runtime.stored import TokensRead, to_rows
from clawd.runtime.turn import Turn, Turns
from clawd.security.principal import Principal
from clawd.wire.events import Event, TurnFailed, TurnFinished

CANCEL_LIMIT_S = 10.0

_log = logging.getLogger(__name__)


class Ticket:
    """A submitted message: the events of its turn, its end, and the way to cancel it.

    Attributes:
        is_unused: it failed, and the conversation that it opened is gone with it.
    """

    def __init__(self, conversation_id: str, events: Subscription) -> None:
        self.conversation_id = conversation_id
        self.turn_id = f"turn-{secrets.token_hex(8)}"
        self.events = events
        self.is_unused = False
        self._task: asyncio.Task[TurnFinished] | None = None

    def attach(self, task: asyncio.Task[TurnFinished]) -> None:
        """Take the task that runs the turn."""
        self._task = task

    def cancel(self) -> None:
        """Cancel the turn, wherever it is; idempotent."""
        if self._task is not None:
            self._task.cancel()

    async def finished(self) -> TurnFinished:
        """Wait for the turn's end.

        Raises:
            ClawError: the turn failed or was cancelled.
        """
        assert self._task is not None
        await asyncio.wait([self._task])
        if self._task.cancelled():
            raise CancelledByUserError("the turn was cancelled")
        return self._task.result()


class _Running(msgspec.Struct, kw_only=True):
    ticket: Ticket
    owner: int
    turn: Turn | None = None


class Inbox:
    """Takes messages in and runs their turns.

    Args:
        book: the conversations.
        turns: makes turns.
        preparation: settles what a turn is given.
        settings: returns the settings in force.
        care: what is done around turns; None leaves contexts and titles as they are.
    """

    def __init__(
        self,
        book: ConversationBook,
        *,
        turns: Turns,
        preparation: Preparation,
        settings: Callable[[], RuntimeSettings],
        care: Care | None = None,
    ) -> None:
        self.book = book
        self._turns = turns
        self._settings = settings
        self.preparation = preparation
        self.care = care
        self._running: dict[str, _Running] = {}
        self._tasks: set[asyncio.Task[TurnFinished]] = set()
        self._is_closing = False

    @property
    def turns(self) -> tuple[int, int]:
        """How many turns run, and how many wait."""
        running = sum(entry.turn is not None for entry in self._running.values())
        return running, len(self._running) - running

    async def submit(self, incoming: IncomingMessage, principal: Principal) -> Ticket:
        """Put a message in its conversation's queue; opens a conversation when none is named.

        Raises:
            BusyError: the conversation's queue is full, or the daemon is ending.
            ClawError: the message, or what it names, is not to be had.
        """
        if self._is_closing:
            raise BusyError("the daemon is shutting down", retry_after_s=5.0)
        check(incoming)
        settings = self._settings()
        if incoming.door == "socket" and not settings.cli_enabled:
            raise ForbiddenError(
                "conversations over the socket are switched off",
                hint="Set enabled = true in [channels.cli] of the config.",
            )
        live = await self._conversation(incoming, principal, settings)
        if self._is_closing:
            raise BusyError("the daemon is shutting down", retry_after_s=5.0)
        if live.waiting >= settings.max_queued_messages:
            raise BusyError(
                f"{live.waiting} messages wait in conversation {live.record.id}", retry_after_s=5.0
            )
        live.waiting += 1
        ticket = Ticket(
            live.record.id,
            Subscription(limit=settings.max_queued_events, stall_s=settings.follower_stall_s),
        )
        task = asyncio.create_task(self._run_in_order(live, incoming, principal, ticket))
        ticket.attach(task)
        self._running[ticket.turn_id] = _Running(ticket=ticket, owner=live.record.owner)
        self._tasks.add(task)
        task.add_done_callback(lambda done: self._ended(done, live, ticket))
        return ticket

    async def open(
        self,
        principal: Principal,
        *,
        workspace: str,
        agent: str = "",
        resume: bool = False,
        conversation_id: str = "",
    ) -> LiveConversation:
        """Return the conversation named, the newest of the workspace (`resume`), or a new one.

        Raises:
            ClawError: what is named is not to be had.
        """
        if conversation_id:
            return await self.book.load(conversation_id, principal)
        settings = self._settings()
        if resume:
            folder = settings.resolve_workspace(workspace)
            live = await self.book.newest(principal, folder)
            if live is not None:
                return live
        return await self.book.create(principal, settings, workspace=workspace, agent=agent)

    async def preview(
        self, principal: Principal, *, conversation_id: str, agent: str, workspace: str
    ) -> PromptPreview:
        """Return what a message of this conversation, or of a new one (""), would come with.

        Raises:
            ClawError: what is named is not to be had.
        """
        live = await self.book.load(conversation_id, principal) if conversation_id else None
        return await self.preparation.preview(live, principal, agent=agent, workspace=workspace)

    def cancel_conversation(self, conversation_id: str) -> int:
        """Cancel the turns of a conversation; returns how many there were."""
        return self._cancel(lambda entry: entry.ticket.conversation_id == conversation_id)

    def cancel_owner(self, uid: int) -> int:
        """Cancel the turns of all conversations of an owner; returns how many there were."""
        return self._cancel(lambda entry: entry.owner == uid)

    def stop_generations(self) -> None:
        """End every running generation because of the emergency stop."""
        for entry in self._running.values():
            if entry.turn is not None:
                entry.turn.stop_generating()
        if self.care is not None:
            self.care.stop()

    async def close(self, *, grace_s: float) -> None:
        """Refuse new messages, give running turns some time, then cancel them."""
        self._is_closing = True
        if self.care is not None:
            await self.care.close()
        if self._tasks:
            await asyncio.wait(tuple(self._tasks), timeout=grace_s)
        for task in tuple(self._tasks):
            task.cancel()
        if self._tasks:
            _, stuck = await asyncio.wait(tuple(self._tasks), timeout=CANCEL_LIMIT_S)
            if stuck:
                _log.error("%d turns did not end when they were cancelled", len(stuck))

    def _cancel(self, is_meant: Callable[[_Running], bool]) -> int:
        tickets = [entry.ticket for entry in self._running.values() if is_meant(entry)]
        for ticket in tickets:
            ticket.cancel()
        return len(tickets)

    # --- one message

    async def _conversation(
        self, incoming: IncomingMessage, principal: Principal, settings: RuntimeSettings
    ) -> LiveConversation:
        self.preparation.provider(incoming, settings)
        if incoming.conversation_id:
            return await self.book.load(incoming.conversation_id, principal)
        return await self.book.create(
            principal, settings, workspace=incoming.workspace, agent=incoming.agent
        )

    async def _run_in_order(
        self,
        live: LiveConversation,
        incoming: IncomingMessage,
        principal: Principal,
        ticket: Ticket,
    ) -> TurnFinished:
        def emit(event: Event) -> None:
            ticket.events.put(event)
            live.broadcast.emit(event)

        try:
            async with live.lock:
                live.tell = emit
                try:
                    finished = await self._run(live, incoming, principal, ticket, emit)
                finally:
                    live.tell = live.broadcast.emit
        except ClawError as error:
            # What it opened and never used would stand in every list, empty. Whoever stopped the
            # turn goes on in it.
            if not incoming.conversation_id and error.code not in {"estop", "cancelled"}:
                ticket.is_unused = await self.book.discard_unused(live)
            emit(_failure(ticket, error))
            raise
        except asyncio.CancelledError:
            emit(_failure(ticket, CancelledByUserError("the turn was cancelled")))
            raise
        except Exception as error:
            _log.error("a turn failed with a defect", exc_info=error)
            text = f"the turn failed inside the daemon: {type(error).__name__}"
            wrapped = ClawError(text, hint="The daemon's log has the details; please report it.")
            emit(_failure(ticket, wrapped))
            raise wrapped from error
        emit(finished)
        return finished

    async def _run(
        self,
        live: LiveConversation,
        incoming: IncomingMessage,
        principal: Principal,
        ticket: Ticket,
        emit: Callable[[Event], None],
    ) -> TurnFinished:
        prepared = await self._prepared(live, incoming, principal, ticket, emit)
        plan, words = prepared.plan, prepared.words

        async def persist(messages: tuple[Message, ...], mark: str) -> None:
            read = TokensRead(
                provider=plan.provider.name(),
                model=plan.model,
                tokens=turn.known_tokens,
                checkpoint=live.checkpoint_id,
                fixed=plan.fixed,
            )
            await self.book.store(live, ticket.turn_id, to_rows(messages, words, read, mark))
            live.note_stored(words, read)

        turn = self._turns.begin(plan, live.context, emit, persist)
        self._running[ticket.turn_id].turn = turn
        finished = await turn.run()
        live.answered += 1
        if self.care is not None:
            self.care.finished(live, prepared, finished)
        return finished

    async def _prepared(
        self,
        live: LiveConversation,
        incoming: IncomingMessage,
        principal: Principal,
        ticket: Ticket,
        emit: Emit,
    ) -> PreparedTurn:
        async def prepare(emit: Emit, short: str) -> PreparedTurn:
            return await self.preparation.prepare(
                live, incoming, principal, turn_id=ticket.turn_id, emit=emit, short=short
            )

        if self.care is None:
            return await prepare(emit, "")
        return await self.care.prepared(live, emit, prepare)

    def _ended(
        self, task: asyncio.Task[TurnFinished], live: LiveConversation, ticket: Ticket
    ) -> None:
        live.waiting -= 1
        self._tasks.discard(task)
        self._running.pop(ticket.turn_id, None)
        ticket.events.close()
        if ticket.is_unused:
            self.book.forget(live.record.id)
        if not task.cancelled():
            task.exception()


def _failure(ticket: Ticket, error: ClawError) -> TurnFailed:
    return TurnFailed(
        conversation_id="" if ticket.is_unused else ticket.conversation_id,
        turn_id=ticket.turn_id,
        code=error.code,
        message=error.message,
        hint=error.hint,
    )
