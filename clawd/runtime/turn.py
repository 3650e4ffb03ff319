"""The agent loop: from a user's message to an answer, through as many rounds of calls as allowed.

It knows no terminal, no disk and no provider by name: events go to `emit`, complete messages to
`persist`, calls to the dispatcher. What is complete is committed round by round; a failure or a
cancellation leaves the last complete round and nothing after it.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Literal

import msgspec

from clawd.errors import ClawError, ContextFullError, StoppedError
from clawd.providers.base import ChatRequest, Message, ToolCall
from clawd.runtime.attempts import Attempts
from clawd.runtime.commands import MAX_COMMANDS, SHELL, as_plain_history, command_calls, commands_in
from clawd.runtime.context import Context, Transaction, result_message, with_unique_ids
from clawd.runtime.hop import Emit, HopResult, run_hop
from clawd.runtime.ledger import TurnLedger
from clawd.runtime.meter import TurnMeter
from clawd.runtime.progress import LoopGuard
from clawd.runtime.turn_errors import as_claw_error, why
from clawd.runtime.turn_plan import TurnPlan, renewed, request_of
from clawd.runtime.unreadable import was_to_be_a_call
from clawd.tools.dispatch import Dispatcher
from clawd.tools.outcome import CallRequest
from clawd.tools.registry import Registry
from clawd.tools.settle import settled
from clawd.wire.events import (
    Event,
    HopReset,
    Notice,
    PromptEvaluated,
    TextDelta,
    ToolRequested,
    TurnFinished,
)

StopWord = Literal["stop", "length", "cap", "loop"]
_log = logging.getLogger(__name__)
_WHOLE = frozenset({"stop", "tool_calls"})  # why an answer ends that nothing cut

Persist = Callable[[tuple[Message, ...], str], Awaitable[None]]
"""Stores committed messages; the second argument marks them (`incomplete: …`) or is empty."""


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
        self._answered_by = ""  # the model, as the provider calls it
        self._stored = 0  # how many of the pending messages are on disk already
        self._guard = LoopGuard()
        self._ledger = TurnLedger(plan.provider)
        self._meter = TurnMeter(plan.known_tokens)
        self._shown: list[str] = []  # of the running attempt
        self._denied = 0
        self._unanswered = 0
        self._deadline: float | None = None
        self._is_late = False

    @property
    def known_tokens(self) -> int:
        """How many tokens the next prompt begins with that the model has read."""
        return self._meter.known_tokens

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
        limits = self._plan.limits
        if limits.wall_clock_budget_s:
            self._deadline = asyncio.get_running_loop().time() + limits.wall_clock_budget_s
        self._transaction.add(self._plan.message)
        text = ""
        for _round in range(limits.max_tool_rounds + 1):
            result = await self._next_hop()
            text = result.text or text
            if self._is_late:
                return await self._give_up(text, "cap", self._time_is_up)
            if not result.calls:
                return await self._end(result, text)
            if self._meter.usage.rounds >= limits.max_tool_rounds:
                self._meter.forget_answer()  # its calls are dropped
                break
            reason = await self._round(result)
            if reason:
                return await self._give_up(text, "loop", reason)
            if self._is_late:
                return await self._give_up(text, "cap", self._time_is_up)
        limit = limits.max_tool_rounds
        return await self._give_up(text, "cap", f"the limit of {limit} tool rounds is reached")

    @property
    def _time_is_up(self) -> str:
        return f"{self._plan.limits.wall_clock_budget_s:g} s are used up"

    # --- hops

    async def _next_hop(self) -> HopResult:
        """Return the next answer, or what was shown of it when the time was up."""
        self._renew()
        limits = self._plan.limits
        attempts = Attempts(
            self._ask, self._emit, self._meter, retries_incomplete=limits.retry_on_incomplete
        )
        limit = asyncio.timeout_at(self._deadline)
        try:
            async with limit:
                await self._make_room()
                result = await attempts.run(self._request())
                if await self._made_room_after_all(result):
                    result = await attempts.run(self._request())
        except TimeoutError:
            if not limit.expired():
                raise
            return self._late(self._request(), attempts.broken_off)
        if result.failure is not None:
            await self._keep_partial(result)
            raise as_claw_error(result.failure)
        if result.overlong:
            cut = f"the answer was cut at {limits.max_response_bytes} bytes"
            self._emit(Notice(level="warning", text=cut))
        return self._with_commands(result)

    def _renew(self) -> None:
        """Begin the next request with the tools there are now, if they are not those of before."""
        before, self._plan = self._plan, renewed(self._plan)
        if self._plan is not before:
            self._meter.known_tokens = 0

    async def _made_room_after_all(self, result: HopResult) -> bool:
        """Make room for a prompt that was estimated to fit and did not; tell whether there is."""
        if not isinstance(result.failure, ContextFullError):
            return False
        self._meter.known_tokens = 0
        return await self._make_room()

    async def _make_room(self) -> bool:
        """Let older messages give way where the next request would not fit; tell if any did."""
        plan = self._plan
        if plan.make_room is None:
            return False
        wanted = request_of(plan, self._transaction.messages)
        known = self.known_tokens
        if not self._meter.usage.rounds:
            known = min(known, plan.measured_tokens)
        is_changed = await plan.make_room(wanted, known)
        if is_changed:
            self._meter.known_tokens = 0
        return is_changed

    def _request(self) -> ChatRequest:
        messages = self._transaction.messages
        shown = messages if self._plan.calls_tools else as_plain_history(messages)
        return request_of(self._plan, shown)

    async def _ask(self, request: ChatRequest) -> HopResult:
        """Make one attempt; the emergency stop ends it."""
        self._shown.clear()
        self._hop = asyncio.create_task(
            run_hop(
                self._plan.provider,
                request,
                lambda event: self._on_event(event, request),
                limit_bytes=self._plan.limits.max_response_bytes,
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
        self._meter.note_hop(result)
        if result.finished is not None:
            self._answered_by = result.finished.model
        return result

    def _on_event(self, event: Event, request: ChatRequest) -> None:
        self._emit(event)
        if isinstance(event, TextDelta):
            self._shown.append(event.text)
        elif isinstance(event, PromptEvaluated):
            self._ledger.begin(request)
            known = msgspec.structs.asdict(event) | {"model": self._plan.model}
            _log.info("[prompt_eval]", extra={"turn": self._plan.turn_id, **known})

    def _late(self, request: ChatRequest, before: str) -> HopResult:
        """Return what was said of an answer that the time was up for, but never half a call.

        Where the last attempt said nothing, it is what an attempt `before` said.
        """
        self._is_late = True
        text = "".join(self._shown)
        if was_to_be_a_call(text, request):
            self._emit(HopReset(reason=self._time_is_up))
            text = ""
        if before and not text.strip():
            self._emit(TextDelta(text=before))
            text += before
        return HopResult(text=text, calls=())

    def _with_commands(self, result: HopResult) -> HopResult:
        """Add the commands in the text of a model that can call no tools."""
        plan = self._plan
        is_whole = result.finished is not None and result.finished.reason in _WHOLE
        is_said = is_whole and not result.is_promoted  # neither half a line nor a thought
        if plan.calls_tools or not is_said or all(tool.name != SHELL for tool in plan.tools):
            return result
        commands = commands_in(result.text)
        if len(commands) > MAX_COMMANDS:
            told = f"the first {MAX_COMMANDS} of {len(commands)} commands are run, no others"
            self._emit(Notice(level="warning", text=told))
        return msgspec.structs.replace(result, calls=command_calls(commands[:MAX_COMMANDS]))

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
        calls = with_unique_ids(result.calls, self._transaction.messages)
        self._transaction.add(Message(role="assistant", content=result.text, tool_calls=calls))
        try:
            # What was asked is on disk before anything is done about it: a crash in a call must
            # not leave a receipt that no conversation explains.
            await self._store_ahead()
            texts = await self._make(calls)
            await self._commit("")
        except BaseException as error:
            await self._keep_round(error)
            raise
        self._meter.note_round(len(calls))
        return self._guard.note(calls, texts)

    async def _make(self, calls: tuple[ToolCall, ...]) -> list[str]:
        """Make the calls until the time is up; those that it is up for are told so."""
        texts: list[str] = []
        limit = asyncio.timeout_at(self._deadline)
        try:
            async with limit:
                for call in calls:
                    texts.append(await self._call(call))  # noqa: PERF401 - what is done is kept
        except TimeoutError:
            if not limit.expired():
                raise
            self._is_late = True
            self._transaction.complete_results(f"{self._time_is_up}, the call was not completed")
        return texts

    async def _call(self, call: ToolCall) -> str:
        self._emit(ToolRequested(call_id=call.id, tool=call.name, arguments=call.arguments))
        request = CallRequest(id=call.id, tool=call.name, arguments=call.arguments, by_model=True)
        outcome = await self._dispatcher.call(request, self._plan.scope)
        self._denied += outcome.status == "denied"
        self._unanswered += outcome.kind == "unanswered"
        self._transaction.add(result_message(call, outcome.text))
        return outcome.text

    async def _keep_round(self, error: BaseException) -> None:
        """Give every call of a round that failed a result that says why, and store it."""
        if not self._transaction.pending:
            return
        self._transaction.complete_results(
            f"the turn ended before this call had a result: {why(error)}"
        )
        try:
            await settled(self._store(""))
        except ClawError:
            # Memory holds no more than the beginning; a load would mend it in the same way.
            self._transaction.keep(self._stored)

    # --- ends

    async def _end(self, result: HopResult, text: str) -> TurnFinished:
        """End the turn with an answer that asks for no calls."""
        if result.is_unreadable:
            lost = "the model's tool calls could not be read, and none of them was run"
            return await self._give_up(text, "stop", lost)
        if result.overlong and not result.text:
            limit = self._plan.limits.max_response_bytes
            return await self._give_up(text, "length", f"the answer was cut at {limit} bytes")
        return await self._answer(result.text, "length" if result.is_cut else "stop")

    async def _give_up(self, text: str, stop: StopWord, reason: str) -> TurnFinished:
        note = f"I stopped: {reason}."
        self._emit(Notice(level="warning", text=f"stopped: {reason}"))
        self._emit(TextDelta(text=f"\n{note}" if text else note))
        return await self._answer(f"{text}\n{note}" if text else note, stop)

    async def _answer(self, text: str, stop: StopWord) -> TurnFinished:
        self._transaction.add(Message(role="assistant", content=text))
        await self._commit("")
        usage = self._meter.usage
        used, size = usage.context_used, usage.context_size
        return TurnFinished(
            conversation_id=self._plan.scope.conversation_id,
            turn_id=self._plan.turn_id,
            text=text,
            stop_reason=stop,
            provider=self._plan.provider.name(),
            model=self._plan.model or self._answered_by,
            usage=usage,
            ledger=await self._ledger.report(self._meter.last_hop, used=used, size=size),
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
