"""Modes of conversations: how far each lets a model go, who may set which, what is on record."""

from pathlib import Path

import msgspec
import pytest

from clawd.errors import ForbiddenError, ReceiptError
from clawd.security.approval_rules import RuleBook
from clawd.security.gate import Gate
from clawd.security.modes import ModeBook, ModeChange
from clawd.security.policy import PolicySettings
from clawd.security.principal import Principal
from clawd.security.risk import Assessment, Autonomy
from clawd.security.taint import TaintBook
from tests.security import fakes

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
