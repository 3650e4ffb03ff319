"""The table of policy cases that is shipped, and how such tables are read."""

from pathlib import Path

import pytest

from clawd.errors import InvalidRequestError
from clawd.security.command import assess
from clawd.security.policy import PolicySettings
from clawd.security.policy_cases import PolicyCase, parse_cases, run_cases
from clawd.security.risk import Assessment

TABLE = Path(__file__).parents[2] / "etc" / "policy-cases.toml"
CASES = parse_cases(TABLE.read_text(encoding="utf-8"))


def by_tool(case: PolicyCase) -> Assessment:
    assert case.tool == "shell"
    return assess(
        case.arguments["command"],
        PolicySettings(),
        workspace=Path("/home/ada/w"),
        home=Path("/home/ada"),
    )


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_policy_answers_as_the_table_says(case: PolicyCase) -> None:
    [outcome] = run_cases((case,), PolicySettings(), by_tool)
    assert outcome.problem == "", outcome


def test_the_table_has_cases_with_names_of_their_own() -> None:
    assert len(CASES) >= 40
    assert len({case.name for case in CASES}) == len(CASES)


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


@pytest.mark.parametrize(
    "text",
    ["[[case]]", "case = 1", "x = 1", "[[case]\n", '[[case]]\nname="a"\ntool="b"\nexpect="maybe"'],
)
def test_a_wrong_table_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequestError, match="the table of policy cases is wrong"):
        parse_cases(text)
