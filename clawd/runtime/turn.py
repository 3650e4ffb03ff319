"""The agent loop: from a user's message to an answer, through as many rounds of calls as allowed.

It knows no terminal, no disk and no provider by name: events go to `emit`, complete messages to
`persist`, calls to the dispatcher. What is complete is committed round by round; a failure or a
cancellation leaves the last complete round and nothing after it.
"""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Literal, TypeVar

import msgspec

from clawd.errors import ClawError, ContextFullError, StoppedError
from clawd.kernel.concurrency import settled
from clawd.providers.base import ChatRequest, Message, ToolCall, strip_context_block
from clawd.providers.ledger import SizeTeller
from clawd.runtime import model_request
from clawd.runtime.claims import CLAIMING, Deeds, act_of, checked, earlier_acts
from clawd.runtime.commands import MAX_COMMANDS, SHELL, as_plain_history, command_calls, commands_in
from clawd.runtime.context import (
    UNSAID,
    Context,
    Transaction,
    told_text,
    with_block,
    with_unique_ids,
)
from clawd.runtime.slips import UNSURE, doubt, put_right
from clawd.runtime.transcript import OPENING
from clawd.runtime.turn_plan import TurnPlan, renewed, request_of
from clawd.security.approvals import PendingApproval
from clawd.skills.tools import SKILL_READ, narrowing_of
from clawd.tools.dispatch import Dispatcher
from clawd.tools.narrowing import Narrowing
from clawd.tools.outcome import CallOutcome, CallRequest, CallScope
from clawd.wire import events as wire

_Lapsed = tuple[ToolCall, PendingApproval, str]  # with the id of its receipt
_T = TypeVar("_T")
StopWord = Literal["stop", "length", "cap", "loop"]
MAX_BESIDE = 4
"""So many calls of one round run at the same time."""
_log = logging.getLogger(__name__)
_WHOLE = frozenset({"stop", "tool_calls"})  # why an answer ends that nothing cut


class MessageBatch(msgspec.Struct, frozen=True, kw_only=True):
    """What a turn stores at once: messages, and what is known beside them by now.

    Attributes:
        mark: marks messages that broke off (`incomplete: …`), or is empty.
        known_tokens: how many tokens the next prompt begins with that the model has read.
        unreadable: what could not be read as a call since the batch before.
        claims: what the answer says was done, checked; empty until there is one.
        usage: what the turn took until now.
    """

    messages: tuple[Message, ...]
    mark: str
    known_tokens: int
    unreadable: tuple[str, ...]
    claims: tuple[wire.Claim, ...]
    usage: wire.TurnUsage


Persist = Callable[[MessageBatch], Coroutine[Any, Any, None]]


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
        emit: model_request.Emit,
        persist: Persist,
    ) -> None:
        self._plan = plan
        self._transaction = Transaction(context)
        self._dispatcher = dispatcher
        self._emit = emit
        self._persist = persist
        self._hop: asyncio.Task[model_request.HopResult] | None = None
        self._is_stopped = False
        self._answered_by = ""  # the model, as the provider calls it
        self._stored = 0  # how many of the pending messages are on disk already
        self._guard = model_request.LoopGuard()
        self._ledger = model_request.TurnLedger(plan.provider)
        self._meter = model_request.TurnMeter(plan.known_tokens)
        self._shown: list[str] = []  # of the running attempt
        self._denied = 0
        self._unanswered = 0
        self._is_unsure = False  # the model, of the calls of the running round
        sizes = plan.provider
        self._is_small = isinstance(sizes, SizeTeller) and sizes.is_small(plan.model)
        self._parked: PendingApproval | None = None
        self._late_call = plan.late  # until it is made
        self._deadline: float | None = None
        self._is_late = False
        self._outcomes: list[CallOutcome] = []
        self._overheard: list[str] = []
        self._earlier = context.messages
        self._claims: tuple[wire.Claim, ...] = ()
        self._unreadable: list[str] = []
        self._unreadable_stored = 0

    @property
    def scope(self) -> CallScope:
        """For whom and where its calls run."""
        return self._plan.scope

    @property
    def is_planning(self) -> bool:
        """Whether it only looks so far."""
        return bool(self._plan.scope.at_most)

    @property
    def narrowed(self) -> tuple[Narrowing, ...]:
        """What asks about calls that it does not name, so far."""
        return self._plan.scope.narrowed

    def stop_generating(self) -> None:
        """End a running generation because of the emergency stop; running calls are dispatch's."""
        if self._hop is not None and not self._hop.done():
            self._is_stopped = True
            self._hop.cancel()

    async def run(self) -> wire.TurnFinished:
        """Run the turn to its end.

        Raises:
            ClawError: the provider failed, the trail could not be written, or the stop was set.
            CancelledError: it was cancelled; complete rounds are kept.
        """
        with contextlib.closing(self._ledger):
            limits = self._plan.limits
            allowed = limits.max_tool_rounds
            await self._begin()
            while True:
                result = await self._next_hop()
                if self._is_late:
                    return await self._give_up(result.text, "cap", self._time_is_up)
                if not result.calls:
                    if self._plan.planned is None or not await self._begins_work(result):
                        return await self._end(result)
                    allowed = self._meter.usage.rounds + limits.max_tool_rounds
                    continue
                if self._meter.usage.rounds >= allowed:
                    if not await self._goes_on(allowed):
                        self._meter.forget_answer()  # its calls are dropped
                        break
                    allowed += limits.max_tool_rounds
                # What was said beside calls is kept with them.
                reason = await self._round(result)
                if self._parked is not None:
                    return await self._wait(self._parked)
                if reason:
                    return await self._give_up("", "loop", reason)
                usage, most = self._meter.usage, limits.max_tokens
                if 0 < most <= usage.prompt_tokens + usage.completion_tokens or self._is_late:
                    return await self._give_up("", "cap", self._cap)
                await self._take_in()
            reached = f"the limit of {allowed} tool rounds is reached ({limits.rounds_key})"
            return await self._give_up(result.text, "cap", reached)

    async def _begin(self) -> None:
        """Take the message, or make the call with which the turn goes on; the time runs."""
        budget_s, now = self._plan.limits.wall_clock_budget_s, asyncio.get_running_loop().time()
        self._deadline = now + budget_s if budget_s else None
        if self._plan.late is None:
            self._transaction.pending.append(self._plan.message)
        else:
            await self._round(model_request.HopResult(text="", calls=(self._plan.late.call,)))

    async def _goes_on(self, rounds: int) -> bool:
        """Ask the person, if one is there, whether to go on."""
        if self._plan.go_on is None:
            return False
        return await self._heard(self._plan.go_on(rounds, self._plan.limits.max_tool_rounds))

    async def _heard(self, answer: Awaitable[_T]) -> _T:
        """Wait for the person's answer; their time is not the turn's."""
        clock = asyncio.get_running_loop().time
        asked_at = clock()
        said = await answer
        if self._deadline is not None:
            self._deadline += clock() - asked_at
        return said

    async def _begins_work(self, result: model_request.HopResult) -> bool:
        """After a plan, ask the person; return whether the turn goes on, and how it does then."""
        plan = self._plan
        if plan.planned is None or result.is_cut or result.unreadable or not result.text.strip():
            return False
        decision = await self._heard(plan.planned())
        if not decision.text:
            return False
        told = Message(role="user", content=with_block("", decision.text))
        self._transaction.pending += [_said(result), told]
        await self._store()
        self._guard = model_request.LoopGuard()
        self._plan = msgspec.structs.replace(self._plan, tool_choice="auto")
        if decision.is_approved:
            scope = msgspec.structs.replace(plan.scope, at_most="")
            self._plan = msgspec.structs.replace(self._plan, scope=scope, planned=None)
        return True

    async def _take_in(self) -> None:
        """Let the model read what the person said meanwhile; it is stored before it does."""
        said = self._plan.overheard()
        if not said:
            return
        self._transaction.pending.append(Message(role="user", content=with_block("", said)))
        self._overheard.append(said)
        # What follows is another way to go on: neither a loop nor the forced first answer.
        self._guard = model_request.LoopGuard()
        self._plan = msgspec.structs.replace(self._plan, tool_choice="auto")
        await self._store()

    @property
    def _cap(self) -> str:
        tokens = f"the budget of {self._plan.limits.max_tokens} tokens is used up"
        return self._time_is_up if self._is_late else tokens

    @property
    def _time_is_up(self) -> str:
        return f"{self._plan.limits.wall_clock_budget_s:g} s are used up"

    # --- hops

    async def _next_hop(self) -> model_request.HopResult:
        """Return the next answer, or what was shown of it when the time was up."""
        if (begin := self._plan.news()) is not None:
            self._plan, self._meter.known_tokens = renewed(self._plan, begin), 0
        limits = self._plan.limits
        attempts = model_request.Attempts(
            self._ask, self._emit, self._meter, retries_incomplete=limits.retry_on_incomplete
        )
        limit = asyncio.timeout_at(self._deadline)
        try:
            async with limit:
                await self._make_room()
                result = await attempts.run(self._request())
                if isinstance(result.failure, ContextFullError):
                    # It was estimated to fit, and did not.
                    self._meter.known_tokens = 0
                    if await self._make_room():
                        result = await attempts.run(self._request())
        except TimeoutError:
            if not limit.expired():
                raise
            return self._late(self._request(), attempts.broken_off)
        for text in filter(None, (result.repaired, result.unreadable)):
            # Whether it was written again or not.
            _log.debug("a tool call could not be read", extra={"text": model_request.kept(text)})
            self._unreadable.append(model_request.kept(text))
        if result.failure is not None:
            await self._keep_partial(result)
            raise model_request.as_claw_error(result.failure)
        if result.overlong:
            self._emit(wire.Notice(level="warning", text=self._cut(result)))
        if not self._plan.calls_tools:
            result = self._with_commands(result)
        return self._put_right(result) if self._is_small and result.calls else result

    def _put_right(self, result: model_request.HopResult) -> model_request.HopResult:
        """Put right what a small model copied with a slip, before anything is done about it."""
        said, workspace = self._said_by("user", "tool"), self._plan.scope.workspace
        calls = tuple(put_right(call, said, workspace) for call in result.calls)
        return msgspec.structs.replace(result, calls=calls)

    def _said_by(self, *roles: str) -> list[str]:
        messages = self._transaction.messages
        return [strip_context_block(each.content or "") for each in messages if each.role in roles]

    async def _make_room(self) -> bool:
        """Let older messages give way where the next request would not fit; tell if any did."""
        plan = self._plan
        if plan.make_room is None:
            return False
        wanted = request_of(plan, self._transaction.messages)
        known = self._meter.known_tokens
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

    async def _ask(self, request: ChatRequest) -> model_request.HopResult:
        """Make one attempt; the emergency stop ends it."""
        self._shown.clear()
        self._hop = asyncio.create_task(
            model_request.run_hop(
                self._plan.provider,
                request,
                lambda event: self._on_event(event, request),
                limit_bytes=self._plan.limits.max_response_bytes,
                known_tokens=self._meter.known_tokens,
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

    def _on_event(self, event: wire.Event, request: ChatRequest) -> None:
        self._emit(event)
        if isinstance(event, wire.TextDelta):
            self._shown.append(event.text)
        elif isinstance(event, wire.PromptEvaluated):
            self._ledger.begin(request)
            known = msgspec.structs.asdict(event) | {"model": self._plan.model}
            _log.info("[prompt_eval]", extra={"turn": self._plan.turn_id, **known})

    def _late(self, request: ChatRequest, before: str) -> model_request.HopResult:
        """Return what was said of an answer that the time was up for, but never half a call.

        Where the last attempt said nothing, it is what an attempt `before` said.
        """
        self._is_late = True
        text = "".join(self._shown)
        if model_request.was_to_be_a_call(text, request):
            self._emit(wire.HopReset(reason=self._time_is_up))
            text = ""
        if before and not text.strip():
            self._emit(wire.TextDelta(text=before))
            text += before
        return model_request.HopResult(text=text, calls=())

    def _with_commands(self, result: model_request.HopResult) -> model_request.HopResult:
        """Add the commands in the text of a model that can call no tools."""
        plan = self._plan
        is_whole = result.finished is not None and result.finished.reason in _WHOLE
        is_said = is_whole and not result.is_promoted  # neither half a line nor a thought
        if not is_said or all(tool.name != SHELL for tool in plan.told.tools):
            return result
        commands = commands_in(result.text)
        if len(commands) > MAX_COMMANDS:
            told = f"the first {MAX_COMMANDS} of {len(commands)} commands are run, no others"
            self._emit(wire.Notice(level="warning", text=told))
        return msgspec.structs.replace(result, calls=command_calls(commands[:MAX_COMMANDS]))

    async def _keep_partial(self, result: model_request.HopResult) -> None:
        """Keep what was said before the provider failed in mid-answer, marked as broken off."""
        if not result.text.strip():
            self._transaction.rollback()
            return
        self._transaction.pending.append(_said(result))
        await self._store(f"incomplete: {result.failure}")

    # --- rounds

    async def _round(self, result: model_request.HopResult) -> str:
        """Make the calls of a hop; return why the turn should stop, or ""."""
        calls = with_unique_ids(result.calls, self._transaction.messages)
        self._transaction.pending.append(msgspec.structs.replace(_said(result), tool_calls=calls))
        self._is_unsure = result.finished is not None and result.finished.is_unsure
        try:
            # What was asked is on disk before anything is done about it: a crash in a call must
            # not leave a receipt that no conversation explains.
            await self._store(is_whole=False)
            texts, lapsed = await self._make(calls)
            await self._store()
            if lapsed is not None and self._plan.parking is not None:
                await self._plan.parking.keep(*lapsed)
                self._parked = lapsed[1]
        except BaseException as error:
            await self._keep_round(error)
            raise
        self._meter.note_round(len(calls))
        return self._guard.note(calls, texts)

    async def _make(self, calls: tuple[ToolCall, ...]) -> tuple[list[str], _Lapsed | None]:
        """Make the calls until the time is up; those that it is up for are told so.

        Neighbours that only read run side by side; whatever else there is runs alone. One that
        nobody answered for, and that may be answered late, is the last.
        """
        texts: list[str] = []
        lapsed: _Lapsed | None = None
        limit = asyncio.timeout_at(self._deadline)
        left = deque(calls)
        try:
            async with limit:
                while left and lapsed is None:
                    together = [left.popleft()]
                    while left and all(map(self._may_run_beside, (together[0], left[0]))):
                        together.append(left.popleft())
                    if len(together) > 1:
                        texts += await self._make_beside(together)
                        continue
                    outcome = await self._call(together[0])
                    texts.append(outcome.text)
                    if outcome.lapsed is not None and self._plan.parking is not None:
                        lapsed = (together[0], outcome.lapsed, outcome.receipt_id)
        except TimeoutError:
            if not limit.expired():
                raise
            self._is_late = True
            self._transaction.complete_results(f"{self._time_is_up}, the call was not completed")
        if lapsed is not None:
            self._transaction.complete_results(f"not made: {lapsed[0].name} waits for an approval")
        return texts, lapsed

    def _may_run_beside(self, call: ToolCall) -> bool:
        is_late = self._late_call is not None
        return not is_late and self._dispatcher.may_run_beside(_request_of(call), self._plan.scope)

    async def _make_beside(self, calls: list[ToolCall]) -> list[str]:
        """Make calls side by side; results and events are in the order of the calls.

        Each begins when the intent of the one before is on disk, so that is their order, too;
        receipts follow as the calls end.
        """
        events, slots = InOrder(self._emit), asyncio.Semaphore(MAX_BESIDE)
        made: dict[str, CallOutcome] = {}

        async def make(call: ToolCall, emit: model_request.Emit, has_begun: asyncio.Event) -> None:
            def told(event: wire.Event) -> None:
                emit(event)
                if isinstance(event, wire.ToolStarted):
                    has_begun.set()

            scope = msgspec.structs.replace(self._plan.scope, emit=told)
            try:
                told(wire.ToolRequested(call_id=call.id, tool=call.name, arguments=call.arguments))
                made[call.id] = await self._dispatcher.call(_request_of(call), scope)
            finally:
                events.ended(emit)
                has_begun.set()
                slots.release()

        try:
            async with asyncio.TaskGroup() as group:
                for call in calls:
                    await slots.acquire()
                    has_begun = asyncio.Event()
                    group.create_task(make(call, events.next(), has_begun))
                    await has_begun.wait()
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from None
        finally:
            done = [(call, made[call.id]) for call in calls if call.id in made]
            texts = [self._note(call, outcome).text for call, outcome in done]
        return texts

    async def _call(self, call: ToolCall) -> CallOutcome:
        """Make a call; its question is held meanwhile where it could be answered late."""
        self._emit(wire.ToolRequested(call_id=call.id, tool=call.name, arguments=call.arguments))
        late, self._late_call = self._late_call, None
        request = CallRequest(
            id=call.id,
            tool=call.name if late is None else late.tool,
            arguments=call.arguments if late is None else late.arguments,
            late=None if late is None else late.answer,
            by_model=late is None,
        )
        if late is None and (self._is_unsure or self._is_small):
            why = UNSURE if self._is_unsure else doubt(call, self._said_by("user"))
            request = msgspec.structs.replace(request, doubt=why)
        parking, scope, held = self._plan.parking, self._plan.scope, list[str]()
        if parking is not None:

            async def hold(pending: PendingApproval, receipt_id: str) -> None:
                held.append(pending.id)
                await parking.hold(call, pending, receipt_id)

            scope = msgspec.structs.replace(scope, hold=hold)
        outcome = await self._dispatcher.call(request, scope)
        if parking is not None and outcome.lapsed is None:
            for each in held:
                await parking.release(each)
        if late is not None:
            await late.drop()
        return self._note(call, outcome)

    def _note(self, call: ToolCall, outcome: CallOutcome) -> CallOutcome:
        self._denied += outcome.status == "denied"
        self._unanswered += outcome.kind == "unanswered"
        said = Message(
            role="tool",
            content=outcome.text,
            tool_call_id=call.id,
            name=call.name,
            pictures=outcome.pictures,
        )
        self._transaction.pending.append(said)
        self._outcomes.append(outcome)
        if outcome.tool == SKILL_READ and (narrowing := narrowing_of(outcome.metadata)):
            narrowed = (*self._plan.scope.narrowed, narrowing)
            scope = msgspec.structs.replace(self._plan.scope, narrowed=narrowed)
            self._plan = msgspec.structs.replace(self._plan, scope=scope)
        return outcome

    async def _keep_round(self, error: BaseException) -> None:
        """Give every call of a round that failed a result that says why, and store it."""
        if not self._transaction.pending:
            return
        self._transaction.complete_results(
            f"the turn ended before this call had a result: {model_request.why(error)}"
        )
        try:
            with contextlib.suppress(asyncio.CancelledError):
                await self._store()
        except ClawError:
            # Memory holds no more than the beginning; a load would mend it in the same way.
            self._transaction.keep(self._stored)

    # --- ends

    async def _end(self, result: model_request.HopResult) -> wire.TurnFinished:
        """End the turn with an answer that asks for no calls."""
        if result.unreadable:
            lost = "the model's tool calls could not be read, and none of them was run"
            if result.is_cut:
                lost = f"a tool call could not be read and was not run: {self._cut(result)}"
            self._emit(
                wire.Notice(
                    level="warning",
                    text=f"the model wrote: {model_request.head(result.unreadable)}",
                )
            )
            return await self._give_up("", "length" if result.is_cut else "stop", lost)
        if result.overlong and not result.text:
            return await self._give_up("", "length", self._cut(result))
        if result.is_cut and not result.overlong:
            self._emit(wire.Notice(level="warning", text=self._cut(result)))
        if pose := model_request.posing(result.text):
            self._emit(wire.Notice(level="warning", text=pose))
        said = _said(result)
        return await self._answer(said, "length" if result.is_cut else "stop")

    def _cut(self, result: model_request.HopResult) -> str:
        """Say which limit an answer ended at: ours on bytes, or the model's on tokens."""
        if result.overlong:
            return f"the answer was cut at {self._plan.limits.max_response_bytes} bytes"
        tokens = result.finished.usage.completion_tokens if result.finished is not None else 0
        after = f" of {tokens} tokens" if tokens else " of tokens"
        return f"the answer was cut at its limit{after} (max_tokens)"

    async def _give_up(self, text: str, stop: StopWord, reason: str) -> wire.TurnFinished:
        """End the turn; `text` is what the last answer said, which no message holds yet.

        A person is told why below it. A model reads that nowhere: small ones say it again.
        """
        note = f"{model_request.STOPPED}{reason}."
        self._emit(wire.TextDelta(text=f"\n{note}" if text else note))
        said = Message(role="assistant", content=text or UNSAID, note=note)
        return await self._answer(said, stop)

    async def _wait(self, pending: PendingApproval) -> wire.TurnFinished:
        """End the turn at a call that nobody answered for: a late answer goes on with its result.

        No message says so: an answer follows the call's own in the conversation.
        """
        waits = f"{pending.question.action.tool} waits for an approval ({pending.id})"
        note = f"{model_request.STOPPED}{waits}."
        self._emit(wire.Notice(level="warning", text=f"stopped: {waits}; clawctl approval list"))
        self._emit(wire.TextDelta(text=note))
        finished = await self._finished(note, "stop")
        return msgspec.structs.replace(finished, waits_for=pending.id)

    async def _answer(self, said: Message, stop: StopWord) -> wire.TurnFinished:
        plain = (said.content or "").replace("**", "").replace("__", "").lower()
        if CLAIMING.search(plain) is not None:
            self._check_claims(said.content or "")
        self._transaction.pending.append(said)
        await self._store()
        text = told_text(said) if said.note else said.content or ""
        return await self._finished(text, stop)

    def _check_claims(self, text: str) -> None:
        """Compare what an answer says was done with the receipts; tell a person what was not.

        No model reads that anywhere, neither as its own words nor as another's.
        """
        find = self._dispatcher.registry.find
        asked = (
            [plan.message]
            if (plan := self._plan).late is None
            else [each for each in self._earlier if each.role == "user"][-1:]
        )
        said = [strip_context_block(each.content or "") for each in asked]
        deeds = Deeds(
            asked="\n".join((*said, *self._overheard)),
            acts=tuple(act_of(each, find(each.tool)) for each in self._outcomes),
            earlier=earlier_acts(self._earlier, find),
            is_earlier_whole=not any(
                (each.content or "").startswith(OPENING) for each in self._earlier[:2]
            ),
            workspace=self._plan.scope.workspace,
        )
        self._claims = checked(text, deeds)
        for problem in dict.fromkeys(claim.problem for claim in self._claims):
            if problem:
                self._emit(wire.Notice(level="warning", text=problem))

    async def _finished(self, text: str, stop: StopWord) -> wire.TurnFinished:
        usage = self._meter.usage
        used, size = usage.context_used, usage.context_size
        return wire.TurnFinished(
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
            unreadable=tuple(self._unreadable),
            claims=self._claims,
        )

    async def _store(self, mark: str = "", *, is_whole: bool = True) -> None:
        """Store what is pending, even when the turn is cancelled meanwhile.

        What is whole is committed, too, both or neither; calls that have no results yet are not.
        """
        pending = self._transaction.pending
        batch = MessageBatch(
            messages=tuple(pending[self._stored :]),
            mark=mark,
            known_tokens=self._meter.known_tokens,
            unreadable=tuple(self._unreadable[self._unreadable_stored :]),
            claims=self._claims,
            usage=self._meter.usage,
        )
        self._unreadable_stored = len(self._unreadable)
        count = len(pending)
        _, cancelled = await settled(self._persist(batch))
        if is_whole:
            self._transaction.commit()
        self._stored = 0 if is_whole else count
        if cancelled:
            raise asyncio.CancelledError


class InOrder:
    """Emits the events of calls that run side by side as if one had run after the other.

    Args:
        emit: takes the events; never blocks.
    """

    def __init__(self, emit: model_request.Emit) -> None:
        self._emit = emit
        self._lanes: deque[_Lane] = deque()

    def next(self) -> model_request.Emit:
        """Return what takes the events of the next call."""
        lane = _Lane(self)
        self._lanes.append(lane)
        return lane

    def ended(self, emit: model_request.Emit) -> None:
        """Take no more events of a call."""
        for lane in self._lanes:
            lane.has_ended = lane.has_ended or lane is emit
        self.flush()

    def flush(self) -> None:
        """Emit what is no more held back by an earlier call."""
        while self._lanes:
            first = self._lanes[0]
            while first.held:
                self._emit(first.held.popleft())
            if not first.has_ended:
                return
            self._lanes.popleft()


class _Lane:
    """Takes the events of one call."""

    def __init__(self, order: InOrder) -> None:
        self._order = order
        self.held: deque[wire.Event] = deque()
        self.has_ended = False

    def __call__(self, event: wire.Event) -> None:
        self.held.append(event)
        self._order.flush()


def _request_of(call: ToolCall) -> CallRequest:
    return CallRequest(id=call.id, tool=call.name, arguments=call.arguments, by_model=True)


def _said(result: model_request.HopResult) -> Message:
    """Return an answer as a message, with its reasoning where that is not the answer itself."""
    reasoning = "" if result.is_promoted else result.reasoning
    return Message(role="assistant", content=result.text, reasoning=reasoning)
