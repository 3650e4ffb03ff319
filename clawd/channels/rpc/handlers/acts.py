"""Handlers about acting: tools and approvals."""

from clawd.channels.rpc.connection import Call
from clawd.channels.rpc.handlers.parts import Handler, streaming
from clawd.runtime.broadcast import Subscription
from clawd.runtime.calls import new_call_id
from clawd.runtime.doors import approval_event
from clawd.security.approvals import PendingApproval
from clawd.tools.outcome import CallRequest
from clawd.tools.registry import short_of
from clawd.wire.methods import (
    AnswerApproval,
    ListApprovals,
    ListRules,
    ListTools,
    RevokeRule,
    RunTool,
)
from clawd.wire.reports import (
    ApprovalLine,
    ApprovalList,
    Done,
    RuleLine,
    RuleList,
    ToolLine,
    ToolList,
    ToolOutcome,
)


class ActHandlers(Handler):
    """Each method handles the wire method of its name."""

    async def list_tools(self, _params: ListTools, _call: Call) -> ToolList:
        """List the tools."""
        return ToolList(
            items=tuple(
                ToolLine(
                    name=tool.name,
                    short=short_of(tool),
                    description=tool.description or short_of(tool),
                    parameters=tool.parameters,
                )
                for tool in self.parts.registry.all()
            )
        )

    async def run_tool(self, params: RunTool, call: Call) -> ToolOutcome:
        """Run one tool through the gate."""
        events = Subscription()
        call.on_answer = lambda answer: self.take_answer(answer, call.principal)
        async with streaming(events, call):
            outcome = await self.parts.calls.run(
                CallRequest(id=new_call_id(), tool=params.name, arguments=params.arguments),
                call.principal,
                workspace=params.workspace,
                interactive=params.interactive,
                emit=events.put,
            )
        exit_code = outcome.metadata.get("exit_code")
        return ToolOutcome(
            status=outcome.status,
            kind=outcome.kind,
            output=outcome.text,
            receipt_id=outcome.receipt_id,
            risk=outcome.risk,
            duration_ms=outcome.duration_ms,
            exit_code=exit_code if isinstance(exit_code, int) else None,
            unanswered=outcome.kind == "unanswered",
        )

    async def list_approvals(self, _params: ListApprovals, call: Call) -> ApprovalList:
        """List the pending approvals that the caller may answer."""
        pending = self.parts.approvals.pending(call.principal)
        return ApprovalList(items=tuple(_approval(each) for each in pending))

    async def answer_approval(self, params: AnswerApproval, call: Call) -> Done:
        """Answer a pending approval."""
        self.parts.approvals.answer(
            params.approval_id,
            params.answer,
            call.principal,
            digest=params.digest,
            days=params.days,
        )
        return Done(message=f"{params.approval_id}: {params.answer}")

    async def list_rules(self, _params: ListRules, call: Call) -> RuleList:
        """List the standing rules that the caller may see."""
        return RuleList(
            items=tuple(
                RuleLine(
                    id=rule.id,
                    tool=rule.tool,
                    pattern=rule.pattern,
                    owner=rule.owner,
                    created_at=rule.created_at.isoformat(timespec="seconds"),
                    expires_at=rule.expires_at.isoformat(timespec="seconds"),
                    conversation_id=rule.conversation_id,
                )
                for rule in self.parts.rules.rules(call.principal)
            )
        )

    async def revoke_rule(self, params: RevokeRule, call: Call) -> Done:
        """Remove a standing rule."""
        await self.parts.rules.revoke(params.rule_id, call.principal)
        return Done(message=f"{params.rule_id} is revoked")


def _approval(pending: PendingApproval) -> ApprovalLine:
    shown = approval_event(pending)
    action = pending.question.action
    return ApprovalLine(
        id=shown.approval_id,
        digest=shown.digest,
        tool=shown.tool,
        arguments=shown.arguments,
        risk=shown.risk,
        reason=shown.reason,
        workspace=shown.workspace,
        conversation_id=action.conversation_id,
        owner=action.principal.uid,
        asked_at=pending.asked_at.isoformat(timespec="seconds"),
        expires_in_s=pending.expires_in_s,
        environment=shown.environment,
        rule=pending.rule,
    )
