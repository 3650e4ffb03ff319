"""The inbox: every message to a conversation enters here, waits its turn, and runs as one.

A conversation runs one turn at a time, in order of arrival; different conversations run side by
side. Each turn is a task of the inbox, so it outlives nothing but the inbox.
"""

import asyncio
import logging
import secrets
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial

import msgspec

from clawd.config.schema import AgentProfile
from clawd.errors import (
    BusyError,
    CancelledByUserError,
    ClawError,
    ForbiddenError,
    InvalidRequestError,
)
from clawd.memory.approvals import LapsedCall
from clawd.providers.base import Sampling, ToolCall
from clawd.runtime.approval_prompts import approval_event
from clawd.runtime.context import TokensRead, UserWords, to_rows
from clawd.runtime.conversation import ConversationBook, LiveConversation
from clawd.runtime.hub import Subscription
from clawd.runtime.incoming import HelperTask, IncomingMessage, check
from clawd.runtime.model_request import why
from clawd.runtime.planning import Decision, Planning
from clawd.runtime.preparation import Preparation, PromptPreview, TurnSource
from clawd.runtime.settings import RuntimeSettings
from clawd.runtime.turn import MessageBatch, Turn
from clawd.runtime.turn_hooks import Care, TurnHooks
from clawd.runtime.turn_plan import LateCall
from clawd.security.approvals import Attendance, PendingApproval
from clawd.security.principal import Principal
from clawd.tools.base import Tool, is_builtin, traits_of
from clawd.tools.narrowing import Narrowing, may_name
from clawd.tools.outcome import CallScope
from clawd.tools.registry import Registry
from clawd.wire.events import Event, MessageJoined, TurnFailed, TurnFinished

CANCEL_LIMIT_S = 10.0
MAX_SAID = 16
MAX_DEPTH = 2
HELPER_ROUNDS = 16
HELPER_TOKENS = 4_096
MAX_SAID_BYTES = 64 * 1024
CHANGING = frozenset({"file_append", "file_edit", "file_write", "fs_ops", "job", "shell"})
"""What a helper may have beside what looks, in a copy: it acts there and nowhere else."""
IN_A_COPY = (
    "You work in a copy of the workspace: name files by paths relative to it. What you have "
    "changed there when you end is put before your user as one diff."
)

_log = logging.getLogger(__name__)


@dataclass(eq=False)
class Ticket:
    """A submitted message: the events of its turn, its end, and the way to cancel it.

    Attributes:
        is_unused: it failed, and the conversation that it opened is gone with it.
        attendance: who is there to answer what the turn asks.
        cut_by: why it was cancelled, where that was not the user's wish.
        task: runs the turn; None until it does.
    """

    conversation_id: str
    events: Subscription
    attendance: Attendance
    late: LateCall | None = None
    turn_id: str = field(default_factory=lambda: f"turn-{secrets.token_hex(8)}", init=False)
    is_unused: bool = field(default=False, init=False)
    cut_by: ClawError | None = field(default=None, init=False)
    task: asyncio.Task[TurnFinished] | None = field(default=None, init=False)

    def on_end(self, act: Callable[[], None]) -> None:
        """Call a function when the turn has ended, however."""
        assert self.task is not None
        self.task.add_done_callback(lambda _task: act())

    def end_of_cut(self) -> ClawError:
        """Return what a turn that was cancelled ended with."""
        return self.cut_by or CancelledByUserError("the turn was cancelled")

    def cancel(self) -> None:
        """Cancel the turn, wherever it is; idempotent."""
        if self.task is not None:
            self.task.cancel()

    async def finished(self) -> TurnFinished:
        """Wait for the turn's end.

        Raises:
            ClawError: the turn failed or was cancelled.
        """
        assert self.task is not None
        await asyncio.wait([self.task])
        if self.task.cancelled():
            raise self.end_of_cut()
        return self.task.result()


class _Said(msgspec.Struct, kw_only=True):
    """What was said to a turn that runs, and whether it joined."""

    text: str
    steer_id: str
    decided: asyncio.Future[bool]


class _Running(msgspec.Struct, kw_only=True):
    """A message whose turn runs or waits."""

    live: LiveConversation
    incoming: IncomingMessage
    principal: Principal
    ticket: Ticket
    helpers: list[str] = msgspec.field(default_factory=list)
    turn: Turn | None = None
    said: list[_Said] = msgspec.field(default_factory=list)

    def emit(self, event: Event) -> None:
        """Give an event of the turn to its owner and to those who follow the conversation."""
        self.ticket.events.put(event)
        self.live.broadcast.emit(event)


class Inbox:
    """Takes messages in and runs their turns.

    Args:
        book: the conversations.
        begin: makes a turn, given its plan, context, emit and persist.
        preparation: settles what a turn is given.
        settings: returns the settings in force.
        care: what is done around turns; None leaves contexts and titles as they are.
        hooks: the owner's programs that are told of turns; None for none.
    """

    def __init__(
        self,
        book: ConversationBook,
        *,
        begin: Callable[..., Turn],
        preparation: Preparation,
        settings: Callable[[], RuntimeSettings],
        care: Care | None = None,
        hooks: TurnHooks | None = None,
    ) -> None:
        self.book = book
        self._hooks = hooks
        self._begin = begin
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
            raise _ending()
        check(incoming)
        settings = self._settings()
        if incoming.door == "socket" and not settings.channels.cli.enabled:
            raise ForbiddenError(
                "conversations over the socket are switched off",
                hint="Set enabled = true in [channels.cli] of the config.",
            )
        self.preparation.provider(incoming, settings)
        if incoming.conversation_id:
            live = await self.book.load(incoming.conversation_id, principal)
        else:
            live = await self.book.create(
                principal,
                settings,
                workspace=incoming.workspace,
                agent=incoming.agent,
                grants=incoming.grants,
            )
        if incoming.mode:
            try:
                await self.book.set_mode(live, incoming.mode, principal)
            except ClawError:
                if not incoming.conversation_id:
                    await self.book.discard_unused(live)
                raise
        return self.enter(live, incoming, principal)

    def enter(
        self,
        live: LiveConversation,
        incoming: IncomingMessage,
        principal: Principal,
        *,
        late: LateCall | None = None,
    ) -> Ticket:
        """Put a message in the queue of its conversation; `late` is a call in place of a message.

        Raises:
            BusyError: the queue is full, or the daemon is ending.
        """
        limits = self._settings().limits
        if self._is_closing:
            raise _ending()
        if live.waiting >= limits.max_queued_messages:
            raise BusyError(
                f"{live.waiting} messages wait in conversation {live.record.id}", retry_after_s=5.0
            )
        live.waiting += 1
        ticket = Ticket(
            live.record.id,
            Subscription(limit=limits.max_queued_events, stall_s=limits.follower_stall_s),
            Attendance(live.attendance),
            late=late,
        )
        entry = _Running(live=live, incoming=incoming, principal=principal, ticket=ticket)
        ticket.task = asyncio.create_task(self._run_in_order(entry))
        self._running[ticket.turn_id] = entry
        self._tasks.add(ticket.task)
        ticket.task.add_done_callback(lambda done: self._ended(done, entry))
        return ticket

    @property
    def agents(self) -> Mapping[str, AgentProfile]:
        """The agents of the config."""
        return self._settings().agents

    async def delegate(self, parent_id: str, task: HelperTask) -> Ticket:
        """Begin a helper's turn for the turn that runs in a conversation.

        Raises:
            ForbiddenError: helpers of helpers have none, or there were as many as there may be.
            ClawError: no turn runs there, or what is named is not to be had.
        """
        running = (each for each in self._running.values() if each.turn is not None)
        entry = next((e for e in running if e.ticket.conversation_id == parent_id), None)
        live = self.book.live(parent_id)
        if entry is None or entry.turn is None or live is None:
            raise InvalidRequestError("helpers work for a turn that runs")
        if len(entry.incoming.helps) >= MAX_DEPTH:
            raise ForbiddenError("a helper of a helper has no helpers")
        if len(entry.helpers) >= task.most:
            raise ForbiddenError(f"this turn had {task.most} helpers, as many as it may have")
        scope, sent = entry.turn.scope, entry.incoming
        narrowed = (*scope.narrowed, *task.narrowed)
        incoming = IncomingMessage(
            text=task.text,
            workspace=live.record.workspace,
            works_in=task.works_in or sent.works_in,
            noted=IN_A_COPY if task.works_in else "",
            door=sent.door,
            provider=sent.provider,
            model=sent.model,
            agent=task.agent,
            profile=task.profile,
            hints=dict(live.hints),
            tools_allow=_for_helper(
                scope.offered, self.preparation.registry, narrowed, changes=bool(task.works_in)
            ),
            tool_mode=sent.tool_mode,
            max_rounds=HELPER_ROUNDS,
            max_tokens=min(task.max_tokens, sent.max_tokens or task.max_tokens),
            sampling=Sampling(max_tokens=HELPER_TOKENS),
            looks_only=not task.works_in,
            helps=(parent_id, *sent.helps),
            narrowed=narrowed,
        )
        entry.helpers.append(task.text)  # before the first wait: calls stand side by side
        ticket = await self.submit(incoming, entry.principal)
        # It has not begun: nothing waited since.
        self._running[ticket.turn_id].helpers = entry.helpers
        self.book.inherit(parent_id, ticket.conversation_id)
        return ticket

    async def steer(
        self, conversation_id: str, turn_id: str, text: str, principal: Principal, steer_id: str
    ) -> bool:
        """Say something to a turn that runs; return, when that is decided, whether it joined.

        Cancelling takes it back while it waits.

        Raises:
            BusyError: too much waits for the turn already.
            ForbiddenError: the turn runs for somebody else.
            ClawError: the text or the conversation is not to be had.
        """
        check(IncomingMessage(text=text))
        if len(text.encode(errors="replace")) > MAX_SAID_BYTES:
            raise InvalidRequestError(
                f"what is said to a running turn has at most {MAX_SAID_BYTES} bytes",
                hint="Send it as a message of its own.",
            )
        live = await self.book.load(conversation_id, principal)
        entry = self._running.get(turn_id)
        if entry is None or entry.ticket.conversation_id != live.record.id:
            return False
        # The turn acts with the rights of its beginner.
        began = (entry.principal.uid, entry.principal.key_id)
        if (principal.uid, principal.key_id) != began:
            raise ForbiddenError("the turn runs for somebody else")
        if len(entry.said) >= MAX_SAID:
            raise BusyError(f"{MAX_SAID} messages wait for this turn", retry_after_s=5.0)
        decided: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        said = _Said(text=text, steer_id=steer_id, decided=decided)
        entry.said.append(said)
        try:
            return await decided
        finally:
            entry.said = [each for each in entry.said if each is not said]

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

    def scope(self, conversation_id: str) -> CallScope | None:
        """Return for whom and where the turn calls that runs in a conversation; None for none."""
        running = (each for each in self._running.values() if each.turn is not None)
        found = (each for each in running if each.ticket.conversation_id == conversation_id)
        return next((each.turn.scope for each in found if each.turn is not None), None)

    def cancel_conversation(self, conversation_id: str) -> int:
        """Cancel the turns of a conversation; returns how many there were."""
        return self._cancel(lambda entry: entry.ticket.conversation_id == conversation_id)

    def cancel_owner(self, uid: int) -> int:
        """Cancel the turns of all conversations of an owner; returns how many there were."""
        return self._cancel(lambda entry: entry.live.record.owner == uid)

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
        for entry in tuple(self._running.values()):
            entry.ticket.cut_by = _ending()
            entry.ticket.cancel()
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

    async def _run_in_order(self, entry: _Running) -> TurnFinished:
        live, ticket = entry.live, entry.ticket
        try:
            async with live.lock:
                live.tell = entry.emit
                try:
                    hooks = self._hooks
                    if hooks is not None and hooks.settings():
                        finished = await self._run_hooked(entry, hooks)
                    else:
                        finished = await self._run(entry)
                finally:
                    live.tell = live.broadcast.emit
        except ClawError as error:
            # What it opened and never used would stand in every list, empty. Whoever stopped the
            # turn goes on in it.
            if not entry.incoming.conversation_id and error.code not in {"estop", "cancelled"}:
                ticket.is_unused = await self.book.discard_unused(live)
            entry.emit(_failure(ticket, error))
            raise
        except asyncio.CancelledError:
            entry.emit(_failure(ticket, ticket.end_of_cut()))
            raise
        except Exception as error:
            _log.error("a turn failed with a defect", exc_info=error)
            text = f"the turn failed inside the daemon: {type(error).__name__}"
            wrapped = ClawError(text, hint="The daemon's log has the details; please report it.")
            entry.emit(_failure(ticket, wrapped))
            raise wrapped from error
        entry.emit(finished)
        return finished

    async def _run_hooked(self, entry: _Running, hooks: TurnHooks) -> TurnFinished:
        """Run a turn, and the owner's hooks before and after it, however it ended."""
        live, principal, emit = entry.live, entry.principal, entry.emit
        entry.incoming = await hooks.started(live, entry.incoming, principal, emit)
        try:
            finished = await self._run(entry)
        except BaseException as error:
            code = error.code if isinstance(error, ClawError) else ""
            if isinstance(error, asyncio.CancelledError) or code in {"estop", "cancelled"}:
                hooks.stopped(live, principal)
            else:
                await hooks.ended(live, principal, emit, status="failed", answer=why(error))
            raise
        await hooks.ended(live, principal, emit, status="finished", answer=finished.text)
        return finished

    async def _run(self, entry: _Running) -> TurnFinished:
        live, incoming, ticket, emit = entry.live, entry.incoming, entry.ticket, entry.emit
        source = TurnSource(turn_id=ticket.turn_id, attendance=ticket.attendance, late=ticket.late)
        prepare = partial(self.preparation.prepare, live, incoming, entry.principal, source=source)
        care, joining = self.care, list[_Said]()
        prepared = await (care.prepared(live, emit, prepare) if care else prepare(emit=emit))
        plan, words = prepared.plan, deque([prepared.words] if ticket.late is None else ())

        def overheard() -> str:
            joining[:] = entry.said
            text = "\n\n".join(said.text for said in joining)
            if text:
                words.append(UserWords(text=text, speaker=prepared.words.speaker))
            return text

        async def persist(batch: MessageBatch) -> None:
            read = TokensRead(
                provider=plan.provider.name(),
                model=plan.model,
                tokens=batch.known_tokens,
                checkpoint=live.checkpoint.id if live.checkpoint is not None else 0,
                fixed=plan.fixed,
                usage=batch.usage,
            )
            rows = to_rows(batch.messages, words, read, batch.mark, batch.unreadable, batch.claims)
            await self.book.store(live, ticket.turn_id, rows)
            live.shown.update(prepared.words.facts)
            if prepared.words.speaker is not None:
                live.speakers |= {prepared.words.speaker}
            live.read, live.was_read = read, True
            if joining:
                self._joined(joining, entry)

        parking = _Parking(self.book, entry) if incoming.is_resumable else None
        if plan.scope.at_most and incoming.interactive:
            planning = Planning(self.book, live, self.preparation.person.questions, plan.scope)

            async def planned() -> Decision:
                decision = await planning.decided()
                if decision.text:
                    words.append(UserWords(text=decision.text, speaker=prepared.words.speaker))
                return decision

            plan = msgspec.structs.replace(plan, planned=planned)
        plan = msgspec.structs.replace(plan, overheard=overheard, parking=parking)
        entry.turn = self._begin(plan, context=live.context, emit=emit, persist=persist)
        finished = await entry.turn.run()
        live.answered += 1
        if care is not None and ticket.late is None:
            care.finished(live, prepared, finished)
        return finished

    def _joined(self, joining: list[_Said], entry: _Running) -> None:
        """Report what was said to a turn and is stored now; it is the turn's from here on."""
        entry.said = [said for said in entry.said if said not in joining]
        for said in joining:
            turn_id = entry.ticket.turn_id
            entry.emit(MessageJoined(turn_id=turn_id, text=said.text, steer_id=said.steer_id))
            if not said.decided.done():
                said.decided.set_result(True)
        joining.clear()

    def _ended(self, task: asyncio.Task[TurnFinished], entry: _Running) -> None:
        live, ticket = entry.live, entry.ticket
        live.waiting -= 1
        self._tasks.discard(task)
        del self._running[ticket.turn_id]
        for said in entry.said:
            if not said.decided.done():
                said.decided.set_result(False)
        ticket.events.close()
        if ticket.is_unused:
            self.book.forget(live.record.id)
        if not task.cancelled():
            task.exception()


def _for_helper(
    offered: frozenset[str] | None,
    registry: Registry,
    narrowed: tuple[Narrowing, ...],
    *,
    changes: bool,
) -> tuple[str, ...]:
    """Return patterns of the tools that a helper is offered: of the turn's, those that look."""
    names = {tool.name for tool in registry.all()} if offered is None else offered
    found = [registry.find(n) for n in names if all(may_name(each, n) for each in narrowed)]
    helps = [tool.name for tool in found if tool is not None and _helps(tool, changes=changes)]
    return tuple(sorted(helps)) or ("-*",)


def _helps(tool: Tool, *, changes: bool) -> bool:
    """Return whether a helper may have a tool; in a copy only those of which clawd knows it all."""
    traits = traits_of(tool)
    looks = (traits.effect == "looks" or traits.looks_at_low) and not traits.asks
    return is_builtin(tool) and (looks or tool.name in CHANGING) if changes else looks


def _ending() -> BusyError:
    return BusyError("the daemon is shutting down", retry_after_s=5.0)


def _failure(ticket: Ticket, error: ClawError) -> TurnFailed:
    return TurnFailed(
        conversation_id="" if ticket.is_unused else ticket.conversation_id,
        turn_id=ticket.turn_id,
        code=error.code,
        message=error.message,
        hint=error.hint,
    )


@dataclass
class _Parking:
    """Keeps the calls of a turn that nobody answers for."""

    book: ConversationBook
    running: _Running

    async def hold(self, call: ToolCall, pending: PendingApproval, receipt_id: str) -> None:
        await self._add(call, pending, receipt_id, is_held=True)

    async def keep(self, call: ToolCall, pending: PendingApproval, receipt_id: str) -> None:
        await self._add(call, pending, receipt_id, is_held=False)

    async def release(self, approval_id: str) -> None:
        await self.book.lapsed.drop(approval_id)

    async def _add(
        self, call: ToolCall, pending: PendingApproval, receipt_id: str, *, is_held: bool
    ) -> None:
        turn, conversation_id = self.running.turn, self.running.ticket.conversation_id
        sent = self.running.incoming
        if turn is not None:
            changed = {"narrowed": turn.narrowed, "plan_first": turn.is_planning}
            sent = msgspec.structs.replace(sent, **changed)
        kept = _lapsed_call(call, pending, receipt_id, sent, conversation_id)
        sources = self.book.sources(conversation_id)
        kept = msgspec.structs.replace(kept, sources=sources, is_held=is_held)
        await self.book.lapsed.add(kept)


def _lapsed_call(
    call: ToolCall,
    pending: PendingApproval,
    receipt_id: str,
    sent: IncomingMessage,
    conversation_id: str,
) -> LapsedCall:
    """Return what is kept of a call that nobody answered for."""
    question = pending.question
    # What the conversation has of its own, and what was for this message alone, stays out.
    again = IncomingMessage(
        text="",
        conversation_id=conversation_id,
        detach=True,
        is_resumable=True,
        door=sent.door,
        provider=sent.provider,
        model=sent.model,
        agent=sent.agent,
        preset=sent.preset,
        system=sent.system,
        sampling=sent.sampling,
        tools_allow=sent.tools_allow,
        tool_mode=sent.tool_mode,
        retry=sent.retry,
        max_rounds=sent.max_rounds,
        plan_first=sent.plan_first,
        narrowed=sent.narrowed,
    )
    return LapsedCall(
        shown=approval_event(pending),
        conversation_id=conversation_id,
        receipt_id=receipt_id,
        call=call,
        principal=question.action.principal,
        asked_at=pending.asked_at.isoformat(timespec="seconds"),
        lapsed_at=datetime.now(UTC).isoformat(),
        tainted_by=question.tainted_by,
        sent=msgspec.to_builtins(again),
    )
