"""Handlers about the policy, approvals and their rules. None of them makes a call."""

import asyncio
import itertools
from functools import partial
from typing import assert_never

import msgspec

from clawd.channels.rpc.connection import Call
from clawd.config.load import load_text
from clawd.config.render import redacted
from clawd.errors import ForbiddenError, InvalidRequestError, NotFoundError
from clawd.memory.approvals import LapsedCall
from clawd.receipts.record import Receipt
from clawd.receipts.verify import BadLine, read_receipts
from clawd.runtime.approval_prompts import approval_event
from clawd.runtime.calls import new_call_id
from clawd.runtime.replay import (
    CaseOutcome,
    ChangedDecision,
    Judge,
    PolicyChange,
    Replay,
    judge_cases,
    parse_cases,
    replay,
)
from clawd.security.approval_rules import MAX_RULE_DAYS, host_rule
from clawd.security.approvals import PendingApproval
from clawd.security.gate import Gate
from clawd.security.policy import Allow, Ask, Deny
from clawd.security.principal import Principal
from clawd.security.risk import Assessment
from clawd.security.taint import TaintBook
from clawd.service.build import Daemon
from clawd.service.handlers.shared import own_conversation
from clawd.service.state import policy_of
from clawd.tools.audit import DispatchSettings
from clawd.tools.dispatch import Dispatcher
from clawd.tools.outcome import CallRequest
from clawd.tools.registry import Registry
from clawd.wire import policy as wire
from clawd.wire.codec import mirror
from clawd.wire.events import ApprovalRequested
from clawd.wire.method import Done
from clawd.wire.policy import host_grant
from clawd.wire.safe_text import shortened

SHOWN_ARGUMENTS = 400


async def list_approvals(
    daemon: Daemon, _params: wire.ListApprovals, call: Call
) -> wire.ApprovalList:
    """List the approvals that the caller may answer: those that lapsed, then what waits."""
    lapsed = await daemon.late.listed(call.principal)
    pending = daemon.approvals.pending(call.principal)
    return wire.ApprovalList(items=(*map(_lapsed, lapsed), *map(_approval, pending)))


async def answer_approval(daemon: Daemon, params: wire.AnswerApproval, call: Call) -> Done:
    """Answer a pending approval, or one that lapsed: then its turn goes on."""
    late, approvals = daemon.late, daemon.approvals
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


async def list_rules(daemon: Daemon, _params: wire.ListRules, call: Call) -> wire.RuleList:
    """List the standing rules that the caller may see."""
    return wire.RuleList(
        items=tuple(
            mirror(
                wire.RuleLine,
                rule,
                created_at=rule.created_at.isoformat(timespec="seconds"),
                expires_at=rule.expires_at.isoformat(timespec="seconds"),
            )
            for rule in daemon.rules.rules(call.principal)
        )
    )


async def add_rule(daemon: Daemon, params: wire.AddRule, call: Call) -> Done:
    """Put a rule by pattern in force."""
    workspace, conversation_id = params.workspace, ""
    if params.conversation_id:
        workspace, conversation_id = await own_conversation(daemon, params.conversation_id, call)
    elif workspace:
        workspace = str(daemon.calls.workspace(workspace))
    rule = await daemon.approvals.grant(
        params.pattern,
        call.principal,
        verdict=params.verdict,
        workspace=workspace,
        conversation_id=conversation_id,
        days=params.days,
    )
    return Done(message=f"{rule.id}: {rule.pattern}")


async def revoke_rule(daemon: Daemon, params: wire.RevokeRule, call: Call) -> Done:
    """Remove a standing rule."""
    await daemon.rules.revoke(params.rule_id, call.principal)
    return Done(message=f"{params.rule_id} is revoked")


async def explain_policy(
    daemon: Daemon, params: wire.ExplainPolicy, call: Call
) -> wire.PolicyExplanation:
    """Say what the gate would answer to a call."""
    request = CallRequest(id=new_call_id(), tool=params.tool, arguments=params.arguments)
    calls, asker = daemon.calls, call.principal
    if params.conversation_id:
        if params.autonomy is not None:
            raise InvalidRequestError("a conversation has a mode of its own: name no autonomy")
        folder, chosen = await own_conversation(daemon, params.conversation_id, call)
        async with daemon.inbox.book.in_use(chosen, asker):
            found = calls.explain(request, asker, workspace=folder, conversation_id=chosen)
    elif params.autonomy is None:
        found = calls.explain(request, asker, workspace=params.workspace)
    else:
        judge = judge_of(daemon, PolicyChange(autonomy=params.autonomy))
        found = judge.explain(request, asker, workspace=calls.workspace(params.workspace))
    return msgspec.structs.replace(_explanation(*found), hooks=calls.hooks_for(params.tool))


async def allow_host(daemon: Daemon, params: wire.AllowHost, call: Call) -> Done:
    """Grant hosts, each by a standing rule of its own."""
    hosts = tuple(dict.fromkeys(map(host_grant, params.hosts)))
    if not hosts:
        raise InvalidRequestError("no host is named", hint="As in get.example.org:443.")
    if not 0 <= params.days <= MAX_RULE_DAYS:
        raise InvalidRequestError(
            f"a rule for {params.days} days cannot be made; 1 to {MAX_RULE_DAYS} can"
        )
    folder = "" if params.everywhere else str(daemon.calls.workspace(params.workspace))
    for host in hosts:
        rule = host_rule(
            host,
            owner=call.principal.uid,
            workspace=folder,
            conversation_id=params.conversation_id,
            days=params.days or daemon.state.loaded.config.security.approval_rule_days,
            now=daemon.rules.now(),
        )
        await daemon.rules.add(rule)
    where = f"in {folder}" if folder else "everywhere"
    if params.conversation_id:
        where = f"in conversation {params.conversation_id}"
    return Done(message=f"commands may reach {', '.join(hosts)} {where}")


async def show_policy(daemon: Daemon, params: wire.ShowPolicy, _call: Call) -> wire.PolicyBoundary:
    """Show what tools may touch and reach, and what they never may."""
    folder = daemon.calls.workspace(params.workspace)
    security = redacted(daemon.state.loaded)["security"]
    found = {**security, "sandbox": daemon.sandbox_level, "workspace": str(folder)}
    # Keys that are no part of the boundary are left out by the type.
    return msgspec.convert(found, wire.PolicyBoundary)


async def check_policy(daemon: Daemon, params: wire.CheckPolicy, call: Call) -> wire.PolicyCheck:
    """Judge a table of cases: the one given, or the configured one."""
    table = params.table
    if params.configured:
        table = await asyncio.to_thread(_configured_cases, daemon)
    cases = parse_cases(table)
    folder = daemon.calls.workspace(params.workspace)
    outcomes = await asyncio.to_thread(
        judge_cases, cases, partial(judge_of, daemon), call.principal, workspace=folder
    )
    return wire.PolicyCheck(items=tuple(map(_case_line, outcomes)))


async def replay_policy(daemon: Daemon, params: wire.ReplayPolicy, call: Call) -> wire.PolicyReplay:
    """Judge the calls of receipts once more, under another policy or the one in force."""
    if not 1 <= params.limit <= wire.REPLAY_LIMIT:
        raise InvalidRequestError(f"limit is {params.limit}; it must be 1 to {wire.REPLAY_LIMIT}")
    if params.config is not None and not call.principal.is_admin:
        # Its variables are filled in from the environment of the daemon.
        raise ForbiddenError(
            "a replay under another configuration needs an admin",
            hint="An autonomy may be named by everybody.",
        )
    change = PolicyChange(config=params.config, autonomy=params.autonomy)
    judge = await asyncio.to_thread(judge_of, daemon, change)
    receipts = await asyncio.to_thread(_past, daemon, params, call.principal)
    return _report(await replay(receipts, judge, daemon.memory.ledger.load_content))


def judge_of(daemon: Daemon, change: PolicyChange) -> Judge:
    """Return who judges under a policy that differs from the one in force, and runs no tool.

    Raises:
        ConfigError: the other configuration is invalid.
    """
    loaded = daemon.state.loaded
    if change.config is not None:
        loaded = load_text(change.config, daemon.state.environ)
    policy, taint = policy_of(loaded), TaintBook()
    if change.autonomy is not None:
        policy = msgspec.structs.replace(policy, autonomy=change.autonomy)
    if change.allowed_domains is not None:
        policy = msgspec.structs.replace(policy, allowed_domains=change.allowed_domains)
    explainer = Dispatcher(
        Registry(daemon.toolset.tools(loaded, policy, taint)),
        gate=Gate(lambda: policy, estop=_NeverStopped(), taint=taint, rules=daemon.rules),
        approvals=daemon.approvals,
        journal=daemon.journal,
        taint=taint,
        settings=DispatchSettings(sandbox_level=daemon.sandbox_level),
    )
    return Judge(explainer, taint, policy)


def _configured_cases(daemon: Daemon) -> str:
    """Return the configured table of policy cases; blocks.

    Raises:
        NotFoundError: there is none, or it cannot be read.
    """
    path = daemon.state.loaded.config.security.policy_cases
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise NotFoundError(
            f"the table of policy cases {path} cannot be read: {error}",
            hint="Name a file, or set policy_cases in [security] of the config.",
        ) from error


class _NeverStopped:
    """The emergency stop of a judge: what a policy answers does not depend on it."""

    def is_set(self) -> bool:
        """Return that it is not set."""
        return False


def _approval(pending: PendingApproval) -> wire.ApprovalLine:
    action = pending.question.action
    line = _line(approval_event(pending), action.conversation_id, action.principal)
    asked_at = pending.asked_at.isoformat(timespec="seconds")
    return msgspec.structs.replace(line, asked_at=asked_at)


def _lapsed(call: LapsedCall) -> wire.ApprovalLine:
    line = _line(call.shown, call.conversation_id, call.principal)
    return msgspec.structs.replace(
        line, asked_at=call.asked_at, expires_in_s=0.0, timed_out=True, answerable_until=call.until
    )


def _line(
    shown: ApprovalRequested, conversation_id: str, principal: Principal
) -> wire.ApprovalLine:
    return mirror(
        wire.ApprovalLine,
        shown,
        id=shown.approval_id,
        conversation_id=conversation_id,
        owner=principal.uid,
        asked_at="",
        timed_out=False,
        answerable_until="",
    )


def _past(daemon: Daemon, params: wire.ReplayPolicy, principal: Principal) -> list[Receipt]:
    """Return the receipts that the principal may see, newest first."""
    own = (
        line
        for line in read_receipts(daemon.loaded.config.receipts.path, newest_first=True)
        if not isinstance(line, BadLine) and principal.may_see(line.uid)
    )
    recent = itertools.takewhile(lambda receipt: receipt.timestamp >= params.since, own)
    return list(itertools.islice(recent, params.limit))


def _explanation(assessment: Assessment, verdict: Allow | Ask | Deny) -> wire.PolicyExplanation:
    risk = assessment.risk
    match verdict:
        case Allow():
            return wire.PolicyExplanation(
                verdict="allow", risk=risk, reason=assessment.reason, rule=verdict.rule
            )
        case Ask():
            return wire.PolicyExplanation(
                verdict="ask", risk=risk, reason=verdict.reason, rule="a person decides"
            )
        case Deny():
            return wire.PolicyExplanation(
                verdict="deny",
                risk=risk,
                reason=verdict.reason,
                rule=verdict.kind,
                hint=verdict.hint,
            )
        case _:
            assert_never(verdict)


def _case_line(outcome: CaseOutcome) -> wire.PolicyCaseLine:
    case, found = outcome.case, outcome.explanation
    return wire.PolicyCaseLine(
        name=case.name,
        tool=case.tool,
        expect=case.expect,
        verdict=found.verdict,
        risk=found.risk,
        reason=found.reason,
        problem=outcome.problem,
    )


def _report(found: Replay) -> wire.PolicyReplay:
    return wire.PolicyReplay(
        items=tuple(map(_change_line, found.changes)),
        counts=tuple(
            wire.ReplayCount(before=before, after=after, count=count)
            for (before, after), count in sorted(found.counts.items())
        ),
        skipped=tuple(
            wire.ReplaySkip(reason=reason, count=count)
            for reason, count in sorted(found.skipped.items())
        ),
    )


def _change_line(change: ChangedDecision) -> wire.ReplayLine:
    receipt, told = change.receipt, _explanation(change.assessment, change.verdict)
    return wire.ReplayLine(
        seq=receipt.seq,
        receipt_id=receipt.id,
        timestamp=receipt.timestamp,
        tool=receipt.tool,
        arguments=shortened(change.arguments, SHOWN_ARGUMENTS),
        before=change.before,
        after=change.after,
        risk=told.risk,
        reason=told.rule if change.after == "allow" else told.reason,
        hint=told.hint,
    )
