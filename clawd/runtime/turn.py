"""The agent loop: from a user's message to an answer, through as many rounds of calls as allowed.

It knows no terminal, no disk and no provider by name: events go to `emit`, complete messages to
`persist`, calls to the dispatcher. What is complete is committed round by round; a failure or a
cancellation leaves the last complete round and nothing after it.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Literal

import msgspec

from clawd.errors import ClawError, ProviderError, StoppedError
from clawd.providers.base import ChatRequest, Message, Provider, Sampling, ToolCall, Usage
from clawd.runtime.context import Context, Transaction, result_message
from clawd.runtime.hop import Emit, HopResult, run_hop
from clawd.runtime.ledger import TurnLedger
from clawd.runtime.progress import LoopGuard
from clawd.tools.base import Tool
from clawd.tools.dispatch import Dispatcher
from clawd.tools.outcome import CallRequest, CallScope
from clawd.tools.registry import Registry, specs
from clawd.tools.settle import settled
from clawd.wire.events import (
    Event,
    Notice,
    PromptEvaluated,
    TextDelta,
    ToolRequested,
    TurnFinished,
    TurnUsage,
)

StopWord = Literal["stop", "length", "cap", "loop"]

Persist = Callable[[tuple[Message, ...], str], Awaitable[None]]
"""Stores committed messages; the second argument marks them (`incomplete: …`) or is empty."""


MakeRoom = Callable[[ChatRequest, int], Awaitable[bool]]
"""Compresses the committed messages where a request would not fit; tells whether it did.

The second argument is how many tokens the model has read of the request, 0 for unknown.
"""


class TurnLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How far a turn may go. A `wall_clock_budget_s` of 0 sets no limit of time."""

    max_tool_rounds: int = 8
    wall_clock_budget_s: float = 0.0
    max_response_bytes: int = 1_000_000


class TurnPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that is settled before a turn begins.

    Attributes:
        hints: what the message asks of a router: `model`, `cost`, `privacy`, `size`.
        known_tokens: how many tokens the last prompt and its answer had, 0 for unknown.
        make_room: asked before every request; None lets everything be sent.
    """

    turn_id: str
    message: Message
    system: str
    tools: tuple[Tool, ...]
    provider: Provider
    model: str
    limits: TurnLimits
    scope: CallScope
    sampling: Sampling | None = None
    hints: dict[str, str] = {}
    known_tokens: int = 0
    make_room: MakeRoom | None = None


class Turn:
    """One turn of a conversation.

    Args:
        plan: what is settled.
        context: the conversation's messages; extended as rounds complete.
        dispatcher: makes the calls.
        emit: takes events; never blocks.
        persist: stores what was committed, durable when it returns.
    """

    def __init__(
        self,
        plan: TurnPlan,
        *,
        context: Context,
        dispatcher: Dispatcher,
        emit: Emit,
        persist: Persist,
    ) -> None:
        self._plan = plan
        self._transaction: Transaction = context.begin()
        self._dispatcher = dispatcher
        self._emit = emit
        self._persist = persist
        self._hop: asyncio.Task[HopResult] | None = None
        self._is_stopped = False
        self._stored = 0  # how many of the pending messages are on disk already
        self._guard = LoopGuard()
        self._ledger = TurnLedger(plan.provider)
        self._last_hop = Usage()
        self.known_tokens = plan.known_tokens
        self._usage = TurnUsage()
        self._denied = 0
        self._unanswered = 0
        self._deadline = (
            time.monotonic() + plan.limits.wall_clock_budget_s
            if plan.limits.wall_clock_budget_s
            else None
        )

    def stop_generating(self) -> None:
        """End a running generation because of the emergency stop; running calls are dispatch's."""
        if self._hop is not None and not self._hop.done():
            self._is_stopped = True
            self._hop.cancel()

    async def run(self) -> TurnFinished:
        """Run the turn to its end.

        Raises:
            ClawError: the provider failed, the trail could not be written, or the stop was set.
            CancelledError: it was cancelled; complete rounds are kept.
        """
        try:
            return await self._run()
        finally:
            self._ledger.close()

    async def _run(self) -> TurnFinished:
        self._transaction.add(self._plan.message)
        text = ""
        for _round in range(self._plan.limits.max_tool_rounds + 1):
            result = await self._next_hop()
            text = result.text or text
            if not result.calls:
                stop: StopWord = "length" if _was_cut(result) else "stop"
                return await self._answer(result.text, stop)
            if self._usage.rounds >= self._plan.limits.max_tool_rounds:
                self.known_tokens = self._last_hop.prompt_tokens  # its calls are dropped
                break
            reason = await self._round(result)
            if reason:
                return await self._give_up(text, "loop", reason)
            if self._deadline is not None and time.monotonic() > self._deadline:
                spent = f"{self._plan.limits.wall_clock_budget_s:g} s are used up"
                return await self._give_up(text, "cap", spent)
        limit = self._plan.limits.max_tool_rounds
        return await self._give_up(text, "cap", f"the limit of {limit} tool rounds is reached")

    # --- hops

    async def _next_hop(self) -> HopResult:
        plan = self._plan
        request = request_of(plan, self._transaction.messages)
        if plan.make_room is not None and await plan.make_room(request, self.known_tokens):
            self.known_tokens = 0
            request = request_of(plan, self._transaction.messages)
        self._hop = asyncio.create_task(
            run_hop(
                plan.provider,
                request,
                lambda event: self._on_event(event, request),
                limit_bytes=plan.limits.max_response_bytes,
                known_tokens=self.known_tokens,
            )
        )
        try:
            result = await self._hop
        except asyncio.CancelledError:
            if not self._is_stopped:
                raise
            raise StoppedError(
                "the emergency stop was set while the model was answering",
                hint="an admin clears it with: clawctl estop --clear",
            ) from None
        finally:
            if not self._hop.done():
                self._hop.cancel()
        if result.evaluated is None and result.failure is None:
            self._ledger.begin(request)
        self._count(result)
        if result.failure is not None:
            await self._keep_partial(result)
            raise as_claw_error(result.failure)
        if result.overlong:
            limit = plan.limits.max_response_bytes
            self._emit(Notice(level="warning", text=f"the answer was cut at {limit} bytes"))
        return result

    def _on_event(self, event: Event, request: ChatRequest) -> None:
        self._emit(event)
        if isinstance(event, PromptEvaluated):
            self._ledger.begin(request)

    def _count(self, result: HopResult) -> None:
        self.known_tokens = result.sequence_tokens or self.known_tokens
        self._last_hop = result.finished.usage if result.finished is not None else Usage()
        usage, finished, evaluated = self._usage, result.finished, result.evaluated
        changes: dict[str, float | int] = {}
        if finished is not None:
            changes = {
                "prompt_tokens": usage.prompt_tokens + finished.usage.prompt_tokens,
                "cached_tokens": usage.cached_tokens + finished.usage.cached_tokens,
                "completion_tokens": usage.completion_tokens + finished.usage.completion_tokens,
                "tokens_per_s": finished.tokens_per_s,
            }
        if evaluated is not None:
            generated = finished.usage.completion_tokens if finished else 0
            changes["context_used"] = evaluated.context_used + generated
            changes["context_size"] = evaluated.context_size
        self._usage = msgspec.structs.replace(usage, **changes)

    async def _keep_partial(self, result: HopResult) -> None:
        """Keep what was said before the provider failed in mid-answer, marked as broken off."""
        if not result.text.strip():
            self._transaction.rollback()
            return
        self._transaction.add(Message(role="assistant", content=result.text))
        await self._commit(f"incomplete: {result.failure}")

    # --- rounds

    async def _round(self, result: HopResult) -> str:
        """Make the calls of a hop, one at a time; return why the turn should stop, or ""."""
        calls = _with_unique_ids(result.calls, self._transaction.messages)
        self._transaction.add(Message(role="assistant", content=result.text, tool_calls=calls))
        try:
            # What was asked is on disk before anything is done about it: a crash in a call must
            # not leave a receipt that no conversation explains.
            await self._store_ahead()
            texts = [await self._call(call) for call in calls]
        except BaseException:
            self._transaction.complete_results("the turn ended before this call had a result")
            await settled(self._store(""))
            raise
        await self._commit("")
        self._usage = msgspec.structs.replace(
            self._usage,
            rounds=self._usage.rounds + 1,
            tool_calls=self._usage.tool_calls + len(calls),
        )
        return self._guard.note(calls, texts)

    async def _call(self, call: ToolCall) -> str:
        self._emit(ToolRequested(call_id=call.id, tool=call.name, arguments=call.arguments))
        outcome = await self._dispatcher.call(
            CallRequest(id=call.id, tool=call.name, arguments=call.arguments), self._plan.scope
        )
        self._denied += outcome.status == "denied"
        self._unanswered += outcome.kind == "unanswered"
        self._transaction.add(result_message(call, outcome.text))
        return outcome.text

    # --- ends

    async def _give_up(self, text: str, stop: StopWord, reason: str) -> TurnFinished:
        note = f"I stopped: {reason}."
        self._emit(Notice(level="warning", text=f"stopped: {reason}"))
        self._emit(TextDelta(text=f"\n{note}" if text else note))
        return await self._answer(f"{text}\n{note}" if text else note, stop)

    async def _answer(self, text: str, stop: StopWord) -> TurnFinished:
        self._transaction.add(Message(role="assistant", content=text))
        await self._commit("")
        used, size = self._usage.context_used, self._usage.context_size
        return TurnFinished(
            conversation_id=self._plan.scope.conversation_id,
            turn_id=self._plan.turn_id,
            text=text,
            stop_reason=stop,
            provider=self._plan.provider.name(),
            model=self._plan.model,
            usage=self._usage,
            ledger=await self._ledger.report(self._last_hop, used=used, size=size),
            denied=self._denied,
            unanswered_approvals=self._unanswered,
        )

    async def _commit(self, mark: str) -> None:
        """Store and commit, both or neither, even when the turn is cancelled meanwhile."""
        _, cancelled = await settled(self._store(mark))
        if cancelled:
            raise asyncio.CancelledError

    async def _store(self, mark: str) -> None:
        await self._persist(self._transaction.pending[self._stored :], mark)
        self._transaction.commit()
        self._stored = 0

    async def _store_ahead(self) -> None:
        """Store what is pending, without committing: calls in it have no results yet."""
        pending = self._transaction.pending
        _, cancelled = await settled(self._persist_some(pending[self._stored :]))
        self._stored = len(pending)
        if cancelled:
            raise asyncio.CancelledError

    async def _persist_some(self, messages: tuple[Message, ...]) -> None:
        await self._persist(messages, "")


class Turns:
    """Makes turns; holds what they all share."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher

    @property
    def registry(self) -> Registry:
        """The tools that turns may call."""
        return self._dispatcher.registry

    def begin(self, plan: TurnPlan, context: Context, emit: Emit, persist: Persist) -> Turn:
        """Return a turn that is ready to run."""
        return Turn(plan, context=context, dispatcher=self._dispatcher, emit=emit, persist=persist)


def request_of(plan: TurnPlan, messages: tuple[Message, ...]) -> ChatRequest:
    """Return what a turn asks of its provider."""
    return ChatRequest(
        system=plan.system,
        messages=messages,
        tools=specs(plan.tools),
        model=plan.model,
        metadata=plan.hints | {"conversation_id": plan.scope.conversation_id},
        sampling=plan.sampling,
    )


def as_claw_error(error: Exception) -> ClawError:
    """Return the error itself, or a provider's own exception as one that can be told."""
    if isinstance(error, ClawError):
        return error
    return ProviderError(f"{type(error).__name__}: {error}", kind="invalid")


def _was_cut(result: HopResult) -> bool:
    return result.overlong or (result.finished is not None and result.finished.reason == "length")


def _with_unique_ids(
    calls: tuple[ToolCall, ...], history: tuple[Message, ...]
) -> tuple[ToolCall, ...]:
    """Give calls whose id was used before in the conversation an id of their own."""
    used = {call.id for message in history for call in message.tool_calls}
    unique: list[ToolCall] = []
    for call in calls:
        call_id, number = call.id, 2
        while call_id in used:
            call_id = f"{call.id}-{number}"
            number += 1
        used.add(call_id)
        unique.append(msgspec.structs.replace(call, id=call_id))
    return tuple(unique)
