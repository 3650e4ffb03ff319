"""How a call reaches the person at its door: approvals and questions, as events of the stream."""

from collections.abc import Callable
from pathlib import Path

from clawd.runtime.questions import Questions
from clawd.security.approvals import PendingApproval
from clawd.security.principal import Principal
from clawd.tools.outcome import CallScope
from clawd.wire.events import ApprovalRequested, Event


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
        reachable: bool,
    ) -> CallScope:
        """Return the scope of a call; `reachable` says whether anybody can be asked."""

        async def deliver(pending: PendingApproval) -> bool:
            if reachable:
                emit(approval_event(pending))
            return reachable

        async def ask(text: str, options: tuple[str, ...]) -> str | None:
            return await self.questions.ask(text, options, asker=principal, emit=emit)

        async def open_page(url: str) -> str | None:
            text = f"Open this page in your browser? {url}"
            options = ("yes", "no")
            return await self.questions.ask(text, options, asker=principal, emit=emit, url=url)

        return CallScope(
            conversation_id=conversation_id,
            principal=principal,
            workspace=workspace,
            offered=offered,
            emit=emit,
            deliver=deliver,
            ask=ask if reachable else None,
            open_page=open_page if reachable else None,
        )


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
        expires_in_s=pending.expires_in_s,
        changes=pending.question.changes,
    )
