"""The policy's verdicts, from the table of SPEC 7.1."""

import itertools
from pathlib import Path
from typing import get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawd.errors import ForbiddenError, ReceiptError
from clawd.security.approval_rules import RuleBook
from clawd.security.gate import Gate
from clawd.security.policy import (
    Allow,
    Ask,
    Deny,
    ModeBook,
    ModeChange,
    PolicySettings,
    Verdict,
    explain,
    judge,
)
from clawd.security.principal import Principal
from clawd.security.risk import Assessment, Autonomy, Risk
from clawd.security.taint import TaintBook
from tests.security import fakes
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


READS = Assessment(risk="low")
EDITS = Assessment(risk="medium", outward=False, edits=True)
LATER = Assessment(risk="medium", outward=True)  # a file that programs outside run
RUNS = Assessment(risk="medium")
HIGH = Assessment(risk="high")
BLOCKED = Assessment(risk="high", blocked="rm is forbidden")


class World:
    """A gate with modes, and the receipts of their changes."""

    def __init__(self, **settings: Autonomy) -> None:
        self.settings = PolicySettings(**settings)  # type: ignore[arg-type]
        self.recorded: list[ModeChange] = []
        self.fails = False
        self.taint = TaintBook()
        self.book = ModeBook(lambda: self.settings, record=self.record)
        rules = RuleBook(fakes.MemoryRuleStore(), record=fakes.RuleReceipts())
        self.gate = Gate(
            lambda: self.settings,
            estop=fakes.Stop(),
            taint=self.taint,
            rules=rules,
            modes=self.book,
        )

    async def record(self, change: ModeChange) -> None:
        if self.fails:
            raise ReceiptError("no disk")
        self.recorded.append(change)

    def word(self, assessment: Assessment, principal: Principal = fakes.ROOT) -> str:
        """Return what is answered to a call in conversation c1."""
        action = fakes.action(principal=principal)
        action = msgspec.structs.replace(action, assessment=assessment, outward=assessment.outward)
        return type(self.gate.review(action)).__name__.lower()


def change(before: str, mode: str) -> ModeChange:
    return ModeChange(
        conversation_id="c1", workspace=Path("/w"), before=before, mode=mode, by=fakes.ROOT
    )


def test_each_mode_lets_a_model_go_as_far_as_it_says() -> None:
    calls = (READS, EDITS, LATER, RUNS, HIGH, BLOCKED)
    table = {
        "": ("allow", "ask", "ask", "ask", "deny", "deny"),
        "readonly": ("allow", "deny", "deny", "deny", "deny", "deny"),
        "supervised": ("allow", "ask", "ask", "ask", "deny", "deny"),
        "edits": ("allow", "allow", "ask", "ask", "deny", "deny"),
        "full": ("allow", "allow", "allow", "allow", "allow", "deny"),
        "no mode at all": ("allow", "deny", "deny", "deny", "deny", "deny"),
    }
    world = World()
    for mode, expected in table.items():
        world.book.restore("c1", mode)
        assert (mode, tuple(map(world.word, calls))) == (mode, expected)
    world.book.restore("another", "full")
    world.book.forget("c1")
    assert world.word(RUNS) == "ask"


def test_untrusted_text_makes_edits_ask_again() -> None:
    world = World()
    world.book.restore("c1", "edits")
    world.taint.mark("c1", "web_fetch example.org")
    assert [world.word(each) for each in (READS, EDITS, RUNS)] == ["allow", "ask", "ask"]


def test_no_mode_goes_beyond_what_the_config_allows_now() -> None:
    world = World()
    world.book.restore("c1", "full")
    assert world.word(HIGH) == "allow"
    assert world.word(HIGH, fakes.ADA) == "deny"  # who is no admin stays in the config's autonomy
    world.settings = PolicySettings(max_autonomy="edits")
    assert [world.word(each) for each in (EDITS, RUNS, HIGH)] == ["allow", "ask", "deny"]
    world.settings = PolicySettings(autonomy="full", max_autonomy="readonly")
    assert [world.word(each) for each in (READS, EDITS)] == ["allow", "deny"]


def test_who_may_set_which_mode() -> None:
    world = World(autonomy="supervised", max_autonomy="edits")
    may = {
        ("readonly", fakes.ADA): "",
        ("supervised", fakes.ADA): "",
        ("edits", fakes.ADA): "for those who are no admins",
        ("full", fakes.ADA): 'max_autonomy = "full"',
        ("edits", fakes.ROOT): "",
        ("full", fakes.ROOT): 'max_autonomy = "full"',
    }
    for (mode, principal), told in may.items():
        if not told:
            world.book.check(mode, principal)  # type: ignore[arg-type]
            continue
        with pytest.raises(ForbiddenError) as caught:
            world.book.check(mode, principal)  # type: ignore[arg-type]
        assert told in f"{caught.value.message} {caught.value.hint}"


async def test_more_is_allowed_once_it_is_on_record_and_less_at_once() -> None:
    world = World()
    world.fails = True
    with pytest.raises(ReceiptError):
        await world.book.change(change("", "full"))
    assert world.word(RUNS) == "ask"
    world.fails = False
    await world.book.change(change("", "full"))
    assert world.word(RUNS) == "allow"
    assert [each.mode for each in world.recorded] == ["full"]
    world.fails = True
    with pytest.raises(ReceiptError):
        await world.book.change(change("full", "readonly"))
    assert world.word(RUNS) == "deny"
