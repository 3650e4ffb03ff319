"""Handlers about acting: tools, their changes and approvals."""

from contextlib import AsyncExitStack
from typing import Literal

from clawd.channels.rpc.connection import Call
from clawd.channels.rpc.handlers.parts import Handler, streaming
from clawd.errors import InvalidRequestError
from clawd.memory.rows import check_shown
from clawd.runtime.broadcast import Subscription
from clawd.runtime.calls import Visit, new_call_id
from clawd.runtime.doors import approval_event
from clawd.runtime.incoming import Door
from clawd.security.approvals import PendingApproval
from clawd.tools.base import Tool
from clawd.tools.changes import Change, ChangeScope
from clawd.tools.offer import Offer, aliases_of, example_of, short_of
from clawd.tools.outcome import CallRequest
from clawd.wire.changes import ChangeLine, ChangeList
from clawd.wire.extension_reports import ToolProblem
from clawd.wire.method import PAGE_LIMIT
from clawd.wire.methods import (
    AnswerApproval,
    ListApprovals,
    ListChanges,
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

    async def list_tools(self, _params: ListTools, call: Call) -> ToolList:
        """List the tools; to an admin also what could not be loaded."""
        offer = Offer(self._tools_at(call.door), self.parts.calls.tool_mode())
        problems = self.parts.tool_problems() if call.principal.is_admin else ()
        return ToolList(
            items=tuple(_tool_line(tool, offer) for tool in offer.flat),
            mode=offer.mode,
            problems=tuple(
                ToolProblem(
                    file=each.file,
                    line=each.line,
                    severity=each.severity,
                    reason=each.reason,
                    tool=each.tool,
                )
                for each in problems
            ),
        )

    async def run_tool(self, params: RunTool, call: Call) -> ToolOutcome:
        """Run one tool through the gate."""
        workspace, conversation_id = params.workspace, ""
        events = Subscription()
        async with AsyncExitStack() as stack:
            if params.conversation_id:
                workspace, conversation_id = await self._conversation(params.conversation_id, call)
                # The untrusted text that it holds counts for the call, to its end.
                held = self.parts.inbox.book.in_use(conversation_id, call.principal)
                await stack.enter_async_context(held)
            call.on_answer = lambda answer: self.take_answer(answer, call.principal)
            await stack.enter_async_context(streaming(events, call))
            visit = Visit(
                conversation_id=conversation_id,
                workspace=workspace,
                interactive=params.interactive,
                offered=self._offered_at(call.door),
            )
            request = CallRequest(id=new_call_id(), tool=params.name, arguments=params.arguments)
            outcome = await self.parts.calls.visit(request, call.principal, visit, events.put)
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

    def _tools_at(self, door: Door) -> list[Tool]:
        """Return the tools that a door has; over the socket a person may call every one."""
        registry = self.parts.registry
        if door == "socket":
            return list(registry.all())
        return registry.allowed(self.parts.tool_clients.settings().http_tools_allow)

    def _offered_at(self, door: Door) -> frozenset[str] | None:
        if door == "socket":
            return None
        return frozenset(tool.name for tool in self._tools_at(door))

    async def list_changes(self, params: ListChanges, call: Call) -> ChangeList:
        """List what undo can take back."""
        if not 1 <= params.limit <= PAGE_LIMIT:
            raise InvalidRequestError(f"limit is {params.limit}; it must be 1 to {PAGE_LIMIT}")
        workspace, conversation_id = params.workspace, ""
        if params.conversation_id:
            workspace, conversation_id = await self._conversation(params.conversation_id, call)
        scope = ChangeScope(
            owner=call.principal.uid,
            workspace=str(self.parts.calls.workspace(workspace)),
            conversation_id=conversation_id,
        )
        calls = await self.parts.changes.listed(scope, calls=params.limit, reverting=params.redo)
        return ChangeList(items=tuple(_change_line(change) for group in calls for change in group))

    async def _conversation(self, beginning: str, call: Call) -> tuple[str, str]:
        """Return workspace and id of a conversation of the caller's own."""
        owner = call.principal.uid
        matched = await self.parts.memory.conversations.match(beginning, owner=owner)
        found = check_shown(matched, call.principal)
        return found.workspace, found.id

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
                    granted_by=rule.granted_by,
                    receipt_id=rule.receipt_id,
                )
                for rule in self.parts.rules.rules(call.principal)
            )
        )

    async def revoke_rule(self, params: RevokeRule, call: Call) -> Done:
        """Remove a standing rule."""
        await self.parts.rules.revoke(params.rule_id, call.principal)
        return Done(message=f"{params.rule_id} is revoked")


def _tool_line(tool: Tool, offer: Offer) -> ToolLine:
    return ToolLine(
        name=tool.name,
        short=short_of(tool),
        description=tool.description or short_of(tool),
        parameters=tool.parameters,
        offered_as=offer.also_as(tool.name),
        aliases=aliases_of(tool),
        example=example_of(tool),
        source=tool.source,
    )


def _change_line(change: Change) -> ChangeLine:
    before, after = change.file.before, change.file.after
    action: Literal["created", "changed", "removed"] = "changed"
    if before is None or after is None:
        action = "created" if before is None else "removed"
    return ChangeLine(
        receipt_id=change.call.call_id,
        at=change.at,
        tool=change.call.tool,
        path=change.file.path,
        action=action,
        size_before=before.size if before is not None else 0,
        size_after=after.size if after is not None else 0,
        conversation_id=change.call.conversation_id,
        workspace=change.call.workspace,
    )


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
        changes=shown.changes,
    )
