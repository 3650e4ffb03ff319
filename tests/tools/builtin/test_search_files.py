"""grep and glob."""

import asyncio
import os
import time
from typing import Any

import pytest

from clawd.errors import InvalidRequestError
from clawd.security.paths import path_rules
from clawd.security.workspace import Workspace
from clawd.tools.builtin.file_tools import LookingTool, Watch
from clawd.tools.builtin.search_files import glob_matcher
from tests.support.rows import each_row
from tests.tools.builtin.conftest import Bench


@pytest.fixture
def tree(bench: Bench) -> Bench:
    bench.put("a.py", "import os\nprint('Hello')\n")
    bench.put("src/b.py", "hello = 1\n")
    bench.put("src/deep/c.txt", "say hello twice: hello\n")
    bench.put(".git/config", "hello\n")
    bench.put("keys/id", "hello\n")
    (bench.workspace / "bin").write_bytes(b"hello\0")
    return bench


async def test_grep_answers_path_line_and_text(tree: Bench) -> None:
    result = await tree.call("grep", pattern="hello")
    assert result.output == "src/b.py:1:hello = 1\nsrc/deep/c.txt:1:say hello twice: hello"
    ignoring = await tree.call("grep", pattern="HELLO", ignore_case="true", glob="*.py")
    assert ignoring.output == "a.py:2:print('Hello')\nsrc/b.py:1:hello = 1"
    assert (await tree.call("grep", pattern="^h", path="src")).output == "src/b.py:1:hello = 1"
    assert (await tree.call("grep", pattern="os", path="a.py")).output == "a.py:1:import os"
    assert (await tree.call("grep", pattern="nothing")).output == "no matches"


async def test_what_stands_there_in_another_case_is_found_where_nothing_else_is(
    bench: Bench,
) -> None:
    bench.put("list.txt", "Seife, Lavendel\nseifenblasen\nHonig\n")
    other = "[in other upper or lower case than asked for]"
    rows: list[tuple[dict[str, Any], str]] = [
        ({"pattern": "honig"}, f"list.txt:3:Honig\n{other}"),
        ({"pattern": "seife"}, "list.txt:2:seifenblasen"),
        ({"pattern": "honig", "ignore_case": False}, "no matches"),
        ({"pattern": "honig", "ignore_case": True}, "list.txt:3:Honig"),
        ({"pattern": "tee"}, "no matches"),
        ({"pattern": "S", "max_results": 1}, "list.txt:1:Seife, Lavendel"),
    ]
    for arguments, output in rows:
        assert (await bench.call("grep", **arguments)).output == output, arguments


async def test_grep_ends_at_its_limits_and_says_so(tree: Bench) -> None:
    tree.put("many", "x\n" * 500)
    result = await tree.call("grep", pattern="x", max_results=3, path="many")
    assert result.output == "many:1:x\nmany:2:x\nmany:3:x\n[more: only 3 lines are shown]"
    tree.put("long", "y" * 5000)
    assert len((await tree.call("grep", pattern="y", path="long")).output) < 400


async def test_patterns_that_explode_elsewhere_take_linear_time(tree: Bench) -> None:
    tree.put("evil", "a" * 100_000 + "!")
    began = time.monotonic()
    assert (await tree.call("grep", pattern="(a+)+$", path="evil")).output == "no matches"
    assert time.monotonic() - began < 60


async def test_what_is_no_pattern_is_refused(tree: Bench) -> None:
    for pattern in ("(", "a(?=b)", r"(a)\1", "[z-a]", "a{2000}{2000}"):
        with pytest.raises(InvalidRequestError, match=r"is no pattern: \w"):
            await tree.call("grep", pattern=pattern)


@each_row("name", ["glob", "grep"], fresh=["tree"])
def test_a_search_ends_when_its_time_is_up(tree: Bench, name: str) -> None:
    tool = tree.tool(name)
    assert isinstance(tool, LookingTool)
    rules = path_rules(tree.policy, workspace=tree.workspace, home=tree.home)
    with Workspace(rules) as workspace:
        found = tool.act({"pattern": "x"}, workspace, Watch(-1.0))
    assert "was ended" in found.output


async def test_a_cancelled_search_stops_working(tree: Bench) -> None:
    tree.put("big", "word\n" * 1_000_000)
    task = asyncio.create_task(tree.call("grep", pattern="nothing here"))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_glob_finds_names(tree: Bench) -> None:
    assert (await tree.call("glob", pattern="*.py")).output == "a.py\nsrc/b.py"
    assert (await tree.call("glob", pattern="src/*")).output == "src/b.py\nsrc/deep/"
    assert (await tree.call("glob", pattern="**/*.txt")).output == "src/deep/c.txt"
    assert (await tree.call("glob", pattern="*/")).output == "src/\nsrc/deep/"
    assert (await tree.call("glob", pattern="*.py", path="src")).output == "src/b.py"
    assert (await tree.call("glob", pattern="*.zip")).output == "no matches"


async def test_a_name_that_is_no_utf8_does_not_end_a_search(tree: Bench) -> None:
    (tree.workspace / os.fsdecode(b"d\xe9but.py")).write_text("found = 1\n")
    assert (await tree.call("glob", pattern="d?but.py")).output == "d\ufffdbut.py"
    found = await tree.call("grep", pattern="found", glob="d*")
    assert found.output == "d\ufffdbut.py:1:found = 1"


@each_row(
    ("glob", "yes", "no"),
    [
        ("*.py", ["a.py", "x/y/a.py", ".py"], ["a.pyc", "a.py/b"]),
        ("/a".lstrip("/"), ["a", "x/a"], ["ab"]),
        ("src/**", ["src/a", "src/a/b"], ["src", "x/src/a"]),
        ("src/**/x.c", ["src/x.c", "src/a/b/x.c"], ["x.c", "src/ax.c"]),
        ("?.c", ["a.c"], ["ab.c", ".c"]),
        ("[ab].c", ["a.c"], ["c.c"]),
        ("[!ab].c", ["c.c"], ["a.c"]),
        ("*.{js,ts}", ["a.js", "b/c.ts"], ["a.jsx", "a.{js,ts}"]),
        ("a+b(1).txt", ["a+b(1).txt"], ["aab1.txt"]),
        ("./x", ["x"], ["y"]),
        ("a,b", ["a,b"], ["a"]),
        ("[", ["["], ["x"]),
    ],
)
def test_globs_match_as_shells_do(glob: str, yes: list[str], no: list[str]) -> None:
    matcher = glob_matcher(glob)
    assert [name for name in yes if not matcher.search(name)] == []
    assert [name for name in no if matcher.search(name)] == []


def test_a_glob_that_cannot_be_meant_is_refused() -> None:
    for glob in ("", "  ", "{a", "a}", "x" * 2000):
        with pytest.raises(InvalidRequestError):
            glob_matcher(glob)
