"""A table of cases for the policy: what is asked, and what the answer must be.

The file is TOML; the project's tests run etc/policy-cases.toml:

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

import tomllib
from collections.abc import Callable
from typing import Any, Literal

import msgspec

from clawd.errors import ClawError, InvalidRequestError
from clawd.security.policy import Explanation, PolicySettings, explain
from clawd.security.risk import Assessment, Autonomy, Risk

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
