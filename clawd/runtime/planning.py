"""Plan mode: a turn that only looks and writes a plan, asks the person once, then works on it."""

import msgspec

from clawd.errors import ForbiddenError
from clawd.runtime.approval_prompts import NO, YES, Questions
from clawd.runtime.conversation import ConversationBook, LiveConversation
from clawd.security.risk import Autonomy
from clawd.tools.outcome import CallScope
from clawd.wire.events import Notice, QuestionAsked

PLANNING: Autonomy = "readonly"
"""How far a turn goes while it plans, whatever the conversation's mode is."""
PLAN_FIRST = (
    "plan_first: look only, nothing can be changed yet. Write the steps with the tool plan, then "
    "say in a few words what you mean to do. The user is asked before the work begins."
)
UNANSWERED = "nobody answered, so it stays at the plan; your next message begins the work"
WORK = "The plan is approved. Work on it step by step, and keep each step's status in the plan."


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """What the person said to a plan.

    Attributes:
        text: what the model is told, "" where the turn ends with the plan.
        is_approved: the work begins; else the plan is to be changed by the text.
    """

    text: str = ""
    is_approved: bool = False


class Planning:
    """Puts the plan of a turn to the person.

    Args:
        book: keeps the mode that is chosen.
        live: the conversation.
        questions: asks.
        scope: of the turn's calls.
    """

    def __init__(
        self, book: ConversationBook, live: LiveConversation, questions: Questions, scope: CallScope
    ) -> None:
        self._book = book
        self._live = live
        self._questions = questions
        self._scope = scope

    async def decided(self) -> Decision:
        """Ask what is to become of the plan.

        Raises:
            ClawError: the mode that was chosen cannot be kept.
        """
        scope = self._scope
        mode, others = self._book.modes_for(self._live, scope.principal)
        text = (
            f"Work on this plan? {YES} works in mode {mode}, the name of another mode in that one; "
            f"{NO} leaves it at the plan. Anything else is said to the model, which plans again."
        )
        said = await self._questions.ask(
            QuestionAsked(question_id="", text=text, options=(YES, *others, NO)),
            asker=scope.principal,
            emit=scope.emit,
            attendance=scope.attendance,
        )
        if said is None:
            scope.emit(Notice(level="info", text=UNANSWERED))
        word = (said or "").strip()
        if word.lower() in {"", NO, NO[0]}:
            return Decision()
        is_approved = word.lower() in {YES, YES[0], *others}
        if word.lower() in others:
            await self._choose(msgspec.convert(word.lower(), Autonomy))
        return Decision(text=WORK if is_approved else word, is_approved=is_approved)

    async def _choose(self, mode: Autonomy) -> None:
        try:
            await self._book.set_mode(self._live, mode, self._scope.principal)
        except ForbiddenError as error:  # the policy was reloaded while the question waited
            self._scope.emit(Notice(level="warning", text=error.message))
            return
        self._scope.emit(Notice(level="info", text=f"mode {mode}"))
