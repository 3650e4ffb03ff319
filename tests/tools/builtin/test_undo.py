"""undo: takes back what tools changed, and nothing that somebody else did."""

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from clawd.errors import ClawError, InvalidRequestError
from clawd.memory.changes import ROW_COST, ChangeLimits, Changes
from clawd.memory.store import Memory
from clawd.security.file_content import FileChange, FileState
from clawd.security.principal import Principal
from clawd.tools.base import ToolContext, ToolResult
from clawd.tools.builtin import file_tools
from clawd.tools.changes import CallFacts, ChangeLog
from tests.support.rows import each_row
from tests.tools.builtin.conftest import Bench

ROOT = Path(__file__).parents[3]
BOB = Principal(uid=1001, gid=1001, pid=2)


class Desk:
    """The bench with a real log of changes; each call gets an id of its own."""

    def __init__(self, bench: Bench, changes: Changes) -> None:
        self.bench = bench
        self.changes = changes
        self.calls = 0
        bench.changes["changes"] = changes

    def context(self, **changes: Any) -> ToolContext:
        self.calls += 1
        made = msgspec.structs.replace(self.bench.context(), receipt_id=f"receipt-{self.calls}")
        return msgspec.structs.replace(made, **changes)

    async def call(self, tool: str, context: Any = None, **given: Any) -> ToolResult:
        return await self.bench.tool(tool).invoke(given, context or self.context())

    async def undo(self, context: ToolContext | None = None, **given: Any) -> str:
        result = await self.call("undo", context, **given)
        return result.output if result.success else f"{result.output}|{result.error}"


@pytest.fixture
async def desk(bench: Bench, tmp_path: Path) -> AsyncIterator[Desk]:
    memory = await Memory.open(tmp_path / "memory.sqlite")
    try:
        yield Desk(bench, await memory.changes(tmp_path / "undo", ChangeLimits))
    finally:
        await memory.close()


async def test_every_way_of_changing_a_file_is_taken_back(desk: Desk) -> None:
    file = desk.bench.put("f", "one\ntwo\n")
    file.chmod(0o600)
    states = [(file.read_text(), 0o600)]
    for tool, given in [
        ("file_edit", {"old_text": "two", "new_text": "2"}),
        ("file_append", {"content": "three\n"}),
        ("file_write", {"content": ""}),
        ("file_write", {"content": "anew"}),
    ]:
        assert (await desk.call(tool, path="f", **given)).success
        states.append((file.read_text(), file.stat().st_mode & 0o777))
    for text, mode in reversed(states[:-1]):
        assert await desk.undo() == f"undone: f restored ({len(text)} B)"
        assert (file.read_text(), file.stat().st_mode & 0o777) == (text, mode)
    assert "No change of a tool can be undone" in await desk.undo()
    for text, _mode in states[1:]:
        await desk.undo(redo=True)
        assert file.read_text() == text
    assert "No undo can be taken back" in await desk.undo(redo=True)
    assert await desk.undo(steps=3) == (
        "undone: f restored (0 B)\nundone: f restored (12 B)\nundone: f restored (6 B)"
    )
    assert file.read_text() == states[1][0]


async def test_a_file_that_was_made_goes_with_the_folders_made_for_it(desk: Desk) -> None:
    (desk.bench.workspace / "kept").mkdir()
    for path in ("kept/a/b/new", "kept/a/other"):
        await desk.call("file_append", path=path, content="x")
    assert await desk.undo(steps=2) == (
        "undone: kept/a/other removed\nundone: kept/a/b/new removed"
    )
    assert list((desk.bench.workspace / "kept").iterdir()) == []
    assert await desk.undo(redo=True) == (
        "redone: kept/a/b/new restored (1 B)\nredone: kept/a/other restored (1 B)"
    )
    assert (desk.bench.workspace / "kept/a/b/new").read_text() == "x"
    desk.bench.put("kept/a/mine", "a person's")
    assert await desk.undo(steps=9) == (
        "undone: kept/a/other removed\nundone: kept/a/b/new removed\n"
        "(there was nothing more: 1 of 9 steps)"
    )
    assert sorted(p.name for p in (desk.bench.workspace / "kept" / "a").iterdir()) == ["mine"]


async def test_what_was_changed_since_is_left_alone_and_force_keeps_it(desk: Desk) -> None:
    file = desk.bench.put("f", "first")
    await desk.call("file_write", path="f", content="second")
    await desk.call("file_write", path="g", content="g")
    file.write_text("a person's")
    told = await desk.undo(steps=2)
    assert told.startswith("undone: g removed|nothing of this call is undone. f: it was changed")
    assert "clawctl undo --force" in told
    assert file.read_text() == "a person's"
    assert await desk.undo(force=True) == "undone: f restored (5 B)"
    assert file.read_text() == "first"
    assert await desk.undo(redo=True) == "redone: f restored (10 B)"
    assert file.read_text() == "a person's"


@each_row("what", ["gone", "folder", "fifo", "link"], fresh=["desk"])
async def test_what_took_the_place_of_a_file_is_left_alone(desk: Desk, what: str) -> None:
    file = desk.bench.put("f", "first")
    (desk.bench.workspace.parent / "secret").write_text("secret")
    await desk.call("file_write", path="f", content="second")
    file.unlink()
    if what == "folder":
        file.mkdir()
    elif what == "fifo":
        os.mkfifo(file)
    elif what == "link":
        file.symlink_to("../secret")
    told = await desk.undo()
    if what == "link":
        assert told == f"|{file} leads to another place by now; it is left as it is"
    else:
        assert told.startswith("|nothing of this call is undone. f: ")
    if what != "gone":
        assert "restored" not in await desk.undo(force=True)
    else:
        assert await desk.undo(force=True) == "undone: f restored (5 B)"
    assert (desk.bench.workspace.parent / "secret").read_text() == "secret"


async def test_one_call_is_undone_as_a_whole_or_not_at_all(desk: Desk) -> None:
    batch = desk.context(receipt_id="batch")
    for name in ("a", "b"):
        desk.bench.put(name, "old")
        await desk.call("file_write", batch, path=name, content="new")
    (desk.bench.workspace / "a").write_text("changed since")
    assert "nothing of this call" in await desk.undo()
    assert (desk.bench.workspace / "b").read_text() == "new"
    (desk.bench.workspace / "a").write_text("new")
    await desk.undo()
    assert [(desk.bench.workspace / name).read_text() for name in ("a", "b")] == ["old", "old"]


async def test_one_file_changed_twice_in_a_call_comes_back_to_its_first_state(desk: Desk) -> None:
    file = desk.bench.put("f", "1")
    batch = desk.context(receipt_id="batch")
    for text in ("2", "3"):
        await desk.call("file_write", batch, path="f", content=text)
    await desk.undo()
    assert file.read_text() == "1"


async def test_nobody_takes_back_what_another_owner_changed(desk: Desk) -> None:
    file = desk.bench.put("f", "first")
    await desk.call("file_write", path="f", content="ada's")
    for changes in ({"principal": BOB}, {"principal": BOB, "conversation_id": ""}):
        assert "No change of a tool" in await desk.undo(desk.context(**changes))
    assert "No change of a tool" in await desk.undo(desk.context(conversation_id="c2"))
    assert file.read_text() == "ada's"
    assert await desk.undo(desk.context(conversation_id="")) == "undone: f restored (5 B)"


async def test_what_lies_outside_the_workspace_needs_full_autonomy(desk: Desk) -> None:
    outside = desk.bench.workspace.parent / "outside"
    policy = desk.bench.policy
    desk.bench.policy = msgspec.structs.replace(policy, workspace_only=False, autonomy="full")
    await desk.call("file_write", path=str(outside), content="x")
    desk.bench.policy = msgspec.structs.replace(policy, workspace_only=False)
    assert "outside the workspace" in await desk.undo()
    desk.bench.policy = policy
    assert "outside the workspace" in await desk.undo()
    assert outside.exists()
    desk.bench.policy = msgspec.structs.replace(policy, autonomy="full")
    assert "is outside" in await desk.undo()
    desk.bench.policy = msgspec.structs.replace(policy, workspace_only=False, autonomy="full")
    await desk.undo()
    assert not outside.exists()


@pytest.fixture
def tight(desk: Desk) -> tuple[Desk, list[ChangeLimits]]:
    """Three files of 3 KiB each written anew, as one call or as three, and the limits in force."""
    limits = [ChangeLimits(max_bytes=12 * ROW_COST)]
    desk.changes._limits = lambda: limits[-1]
    return desk, limits


@each_row("one_call", [False, True], fresh=["tight"])
async def test_undo_makes_no_room_with_what_it_is_about_to_take_back(
    tight: tuple[Desk, list[ChangeLimits]], *, one_call: bool
) -> None:
    desk, limits = tight
    batch = desk.context(receipt_id="batch") if one_call else None
    old, new, larger = "o" * 3 * ROW_COST, "n" * 3 * ROW_COST, "l" * 5 * ROW_COST
    files = [desk.bench.put(name, old) for name in ("a", "b", "c")]

    def texts() -> set[str]:
        return {file.read_text() for file in files}

    for file in files:
        await desk.call("file_write", batch, path=file.name, content=new)
    assert (await desk.undo(steps=3)).count("undone: ") == 3
    assert texts() == {old}
    assert (await desk.undo(redo=True, steps=3)).count("redone: ") == 3
    assert texts() == {new}
    # What is there now is larger than what comes back: it finds no room, and nothing is lost.
    for file in files:
        file.write_text(larger)
    assert "Raise undo_mb" in await desk.undo(steps=3, force=True)
    assert old not in texts() - {larger}
    limits.append(ChangeLimits())
    await desk.undo(steps=3, force=True)
    assert texts() == {old}


@each_row("path", ["./ AGENTS.md", "./~/notes", "sub /f", "~ /f", "./~"], fresh=["desk"])
async def test_undo_writes_where_the_change_was_made_whatever_its_name(
    desk: Desk, path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    (tmp_path / "user").mkdir()
    for name in ("AGENTS.md", "sub/f", "f"):
        desk.bench.put(name, "a person's")
    policy = desk.bench.policy
    desk.bench.policy = msgspec.structs.replace(policy, workspace_only=False, autonomy="full")
    file = desk.bench.workspace / path.removeprefix("./")
    for text in ("first", "second"):
        await desk.call("file_write", path=path, content=text)
    assert (await desk.undo(force=True)).startswith("undone: ")
    assert file.read_text() == "first"
    await desk.undo(redo=True)
    assert file.read_text() == "second"
    await desk.undo(steps=2)
    assert not file.exists()
    kept = ("AGENTS.md", "sub/f", "f")
    assert {(desk.bench.workspace / name).read_text() for name in kept} == {"a person's"}
    assert list((tmp_path / "user").iterdir()) == []


@each_row("is_new", [False, True], fresh=["desk"])
async def test_undo_follows_no_link_that_was_put_in_the_place_of_a_folder(
    desk: Desk, *, is_new: bool
) -> None:
    hooks = desk.bench.workspace / ".git" / "hooks"
    hooks.mkdir(parents=True)
    if not is_new:
        desk.bench.put("hk/pre-push", "#!/bin/sh\n")
    await desk.call("file_write", path="hk/pre-push", content="x")
    (desk.bench.workspace / "hk").rename(desk.bench.workspace / "old")
    (desk.bench.workspace / "hk").symlink_to(".git/hooks")
    (hooks / "pre-push").write_text("x")
    for force in (False, True):
        told = await desk.undo(force=force)
        assert "leads to another place by now" in told
        assert "--force" not in told
    assert (hooks / "pre-push").read_text() == "x"


async def test_undo_of_what_others_obey_counts_as_outward(desk: Desk) -> None:
    def outward(**given: Any) -> bool | None:
        return desk.bench.risk("undo", **given).outward

    assert outward() is False
    await desk.call("file_write", path="AGENTS.md", content="x")
    assert (outward(), outward(redo=True)) == (True, False)
    assert "obey later" in desk.bench.risk("undo").reason
    await desk.call("file_write", path="f", content="x")
    assert (outward(), outward(steps=2), outward(steps=0)) == (False, True, False)
    touched = desk.bench.tool("undo").touches({"steps": 2}, desk.context())
    assert set(touched.writes) == {desk.bench.workspace / name for name in ("AGENTS.md", "f")}
    await desk.undo(steps=2)
    assert (outward(), outward(redo=True, steps=2)) == (False, True)
    policy = desk.bench.policy
    desk.bench.policy = msgspec.structs.replace(policy, workspace_only=False, autonomy="full")
    await desk.call("file_write", path="../outside", content="x")
    assert outward() is True


async def test_a_change_that_fails_leaves_nothing_to_undo(desk: Desk) -> None:
    (desk.bench.workspace / "folder").mkdir()
    desk.bench.put("f", "x")
    os.link(desk.bench.workspace / "f", desk.bench.workspace / "alias")
    for tool, path in [
        ("file_write", "folder"),
        ("file_append", "alias"),
        ("file_write", "new/" + "x" * 300),
        ("file_write", "f/below"),
    ]:
        with pytest.raises(ClawError):
            await desk.call(tool, path=path, content="y")
    assert "No change of a tool" in await desk.undo()
    assert not (desk.bench.workspace / "new").exists()


async def test_without_a_log_files_change_and_undo_says_so(bench: Bench) -> None:
    await bench.call("file_write", path="f", content="x")
    assert (await bench.call("undo")).error == "nothing is kept for undo here"
    assert "1 to 100" in (await bench.call("undo", steps=0)).error


class Interposed:
    """A log that does something when a change has been kept, before it is made."""

    def __init__(self, log: Changes, act: Any) -> None:
        self._log = log
        self._act = act

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    def keep(self, call: CallFacts, change: FileChange, old: int, **given: Any) -> int:
        number = self._log.keep(call, change, old, **given)
        self._act()
        return number


def interposed(desk: Desk, act: Any) -> ChangeLog:
    log: Any = Interposed(desk.changes, act)
    desk.bench.changes["changes"] = log
    return log  # type: ignore[no-any-return]


@each_row("tool", ["file_write", "file_edit", "file_append"], fresh=["desk"])
async def test_what_somebody_else_writes_at_the_last_moment_is_not_lost(
    desk: Desk, tool: str
) -> None:
    file = desk.bench.put("f", "first")
    interposed(desk, lambda: file.write_text("a person's, just now"))
    given = {"content": "x"} if tool != "file_edit" else {"old_text": "first", "new_text": "x"}
    with pytest.raises(ClawError, match="at the same time"):
        await desk.call(tool, path="f", **given)
    assert file.read_text() == "a person's, just now"
    assert "No change of a tool" in await desk.undo()
    assert sorted(p.name for p in desk.bench.workspace.iterdir()) == ["f"]


async def test_a_file_that_appears_at_the_last_moment_is_not_replaced(desk: Desk) -> None:
    file = desk.bench.workspace / "f"
    interposed(desk, lambda: file.write_text("a person's, just now"))
    with pytest.raises(ClawError, match="at the same time"):
        await desk.call("file_write", path="f", content="x")
    assert file.read_text() == "a person's, just now"


async def test_a_cancelled_call_changes_nothing_any_more(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_tools, "_END_S", 60.0)
    file = desk.bench.put("f", "first")
    kept, go_on = threading.Event(), threading.Event()

    def wait() -> None:
        kept.set()
        assert go_on.wait(60)

    interposed(desk, wait)
    call = asyncio.create_task(desk.call("file_write", path="f", content="x"))
    assert await asyncio.to_thread(kept.wait, 60)
    call.cancel()
    asyncio.get_running_loop().call_later(0.01, go_on.set)
    with pytest.raises(asyncio.CancelledError):
        await call
    assert file.read_text() == "first"
    assert "No change of a tool" in await desk.undo()


async def test_a_crash_between_the_note_and_the_act_does_no_damage(desk: Desk) -> None:
    file = desk.bench.put("f", "first")
    await desk.call("file_write", path="f", content="second")
    facts = CallFacts(
        owner=1000,
        conversation_id="c1",
        workspace=str(desk.bench.workspace),
        call_id="crashed",
        tool="file_write",
    )
    with file.open("rb") as old:
        change = FileChange(
            path="f", before=FileState.of(b"second"), after=FileState.of(b"never written")
        )
        await asyncio.to_thread(desk.changes.keep, facts, change, old.fileno())
    assert await desk.undo() == "undone: nothing had to be changed"
    assert file.read_text() == "second"
    assert await desk.undo() == "undone: f restored (5 B)"


async def test_kept_content_that_was_damaged_is_never_written(desk: Desk, tmp_path: Path) -> None:
    file = desk.bench.put("f", "first")
    await desk.call("file_write", path="f", content="second")
    (kept,) = (tmp_path / "undo").iterdir()
    kept.write_text("FIRST")
    assert "is damaged" in await desk.undo()
    kept.unlink()
    assert "cannot be read" in await desk.undo()
    assert file.read_text() == "second"
    assert sorted(p.name for p in desk.bench.workspace.iterdir()) == ["f"]


async def test_a_file_too_large_to_keep_is_not_changed(desk: Desk, tmp_path: Path) -> None:
    memory = await Memory.open(tmp_path / "small.sqlite")
    log = await memory.changes(tmp_path / "small", lambda: ChangeLimits(max_bytes=2048))
    desk.bench.changes["changes"] = log
    file = desk.bench.put("f", "x" * 2048)
    for tool in ("file_write", "file_append"):
        with pytest.raises(InvalidRequestError, match="more than is kept for undo"):
            await desk.call(tool, path="f", content="y")
    assert file.read_text() == "x" * 2048
    await memory.close()


@each_row("delay_s", [0.0, 0.003, 0.01, 0.02, 0.05], fresh=["bench"])
async def test_after_a_kill_at_any_moment_undo_leads_back_to_the_beginning(
    bench: Bench, tmp_path: Path, delay_s: float
) -> None:
    file = bench.put("f", "the beginning")
    command = [sys.executable, str(Path(__file__).with_name("crash_changer.py")), str(tmp_path)]
    changer = subprocess.Popen(
        command, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    try:
        assert changer.stdout is not None
        assert changer.stdout.readline() == b"changing\n"
        await asyncio.sleep(delay_s)  # where it is by then does not matter
    finally:
        changer.kill()
        changer.communicate()
    memory = await Memory.open(tmp_path / "memory.sqlite")
    try:
        desk = Desk(bench, await memory.changes(tmp_path / "undo", ChangeLimits))
        while (result := await desk.call("undo", steps=100)).success:
            continue
        assert "No change of a tool can be undone" in result.error
    finally:
        await memory.close()
    assert file.read_text() == "the beginning"
