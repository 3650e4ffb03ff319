"""The table of policy cases that is shipped, and how such tables are read."""

from pathlib import Path
from typing import cast

import msgspec
import pytest

from clawd.errors import InvalidRequestError
from clawd.memory.knowledge.store import Knowledge
from clawd.memory.knowledge.tools import knowledge_tools
from clawd.memory.search import Search
from clawd.memory.tools import MemorySearch
from clawd.security.network import NetworkRules
from clawd.security.policy import PolicySettings
from clawd.security.policy_cases import PolicyCase, parse_cases, run_cases
from clawd.security.risk import Assessment
from clawd.security.sandbox import Sandbox, SandboxSettings, SandboxStatus
from clawd.security.taint import TaintBook
from clawd.tools.base import ToolContext
from clawd.tools.builtin.catalogue import builtin_tools
from clawd.tools.builtin.deps import BuiltinDeps
from clawd.tools.lookup import ToolLookup
from clawd.tools.registry import Registry
from clawd.tools.schema import decode_arguments
from tests.security import fakes
from tests.support.rows import each_row

TABLE = Path(__file__).parents[2] / "etc" / "policy-cases.toml"
CASES = parse_cases(TABLE.read_text(encoding="utf-8"))


class FullSandbox(Sandbox):
    """What the table is about: a machine where the best sandbox works."""

    @property
    def status(self) -> SandboxStatus:
        return SandboxStatus(level="bwrap")


def by_tool(case: PolicyCase) -> Assessment:
    deps = BuiltinDeps(
        policy=PolicySettings(),
        home=Path("/home/ada/.clawd"),
        sandbox=FullSandbox(SandboxSettings()),
        network=NetworkRules(allowed_domains=case.allowed_domains or ()),
    )
    taint = TaintBook()
    for source in case.tainted_by:
        taint.mark("conv-1", source)
    notes = knowledge_tools(cast("Knowledge", None), taint)
    others = [MemorySearch(cast("Search", None)), ToolLookup(), *notes]
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
