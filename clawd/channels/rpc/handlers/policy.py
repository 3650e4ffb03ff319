"""Handlers about the policy: its answers to a call, to a table of cases, to calls of the past."""

import asyncio
import itertools
from typing import assert_never

import msgspec

from clawd.channels.rpc.connection import Call
from clawd.channels.rpc.handlers.parts import Handler
from clawd.errors import ForbiddenError, InvalidRequestError
from clawd.receipts.record import Receipt
from clawd.receipts.verify import BadLine, read_receipts
from clawd.runtime.calls import new_call_id
from clawd.runtime.replay import ChangedDecision, PolicyChange, Replay, judge_cases, replay
from clawd.security.approval_rules import MAX_RULE_DAYS, host_rule
from clawd.security.policy import Allow, Ask, Deny
from clawd.security.policy_cases import CaseOutcome, parse_cases
from clawd.security.principal import Principal
from clawd.security.risk import Assessment
from clawd.tools.outcome import CallRequest
from clawd.wire.hosts import host_grant
from clawd.wire.method import Done
from clawd.wire.policy import (
    REPLAY_LIMIT,
    AllowHost,
    CheckPolicy,
    ExplainPolicy,
    PolicyBoundary,
    PolicyCaseLine,
    PolicyCheck,
    PolicyExplanation,
    PolicyReplay,
    ReplayCount,
    ReplayLine,
    ReplayPolicy,
    ReplaySkip,
    ShowPolicy,
)
from clawd.wire.safe_text import shortened

SHOWN_ARGUMENTS = 400


class PolicyHandlers(Handler):
    """Each method handles the wire method of its name. None of them makes a call."""

    async def explain_policy(self, params: ExplainPolicy, call: Call) -> PolicyExplanation:
        """Say what the gate would answer to a call."""
        request = CallRequest(id=new_call_id(), tool=params.tool, arguments=params.arguments)
        calls = self.parts.calls
        if params.autonomy is None:
            found = calls.explain(request, call.principal, workspace=params.workspace)
        else:
            judge = self.parts.judge_of(PolicyChange(autonomy=params.autonomy))
            folder = calls.workspace(params.workspace)
            found = judge.explain(request, call.principal, workspace=folder)
        return msgspec.structs.replace(_explanation(*found), hooks=calls.hooks_for(params.tool))

    async def allow_host(self, params: AllowHost, call: Call) -> Done:
        """Grant hosts, each by a standing rule of its own."""
        hosts = tuple(dict.fromkeys(map(host_grant, params.hosts)))
        if not hosts:
            raise InvalidRequestError("no host is named", hint="As in get.example.org:443.")
        if not 0 <= params.days <= MAX_RULE_DAYS:
            raise InvalidRequestError(
                f"a rule for {params.days} days cannot be made; 1 to {MAX_RULE_DAYS} can"
            )
        folder = "" if params.everywhere else str(self.parts.calls.workspace(params.workspace))
        for host in hosts:
            rule = host_rule(
                host,
                owner=call.principal.uid,
                workspace=folder,
                conversation_id=params.conversation_id,
                days=params.days or self._rule_days(),
                now=self.parts.rules.now(),
            )
            await self.parts.rules.add(rule)
        where = f"in {folder}" if folder else "everywhere"
        if params.conversation_id:
            where = f"in conversation {params.conversation_id}"
        return Done(message=f"commands may reach {', '.join(hosts)} {where}")

    def _rule_days(self) -> int:
        _, values = self.parts.effective_config()
        return int(values["security"]["approval_rule_days"])

    async def show_policy(self, params: ShowPolicy, call: Call) -> PolicyBoundary:
        """Show what tools may touch and reach, and what they never may."""
        folder = self.parts.calls.workspace(params.workspace)
        report = await self.parts.status(call.principal)
        _, values = self.parts.effective_config()
        found = {**values["security"], "sandbox": report.sandbox, "workspace": str(folder)}
        # Keys that are no part of the boundary are left out by the type.
        return msgspec.convert(found, PolicyBoundary)

    async def check_policy(self, params: CheckPolicy, call: Call) -> PolicyCheck:
        """Judge a table of cases: the one given, or the configured one."""
        table = params.table
        if params.configured:
            table = await asyncio.to_thread(self.parts.policy_cases)
        cases = parse_cases(table)
        folder = self.parts.calls.workspace(params.workspace)
        outcomes = await asyncio.to_thread(
            judge_cases, cases, self.parts.judge_of, call.principal, workspace=folder
        )
        return PolicyCheck(items=tuple(map(_case_line, outcomes)))

    async def replay_policy(self, params: ReplayPolicy, call: Call) -> PolicyReplay:
        """Judge the calls of receipts once more, under another policy or the one in force."""
        if not 1 <= params.limit <= REPLAY_LIMIT:
            raise InvalidRequestError(f"limit is {params.limit}; it must be 1 to {REPLAY_LIMIT}")
        if params.config is not None and not call.principal.is_admin:
            # Its variables are filled in from the environment of the daemon.
            raise ForbiddenError(
                "a replay under another configuration needs an admin",
                hint="An autonomy may be named by everybody.",
            )
        change = PolicyChange(config=params.config, autonomy=params.autonomy)
        judge = await asyncio.to_thread(self.parts.judge_of, change)
        receipts = await asyncio.to_thread(self._past, params, call.principal)
        return _report(await replay(receipts, judge, self.parts.memory.ledger.load_content))

    def _past(self, params: ReplayPolicy, principal: Principal) -> list[Receipt]:
        """Return the receipts that the principal may see, newest first."""
        own = (
            line
            for line in read_receipts(self.parts.receipts_path, newest_first=True)
            if not isinstance(line, BadLine) and principal.may_see(line.uid)
        )
        recent = itertools.takewhile(lambda receipt: receipt.timestamp >= params.since, own)
        return list(itertools.islice(recent, params.limit))


def _explanation(assessment: Assessment, verdict: Allow | Ask | Deny) -> PolicyExplanation:
    risk = assessment.risk
    match verdict:
        case Allow():
            return PolicyExplanation(
                verdict="allow", risk=risk, reason=assessment.reason, rule=verdict.rule
            )
        case Ask():
            return PolicyExplanation(
                verdict="ask", risk=risk, reason=verdict.reason, rule="a person decides"
            )
        case Deny():
            return PolicyExplanation(
                verdict="deny",
                risk=risk,
                reason=verdict.reason,
                rule=verdict.kind,
                hint=verdict.hint,
            )
        case _:
            assert_never(verdict)


def _case_line(outcome: CaseOutcome) -> PolicyCaseLine:
    case, found = outcome.case, outcome.explanation
    return PolicyCaseLine(
        name=case.name,
        tool=case.tool,
        expect=case.expect,
        verdict=found.verdict,
        risk=found.risk,
        reason=found.reason,
        problem=outcome.problem,
    )


def _report(found: Replay) -> PolicyReplay:
    return PolicyReplay(
        items=tuple(map(_change_line, found.changes)),
        counts=tuple(
            ReplayCount(before=before, after=after, count=count)
            for (before, after), count in sorted(found.counts.items())
        ),
        skipped=tuple(
            ReplaySkip(reason=reason, count=count)
            for reason, count in sorted(found.skipped.items())
        ),
    )


def _change_line(change: ChangedDecision) -> ReplayLine:
    receipt, told = change.receipt, _explanation(change.assessment, change.verdict)
    return ReplayLine(
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
