"""The gate: the order of its reasons, and no on every failure."""

from pathlib import Path

import msgspec

from clawd.security.approval_rules import RuleBook, rule_for
from clawd.security.estop import Stop
from clawd.security.gate import Gate
from clawd.security.policy import Allow, Ask, Deny, ModeBook, PolicySettings
from clawd.security.risk import Action, Assessment
from clawd.security.taint import TaintBook
from tests.security import fakes
from tests.support.rows import each_row


class World:
    """A gate with everything around it."""

    def __init__(self, settings: PolicySettings | None = None, stop: Stop | None = None) -> None:
        self.settings = settings or PolicySettings()
        self.stop = fakes.Stop()
        self.taint = TaintBook()
        self.rules = RuleBook(
            fakes.MemoryRuleStore(), record=fakes.RuleReceipts(), clock=fakes.Clock()
        )
        self.gate = Gate(
            lambda: self.settings, estop=stop or self.stop, taint=self.taint, rules=self.rules
        )

    async def grant(self, action: Action | None = None, *, conversation: bool = False) -> None:
        await self.rules.add(
            rule_for(
                action or fakes.action(),
                now=self.rules.now(),
                conversation=conversation,
                tainted_by=self.taint.sources("c1"),
            )
        )


def blocked() -> Assessment:
    return Assessment(risk="high", blocked="rm is forbidden")


def test_low_runs_and_medium_asks() -> None:
    world = World()
    assert isinstance(world.gate.review(fakes.action(risk="low")), Allow)
    assert world.gate.review(fakes.action()) == Ask(reason="writes a file")


@each_row("autonomy", ["readonly", "supervised", "full"])
def test_nothing_passes_under_the_emergency_stop(autonomy: str) -> None:
    world = World(PolicySettings(autonomy=autonomy))  # type: ignore[arg-type]
    world.stop.value = True
    for action in (fakes.action(risk="low"), fakes.action(assessment=blocked())):
        verdict = world.gate.review(action)
        assert isinstance(verdict, Deny)
        assert (verdict.kind, verdict.reason) == ("estop", "emergency stop is set")


def test_an_error_inside_is_a_no() -> None:
    world = World(stop=fakes.BrokenStop())
    for verdict in (
        world.gate.review(fakes.action(risk="low")),
        world.gate.may_start(fakes.action(risk="low")),
    ):
        assert isinstance(verdict, Deny)
        assert verdict.kind == "error"


@each_row("arguments", [b"", b"[]", b"\xff", b'{"a":'])
async def test_arguments_that_are_no_object_never_match_a_rule(arguments: bytes) -> None:
    world = World()
    await world.grant()
    verdict = world.gate.review(msgspec.structs.replace(fakes.action(), arguments=arguments))
    assert isinstance(verdict, Deny)
    assert verdict.kind == "error"


async def test_a_rule_allows_what_would_ask_and_is_named() -> None:
    world = World()
    await world.grant()
    verdict = world.gate.review(fakes.action(arguments={"path": "a.md", "content": "other"}))
    assert isinstance(verdict, Allow)
    assert verdict.rule_id.startswith("rule-")
    assert 'file_write content=* path="a.md" in /home/ada/w' in verdict.rule


async def test_a_rule_for_high_risk_allows_exactly_that_call() -> None:
    world = World()
    make = fakes.action("shell", {"command": "make"}, risk="high")
    assert isinstance(world.gate.review(make), Deny)
    await world.grant(make)
    assert isinstance(world.gate.review(make), Allow)
    other = fakes.action("shell", {"command": "make", "timeout_s": 9}, risk="high")
    assert isinstance(world.gate.review(other), Deny)


async def test_a_rule_for_high_risk_does_not_outweigh_untrusted_text() -> None:
    world = World()
    post = fakes.action("http", {"method": "POST"}, risk="high", outward=True)
    inside = fakes.action("shell", {"command": "make"}, risk="high", outward=False)
    await world.grant(post)
    await world.grant(inside)
    assert isinstance(world.gate.review(post), Allow)
    world.taint.mark("c1", "web example.org")
    assert isinstance(world.gate.review(post), Deny)
    assert isinstance(world.gate.review(inside), Allow)


async def test_a_rule_never_allows_what_is_blocked_nor_a_higher_risk() -> None:
    world = World()
    await world.grant()
    assert isinstance(world.gate.review(fakes.action(assessment=blocked())), Deny)
    assert isinstance(world.gate.review(fakes.action(risk="high")), Deny)


async def test_what_a_mode_refuses_is_not_said_to_be_up_to_the_config() -> None:
    world = World()

    async def record(_change: object) -> None: ...

    modes = ModeBook(lambda: world.settings, record=record)
    gate = Gate(
        lambda: world.settings, estop=world.stop, taint=world.taint, rules=world.rules, modes=modes
    )

    def hint(**fields: object) -> str:
        found = gate.review(msgspec.structs.replace(fakes.action(), **fields))
        assert isinstance(found, Deny)
        return found.hint

    modes.restore("c1", "readonly")
    assert hint() == "/mode supervised"
    modes.restore("c1", "")
    assert hint(at_most="readonly") == ""  # of a plan: nobody can set that
    world.settings = PolicySettings(autonomy="readonly")
    assert hint() == '[security] autonomy = "supervised"'


async def test_no_rule_helps_in_readonly() -> None:
    world = World(PolicySettings(autonomy="readonly"))
    await world.grant()
    assert isinstance(world.gate.review(fakes.action()), Deny)


async def test_rules_end_where_owner_workspace_or_environment_differ() -> None:
    world = World()
    await world.grant()
    for other in (
        fakes.action(principal=fakes.BOB),
        fakes.action(principal=fakes.ROOT),
        fakes.action(workspace=Path("/home/ada/other")),
        fakes.action(environment={"LD_PRELOAD": "x.so"}),
        fakes.action(arguments={"path": "b.md", "content": "x"}),
        fakes.action(arguments={"path": "a.md", "content": "x", "extra": 1}),
    ):
        assert isinstance(world.gate.review(other), Ask), other


async def test_a_conversation_grant_stays_in_its_conversation() -> None:
    world = World()
    await world.grant(conversation=True)
    assert isinstance(world.gate.review(fakes.action()), Allow)
    assert isinstance(world.gate.review(fakes.action(conversation_id="c2")), Ask)
    world.rules.end_conversation("c1")
    assert isinstance(world.gate.review(fakes.action()), Ask)


async def test_taint_that_came_after_a_grant_asks_again() -> None:
    world = World()
    await world.grant()
    await world.grant(conversation=True)
    world.taint.mark("c1", "web example.org")
    verdict = world.gate.review(fakes.action())
    assert isinstance(verdict, Ask)
    assert verdict.tainted_by == ("web example.org",)
    await world.grant(conversation=True)
    assert isinstance(world.gate.review(fakes.action()), Allow)
    world.taint.mark("c1", "mcp files")
    assert isinstance(world.gate.review(fakes.action()), Ask)


def test_without_a_sandbox_no_tool_starts_a_process() -> None:
    world = World(PolicySettings(autonomy="full"))
    shell = fakes.action("shell", {"command": "ls"}, starts_process=True)
    verdict = world.gate.review(shell)
    assert isinstance(verdict, Deny)
    assert verdict.kind == "sandbox"
    fenced = fakes.action(
        "shell", {"command": "ls"}, starts_process=True, sandbox_level="bwrap+seccomp"
    )
    assert isinstance(world.gate.review(fenced), Allow)
    world.settings = PolicySettings(autonomy="full", sandbox_required=False)
    assert isinstance(world.gate.review(shell), Allow)


def test_may_start_sees_what_changed_since_the_review() -> None:
    world = World()
    assert isinstance(world.gate.may_start(fakes.action()), Allow)
    world.settings = PolicySettings(autonomy="readonly")
    assert isinstance(world.gate.may_start(fakes.action()), Deny)
    world.stop.value = True
    assert isinstance(world.gate.may_start(fakes.action(risk="low")), Deny)
