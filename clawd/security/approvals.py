"""The approval broker: puts a call to a person and waits for a yes. Anything else is a no.

An approval binds to exact bytes: an answer repeats the digest of what was shown (tool, canonical
arguments, workspace, environment difference). Silence, disconnect, emergency stop, a full table
and nobody to ask all deny. Pure asyncio; every method is called on the loop's thread.
"""

import asyncio
import hmac
import logging
import secrets
from collections import deque
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Literal

import msgspec

from clawd.errors import ClawError, ForbiddenError, InvalidRequestError, NotFoundError
from clawd.security.action import Action
from clawd.security.approval_rules import RuleBook, rule_for
from clawd.security.estop import ESTOP_REASON, Stop
from clawd.security.principal import Principal

ANSWER_TIMEOUT_S = 120.0
MAX_PENDING = 100

Answer = Literal["deny", "once", "conversation", "always"]

_log = logging.getLogger(__name__)


class ApprovalQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """What a person is asked: the action, why it asks, and what untrusted text is about."""

    action: Action
    reason: str
    tainted_by: tuple[str, ...] = ()


class PendingApproval(msgspec.Struct, frozen=True, kw_only=True):
    """A question that waits.

    Attributes:
        digest: what an answer must repeat.
        rule: the rule that the answer `always` would add, for a person.
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
    """

    approval_id: str
    answer: Answer
    by: str = ""
    reason: str = ""
    unanswerable: bool = False
    rule_id: str = ""

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
    """

    def __init__(
        self, rules: RuleBook, *, estop: Stop, timeout_s: float = ANSWER_TIMEOUT_S
    ) -> None:
        self._rules = rules
        self._estop = estop
        self._timeout_s = timeout_s
        self._pending: dict[str, _Entry] = {}
        self._closed: deque[str] = deque(maxlen=MAX_PENDING)

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
            return _denied(approval_id, f"{MAX_PENDING} approvals are already waiting")
        entry = _Entry(self._describe(approval_id, question))
        self._pending[approval_id] = entry
        try:
            resolution = await self._first_answer(entry, deliver)
        finally:
            del self._pending[approval_id]
            self._closed.append(approval_id)
        if not resolution.granted:
            return resolution
        resolution = await self._keep_rule(question, resolution)
        if self._estop.is_set():
            return _denied(approval_id, ESTOP_REASON)
        return resolution

    def answer(
        self, approval_id: str, answer: Answer, principal: Principal, *, digest: str
    ) -> None:
        """Answer a pending question; the first answer counts.

        Raises:
            NotFoundError: no such question, or it was answered, withdrawn or ran out.
            ForbiddenError: it is another owner's.
            InvalidRequestError: the digest is not that of the question.
        """
        entry = self._pending.get(approval_id)
        if entry is None or entry.answered.done():
            known = entry is not None or approval_id in self._closed
            state = "is not open any more" if known else "is unknown"
            raise NotFoundError(
                f"approval {approval_id} {state}", hint="clawctl approval list shows what waits"
            )
        owner = entry.pending.question.action.principal.uid
        if not principal.may_see(owner):
            raise ForbiddenError(f"approval {approval_id} belongs to uid {owner}")
        if not hmac.compare_digest(digest.encode(), entry.pending.digest.encode()):
            raise InvalidRequestError(
                f"the answer to {approval_id} is for other bytes than the ones that wait",
                hint="look at it again (clawctl approval list) and answer what it shows now",
            )
        reason = "denied by the user" if answer == "deny" else ""
        entry.resolve(
            Resolution(
                approval_id=approval_id, answer=answer, by=f"uid {principal.uid}", reason=reason
            )
        )

    def pending(self, principal: Principal) -> list[PendingApproval]:
        """Return the open questions that the principal may answer, oldest first."""
        return [
            entry.pending
            for entry in self._pending.values()
            if not entry.answered.done()
            and principal.may_see(entry.pending.question.action.principal.uid)
        ]

    def deny_all(self, reason: str = ESTOP_REASON) -> int:
        """Deny every open question; returns how many there were."""
        return sum(
            entry.resolve(_denied(entry.pending.id, reason)) for entry in self._pending.values()
        )

    def deny_conversation(self, conversation_id: str, reason: str) -> int:
        """Deny the open questions of a conversation: its turn's owner is gone."""
        return sum(
            entry.resolve(_denied(entry.pending.id, reason))
            for entry in self._pending.values()
            if entry.pending.question.action.conversation_id == conversation_id
        )

    def _describe(self, approval_id: str, question: ApprovalQuestion) -> PendingApproval:
        now = self._rules.now()
        return PendingApproval(
            id=approval_id,
            question=question,
            digest=question.action.digest,
            rule=rule_for(question.action, now=now, conversation=False).pattern,
            asked_at=now,
            expires_in_s=self._timeout_s,
        )

    async def _first_answer(self, entry: _Entry, deliver: Deliver) -> Resolution:
        approval_id = entry.pending.id
        try:
            async with asyncio.timeout(self._timeout_s):
                if not await deliver(entry.pending):
                    reason = "it needs an approval and nobody could be asked"
                    return _denied(approval_id, reason, unanswerable=True)
                return await entry.answered
        except TimeoutError:
            if entry.answered.done() and not entry.answered.cancelled():
                return entry.answered.result()
            return _denied(approval_id, f"no answer within {self._timeout_s:g} s")

    async def _keep_rule(self, question: ApprovalQuestion, resolution: Resolution) -> Resolution:
        if resolution.answer in ("deny", "once"):
            return resolution
        for_conversation = resolution.answer == "conversation"
        if for_conversation and not question.action.conversation_id:
            return msgspec.structs.replace(
                resolution, answer="once", reason="counts once only: there is no conversation"
            )
        rule = rule_for(
            question.action,
            now=self._rules.now(),
            conversation=for_conversation,
            tainted_by=question.tainted_by,
        )
        try:
            await self._rules.add(rule)
        except ClawError as error:
            _log.warning("an approval rule could not be kept: %s", error.message)
            return msgspec.structs.replace(
                resolution, answer="once", reason=f"counts once only: {error.message}"
            )
        return msgspec.structs.replace(resolution, rule_id=rule.id)


def _denied(approval_id: str, reason: str, *, unanswerable: bool = False) -> Resolution:
    return Resolution(
        approval_id=approval_id, answer="deny", reason=reason, unanswerable=unanswerable
    )
