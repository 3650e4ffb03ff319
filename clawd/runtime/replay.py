"""What a policy would answer: to one call, to a table of cases, to calls of the past. Runs nothing.

A `Judge` stands for one policy, which need not be the one in force. A replay puts what receipts
say was decided beside what the judge answers to the same arguments now.

A table of cases says what is asked, and what the answer must be, in TOML; the project's tests run
etc/policy-cases.toml:

    [[case]]
    name = "a model may not remove files"
    tool = "shell"
    arguments = { command = "rm -rf build" }
    expect = "deny"

`autonomy`, `allowed_domains` and `tainted_by` of a case override the policy it is run under. To say
all three at once: `expect = { readonly = "deny", supervised = "ask", full = "allow" }`.

Shell commands that must get the same level stand together, as in etc/work-cases.toml:

    [[commands]]
    level = "low"
    run = ["git status", "ls src | sort"]
"""

import re
import tomllib
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, Protocol

import msgspec

from clawd.errors import ClawError, InvalidRequestError
from clawd.receipts.record import Receipt
from clawd.security.approvals import PendingApproval, was_asked
from clawd.security.estop import ESTOP_REASON
from clawd.security.policy import (
    TAINT_REASON,
    Allow,
    Ask,
    Deny,
    Explanation,
    PolicySettings,
    explain,
)
from clawd.security.principal import Principal
from clawd.security.risk import Assessment, Autonomy, Risk
from clawd.security.taint import TaintBook
from clawd.tools.outcome import CallRequest, CallScope

Verdict = Literal["allow", "ask", "deny"]
Level = Literal["low", "medium", "high", "blocked"]
_VERDICTS: dict[Level, Verdict] = {
    "low": "allow",
    "medium": "ask",
    "high": "deny",
    "blocked": "deny",
}


class PolicyCase(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One case.

    Attributes:
        tool: whose arguments are assessed; with `risk` given, nothing is.
        risk: judge this risk instead of asking the tool.
        preapproved: judge the `risk` as if this line of config allowed it without a person.
        outward: whether the call reaches outside the workspace; left out: as the tool says.
        allowed_domains: judge as if these were allowed.
        expect: the verdict.
        expect_risk: the risk; left out: any.
        level: the risk, or `blocked`, where the two are told apart; left out: any.
    """

    name: str
    tool: str
    expect: Verdict
    arguments: dict[str, Any] = {}
    risk: Risk | None = None
    autonomy: Autonomy | None = None
    allowed_domains: tuple[str, ...] | None = None
    tainted_by: tuple[str, ...] = ()
    outward: bool | None = None
    preapproved: str = ""
    expect_risk: Risk | None = None
    level: Level | None = None


class CaseOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """A case, what the policy said, and what is wrong with it ("" when nothing is)."""

    case: PolicyCase
    explanation: Explanation
    problem: str


class _Written(PolicyCase, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A case as the file has it, which may stand for one in each autonomy."""

    expect: Verdict | dict[Autonomy, Verdict]  # type: ignore[assignment]


class _Commands(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Shell commands that must get one level, judged in `supervised`."""

    level: Level
    run: tuple[str, ...]
    name: str = ""


class _Table(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    case: tuple[_Written, ...] = ()
    commands: tuple[_Commands, ...] = ()


Assess = Callable[[PolicyCase], Assessment]
"""Asks the case's tool how risky its arguments are; raises ClawError when there is none."""


def parse_cases(text: str) -> tuple[PolicyCase, ...]:
    """Return the cases of a file.

    Raises:
        InvalidRequestError: it is no TOML, or has a key or value that no case has.
    """
    try:
        table = msgspec.convert(tomllib.loads(text), _Table)
    except (tomllib.TOMLDecodeError, msgspec.ValidationError, RecursionError) as error:
        raise InvalidRequestError(f"the table of policy cases is wrong: {error}") from error
    cases = [case for written in table.case for case in _cases(written)]
    for group in table.commands:
        cases += [_case_of(command, group.level) for command in group.run]
    return tuple(cases)


def run_cases(
    cases: tuple[PolicyCase, ...], settings: PolicySettings, assess: Assess
) -> list[CaseOutcome]:
    """Judge every case under the settings."""
    return [_run(case, settings, assess) for case in cases]


def _cases(written: _Written) -> list[PolicyCase]:
    fields = msgspec.structs.asdict(written)
    expect = written.expect
    if not isinstance(expect, dict):
        return [PolicyCase(**fields)]
    name = written.name
    return [
        PolicyCase(**fields | {"name": f"{name} ({level})", "autonomy": level, "expect": verdict})
        for level, verdict in expect.items()
    ]


def _case_of(command: str, level: Level) -> PolicyCase:
    return PolicyCase(
        name=command,
        tool="shell",
        arguments={"command": command},
        autonomy="supervised",
        expect=_VERDICTS[level],
        level=level,
    )


def _run(case: PolicyCase, settings: PolicySettings, assess: Assess) -> CaseOutcome:
    under = settings
    if case.autonomy is not None:
        under = msgspec.structs.replace(settings, autonomy=case.autonomy)
    problem = ""
    if case.risk is not None:
        assessment = Assessment(
            risk=case.risk, reason="given by the case", preapproved=case.preapproved
        )
    else:
        try:
            assessment = assess(case)
        except ClawError as error:
            # Such a call is refused, but a case that nobody can make shows nothing.
            assessment = Assessment(risk="high", blocked=error.message)
            problem = f"it cannot be judged: {error.message}"
    outward = assessment.outward if case.outward is None else case.outward
    explanation = explain(under, assessment, tainted_by=case.tainted_by, outward=outward)
    if problem:
        return CaseOutcome(case=case, explanation=explanation, problem=problem)
    level: Level = "blocked" if assessment.blocked else assessment.risk
    if case.level not in {None, level}:
        problem = f"expected level {case.level}, it is {level}: {explanation.reason}"
    elif explanation.verdict != case.expect:
        problem = f"expected {case.expect}, the policy says {explanation.verdict}"
    elif case.expect_risk not in {None, explanation.risk}:
        problem = f"expected risk {case.expect_risk}, it is {explanation.risk}"
    return CaseOutcome(case=case, explanation=explanation, problem=problem)


Decision = Literal["allow", "ask", "deny"]

NOT_DECIDED = "the policy did not decide about it (unknown tool, bad arguments, stopped, cancelled)"
NOT_KEPT = "its arguments are not kept"
REDACTED = "its arguments held secrets, which are not kept"
NOT_POSSIBLE = "the call cannot be made any more (no such tool, other arguments)"

_SECRET = re.compile(rb"\[secret:[0-9a-f]{8}\]")
_WORDS: dict[type[Allow | Ask | Deny], Decision] = {Allow: "allow", Ask: "ask", Deny: "deny"}


class PolicyChange(msgspec.Struct, frozen=True, kw_only=True):
    """How a policy differs from the one in force.

    Attributes:
        config: the text of another configuration, or None.
        autonomy: another autonomy, or None.
        allowed_domains: other allowed domains, or None.
    """

    config: str | None = None
    autonomy: Autonomy | None = None
    allowed_domains: tuple[str, ...] | None = None


class Explainer(Protocol):
    """The part of dispatch that judges and makes no call."""

    def explain(
        self, request: CallRequest, scope: CallScope
    ) -> tuple[Assessment, Allow | Ask | Deny]:
        """Say what the gate answers; raises ClawError for a call that cannot be meant."""
        ...


class Judge:
    """Answers under one policy, with the standing rules, as if no emergency stop were set.

    Args:
        explainer: judges; nothing is ever run through it.
        taint: of the explainer's gate, empty.
        policy: the settings of that gate.
    """

    def __init__(self, explainer: Explainer, taint: TaintBook, policy: PolicySettings) -> None:
        self._explainer = explainer
        self._taint = taint
        self.policy = policy

    def explain(
        self,
        request: CallRequest,
        principal: Principal,
        *,
        workspace: Path,
        tainted_by: tuple[str, ...] = (),
    ) -> tuple[Assessment, Allow | Ask | Deny]:
        """Judge a call outside of any conversation, or in one with these untrusted sources.

        Raises:
            ClawError: no such tool, or arguments that cannot be meant.
        """
        conversation_id = request.id if tainted_by else ""
        for source in tainted_by:
            self._taint.mark(conversation_id, source)
        try:
            return self._explainer.explain(request, _scope(conversation_id, principal, workspace))
        finally:
            self._taint.forget(conversation_id)

    def explain_again(
        self, receipt: Receipt, arguments: str
    ) -> tuple[Assessment, Allow | Ask | Deny]:
        """Judge what a receipt is about once more; untrusted text that it names counts again.

        Raises:
            ClawError: no such tool, or arguments that cannot be meant.
        """
        request = CallRequest(id=receipt.id, tool=receipt.tool, arguments=arguments)
        principal = Principal(uid=receipt.uid, gid=-1, pid=0)
        conversation_id = receipt.conversation_id or receipt.id
        if TAINT_REASON in receipt.reason:
            self._taint.mark(conversation_id, "earlier calls")
        try:
            scope = _scope(conversation_id, principal, Path(receipt.workspace))
            return self._explainer.explain(request, scope)
        finally:
            self._taint.forget(conversation_id)


def judge_cases(
    cases: tuple[PolicyCase, ...],
    judge_of: Callable[[PolicyChange], Judge],
    principal: Principal,
    *,
    workspace: Path,
) -> list[CaseOutcome]:
    """Judge a table of cases."""
    judges: dict[tuple[str, ...] | None, Judge] = {}

    def judge_for(case: PolicyCase) -> Judge:
        domains = case.allowed_domains
        if domains not in judges:
            judges[domains] = judge_of(PolicyChange(allowed_domains=domains))
        return judges[domains]

    def assess(case: PolicyCase) -> Assessment:
        request = CallRequest(id=case.name, tool=case.tool, arguments=_json(case.arguments))
        judge = judge_for(case)
        tainted_by = case.tainted_by
        return judge.explain(request, principal, workspace=workspace, tainted_by=tainted_by)[0]

    return run_cases(cases, judge_of(PolicyChange()).policy, assess)


class ChangedDecision(msgspec.Struct, frozen=True, kw_only=True):
    """A past call that would be decided otherwise; `arguments` are as they were stored."""

    receipt: Receipt
    arguments: str
    before: Decision
    after: Decision
    assessment: Assessment
    verdict: Allow | Ask | Deny


class Replay(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a replay.

    Attributes:
        changes: the calls that would be decided otherwise, in the order of the receipts.
        counts: how many calls went from which decision to which, unchanged ones included.
        skipped: how many could not be judged, by reason.
    """

    changes: tuple[ChangedDecision, ...]
    counts: Mapping[tuple[Decision, Decision], int]
    skipped: Mapping[str, int]


async def replay(
    receipts: Iterable[Receipt],
    judge: Judge,
    load_content: Callable[[str], Awaitable[bytes | None]],
) -> Replay:
    """Judge past calls again.

    Raises:
        StorageError: memory cannot be read.
    """
    changes: list[ChangedDecision] = []
    counts: Counter[tuple[Decision, Decision]] = Counter()
    skipped: Counter[str] = Counter()
    for receipt in receipts:
        before = decided(receipt)
        if before is None:
            skipped[NOT_DECIDED] += 1
            continue
        stored = await load_content(receipt.args_hash)
        if stored is None or _SECRET.search(stored):
            skipped[NOT_KEPT if stored is None else REDACTED] += 1
            continue
        arguments = stored.decode("utf-8", "replace")
        try:
            assessment, verdict = judge.explain_again(receipt, arguments)
        except ClawError:
            skipped[NOT_POSSIBLE] += 1
            continue
        after = _WORDS[type(verdict)]
        if before == "ask" and isinstance(verdict, Deny) and verdict.may_ask:
            after = "ask"  # whether somebody is there is not the policy's to say
        counts[before, after] += 1
        if before != after:
            change = ChangedDecision(
                receipt=receipt,
                arguments=arguments,
                before=before,
                after=after,
                assessment=assessment,
                verdict=verdict,
            )
            changes.append(change)
    return Replay(changes=tuple(changes), counts=counts, skipped=skipped)


def decided(receipt: Receipt) -> Decision | None:
    """Return what was decided about a past call; None where the policy was not asked."""
    match receipt.approval:
        case "auto" | "rule":
            return "allow"
        case "user":
            return "ask"
        case "none":
            pass
    reason = receipt.reason
    if receipt.status != "denied" or reason in {ESTOP_REASON, "cancelled"}:
        return None
    if reason.endswith("is not offered on this channel"):
        return None
    return "ask" if was_asked(reason) else "deny"


async def _nobody(_pending: PendingApproval) -> bool:
    return False


def _scope(conversation_id: str, principal: Principal, workspace: Path) -> CallScope:
    return CallScope(
        conversation_id=conversation_id,
        principal=principal,
        workspace=workspace,
        offered=None,
        emit=lambda _event: None,
        deliver=_nobody,
    )


def _json(arguments: Mapping[str, Any]) -> str:
    return msgspec.json.encode(arguments).decode()
