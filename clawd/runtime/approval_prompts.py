"""How a call reaches the person at its door: approvals and questions, as events of the stream."""

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec

from clawd.security.approvals import Attendance, PendingApproval
from clawd.security.principal import Principal
from clawd.tools.outcome import CallScope
from clawd.wire.events import ApprovalRequested, Event, QuestionAsked

ANSWER_TIMEOUT_S = 120.0
MAX_PENDING = 100


class Questions:
    """The questions that wait for an answer."""

    def __init__(self, *, timeout_s: float = ANSWER_TIMEOUT_S) -> None:
        self._timeout_s = timeout_s
        self._waiting: dict[str, tuple[Principal, asyncio.Future[str]]] = {}

    async def ask(
        self,
        question: QuestionAsked,
        *,
        asker: Principal,
        emit: Callable[[Event], None],
        attendance: Attendance | None = None,
    ) -> str | None:
        """Ask everyone who sees what the asker does, and wait; None when nobody answers in time.

        While somebody is there who can answer, it waits without end. The question gets its id and
        its time here.
        """
        if len(self._waiting) >= MAX_PENDING:
            return None
        question_id = f"question-{secrets.token_hex(8)}"
        answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._waiting[question_id] = (asker, answer)
        there = attendance or Attendance()
        expires_in_s = 0.0 if there.is_there else self._timeout_s
        emit(msgspec.structs.replace(question, question_id=question_id, expires_in_s=expires_in_s))
        try:
            async with there.silence(self._timeout_s):
                return await answer
        except TimeoutError:
            return None
        finally:
            del self._waiting[question_id]

    def answer(self, question_id: str, value: str, principal: Principal) -> bool:
        """Answer a question; return whether it was waiting and the principal's to answer."""
        if question_id not in self._waiting:
            return False
        asker, future = self._waiting[question_id]
        if future.done() or not principal.may_see(asker.uid, asker.key_id):
            return False
        future.set_result(value)
        return True


YES, NO = "yes", "no"


class PersonAtDoor:
    """Makes the scope of calls: who is asked, and how."""

    def __init__(self, questions: Questions) -> None:
        self.questions = questions

    def scope(
        self,
        *,
        conversation_id: str,
        principal: Principal,
        workspace: Path,
        offered: frozenset[str] | None,
        emit: Callable[[Event], None],
        attendance: Attendance | None,
    ) -> CallScope:
        """Return the scope of a call.

        Args:
            conversation_id: which it is of.
            principal: for whom it runs.
            workspace: where.
            offered: the names of the tools that may be called.
            emit: takes its events.
            attendance: who is there to answer; None where nobody can be asked, here or elsewhere.
        """
        reachable = attendance is not None

        async def deliver(pending: PendingApproval) -> bool:
            if reachable:
                emit(approval_event(pending))
            return reachable

        async def asked(question: QuestionAsked) -> str | None:
            return await self.questions.ask(
                question, asker=principal, emit=emit, attendance=attendance
            )

        async def ask(text: str, options: tuple[str, ...]) -> str | None:
            return await asked(QuestionAsked(question_id="", text=text, options=options))

        async def open_page(url: str) -> str | None:
            text = f"Open this page in your browser? {url}"
            question = QuestionAsked(question_id="", text=text, options=(YES, NO), url=url)
            return await asked(question)

        return CallScope(
            conversation_id=conversation_id,
            principal=principal,
            workspace=workspace,
            offered=offered,
            emit=emit,
            deliver=deliver,
            ask=ask if reachable else None,
            open_page=open_page if reachable else None,
            attendance=attendance,
        )

    def asking_on(self, scope: CallScope) -> Callable[[int, int], Awaitable[bool]]:
        """Return what asks whether a turn goes on that reached its limit of rounds."""

        async def ask(rounds: int, more: int) -> bool:
            text = f"{rounds} rounds of tool calls are done. Go on, for up to {more} more?"
            said = await self.questions.ask(
                QuestionAsked(question_id="", text=text, options=(YES, NO), default=YES),
                asker=scope.principal,
                emit=scope.emit,
                attendance=scope.attendance,
            )
            return said is not None and said.strip().lower() in {YES, YES[0]}

        return ask


def approval_event(pending: PendingApproval) -> ApprovalRequested:
    """Return the event that shows a pending approval."""
    action = pending.question.action
    return ApprovalRequested(
        approval_id=pending.id,
        digest=pending.digest,
        call_id=action.call_id,
        tool=action.tool,
        arguments=action.arguments.decode(errors="replace"),
        risk=action.assessment.risk,
        reason=pending.question.reason,
        workspace=str(action.workspace),
        environment=action.environment,
        rule=pending.rule,
        patterns=action.assessment.patterns if pending.rule else (),
        unlisted=pending.question.unlisted,
        expires_in_s=pending.expires_in_s,
        changes=pending.question.changes,
    )
