"""Questions of a tool to the person at the other end: asked as an event, answered by id."""

import asyncio
import secrets
from collections.abc import Callable

import msgspec

from clawd.security.approvals import Attendance
from clawd.security.principal import Principal
from clawd.wire.events import Event, QuestionAsked

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
        """Ask whoever sees what the asker does, and wait; None when nobody answered in time.

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
        """Answer a question; tell whether it was waiting and the principal's to answer."""
        if question_id not in self._waiting:
            return False
        asker, future = self._waiting[question_id]
        if future.done() or not principal.may_see(asker.uid, asker.key_id):
            return False
        future.set_result(value)
        return True
