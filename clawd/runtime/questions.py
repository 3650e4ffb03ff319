"""Questions of a tool to the person at the other end: asked as an event, answered by id."""

import asyncio
import secrets
from collections.abc import Callable

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
        text: str,
        options: tuple[str, ...],
        *,
        asker: Principal,
        emit: Callable[[Event], None],
        url: str = "",
    ) -> str | None:
        """Ask whoever sees what the asker does, and wait; None when nobody answered in time."""
        if len(self._waiting) >= MAX_PENDING:
            return None
        question_id = f"question-{secrets.token_hex(8)}"
        answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._waiting[question_id] = (asker, answer)
        emit(
            QuestionAsked(
                question_id=question_id,
                text=text,
                options=options,
                expires_in_s=self._timeout_s,
                url=url,
            )
        )
        try:
            async with asyncio.timeout(self._timeout_s):
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
