"""The approval broker: puts a call to a person and waits for a yes. Anything else is a no.

An approval binds to exact bytes: an answer repeats the digest of what was shown (tool, canonical
arguments, workspace, environment difference). Disconnect, emergency stop, a full table and nobody
to ask all deny, and so does silence, for which no clock runs while a client that can answer is
there. A question that lapsed by silence may be answered late: the call is judged anew then. Pure
asyncio; every method is called on the loop's thread.
"""

import asyncio
import contextlib
import hmac
import logging
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Literal

import msgspec

from clawd.errors import ClawError, ForbiddenError, InvalidRequestError, NotFoundError
from clawd.security import approval_rules
from clawd.security.estop import ESTOP_REASON, Stop
from clawd.security.principal import Principal
from clawd.security.risk import Action, Risk, highest
from clawd.wire.events import FileDiff

ANSWER_TIMEOUT_S = 120.0
MAX_PENDING = 100  # of one owner: they may wait without end
MAX_REMEMBERED = 1_000

DENIED_BY_USER = "denied by the user"
EDITED = "its arguments were edited"
NOBODY_TO_ASK = "it needs an approval and nobody could be asked"
NO_ANSWER = "no answer within"
TOO_MANY = "approvals are already waiting"
SHUTTING_DOWN = "clawd shut down before anybody answered"

Answer = Literal["deny", "once", "conversation", "project", "always"]

_log = logging.getLogger(__name__)


@dataclass(eq=False, slots=True)
class Attendance:
    """The clients that can answer what a turn or a call asks; while one is there no clock runs.

    Args:
        beside: others that count as well: those who follow the conversation of a turn.
    """

    beside: "Attendance | None" = None
    _there: int = field(default=0, init=False)
    _watching: list[Callable[[], None]] = field(default_factory=list, init=False)

    @property
    def is_there(self) -> bool:
        """Whether somebody is there."""
        return self._there > 0 or (self.beside is not None and self.beside.is_there)

    @contextlib.contextmanager
    def attended(self) -> Iterator[None]:
        """Count a client as there."""
        self._there += 1
        self._tell()
        try:
            yield
        finally:
            self._there -= 1
            self._tell()

    @contextlib.contextmanager
    def joined(self, others: "Attendance | None") -> Iterator[None]:
        """Count others as there as well; None are none."""
        if others is None:
            yield
            return
        before, self.beside = self.beside, others
        self._tell()
        try:
            with others.watched(self._tell):
                yield
        finally:
            self.beside = before
            self._tell()

    @contextlib.asynccontextmanager
    async def silence(self, limit_s: float) -> AsyncIterator[asyncio.Timeout]:
        """End the body with TimeoutError once nobody was there for so long without a break.

        Yields:
            The clock; `when` is None while it does not run.
        """
        loop = asyncio.get_running_loop()
        was_there: bool | None = None
        async with asyncio.timeout(None) as clock:

            def wind() -> None:
                nonlocal was_there
                if was_there is not self.is_there and not clock.expired():
                    was_there = self.is_there
                    clock.reschedule(None if was_there else loop.time() + limit_s)

            wind()
            with self.watched(wind):
                yield clock

    @contextlib.contextmanager
    def watched(self, watcher: Callable[[], None]) -> Iterator[None]:
        """Call a function whenever somebody comes or goes."""
        beside = contextlib.nullcontext() if self.beside is None else self.beside.watched(watcher)
        self._watching.append(watcher)
        try:
            with beside:
                yield
        finally:
            self._watching.remove(watcher)

    def _tell(self) -> None:
        for watcher in tuple(self._watching):
            watcher()


class ApprovalQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """What a person is asked.

    Attributes:
        action: the call.
        reason: why it asks.
        tainted_by: what untrusted text is about.
        in_view_of: the sources of untrusted text that are shown though it asks anyway.
        unlisted: what of it is on no list; without a person it is refused.
        changes: what it makes of files; the action binds them.
    """

    action: Action
    reason: str
    tainted_by: tuple[str, ...] = ()
    in_view_of: tuple[str, ...] = ()
    unlisted: tuple[str, ...] = ()
    changes: tuple[FileDiff, ...] = ()


class PendingApproval(msgspec.Struct, frozen=True, kw_only=True):
    """A question that waits.

    Attributes:
        digest: what an answer must repeat.
        rule: the rule that the answer `always` would add, for a person; empty when untrusted text
            made it ask, because no standing rule is made of such a call.
        expires_in_s: silence that long is a no; 0 while it waits without end.
    """

    id: str
    question: ApprovalQuestion
    digest: str
    rule: str
    asked_at: datetime
    expires_in_s: float


class Resolution(msgspec.Struct, frozen=True, kw_only=True):
    """How a question ended.

    Attributes:
        by: who decided, `uid 1000`; empty when nobody did.
        reason: why it was denied, or what became of a rule that could not be kept.
        unanswerable: denied because nobody could be asked.
        lapsed: the question, where it was denied because nobody answered: that may come late.
        rule_id: the rule that the answer granted.
        days: how long a rule was asked for; 0 is the configured time.
        edited: JSON arguments that the person wants in place of those shown. It is a no to those
            that were; the others are another question.
    """

    approval_id: str
    answer: Answer
    by: str = ""
    reason: str = ""
    unanswerable: bool = False
    lapsed: PendingApproval | None = None
    rule_id: str = ""
    days: int = 0
    edited: str = ""

    @property
    def granted(self) -> bool:
        """Whether the call may run."""
        return self.answer != "deny"


class LateAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A person's answer to a question that had lapsed, and what they were shown of it.

    Attributes:
        receipt_id: of the refusal that the silence was.
        by: who answered, `uid 1000`.
        days: as a `Resolution` has them.
        edited: likewise; it is asked about anew.
    """

    approval_id: str
    receipt_id: str
    answer: Answer
    by: str
    digest: str
    risk: Risk
    tainted_by: tuple[str, ...] = ()
    unlisted: tuple[str, ...] = ()
    days: int = 0
    edited: str = ""


class _Entry:
    """A pending question, the future its answer goes to, and its clock."""

    def __init__(self, pending: PendingApproval) -> None:
        self.pending = pending
        self.clock: asyncio.Timeout | None = None
        self.answered: asyncio.Future[Resolution] = asyncio.get_running_loop().create_future()

    def resolve(self, resolution: Resolution) -> bool:
        if self.answered.done():
            return False
        self.answered.set_result(resolution)
        return True

    def shown(self) -> PendingApproval:
        """Return the question with the time that is left."""
        when = None if self.clock is None else self.clock.when()
        left = 0.0 if when is None else max(round(when - asyncio.get_running_loop().time(), 1), 0.1)
        return msgspec.structs.replace(self.pending, expires_in_s=left)


Deliver = Callable[[PendingApproval], Awaitable[bool]]
"""Displays the question to the users who may answer; False for none."""


class Approvals:
    """The pending questions of all conversations.

    Args:
        rules: where `conversation` and `always` answers are kept.
        estop: denies everything while set; its listener must call `deny_all`.
        timeout_s: silence that long is a no, where nobody is there who can answer.
        rule_days: how long an `always` rule is in force unless its answer says otherwise.
    """

    def __init__(
        self,
        rules: approval_rules.RuleBook,
        *,
        estop: Stop,
        timeout_s: float = ANSWER_TIMEOUT_S,
        rule_days: int = approval_rules.RULE_DAYS,
    ) -> None:
        self._rules = rules
        self._estop = estop
        self._timeout_s = timeout_s
        self._pending: dict[str, _Entry] = {}
        self._rule_days = rule_days
        self._closed: dict[str, tuple[int, str]] = {}
        self._is_closed = False

    async def ask(
        self, question: ApprovalQuestion, *, deliver: Deliver, attendance: Attendance | None = None
    ) -> Resolution:
        """Put the question and wait for the first answer.

        Cancelling withdraws the question. The time limit includes delivery; for the answer it
        holds while nobody is there who can give it (without `attendance` nobody ever is).

        Returns:
            The resolution; a rule it grants is in force (and on disk) by then.
        """
        approval_id = f"approval-{secrets.token_hex(8)}"
        if self._estop.is_set():
            return _denied(approval_id, ESTOP_REASON)
        entry = _Entry(self._describe(approval_id, question))
        if self._is_closed:
            return _lapsed(entry, SHUTTING_DOWN)
        owner = question.action.principal.uid
        if sum(_owner(other) == owner for other in self._pending.values()) >= MAX_PENDING:
            return _denied(approval_id, f"{MAX_PENDING} {TOO_MANY}")
        self._pending[approval_id] = entry
        ending = "was withdrawn"
        try:
            resolution = await self._first_answer(entry, deliver, attendance or Attendance())
            ending = _ending(resolution)
        finally:
            del self._pending[approval_id]
            self._remember(approval_id, owner, ending)
        return await self._settled(question, resolution)

    async def answer_late(self, question: ApprovalQuestion, late: LateAnswer) -> Resolution:
        """Return what a late answer comes to for a call as it is judged now.

        It is a no where the call would do anything else than what was shown, or counts for more.
        """
        resolution = Resolution(
            approval_id=late.approval_id,
            answer=late.answer,
            by=late.by,
            reason=DENIED_BY_USER if late.answer == "deny" else "",
            days=late.days,
        )
        owner = question.action.principal.uid
        if late.edited:
            self._remember(late.approval_id, owner, f"was answered by {late.by}: edit")
            return msgspec.structs.replace(resolution, reason=EDITED, edited=late.edited)
        if resolution.granted and (why := _news_since(question, late)):
            resolution = msgspec.structs.replace(_denied(late.approval_id, why), by=late.by)
        self._remember(late.approval_id, owner, f"was answered by {late.by}: {late.answer}")
        return await self._settled(question, resolution)

    async def _settled(self, question: ApprovalQuestion, resolution: Resolution) -> Resolution:
        """Put the rule of a yes in force; the emergency stop makes a no of it."""
        if not resolution.granted:
            return resolution
        if not self._estop.is_set():
            resolution = await self._keep_rule(question, resolution)
        if self._estop.is_set():
            return _denied(resolution.approval_id, ESTOP_REASON)
        return resolution

    def answer(
        self, approval_id: str, answer: Answer, principal: Principal, *, digest: str, days: int = 0
    ) -> None:
        """Answer a pending question; the first answer counts.

        Args:
            approval_id: of the question.
            answer: the word.
            principal: who answers.
            digest: of what was shown.
            days: how long the rule of `always` is in force; 0 is the configured time.

        Raises:
            NotFoundError: no such question, or it was answered, withdrawn or ran out.
            ForbiddenError: it is another owner's.
            InvalidRequestError: the digest is not that of the question, or days are too many.
        """
        entry = self._shown_entry(approval_id, principal, digest)
        if not 0 <= days <= approval_rules.MAX_RULE_DAYS:
            raise InvalidRequestError(
                f"a rule for {days} days cannot be made; 1 to {approval_rules.MAX_RULE_DAYS} can",
                hint="leave the days out for the configured time",
            )
        reason = DENIED_BY_USER if answer == "deny" else ""
        by = f"uid {principal.uid}"
        entry.resolve(
            Resolution(approval_id=approval_id, answer=answer, by=by, reason=reason, days=days)
        )

    async def grant(
        self,
        pattern: str,
        principal: Principal,
        *,
        verdict: Literal["allow", "deny"],
        workspace: str,
        conversation_id: str,
        days: int,
    ) -> approval_rules.ApprovalRule:
        """Put a rule by pattern in force that nobody was asked about.

        Raises:
            InvalidRequestError: the pattern or the days cannot be meant.
            BusyError, ReceiptError, StorageError: it could not be kept and is not in force.
        """
        tool, shown = meant(pattern, everywhere=not (workspace or verdict == "deny"))
        if not 0 <= days <= approval_rules.MAX_RULE_DAYS:
            raise InvalidRequestError(f"a rule holds 1 to {approval_rules.MAX_RULE_DAYS} days")
        now = self._rules.now()
        return await self._rules.add(
            approval_rules.ApprovalRule(
                id=f"rule-{secrets.token_hex(8)}",
                tool=tool,
                fixed="{}",
                free=(),
                workspace=workspace,
                environment={},
                max_risk="high",
                owner=principal.uid,
                created_at=now,
                expires_at=now + timedelta(days=days or self._rule_days),
                conversation_id=conversation_id,
                patterns=(shown,),
                verdict=verdict,
                granted_by=f"uid {principal.uid}",
            )
        )

    def edit(self, approval_id: str, arguments: str, principal: Principal, *, digest: str) -> None:
        """Take a pending question back because a person wants the call with other arguments.

        Raises:
            NotFoundError, ForbiddenError, InvalidRequestError: as `answer` does.
        """
        entry = self._shown_entry(approval_id, principal, digest)
        by = f"uid {principal.uid}"
        entry.resolve(
            Resolution(
                approval_id=approval_id, answer="deny", by=by, reason=EDITED, edited=arguments
            )
        )

    def pending(self, principal: Principal) -> list[PendingApproval]:
        """Return the open questions that the principal may answer, oldest first."""
        return [
            entry.shown()
            for entry in self._pending.values()
            if not entry.answered.done() and principal.may_see(_owner(entry), _key(entry))
        ]

    def is_open(self, approval_id: str) -> bool:
        """Return whether a question waits for its answer."""
        entry = self._pending.get(approval_id)
        return entry is not None and not entry.answered.done()

    def close(self) -> None:
        """Let every question lapse, and those that come: the daemon ends."""
        self._is_closed = True
        for entry in self._pending.values():
            entry.resolve(_lapsed(entry, SHUTTING_DOWN))

    def deny_all(self, reason: str = ESTOP_REASON) -> int:
        """Deny every open question; returns how many there were."""
        return sum(
            entry.resolve(_denied(entry.pending.id, reason)) for entry in self._pending.values()
        )

    def _shown_entry(self, approval_id: str, principal: Principal, digest: str) -> _Entry:
        """Return an open question whose bytes the principal has seen."""
        entry = self._open_entry(approval_id, principal)
        if not hmac.compare_digest(digest.encode(), entry.pending.digest.encode()):
            raise InvalidRequestError(
                f"the answer to {approval_id} is for other bytes than the ones that wait",
                hint="look at it again (clawctl approval list) and answer what it shows now",
            )
        return entry

    def _open_entry(self, approval_id: str, principal: Principal) -> _Entry:
        hint = "clawctl approval list shows what waits"
        entry = self._pending.get(approval_id)
        if entry is not None and not principal.may_see(_owner(entry), _key(entry)):
            raise ForbiddenError(f"approval {approval_id} is somebody else's", hint=hint)
        if entry is not None and not entry.answered.done():
            return entry
        if entry is not None:
            is_over = entry.answered.done() and not entry.answered.cancelled()
            ending = _ending(entry.answered.result()) if is_over else "was withdrawn"
        else:
            owner, ending = self._closed.get(approval_id, (-1, ""))
            ending = ending if principal.may_see(owner) else ""
        state = f"is not open any more: it {ending}" if ending else "is unknown"
        raise NotFoundError(f"approval {approval_id} {state}", hint=hint)

    def _remember(self, approval_id: str, owner: int, ending: str) -> None:
        self._closed[approval_id] = (owner, ending)
        if len(self._closed) > MAX_REMEMBERED:
            del self._closed[next(iter(self._closed))]

    def _describe(self, approval_id: str, question: ApprovalQuestion) -> PendingApproval:
        now = self._rules.now()
        rule = approval_rules.rule_for(question.action, now=now, conversation=False).pattern
        return PendingApproval(
            id=approval_id,
            question=question,
            digest=question.action.digest,
            rule="" if question.tainted_by else rule,
            asked_at=now,
            expires_in_s=self._timeout_s,
        )

    async def _first_answer(
        self, entry: _Entry, deliver: Deliver, attendance: Attendance
    ) -> Resolution:
        approval_id = entry.pending.id
        try:
            async with attendance.silence(self._timeout_s) as entry.clock:
                async with asyncio.timeout(self._timeout_s):
                    if not await deliver(entry.shown()):
                        return _denied(approval_id, NOBODY_TO_ASK, unanswerable=True)
                return await entry.answered
        except TimeoutError:
            if entry.answered.done() and not entry.answered.cancelled():
                return entry.answered.result()
            return _lapsed(entry, f"{NO_ANSWER} {self._timeout_s:g} s")

    async def _keep_rule(self, question: ApprovalQuestion, resolution: Resolution) -> Resolution:
        if resolution.answer in ("deny", "once"):
            return resolution
        for_conversation = resolution.answer == "conversation"
        if for_conversation and not question.action.conversation_id:
            return _once_only(resolution, "there is no conversation")
        if question.tainted_by and not for_conversation:
            return _once_only(resolution, "no standing rule is made while untrusted text is about")
        rule = approval_rules.rule_for(
            question.action,
            now=self._rules.now(),
            conversation=for_conversation,
            tainted_by=question.tainted_by,
            days=resolution.days or self._rule_days,
            everywhere=resolution.answer == "always",
        )
        rule = msgspec.structs.replace(
            rule,
            granted_by=resolution.by,
            approval_id=resolution.approval_id,
            tainted_by=question.in_view_of if rule.patterns else rule.tainted_by,
        )
        try:
            await self._rules.add(rule)
        except ClawError as error:
            _log.warning("an approval rule could not be kept: %s", error.message)
            return _once_only(resolution, error.message)
        return msgspec.structs.replace(resolution, rule_id=rule.id)


def _denied(approval_id: str, reason: str, *, unanswerable: bool = False) -> Resolution:
    return Resolution(
        approval_id=approval_id, answer="deny", reason=reason, unanswerable=unanswerable
    )


def _lapsed(entry: _Entry, reason: str) -> Resolution:
    return msgspec.structs.replace(_denied(entry.pending.id, reason), lapsed=entry.pending)


def _news_since(question: ApprovalQuestion, late: LateAnswer) -> str:
    """Return what of a call is not as it was shown; "" when it is the same."""
    action = question.action
    if not hmac.compare_digest(action.digest.encode(), late.digest.encode()):
        return "it would do something else by now than what was shown; nothing was done"
    risk = action.assessment.risk
    if highest(risk, late.risk) != late.risk:
        return f"it was shown as {late.risk} risk and is {risk} by now; nothing was done"
    if news := [*({*question.tainted_by} - {*late.tainted_by})]:
        return f"untrusted text is about since it was shown, of {', '.join(sorted(news))}"
    if news := [*({*question.unlisted} - {*late.unlisted})]:
        return f"{', '.join(sorted(news))} is on no list since it was shown"
    return ""


def may_come_late(reason: str, approval_id: str) -> str:
    """Return a refusal's reason with the word that the question can still be answered."""
    return f"{reason}; {approval_id} can still be answered"


def was_asked(reason: str) -> bool:
    """Return whether a refusal's reason is that of a question without a yes."""
    return reason in {DENIED_BY_USER, NOBODY_TO_ASK} or any(
        words in reason for words in (NO_ANSWER, TOO_MANY, SHUTTING_DOWN)
    )


def meant(pattern: str, *, everywhere: bool = False) -> tuple[str, str]:
    """Return the tool that a person's pattern is about, and the pattern itself.

    Raises:
        InvalidRequestError: it is none.
    """
    first, _, rest = pattern.strip().partition(" ")
    if first not in approval_rules.FILE_TOOLS:
        if problem := approval_rules.pattern_problem(pattern):
            raise InvalidRequestError(problem)
        return "shell", " ".join(pattern.split())
    files = rest.strip()
    problem = approval_rules.file_pattern_problem(files)
    if not problem and everywhere and files[0] in "*?[":
        problem = f"{pattern!r} would cover files of every project; add --project"
    if problem:
        raise InvalidRequestError(problem)
    return approval_rules.FILE_TOOL, files


def _once_only(resolution: Resolution, why: str) -> Resolution:
    return msgspec.structs.replace(resolution, answer="once", reason=f"counts once only: {why}")


def _ending(resolution: Resolution) -> str:
    """Return how a question ended, for an answer that comes too late."""
    if not resolution.by:
        return f"was denied: {resolution.reason}"
    return f"was answered by {resolution.by}: {'edit' if resolution.edited else resolution.answer}"


def _owner(entry: _Entry) -> int:
    return entry.pending.question.action.principal.uid


def _key(entry: _Entry) -> str:
    return entry.pending.question.action.principal.key_id
