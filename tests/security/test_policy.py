"""The policy's verdicts, from the table of SPEC 7.1."""

import itertools
from typing import get_args

from hypothesis import given
from hypothesis import strategies as st

from clawd.security.policy import Allow, Ask, Deny, PolicySettings, Verdict, explain, judge
from clawd.security.risk import Assessment, Autonomy, Risk
from tests.support.rows import each_row

RISKS: tuple[Risk, ...] = get_args(Risk)
AUTONOMIES: tuple[Autonomy, ...] = get_args(Autonomy)
STRICTNESS: dict[type[Verdict], int] = {Allow: 0, Ask: 1, Deny: 2}


@each_row(
    ("autonomy", "risk", "verdict"),
    [
        ("readonly", "low", Allow),
        ("readonly", "medium", Deny),
        ("readonly", "high", Deny),
        ("supervised", "low", Allow),
        ("supervised", "medium", Ask),
        ("supervised", "high", Deny),
        ("full", "low", Allow),
        ("full", "medium", Allow),
        ("full", "high", Allow),
    ],
)
def test_autonomy_and_risk_make_the_verdict(
    autonomy: Autonomy, risk: Risk, verdict: type[Verdict]
) -> None:
    assert type(judge(PolicySettings(autonomy=autonomy), Assessment(risk=risk))) is verdict


@each_row(("autonomy", "risk"), list(itertools.product(AUTONOMIES, RISKS)))
def test_blocked_is_denied_in_every_autonomy(autonomy: Autonomy, risk: Risk) -> None:
    assessment = Assessment(risk=risk, blocked="rm is forbidden", allow_hint="none")
    assert judge(PolicySettings(autonomy=autonomy), assessment) == Deny(
        reason="rm is forbidden", hint="none", kind="blocked"
    )


def test_high_risk_is_refused_with_the_line_that_would_allow_it() -> None:
    assessment = Assessment(
        risk="high",
        reason="gcc is not on the allow-list",
        allow_hint='[security] allowed_commands += ["gcc"]',
    )
    assert judge(PolicySettings(), assessment) == Deny(
        reason="supervised refuses high risk: gcc is not on the allow-list",
        hint='[security] allowed_commands += ["gcc"]',
        rule_may_allow=True,
    )


@each_row("outward", [None, True, False])
@each_row(("autonomy", "risk"), list(itertools.product(AUTONOMIES, RISKS)))
def test_taint_only_makes_a_verdict_stricter(
    autonomy: Autonomy, risk: Risk, outward: bool | None
) -> None:
    settings, assessment = PolicySettings(autonomy=autonomy), Assessment(risk=risk)
    clean = judge(settings, assessment, outward=outward)
    tainted = judge(settings, assessment, tainted_by=("web example.org",), outward=outward)
    assert STRICTNESS[type(tainted)] >= STRICTNESS[type(clean)]


@each_row("autonomy", AUTONOMIES)
def test_an_outward_call_asks_in_a_tainted_conversation_in_any_autonomy(
    autonomy: Autonomy,
) -> None:
    verdict = judge(
        PolicySettings(autonomy=autonomy),
        Assessment(risk="low"),
        tainted_by=("web example.org",),
        outward=True,
    )
    assert isinstance(verdict, Ask)
    assert "web example.org" in verdict.reason
    assert verdict.tainted_by == ("web example.org",)


def test_full_autonomy_asks_when_nobody_knows_whether_a_tainted_call_reaches_out() -> None:
    verdict = judge(
        PolicySettings(autonomy="full"), Assessment(risk="medium"), tainted_by=("mcp files",)
    )
    assert isinstance(verdict, Ask)


def test_a_call_inside_the_workspace_does_not_ask_because_of_taint() -> None:
    verdict = judge(
        PolicySettings(autonomy="full"),
        Assessment(risk="medium"),
        tainted_by=("mcp files",),
        outward=False,
    )
    assert isinstance(verdict, Allow)


def test_whoever_is_asked_is_told_of_untrusted_text() -> None:
    sources = tuple(f"site{number}.example" for number in range(7))
    verdict = judge(
        PolicySettings(),
        Assessment(risk="medium", reason="writes a file"),
        tainted_by=sources,
        outward=False,
    )
    assert verdict == Ask(
        reason="writes a file; untrusted text from site0.example, site1.example, site2.example, "
        "site3.example, site4.example and 2 more is in this conversation",
        in_view_of=sources,
    )


@given(
    st.sampled_from(AUTONOMIES),
    st.sampled_from(RISKS),
    st.text(max_size=5),
    st.lists(st.text(min_size=1, max_size=5), max_size=2),
    st.sampled_from([None, True, False]),
)
def test_explain_says_what_judge_does(
    autonomy: Autonomy, risk: Risk, blocked: str, taint: list[str], outward: bool | None
) -> None:
    settings = PolicySettings(autonomy=autonomy)
    assessment = Assessment(risk=risk, reason="r", blocked=blocked)
    verdict = judge(settings, assessment, tainted_by=tuple(taint), outward=outward)
    explanation = explain(settings, assessment, tainted_by=tuple(taint), outward=outward)
    assert explanation.verdict == type(verdict).__name__.lower()
    assert explanation.rule
