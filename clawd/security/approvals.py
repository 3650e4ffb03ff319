"""The approval broker: puts a call to a person and waits for a yes. Anything else is a no.

An approval binds to exact bytes: an answer repeats the digest of what was shown (tool, canonical
arguments, workspace, environment difference). Silence, disconnect, emergency stop, a full table
and nobody to ask all deny. Pure asyncio; every method is called on the loop's thread.
"""

import asyncio
import hmac
import logging
import secrets
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Literal

import msgspec

from clawd.errors import ClawError, ForbiddenError, InvalidRequestError, NotFoundError
from clawd.security.action import Action
from clawd.security.approval_rules import MAX_RULE_DAYS, RULE_DAYS, RuleBook, rule_for
from clawd.security.estop import ESTOP_REASON, Stop
from clawd.security.principal import Principal
from clawd.wire.changes import FileDiff

ANSWER_TIMEOUT_S = 120.0
MAX_PENDING = 100
MAX_REMEMBERED = 1_000

DENIED_BY_USER = "denied by the user"
EDITED = "its arguments were edited"
NOBODY_TO_ASK = "it needs an approval and nobody could be asked"
NO_ANSWER = "no answer within"
TOO_MANY = "approvals are already waiting"

Answer = Literal["deny", "once", "conversation", "always"]

_log = logging.getLogger(__name__)


class ApprovalQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """What a person is asked.

    Attributes:
        action: the call.
        reason: why it asks.
        tainted_by: what untrusted text is about.
        changes: what it makes of files; the action binds them.
    """

    action: Action
    reason: str
    tainted_by: tuple[str, ...] = ()
    changes: tuple[FileDiff, ...] = ()


class PendingApproval(msgspec.Struct, frozen=True, kw_only=True):
    """A question that waits.

    Attributes:
        digest: what an answer must repeat.
        rule: the rule that the answer `always` would add, for a person; empty when untrusted text
            made it ask, because no standing rule is made of such a call.
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
    rule_id: str = ""
    days: int = 0
    edited: str = ""

    @property
    def granted(self) -> bool:
        """Whether the call may run."""
        return self.answer != "deny"


class _Entry:
    """A pending question and the future its answer goes to."""

    def __init__(self, pending: PendingApproval) -> None:
        self.pending = pending
        self.answered: asyncio.Future[Resolution] = asyncio.get_running_loop().create_future()

    def resolve(self, resolution: Resolution) -> bool:
        if self.answered.done():
            return False
        self.answered.set_result(resolution)
        return True


Deliver = Callable[[PendingApproval], Awaitable[bool]]
"""Shows the question to whoever may answer; False when there is nobody."""


class Approvals:
    """The pending questions of all conversations.

    Args:
        rules: where `conversation` and `always` answers are kept.
        estop: denies everything while set; its listener must call `deny_all`.
        timeout_s: silence that long is a no.
        rule_days: how long an `always` rule is in force unless its answer says otherwise.
    """

    def __init__(
        self,
        rules: RuleBook,
        *,
        estop: Stop,
        timeout_s: float = ANSWER_TIMEOUT_S,
        rule_days: int = RULE_DAYS,
    ) -> None:
        self._rules = rules
        self._estop = estop
        self._timeout_s = timeout_s
        self._pending: dict[str, _Entry] = {}
        self._rule_days = rule_days
        self._closed: dict[str, tuple[int, str]] = {}

    async def ask(self, question: ApprovalQuestion, *, deliver: Deliver) -> Resolution:
        """Put the question and wait for the first answer.

        Cancelling withdraws the question. The time limit includes delivery.

        Returns:
            The resolution; a rule it grants is in force (and on disk) by then.
        """
        approval_id = f"approval-{secrets.token_hex(8)}"
        if self._estop.is_set():
            return _denied(approval_id, ESTOP_REASON)
        if len(self._pending) >= MAX_PENDING:
            return _denied(approval_id, f"{MAX_PENDING} {TOO_MANY}")
        entry = _Entry(self._describe(approval_id, question))
        self._pending[approval_id] = entry
        ending = "was withdrawn"
        try:
            resolution = await self._first_answer(entry, deliver)
            ending = _ending(resolution)
        finally:
            del self._pending[approval_id]
            self._remember(entry, ending)
        if not resolution.granted:
            return resolution
        resolution = await self._keep_rule(question, resolution)
        if self._estop.is_set():
            return _denied(approval_id, ESTOP_REASON)
        return resolution

    def answer(
        self,
        approval_id: str,
        answer: Answer,
        principal: Principal,
        *,
        digest: str,
        days: int = 0,
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
        if not 0 <= days <= MAX_RULE_DAYS:
            raise InvalidRequestError(
                f"a rule for {days} days cannot be made; 1 to {MAX_RULE_DAYS} can",
                hint="leave the days out for the configured time",
            )
        reason = DENIED_BY_USER if answer == "deny" else ""
        by = f"uid {principal.uid}"
        entry.resolve(
            Resolution(approval_id=approval_id, answer=answer, by=by, reason=reason, days=days)
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
            entry.pending
            for entry in self._pending.values()
            if not entry.answered.done() and principal.may_see(_owner(entry), _key(entry))
        ]

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

    def _remember(self, entry: _Entry, ending: str) -> None:
        self._closed[entry.pending.id] = (_owner(entry), ending)
        if len(self._closed) > MAX_REMEMBERED:
            del self._closed[next(iter(self._closed))]

    def _describe(self, approval_id: str, question: ApprovalQuestion) -> PendingApproval:
        now = self._rules.now()
        rule = rule_for(question.action, now=now, conversation=False).pattern
        return PendingApproval(
            id=approval_id,
            question=question,
            digest=question.action.digest,
            rule="" if question.tainted_by else rule,
            asked_at=now,
            expires_in_s=self._timeout_s,
        )

    async def _first_answer(self, entry: _Entry, deliver: Deliver) -> Resolution:
        approval_id = entry.pending.id
        try:
            async with asyncio.timeout(self._timeout_s):
                if not await deliver(entry.pending):
                    return _denied(approval_id, NOBODY_TO_ASK, unanswerable=True)
                return await entry.answered
        except TimeoutError:
            if entry.answered.done() and not entry.answered.cancelled():
                return entry.answered.result()
            return _denied(approval_id, f"{NO_ANSWER} {self._timeout_s:g} s")

    async def _keep_rule(self, question: ApprovalQuestion, resolution: Resolution) -> Resolution:
        if resolution.answer in ("deny", "once"):
            return resolution
        for_conversation = resolution.answer == "conversation"
        if for_conversation and not question.action.conversation_id:
            return _once_only(resolution, "there is no conversation")
        if question.tainted_by and not for_conversation:
            return _once_only(resolution, "no standing rule is made while untrusted text is about")
        rule = rule_for(
            question.action,
            now=self._rules.now(),
            conversation=for_conversation,
            tainted_by=question.tainted_by,
            days=resolution.days or self._rule_days,
        )
        rule = msgspec.structs.replace(
            rule, granted_by=resolution.by, approval_id=resolution.approval_id
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


def was_asked(reason: str) -> bool:
    """Tell whether a refusal's reason is that of a question without a yes."""
    return reason in {DENIED_BY_USER, NOBODY_TO_ASK} or any(
        words in reason for words in (NO_ANSWER, TOO_MANY)
    )


def _once_only(resolution: Resolution, why: str) -> Resolution:
    return msgspec.structs.replace(resolution, answer="once", reason=f"counts once only: {why}")


def _ending(resolution: Resolution) -> str:
    """Return how a question ended, for whoever answers too late."""
    if not resolution.by:
        return f"was denied: {resolution.reason}"
    return f"was answered by {resolution.by}: {'edit' if resolution.edited else resolution.answer}"


def _owner(entry: _Entry) -> int:
    return entry.pending.question.action.principal.uid


def _key(entry: _Entry) -> str:
    return entry.pending.question.action.principal.key_id
