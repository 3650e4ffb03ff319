"""Handlers about acting: tools, their changes, approvals and jobs."""

import asyncio
from contextlib import AsyncExitStack
from typing import Literal

import msgspec

from clawd.channels.rpc.connection import Call
from clawd.channels.rpc.handlers.parts import Handler, attending, streaming
from clawd.errors import InvalidRequestError, NotFoundError
from clawd.memory.approvals import LapsedCall
from clawd.memory.rows import check_shown, visible_to
from clawd.runtime.approval_prompts import approval_event
from clawd.runtime.calls import ClientCall, new_call_id
from clawd.runtime.hub import Subscription
from clawd.runtime.incoming import Door
from clawd.security.approvals import PendingApproval
from clawd.security.principal import Principal
from clawd.tools.base import Tool
from clawd.tools.changes import Change, ChangeScope
from clawd.tools.jobs import Job
from clawd.tools.offer import Offer, aliases_of, example_of, short_of
from clawd.tools.outcome import CallRequest
from clawd.wire.events import ApprovalRequested
from clawd.wire.method import PAGE_LIMIT, Done
from clawd.wire.policy import (
    AddRule,
    AnswerApproval,
    ApprovalLine,
    ApprovalList,
    ListApprovals,
    ListRules,
    RevokeRule,
    RuleLine,
    RuleList,
)
from clawd.wire.safe_text import shortened
from clawd.wire.tools import (
    ChangeLine,
    ChangeList,
    JobLine,
    JobList,
    JobOutput,
    ListChanges,
    ListJobs,
    ListTools,
    RunTool,
    ShowJob,
    StopJob,
    ToolLine,
    ToolList,
    ToolOutcome,
    ToolProblem,
)

NAME_SHOWN = 40


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
            visit = ClientCall(
                conversation_id=conversation_id,
                workspace=workspace,
                interactive=params.interactive,
                offered=self._offered_at(call.door),
            )
            there = attending(visit.attendance, call, interactive=params.interactive)
            stack.enter_context(there)
            await stack.enter_async_context(streaming(events, call))
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
        return registry.allowed(self.parts.tool_clients.settings().tools_allow(door))

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
        """List the approvals that the caller may answer: those that lapsed, then what waits."""
        lapsed = await self.parts.late.listed(call.principal)
        pending = self.parts.approvals.pending(call.principal)
        return ApprovalList(items=(*map(_lapsed, lapsed), *map(_approval, pending)))

    async def answer_approval(self, params: AnswerApproval, call: Call) -> Done:
        """Answer a pending approval, or one that lapsed: then its turn goes on."""
        late, approvals = self.parts.late, self.parts.approvals
        wanted, digest = params.approval_id, params.digest
        if (params.answer == "edit") is not bool(params.arguments):
            raise InvalidRequestError("arguments go with the answer edit, and with no other")
        if not approvals.is_open(wanted) and await late.knows(wanted, call.principal):
            conversation = await late.answer(params, call.principal)
            return Done(message=f"{wanted}: {params.answer}; the turn goes on in {conversation}")
        if params.answer == "edit":
            approvals.edit(wanted, params.arguments, call.principal, digest=digest)
        else:
            approvals.answer(wanted, params.answer, call.principal, digest=digest, days=params.days)
        return Done(message=f"{wanted}: {params.answer}")

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

    async def add_rule(self, params: AddRule, call: Call) -> Done:
        """Put a rule by pattern in force."""
        workspace, conversation_id = params.workspace, ""
        if params.conversation_id:
            workspace, conversation_id = await self._conversation(params.conversation_id, call)
        elif workspace:
            workspace = str(self.parts.calls.workspace(workspace))
        rule = await self.parts.approvals.grant(
            params.pattern,
            call.principal,
            verdict=params.verdict,
            workspace=workspace,
            conversation_id=conversation_id,
            days=params.days,
        )
        return Done(message=f"{rule.id}: {rule.pattern}")

    async def revoke_rule(self, params: RevokeRule, call: Call) -> Done:
        """Remove a standing rule."""
        await self.parts.rules.revoke(params.rule_id, call.principal)
        return Done(message=f"{params.rule_id} is revoked")

    async def list_jobs(self, params: ListJobs, call: Call) -> JobList:
        """List the jobs that the caller may see."""
        seen = self.parts.jobs.seen_by(call.principal)
        if params.conversation_id:
            owner = visible_to(call.principal)
            found = await self.parts.memory.conversations.match(params.conversation_id, owner=owner)
            seen = [job for job in seen if job.context.conversation_id == found.id]
        return JobList(items=tuple(map(self._job_line, seen)))

    async def show_job(self, params: ShowJob, call: Call) -> JobOutput:
        """Show a job and the end of what it printed."""
        job = self._job(params.job_id, call)
        whole = await asyncio.to_thread(self.parts.redactor.text, job.output)
        data = whole.encode(errors="replace")
        is_cut = len(data) > params.max_bytes
        end = data[len(data) - params.max_bytes :].decode(errors="ignore") if is_cut else whole
        return JobOutput(job=self._job_line(job), output=end, is_cut=is_cut)

    async def stop_job(self, params: StopJob, call: Call) -> JobLine:
        """End a job."""
        job = self._job(params.job_id, call)
        await self.parts.jobs.stop(job, f"uid {call.principal.uid}")
        return self._job_line(job)

    def _job_line(self, job: Job) -> JobLine:
        return job.line(self.parts.redactor.text)

    def _job(self, identity: str, call: Call) -> Job:
        seen = self.parts.jobs.seen_by(call.principal)
        found = next((job for job in seen if job.id == identity), None)
        if found is None:
            known = ", ".join(job.id for job in seen) or "none"
            raise NotFoundError(
                f"there is no job {shortened(identity, NAME_SHOWN)!r}; there are: {known}",
                hint="Jobs are known until the daemon ends. See: clawctl jobs list",
            )
        return found


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
    action = pending.question.action
    line = _line(approval_event(pending), action.conversation_id, action.principal)
    asked_at = pending.asked_at.isoformat(timespec="seconds")
    return msgspec.structs.replace(line, asked_at=asked_at)


def _lapsed(call: LapsedCall) -> ApprovalLine:
    line = _line(call.shown, call.conversation_id, call.principal)
    return msgspec.structs.replace(
        line, asked_at=call.asked_at, expires_in_s=0.0, timed_out=True, answerable_until=call.until
    )


def _line(shown: ApprovalRequested, conversation_id: str, principal: Principal) -> ApprovalLine:
    return ApprovalLine(
        id=shown.approval_id,
        digest=shown.digest,
        tool=shown.tool,
        arguments=shown.arguments,
        risk=shown.risk,
        reason=shown.reason,
        workspace=shown.workspace,
        conversation_id=conversation_id,
        owner=principal.uid,
        asked_at="",
        expires_in_s=shown.expires_in_s,
        environment=shown.environment,
        rule=shown.rule,
        changes=shown.changes,
    )
