"""The section of hooks: what it takes, what it refuses and how it says so."""

from pathlib import Path

from clawd.service.state import hooks_of
from clawd.tools.hooks import Hook
from tests.config.test_mcp import load_text, problems_of
from tests.support.rows import each_row


def test_a_hook_is_read_with_its_built_in_values_and_its_paths_filled_in(tmp_path: Path) -> None:
    text = """
        [[hooks.before_tool]]
        command = ["~/bin/check", "$PLACE/x"]
        tools = ["file_*"]
        [[hooks.before_tool]]
        command = ["jq", "."]
        timeout_s = 3
        where = "owner"
        may = ["change", "context"]
        [[hooks.turn_end]]
        command = ["/bin/true"]
    """
    found = hooks_of(load_text(tmp_path, text, PLACE="/srv"))
    assert found == (
        Hook(
            name="check",
            event="before_tool",
            command=("/home/ada/bin/check", "/srv/x"),
            tools=("file_*",),
        ),
        Hook(
            name="jq",
            event="before_tool",
            command=("jq", "."),
            timeout_s=3.0,
            where="owner",
            may=frozenset({"change", "context"}),
        ),
        Hook(name="true", event="turn_end", command=("/bin/true",)),
    )


@each_row(
    ("entry", "problem"),
    [
        ("command = []", "hooks.before_tool[0].command = []: expected a program and its"),
        ('command = [""]', "expected a program and its arguments"),
        ('command = ["./check"]', 'command[0] = "./check": expected a program by its name'),
        ('command = ["a/b"]', "expected a program by its name, as jq, or by an absolute path"),
        ('command = ["x", "a\\u0000"]', "expected text without zero bytes"),
        ('command = ["$NOWHERE/x"]', "expected variables that are set; NOWHERE is not"),
        ('command = "x"', "expected a list"),
        ("tools = []", "command is missing"),
        ('command = ["x"]\ntimeout_s = 0', "expected a value above 0"),
        ('command = ["x"]\nwhere = "host"', "expected one of sandbox, owner"),
        ('command = ["x"]\nmay = ["allow"]', "expected one of write, change, context"),
        ('command = ["x"]\nwhere = "owner"\nmay = ["write"]', "expected no write: a program of"),
        ('command = ["x"]\nworkspace = "/w"', "workspace"),
    ],
)
def test_a_hook_that_cannot_be_meant_is_refused(tmp_path: Path, entry: str, problem: str) -> None:
    found = problems_of(tmp_path, f"[[hooks.before_tool]]\n{entry}\n")
    assert any(problem in each for each in found), found
