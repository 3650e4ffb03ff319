"""The table of policy cases that is shipped, and how such tables are read."""

from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import msgspec
import pytest

from clawd.errors import InvalidRequestError
from clawd.memory.knowledge.store import Knowledge
from clawd.memory.search import Search
from clawd.memory.tools import MemorySearch, knowledge_tools
from clawd.runtime.replay import PolicyCase, parse_cases, run_cases
from clawd.security.network import NetworkRules
from clawd.security.policy import PolicySettings
from clawd.security.risk import Assessment
from clawd.security.sandbox.process import Level
from clawd.security.sandbox.run import Sandbox, SandboxSettings, SandboxStatus
from clawd.security.taint import TaintBook
from clawd.skills.store import SkillStore
from clawd.skills.tools import SkillRead
from clawd.sop.runner import SopRunner
from clawd.sop.tools import SopTool
from clawd.tools.arguments import decode_arguments
from clawd.tools.base import ToolContext
from clawd.tools.builtin.catalogue import builtin_tools
from clawd.tools.builtin.deps import BuiltinDeps
from clawd.tools.offer import ToolLookup
from clawd.tools.registry import Registry
from tests.security import fakes
from tests.support.rows import each_row

ETC = Path(__file__).parents[2] / "etc"
CASES = parse_cases((ETC / "policy-cases.toml").read_text(encoding="utf-8"))
FIRST = parse_cases((ETC / "work-cases.toml").read_text(encoding="utf-8"))
WORK = (*FIRST, *parse_cases((ETC / "work-cases-projects.toml").read_text(encoding="utf-8")))


class SandboxOf(Sandbox):
    """A machine where this level of the sandbox works; the tables are about the full one."""

    def __init__(self, level: Level = "bwrap") -> None:
        super().__init__(SandboxSettings())
        self._status = SandboxStatus(level=level)


def by_tool(case: PolicyCase, level: Level = "bwrap") -> Assessment:
    deps = BuiltinDeps(
        policy=PolicySettings(),
        home=Path("/home/ada/.clawd"),
        sandbox=SandboxOf(level),
        network=NetworkRules(allowed_domains=case.allowed_domains or ()),
    )
    taint = TaintBook()
    for source in case.tainted_by:
        taint.mark("conv-1", source)
    notes = knowledge_tools(cast("Knowledge", None), taint)
    others = [
        MemorySearch(cast("Search", None)),
        SkillRead(cast("SkillStore", None)),
        SopTool(cast("SopRunner", SimpleNamespace(store=SimpleNamespace(patterns=())))),
        ToolLookup(),
        *notes,
    ]
    registry = Registry([*builtin_tools(deps), *others])
    tool = registry.get(case.tool)
    arguments = decode_arguments(msgspec.json.encode(case.arguments).decode(), tool.parameters)
    context = ToolContext(
        conversation_id="conv-1" if case.tainted_by else "",
        call_id="",
        principal=fakes.ADA,
        workspace=Path("/home/ada/w"),
    )
    return tool.risk(arguments, context)


@each_row("case", CASES, ids=lambda case: case.name)
def test_the_policy_answers_as_the_table_says(case: PolicyCase) -> None:
    [outcome] = run_cases((case,), PolicySettings(), by_tool)
    assert outcome.problem == "", outcome


@each_row("case", WORK, ids=lambda case: case.name)
def test_p1_every_command_of_everyday_work_gets_its_level(case: PolicyCase) -> None:
    [outcome] = run_cases((case,), PolicySettings(), by_tool)
    assert outcome.problem == "", outcome


def test_the_tables_of_work_have_enough_of_each_level() -> None:
    assert len(WORK) - len(FIRST) >= 200
    counts = Counter(case.level for case in FIRST)
    harmless = counts["low"] + counts["medium"]
    assert harmless >= 100
    assert counts["high"] + counts["blocked"] >= 80
    assert len({case.name for case in WORK}) == len(WORK)


@each_row("level", ["landlock", "none"])
def test_without_the_full_sandbox_nothing_runs_unasked_and_work_is_refused(level: Level) -> None:
    order = {"low": 0, "medium": 1, "high": 2, "blocked": 3}
    milder = []
    for case in WORK:
        found = by_tool(case, level)
        now = "blocked" if found.blocked else found.risk
        wanted = {"low": "medium", "medium": "high"}.get(case.level or "", case.level or "")
        if order[now] < order[wanted]:
            milder.append((case.name, now))
    assert milder == []


def test_the_table_has_cases_with_names_of_their_own() -> None:
    assert len(CASES) >= 300
    assert len({case.name for case in CASES}) == len(CASES)


def test_the_table_has_each_risk_of_each_kind_of_tool_in_every_autonomy() -> None:
    covered = {(case.tool, case.expect_risk, case.autonomy) for case in CASES}
    for autonomy in ("readonly", "supervised", "full"):
        for tool in ("file_write", "file_edit", "file_append", "shell", "http"):
            for risk in ("medium", "high"):
                assert (tool, risk, autonomy) in covered
        for tool in ("time", "calculator", "ask_user", "memory_search", "file_read", "http"):
            assert (tool, "low", autonomy) in covered


def test_every_command_of_the_allow_list_has_its_case() -> None:
    shown = {case.arguments["command"] for case in CASES if case.tool == "shell"}
    missing = [
        name
        for name in PolicySettings().allowed_commands
        if not any(f"{command} ".startswith(f"{name} ") for command in shown)
    ]
    assert missing == []


def test_one_case_may_stand_for_all_three_autonomies() -> None:
    text = """
        [[case]]
        name = "a"
        tool = "any"
        risk = "medium"
        expect = { readonly = "deny", supervised = "ask", full = "allow" }
    """
    cases = parse_cases(text)
    assert [(case.name, case.autonomy, case.expect) for case in cases] == [
        ("a (readonly)", "readonly", "deny"),
        ("a (supervised)", "supervised", "ask"),
        ("a (full)", "full", "allow"),
    ]
    assert [each.problem for each in run_cases(cases, PolicySettings(), by_tool)] == [""] * 3


def test_a_wrong_expectation_is_reported() -> None:
    wrong = (
        PolicyCase(name="a", tool="any", risk="low", expect="deny"),
        PolicyCase(name="b", tool="any", risk="low", expect="allow", expect_risk="high"),
    )
    problems = [outcome.problem for outcome in run_cases(wrong, PolicySettings(), by_tool)]
    assert problems == [
        "expected deny, the policy says allow",
        "expected risk high, it is low",
    ]


@each_row(
    "text",
    ["[[case]]", "case = 1", "x = 1", "[[case]\n", '[[case]]\nname="a"\ntool="b"\nexpect="maybe"'],
)
def test_a_wrong_table_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequestError, match="the table of policy cases is wrong"):
        parse_cases(text)
