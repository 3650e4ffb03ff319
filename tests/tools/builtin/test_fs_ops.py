"""fs_ops: a batch of operations is judged, done, told and taken back as one call."""

import asyncio
import errno
import json
import os
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from clawd.memory.changes import ChangeLimits, Changes
from clawd.memory.store import Memory
from clawd.security.file_content import FileChange
from clawd.security.policy import PolicySettings
from clawd.tools.base import ToolResult
from clawd.tools.builtin import file_tools
from clawd.tools.changes import CallFacts, Undoing
from tests.support.rows import each_row
from tests.tools.builtin.conftest import Bench

LINES = "".join(f"line {n}\n" for n in range(1, 11))


def op(verb: str, **arguments: Any) -> dict[str, Any]:
    return {"op": verb, **arguments}


async def batch(bench: Bench, *operations: dict[str, Any], **more: Any) -> ToolResult:
    return await bench.call("fs_ops", operations=list(operations), **more)


def told(result: ToolResult) -> str:
    return result.output if result.success else f"{result.error}\n{result.output}".rstrip("\n")


async def test_a_batch_does_what_it_says_in_its_order(bench: Bench) -> None:
    bench.put("a.txt", LINES)
    result = await batch(
        bench,
        op("write", path="new/b.txt", content="one\ntwo\n"),
        op("read", path="new/b.txt"),
        op("append", path="new/b.txt", content="three\n"),
        op("edit", path="a.txt", old_text="line 4", new_text="LINE 4"),
        op("list", path="new"),
        op("glob", pattern="*.txt"),
        op("grep", pattern="LINE", path="a.txt"),
        op("check", path="nothing"),
    )
    assert result.output == (
        "batch: 8 ops across 3 files (8 done)\n"
        "1. write new/b.txt: created new/b.txt (8 B)\n"
        "2. read new/b.txt:\n1|one\n2|two\n"
        "3. append new/b.txt: added 6 bytes to new/b.txt\n"
        "4. edit a.txt: updated a.txt (71 B)\n"
        "5. list new:\nb.txt\n"
        "6. glob *.txt:\na.txt\nnew/b.txt\n"
        "7. grep LINE:\na.txt:4:LINE 4\n"
        f"8. check nothing: {bench.workspace}/nothing: there is nothing"
    )
    assert (bench.workspace / "new/b.txt").read_text() == "one\ntwo\nthree\n"


async def test_the_edits_of_a_file_speak_of_its_lines_before_the_batch(bench: Bench) -> None:
    file = bench.put("a.txt", LINES)
    result = await batch(
        bench,
        op("edit", path="a.txt", start_line=2, end_line=3, new_text="two\nand a half\nthree\n"),
        op("read", path="./a.txt", start_line=1, max_lines=2),
        op("edit", path="./a.txt", start_line=9, new_text=""),
        op("edit", path="a.txt", old_text="line 7", new_text="seven"),
        op("edit", path="a.txt", start_line=1, end_line=0, new_text="top"),
        op("edit", path="a.txt", start_line=11, end_line=10, new_text="bottom"),
    )
    assert file.read_text() == (
        "top\nline 1\ntwo\nand a half\nthree\nline 4\nline 5\nline 6\nseven\nline 8\nline 10\n"
        "bottom\n"
    )
    assert told(result).startswith("batch: 6 ops across 1 file (6 done)\n1. edit a.txt: updated")
    assert "2. read ./a.txt:\n1|top\n2|line 1\n" in result.output
    assert "6. edit a.txt: made together with operation 1" in result.output


async def test_edits_after_a_write_are_of_what_it_wrote(bench: Bench) -> None:
    file = bench.put("a.txt", LINES)
    result = await batch(
        bench,
        op("edit", path="a.txt", start_line=10, new_text="ten"),
        op("write", path="a.txt", content="x\ny\n"),
        op("edit", path="a.txt", start_line=1, new_text="X"),
        op("append", path="a.txt", content="z\n"),
        op("edit", path="a.txt", start_line=2, new_text="Y"),
    )
    assert result.success, told(result)
    assert file.read_text() == "X\nY\nz\n"


@each_row(
    "edits",
    [
        [{"start_line": 2, "end_line": 4}, {"start_line": 4}],
        [{"start_line": 8}, {"start_line": 1, "end_line": 10}],
        [{"start_line": 3, "end_line": 5}, {"start_line": 4, "end_line": 3}],
        [{"old_text": "line 3\nline 4"}, {"start_line": 4}],
        [{"old_text": "line 3"}, {"old_text": "e 3\nli"}],
    ],
    fresh=["bench"],
)
async def test_edits_that_overlap_are_refused_before_anything_is_done(
    bench: Bench, edits: list[dict[str, Any]]
) -> None:
    file = bench.put("a.txt", LINES)
    changes = [op("edit", path="a.txt", new_text="x", **edit) for edit in edits]
    result = await batch(
        bench, op("write", path="b", content="x"), *changes, continue_on_error=True
    )
    assert "operations 2 and 3 change the same part of a.txt" in result.error
    assert "nothing was done. Correct arguments look like this: {" in result.error
    assert file.read_text() == LINES
    assert not (bench.workspace / "b").exists()


async def test_edits_that_touch_without_overlapping_are_made(bench: Bench) -> None:
    file = bench.put("a.txt", "a\nb\nc")
    result = await batch(
        bench,
        op("edit", path="a.txt", start_line=3, new_text=""),
        op("edit", path="a.txt", start_line=2, new_text="B"),
        op("edit", path="a.txt", start_line=2, end_line=1, new_text="first"),
        op("edit", path="a.txt", start_line=2, end_line=1, new_text="second"),
        op("edit", path="a.txt", old_text="a", new_text="A"),
    )
    assert result.success, told(result)
    assert file.read_text() == "A\nfirst\nsecond\nB"


async def test_line_ends_stay_as_the_file_has_them(bench: Bench) -> None:
    file = bench.workspace / "f"
    file.write_bytes(b"one\r\ntwo\r\nthree")
    result = await batch(
        bench,
        op("edit", path="f", start_line=4, end_line=3, new_text="four\nfive"),
        op("edit", path="f", start_line=1, new_text="1\n1.5"),
        op("edit", path="f", old_text="two\nthree", new_text="2\n3"),
    )
    assert result.success, told(result)
    assert file.read_bytes() == b"1\r\n1.5\r\n2\r\n3\r\nfour\r\nfive"


async def test_it_stops_at_the_first_failure_and_says_what_was_not_done(bench: Bench) -> None:
    file = bench.put("a.txt", LINES)
    result = await batch(
        bench,
        op("write", path="b", content="x"),
        op("edit", path="a.txt", start_line=1, new_text="one"),
        op("read", path="b"),
        op("edit", path="a.txt", old_text="line", new_text="no"),
        op("write", path="c", content="x"),
    )
    assert not result.success
    assert result.error == (
        "batch: 5 ops across 3 files (1 done, 1 failed, 3 not done)\n"
        "4. edit a.txt: FAILED: old_text stands 10 times in a.txt (lines 1, 2, 3, 4, 5, …); "
        "give more of the text around it, or start_line and end_line\n"
        "2. edit a.txt: NOT DONE: operation 4, an edit of the same file, failed\n"
        "3. read b: NOT DONE: an operation before it failed\n"
        "5. write c: NOT DONE: an operation before it failed"
    )
    assert result.output == "1. write b: created b (1 B)"
    assert file.read_text() == LINES
    assert not (bench.workspace / "c").exists()


async def test_with_continue_on_error_the_rest_is_done(bench: Bench) -> None:
    result = await batch(
        bench,
        op("read", path="missing"),
        op("write", path="b", content="x"),
        op("grep", pattern="("),
        continue_on_error="true",
    )
    assert result.error.startswith("batch: 3 ops across 2 files (1 done, 2 failed)\n1. read")
    assert "3. grep (: FAILED: '(' is no pattern" in result.error
    assert (bench.workspace / "b").read_text() == "x"
    assert result.metadata == {
        "operations": 3,
        "files": 2,
        "done": 1,
        "failed": 2,
        "not_done": 0,
    }


async def test_a_read_shows_two_kibibytes_and_says_what_is_left_out(bench: Bench) -> None:
    bench.put("big", "é" * 3000)
    result = await batch(bench, op("read", path="big"), op("read", path="big"))
    shown = result.output.split("2. read big:\n")[1]
    assert shown.split("\n")[0] == "1|" + "é" * 1023
    assert "[cut: 3954 of 6002 bytes left out; do it alone to see all of it]" in shown
    assert len(result.output) < 3000


async def test_a_disk_that_fails_is_told_of_its_operation(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_args: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    bench.put("a.txt", LINES)
    monkeypatch.setattr("clawd.tools.builtin.file_text.read_bytes", fails)
    result = await batch(bench, op("write", path="b", content="x"), op("read", path="a.txt"))
    assert "2. read a.txt: FAILED: the system refused: Input/output error" in result.error
    assert result.output == "1. write b: created b (1 B)"


@each_row("name", ["offset", "start_line", "max_bytes", "max_lines"])
@each_row("number", [-(10**30), -1, 0, 2**63 - 1, 2**63, 10**30], fresh=["bench"])
async def test_no_number_keeps_a_batch_from_telling_what_it_did(
    bench: Bench, name: str, number: int
) -> None:
    bench.put("a.txt", LINES)
    read = op("read", path="a.txt", **{name: number})
    result = await batch(bench, op("write", path="b", content="x"), read)
    assert "1. write b: created b (1 B)" in told(result)


@each_row(
    ("operations", "words"),
    [
        (
            [op("check", path="a"), op("delete", path="a")],
            "operation 2 has op 'delete'; it must be",
        ),
        ([{"path": "a", "content": "x"}], "operation 1 has no op; it must be one of read, write"),
        ([{"op": "write", "action": "read", "path": "a", "content": "x"}], "names two operations"),
        ([{"op": "read", "path": "b", "file": "a"}], "operation 1 names two paths"),
        ([], "a batch has 1 to 50 operations, this one has 0"),
        ([op("check", path="a")] * 51, "this one has 51"),
        ([op("check", path=f"f{n}") for n in range(21)], "at most 20 files, this one names 21"),
        ([op("write", path="a", content="x"), op("read")], "operation 2 (read): missing argument"),
        (
            [op("write", path="a", content="x"), op("edit", path="a", new_text="")],
            "either old_text",
        ),
    ],
    fresh=["bench"],
)
async def test_a_batch_that_cannot_be_meant_is_refused_with_an_example(
    bench: Bench, operations: list[dict[str, Any]], words: str
) -> None:
    result = await batch(bench, *operations, continue_on_error=True)
    assert words in result.error
    example = json.loads(result.error.split("look like this: ")[1])
    for name in ("a.txt", "b.txt"):
        bench.put(name, LINES)
    assert (await bench.call("fs_ops", **example)).success
    assert not (bench.workspace / "a").exists()
    assert bench.risk("fs_ops", operations=operations).risk == "low"


async def test_what_a_small_model_writes_is_understood(bench: Bench) -> None:
    operations = '[{"op": "Write", "file": "a", "text": "x"}, {"op":"read","path":"a"}]'
    result = await bench.call("fs_ops", operations=operations)
    assert result.output.endswith("2. read a:\n1|x")
    for word in ("file_read", "READ", "reads", "read_file", "cat"):
        shown = await bench.call("fs_ops", operations=[{"action": word, "path": "a"}])
        assert shown.output.endswith("1. read a:\n1|x")
    edit = {"path": "a", "old_text": "x", "new_text": "z"}
    assert (await bench.call("fs_ops", operations=[edit])).success
    lone = await bench.call("fs_ops", operations={"op": "edit", "path": "a", "start_line": "1",
                                                  "new_text": "y"})  # fmt: skip
    assert lone.success
    assert (bench.workspace / "a").read_text() == "y"


@each_row(
    ("operations", "risk", "outward"),
    [
        ([op("read", path="a"), op("list"), op("grep", pattern="x")], "low", False),
        ([op("read", path="a"), op("write", path="a", content="")], "medium", False),
        ([op("read", path="a"), op("append", path=".git/hooks/x", content="")], "medium", True),
    ],
    fresh=["bench"],
)
def test_the_risk_is_the_highest_of_its_operations(
    bench: Bench, operations: list[dict[str, Any]], risk: str, outward: bool
) -> None:
    found = bench.risk("fs_ops", operations=operations)
    assert (found.risk, found.outward, found.blocked) == (risk, outward, "")
    assert found.reason.startswith(f"batch of {len(operations)}: ")
    assert ("run or obey later" in found.reason) is outward


@each_row("path", ["../x", "/usr/share/x", "/etc/passwd", "keys/id", "../home/key"])
@each_row("verb", ["read", "write", "edit", "append", "list", "glob", "grep"], fresh=["bench"])
async def test_one_operation_that_is_blocked_blocks_the_batch(
    bench: Bench, verb: str, path: str
) -> None:
    more = {"content": "x", "pattern": "x", "new_text": "x", "old_text": "y"}
    wanted = bench.tool("fs_ops").parameters["properties"]["operations"]["items"]["properties"]
    bad = op(verb, path=path, **{k: v for k, v in more.items() if k in wanted})
    found = bench.risk("fs_ops", operations=[op("read", path="a"), bad])
    assert found.risk == "high"
    assert found.blocked.startswith(f"operation 2 ({verb} ")
    result = await batch(bench, bad)
    assert "1 failed" in result.error
    assert list(bench.workspace.iterdir()) == []


@each_row("reason", ["overlap", "too many files"], fresh=["bench"])
def test_what_only_its_paths_make_impossible_is_judged_as_what_it_would_do(
    bench: Bench, reason: str
) -> None:
    """A link that is moved between judging and doing must not take a batch past the judge."""
    bench.put("a.txt", LINES)
    (bench.workspace / "link").symlink_to("a.txt")
    paths = ["a.txt", "link"] if reason == "overlap" else [f"f{n}" for n in range(21)]
    operations = [op("edit", path=path, start_line=1, new_text="x") for path in paths]
    found = bench.risk("fs_ops", operations=operations)
    assert (found.risk, found.blocked) == ("medium", "")
    touched = bench.tool("fs_ops").touches({"operations": operations}, bench.context())
    assert bench.workspace / ("a.txt" if reason == "overlap" else "f20") in touched.writes
    (bench.workspace / "link").unlink()
    assert bench.risk("fs_ops", operations=operations).risk == "medium"


def test_outside_of_the_workspace_it_is_one_level_higher(bench: Bench) -> None:
    bench.policy = PolicySettings(workspace_only=False, forbidden_paths=("/etc",))
    assert bench.risk("fs_ops", operations=[op("read", path="/usr/x")]).risk == "medium"
    outside = bench.risk("fs_ops", operations=[op("write", path="/usr/x", content="")])
    assert (outside.risk, outside.outward, outside.blocked) == ("high", True, "")
    both = [op("write", path="a", content=""), op("read", path="/etc/passwd")]
    assert bench.risk("fs_ops", operations=both).blocked


def test_it_touches_what_its_operations_touch(bench: Bench) -> None:
    tool, ws = bench.tool("fs_ops"), bench.workspace
    operations = [op("read", path="a"), op("write", path="b", content=""), op("list", path="d"),
                  op("edit", path="a", new_text="", old_text="x")]  # fmt: skip
    found = tool.touches({"operations": operations}, bench.context())
    assert (set(found.reads), set(found.writes)) == ({ws / "a", ws / "d"}, {ws / "b", ws / "a"})


class Held:
    """A log of changes that holds its second change until it is let go."""

    def __init__(self) -> None:
        self.begun, self.let_go = threading.Event(), threading.Event()
        self.kept: list[str] = []

    def keep(
        self, call: CallFacts, change: FileChange, old: int, *, reverts: int, undoing: Undoing
    ) -> int:
        self.kept.append(change.path)
        if len(self.kept) == 2:
            self.begun.set()
            assert self.let_go.wait(60)
        return len(self.kept)

    def drop(self, number: int) -> None:
        self.kept.append(f"dropped {number}")


async def test_a_cancelled_batch_leaves_no_file_half_done_and_begins_no_more(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_tools, "_END_S", 60.0)
    held = Held()
    bench.changes = {"changes": held}
    task = asyncio.create_task(
        batch(bench, *(op("write", path=name, content=name * 9) for name in "abc"))
    )
    assert await asyncio.to_thread(held.begun.wait, 60)
    task.cancel()
    await asyncio.sleep(0)
    held.let_go.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert held.kept == ["a", "b", "dropped 2"]
    assert [path.name for path in bench.workspace.iterdir()] == ["a"]


async def test_a_batch_that_takes_too_long_says_what_was_not_done(bench: Bench) -> None:
    bench.changes = {"tool_timeout_s": -1.0}
    result = await batch(bench, op("write", path="a", content="x"))
    assert "1. write a: NOT DONE: the batch took longer than" in result.error
    assert not (bench.workspace / "a").exists()


@pytest.fixture
async def changes(tmp_path: Path) -> AsyncIterator[Changes]:
    memory = await Memory.open(tmp_path / "memory.sqlite")
    yield await memory.changes(tmp_path / "undo", ChangeLimits)
    await memory.close()


async def test_undo_takes_a_whole_batch_back_as_one_step_and_redo_brings_it_back(
    bench: Bench, changes: Changes
) -> None:
    bench.changes = {"changes": changes}
    first = bench.put("a.txt", LINES)
    await bench.call("file_write", path="before", content="x")
    given = [
        op("edit", path="a.txt", start_line=1, new_text="one"),
        op("write", path="new/b", content="x"),
        op("append", path="a.txt", content="end\n"),
        op("write", path="a.txt", content="short"),
        op("read", path="missing"),
    ]
    context = msgspec.structs.replace(bench.context(), receipt_id="receipt-2")
    result = await bench.tool("fs_ops").invoke({"operations": given}, context)
    assert "4 done, 1 failed" in result.error
    assert first.read_text() == "short"
    undone = await bench.call("undo")
    assert undone.success, undone.error
    assert first.read_text() == LINES
    assert sorted(path.name for path in bench.workspace.iterdir()) == ["a.txt", "before"]
    assert (await bench.call("undo", redo=True)).success
    assert first.read_text() == "short"
    assert (bench.workspace / "new/b").read_text() == "x"
