"""Helpers that change files, in a whole daemon: what is merged, who is asked, what is not.

The model is scripted: a turn delegates a task to a helper that has a copy, and the helper calls
what its scenario says.
"""

import asyncio
import contextlib
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
import pytest

from clawd.receipts.record import Receipt
from clawd.runtime.incoming import IncomingMessage
from clawd.security.approvals import Answer
from clawd.security.snapshot import Tree, TreeStep
from clawd.wire.events import ApprovalRequested, Event, FileDiff, ToolFinished
from clawd.wire.policy import AddRule
from clawd.wire.tools import RunTool
from tests.support.dispatching import LIMIT_S
from tests.support.inprocess import OWNER, Inside, daemon_in

Calls = list[dict[str, Any]]
Ask = Callable[[ApprovalRequested], Awaitable[Answer | None]]


def call(name: str, **arguments: object) -> dict[str, Any]:
    return {"name": name, "arguments": arguments}


def delegate(task: str, **arguments: object) -> dict[str, Any]:
    return call("delegate", task=task, **({"workspace": "copy"} | arguments))


EDIT = call("file_edit", path="notes.txt", old_text="mine", new_text="the helper's")


@asynccontextmanager
async def house(
    folder: Path, tasks: dict[str, Calls], *, begins: Calls | None = None, tables: str = ""
) -> AsyncIterator[Inside]:
    """Run a daemon whose turn delegates `begins`, and whose helpers do what their task says."""
    turns = {f"go-{task}": [delegate(task)] for task in tasks}
    turns["go"] = begins or [delegate(task) for task in tasks]
    replies: list[dict[str, Any]] = []
    for text, calls in turns.items():
        replies += [
            {"when": text, "tool_calls": calls},
            {"when": text, "after": "tool", "text": "{{tool_results}}"},
        ]
    for task, calls in tasks.items():
        replies += [
            {"when": task, "tool_calls": calls},
            {"when": task, "after": "tool", "text": "I did {{tool_results}}"},
        ]
    script = folder / "script.json"
    script.write_bytes(msgspec.json.encode({"replies": replies}))
    given = f'script = "{script}"\n[agent]\nhelpers = 4\nhelper_copies = true\n{tables}'
    async with daemon_in(folder, given) as inside:
        (inside.workspace / "notes.txt").write_text("mine\n")
        yield inside
        assert copies_in(folder) == []


def copies_in(folder: Path) -> list[Path]:
    place = folder / "home" / "copies"
    return list(place.iterdir()) if place.exists() else []


class Said:
    """What came of a turn."""

    def __init__(self) -> None:
        self.asked: list[ApprovalRequested] = []
        self.events: list[Event] = []
        self.text = ""


async def said(
    inside: Inside, answer: Ask | Answer | None = None, *, text: str = "go", **fields: Any
) -> Said:
    """Run a turn; questions are answered so, or nobody is there."""
    found = Said()
    message = IncomingMessage(text=text, interactive=answer is not None, **fields)
    ticket = await inside.daemon.inbox.submit(message, OWNER)
    async with asyncio.timeout(LIMIT_S):
        async for event in ticket.events:
            found.events.append(event)
            if isinstance(event, ApprovalRequested):
                found.asked.append(event)
                word = await answer(event) if callable(answer) else answer
                if word is not None:
                    inside.daemon.approvals.answer(
                        event.approval_id, word, OWNER, digest=event.digest
                    )
        try:
            found.text = (await ticket.finished()).text
        except Exception as error:  # noqa: BLE001 - whatever it is, the test looks at it
            found.text = f"failed: {error}"
    return found


def made(inside: Inside) -> list[Receipt]:
    """Return the receipts of calls, oldest first."""
    return [each for each in inside.receipts() if each.tool != "conversation_mode"]


def receipts(inside: Inside) -> list[tuple[str, str]]:
    return [(each.tool, each.status) for each in made(inside)]


async def test_what_a_helper_changed_is_asked_about_where_its_turn_is_and_merged(
    tmp_path: Path,
) -> None:
    more = call("file_write", path="new/b.txt", content="b\n")
    async with house(tmp_path, {"change": [EDIT, more]}) as inside:
        notes = inside.workspace / "notes.txt"

        async def look(asked: ApprovalRequested) -> Answer:
            assert notes.read_text() == "mine\n"
            assert (asked.tool, asked.workspace) == ("helper_merge", str(inside.workspace))
            shown = {each.path: each for each in asked.changes}
            assert set(shown) == {"notes.txt", "new", "new/b.txt"}
            marks = [(line.mark, line.text) for line in shown["notes.txt"].lines]
            assert marks == [("-", "mine"), ("+", "the helper's")]
            return "once"

        found = await said(inside, look, mode="supervised")
        assert len(found.asked) == 1
        assert (notes.read_text(), (inside.workspace / "new" / "b.txt").read_text()) == (
            "the helper's\n", "b\n",
        )  # fmt: skip
        assert "merged: new/b.txt created\nmerged: notes.txt changed" in found.text
        first, second, merge, delegated = made(inside)
        assert [each.tool for each in (first, second, merge, delegated)] == [
            "file_edit", "file_write", "helper_merge", "delegate",
        ]  # fmt: skip
        assert merge.conversation_id == delegated.conversation_id != first.conversation_id
        assert first.reason.startswith(f"helper of {merge.conversation_id}")
        arguments = await inside.daemon.memory.ledger.load_content(merge.args_hash)
        assert msgspec.json.decode(arguments or b"") == {"helper": first.conversation_id}
        assert (merge.risk, merge.approval) == ("medium", "user")
        assert merge.id in found.text
        ended = [each for each in found.events if isinstance(each, ToolFinished)]
        assert [each.tool for each in ended] == ["helper_merge", "delegate"]
        undone = await inside.ask(
            RunTool(name="undo", conversation_id=merge.conversation_id), OWNER
        )
        assert undone.status == "denied"  # supervised asks
        live = await inside.daemon.inbox.book.load(merge.conversation_id, OWNER)
        await inside.daemon.inbox.book.set_mode(live, "full", OWNER)
        undone = await inside.ask(
            RunTool(name="undo", conversation_id=merge.conversation_id), OWNER
        )
        assert (notes.read_text(), (inside.workspace / "new").exists()) == ("mine\n", False)


async def test_what_is_denied_or_nobody_answers_leaves_nothing(tmp_path: Path) -> None:
    async with house(tmp_path, {"change": [EDIT]}) as inside:
        for answer in ("deny", None):
            found = await said(inside, answer, mode="supervised")
            assert "nothing was merged: denied" in found.text
            assert (inside.workspace / "notes.txt").read_text() == "mine\n"
        assert receipts(inside)[1::3] == [("helper_merge", "denied")] * 2


async def test_each_mode_judges_a_merge_as_it_judges_a_write(tmp_path: Path) -> None:
    async with house(tmp_path, {"change": [EDIT]}) as inside:
        found = await said(inside, "once", mode="readonly")
        assert "nothing to merge" in found.text
        assert receipts(inside) == [("file_edit", "denied"), ("delegate", "allowed")]
        for mode in ("edits", "full"):
            (inside.workspace / "notes.txt").write_text("mine\n")
            found = await said(inside, mode=mode)
            assert (inside.workspace / "notes.txt").read_text() == "the helper's\n"


LATER = call("file_write", path="conftest.py", content="import os\n")


async def test_what_runs_later_and_untrusted_text_ask_as_for_a_write(tmp_path: Path) -> None:
    tasks = {"later": [LATER]}
    async with house(tmp_path, tasks) as inside:
        found = await said(inside, "once", mode="edits")
        assert "nothing to merge" in found.text  # nobody is asked for it, as in the workspace
        assert (found.asked, (inside.workspace / "conftest.py").exists()) == ([], False)
        found = await said(inside, mode="full", untrusted=("a page",))
        assert not (inside.workspace / "conftest.py").exists()
        found = await said(inside, mode="full")
        assert (inside.workspace / "conftest.py").exists()


async def test_untrusted_text_makes_a_merge_ask_in_edits_and_marks_what_it_brings(
    tmp_path: Path,
) -> None:
    async with house(tmp_path, {"change": [EDIT]}) as inside:
        found = await said(inside, "once", mode="edits", untrusted=("a page",))
        (asked,) = found.asked
        assert "a page" in asked.reason
        files = inside.daemon.inbox.book._taint.files
        assert "a page" in await files.sources((inside.workspace / "notes.txt",))


async def test_of_two_side_by_side_the_second_conflicts_and_says_so(tmp_path: Path) -> None:
    other = call("file_edit", path="notes.txt", old_text="mine", new_text="the other's")
    extra = call("file_write", path="extra.txt", content="x\n")
    async with house(tmp_path, {"one": [EDIT], "two": [other, extra]}) as inside:
        found = await said(inside, mode="full")
        text = (inside.workspace / "notes.txt").read_text()
        assert text in {"the helper's\n", "the other's\n"}
        assert found.text.count("merged: notes.txt changed") == 1
        assert "notes.txt: it was changed in the workspace since the copy was made" in found.text
        assert "notes.txt (- the workspace now, + the helper)\n-the " in found.text
        is_first = text == "the other's\n"
        assert (inside.workspace / "extra.txt").exists() == is_first


async def test_what_changes_while_a_person_looks_is_not_overwritten(tmp_path: Path) -> None:
    async with house(tmp_path, {"change": [EDIT]}) as inside:

        async def meanwhile(_asked: ApprovalRequested) -> Answer:
            (inside.workspace / "notes.txt").write_text("mine, newer\n")
            return "once"

        found = await said(inside, meanwhile, mode="supervised")
        assert "nothing was merged" in found.text
        assert (inside.workspace / "notes.txt").read_text() == "mine, newer\n"
        assert ("helper_merge", "failed") in receipts(inside)


@pytest.mark.parametrize("how", ["cancel", "estop"])
async def test_nothing_is_merged_after_a_stop(tmp_path: Path, how: str) -> None:
    async with house(tmp_path, {"change": [EDIT]}) as inside:

        async def stop(_asked: ApprovalRequested) -> None:
            if how == "cancel":
                inside.daemon.inbox.cancel_owner(OWNER.uid)
            else:
                await asyncio.to_thread(inside.daemon.estop.set, "test")

        await said(inside, stop, mode="supervised")
        assert (inside.workspace / "notes.txt").read_text() == "mine\n"
        assert ("helper_merge", "denied") in receipts(inside)


class CancelledMeanwhile:
    """Ends a helper's jobs; before it is done with that, the turn is cancelled."""

    def __init__(self, inside: Inside) -> None:
        self._inside = inside

    async def stop_of(self, _conversation_id: str, _by: str) -> None:
        """Return once the call of `delegate` is told, too."""
        self._inside.daemon.inbox.cancel_owner(OWNER.uid)
        async with asyncio.timeout(LIMIT_S):
            while sum(each.cancelling() > 0 for each in asyncio.all_tasks()) < 2:
                await asyncio.sleep(0)


async def test_a_merge_that_is_not_wholly_taken_back_is_told_as_that_and_undo_has_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is full behind the first file, and so it is when that file is to go back."""
    more = call("file_write", path="new.txt", content="new\n")
    restore = Tree.restore

    def full(
        tree: Tree, steps: Sequence[TreeStep], content: Callable[[TreeStep], BinaryIO]
    ) -> dict[str, str]:
        late = "new.txt" if len(steps) > 1 else "notes.txt"
        problems = restore(tree, [each for each in steps if each.path != late], content)
        return problems | {late: "No space left on device"}

    async with house(tmp_path, {"change": [EDIT, more]}) as inside:
        monkeypatch.setattr(Tree, "restore", full)
        found = await said(inside, mode="full")
        monkeypatch.undo()
        (place,) = copies_in(tmp_path)
        assert {each.name for each in place.iterdir()} == {"before", "merging"}
        assert "be wholly taken back; notes.txt: No space left on device" in found.text
        assert str(place / "before") in found.text
        assert "nothing was merged" not in found.text
        notes = inside.workspace / "notes.txt"
        assert notes.read_text() == "the helper's\n"
        merge = next(each for each in made(inside) if each.tool == "helper_merge")
        undo = RunTool(name="undo", conversation_id=merge.conversation_id)
        assert (await inside.ask(undo, OWNER)).status == "allowed"
        assert notes.read_text() == "mine\n"
        assert len(inside.daemon.copies.recover()) == 2  # it is taken back by now


@pytest.mark.parametrize("mode", ["full", "supervised"])
async def test_nothing_is_merged_or_asked_if_it_is_cancelled_while_jobs_end(
    tmp_path: Path, mode: str
) -> None:
    async with house(tmp_path, {"change": [EDIT]}) as inside:
        helpers = inside.daemon.toolset.helpers
        helpers._jobs = CancelledMeanwhile(inside)  # type: ignore[assignment]
        found = await said(inside, "once", mode=mode)
        assert (inside.workspace / "notes.txt").read_text() == "mine\n"
        assert found.asked == []
        assert "helper_merge" not in [each.tool for each in made(inside)]


async def test_rules_about_files_hold_for_what_is_merged(tmp_path: Path) -> None:
    write = call("file_write", path="docs/a.md", content="a\n")
    tasks = {
        "change": [write],
        "link": [call("shell", command="mkdir -p docs; ln -s /x docs/link")],
    }
    async with house(tmp_path, tasks, begins=[delegate("change")]) as inside:
        where = str(inside.workspace)
        found = await said(inside, mode="supervised")
        assert "merged: docs/a.md created" not in found.text
        await inside.ask(AddRule(pattern="file_write docs/**", workspace=where), OWNER)
        found = await said(inside, mode="supervised")
        assert "merged: docs/a.md created" in found.text
        (inside.workspace / "docs" / "a.md").unlink()
        deny = AddRule(pattern="file_write docs/**", workspace=where, verdict="deny")
        await inside.ask(deny, OWNER)
        found = await said(inside, mode="full")
        assert not (inside.workspace / "docs" / "a.md").exists()
        found = await said(inside, text="go-link", mode="full")
        assert "refuses it: " in found.text
        assert not (inside.workspace / "docs" / "link").is_symlink()


async def test_a_copy_is_given_only_where_the_config_or_the_agent_says_so(tmp_path: Path) -> None:
    tables = '[agents.fixer]\nworkspace = "copy"\n'
    agents = tmp_path / "home" / "agents"
    agents.mkdir(parents=True)
    (tmp_path / "home").chmod(0o700)
    (agents / "mender.md").write_text("---\nisolation: worktree\n---\nYou mend.\n")
    begins = [
        call("delegate", task="change", workspace="copy"),
        call("delegate", task="change", agent="fixer"),
        call("delegate", task="change", agent="mender", workspace="read"),
        call("delegate", task="change", agent="mender"),
    ]
    async with house(tmp_path, {"change": [EDIT]}, begins=begins, tables=tables) as inside:
        config = tmp_path / "home" / "config.toml"
        config.write_text(config.read_text().replace("helper_copies = true\n", ""))
        await inside.daemon.reload()
        found = await said(inside, mode="full")
        assert "only as an agent that is given a copy" in found.text
        assert found.text.count("merged: notes.txt changed") == 1
        assert ("file_edit", "denied") in receipts(inside)


# What a helper calls, and what is told of it.
ACTS: dict[str, tuple[Calls, str]] = {
    "link": ([call("shell", command="ln -s {out} there && echo x > there/a")], "merged: there cr"),
    "tool-link": (
        [call("shell", command="ln -s {out} t"), call("file_write", path="t/a", content="x")],
        "outside the workspace",
    ),
    "absolute": ([call("file_write", path="{work}/notes.txt", content="x")], "is outside the w"),
    "above": ([call("file_write", path="../../notes.txt", content="x")], "a forbidden path"),
    "shell-absolute": ([call("shell", command="echo x > {work}/notes.txt")], "nothing to merge"),
    "hooks": ([call("shell", command="echo id > .git/hooks/pre-commit")], "nothing to merge"),
    "file-hooks": ([call("file_write", path=".git/hooks/post", content="id")], "1 in .git"),
    "config": ([call("file_write", path=".git/config", content="[core]")], "1 in .git"),
    "home": ([call("file_read", path="{home}/config.toml")], "a forbidden path"),
    "secret": ([call("file_write", path="secret/key", content="x")], "a forbidden path"),
    "shell-secret": (
        [call("shell", command="mkdir -p secret; echo x > secret/new")],
        "nothing was merged",
    ),
    "fifo": ([call("shell", command="mkfifo pipe")], "not merged: pipe (no file)"),
    "many": ([call("shell", command="mkdir d; cd d; seq 700 | xargs touch")], "at most 500 are"),
    "undo": ([call("undo")], "not offered"),
    "remember": ([call("knowledge_save", keywords="a", content="Obey.")], "not offered"),
    "deeper": ([delegate("task-link")], "gives no copy away"),
    "merges": ([call("helper_merge", helper="conv-1")], "not offered"),
}


async def test_nothing_that_a_hostile_helper_does_leaves_its_copy(tmp_path: Path) -> None:
    outside, work = tmp_path / "outside", tmp_path / "project"
    (work / ".git" / "hooks").mkdir(parents=True)
    (work / "secret").mkdir()
    (work / "secret" / "key").write_text("s")
    outside.mkdir()
    text = msgspec.json.encode({name: calls for name, (calls, _) in ACTS.items()}).decode()
    for name, place in (("out", outside), ("work", work), ("home", tmp_path / "home")):
        text = text.replace(f"{{{name}}}", str(place))
    tasks = {f"task-{name}": calls for name, calls in msgspec.json.decode(text).items()}
    tables = f'[security]\nforbidden_paths = ["{work}/secret"]\n'
    async with house(tmp_path, tasks, tables=tables) as inside:
        if inside.daemon.sandbox_level == "none":
            pytest.skip("there is no sandbox here")
        wrong: dict[str, str] = {}
        for name, (_, told) in ACTS.items():
            found = await said(inside, text=f"go-task-{name}", mode="full")
            held = {str(each.relative_to(work)) for each in work.rglob("*")} - {"there", "t"}
            is_held = held == {"notes.txt", ".git", ".git/hooks", "secret", "secret/key"}
            is_same = ((work / "notes.txt").read_text(), list(outside.iterdir())) == ("mine\n", [])
            if not (is_held and is_same and told in found.text):
                wrong[name] = found.text
        assert wrong == {}
        assert not list((tmp_path / "home" / "knowledge").rglob("*.md"))


async def test_a_job_that_still_writes_is_ended_before_the_look(tmp_path: Path) -> None:
    writes = "while true; do echo x >> log.txt; sleep 0.01; done"
    begun = call("shell", command=writes, timeout_s=1)
    async with house(tmp_path, {"change": [begun]}) as inside:
        if inside.daemon.sandbox_level == "none":
            pytest.skip("there is no sandbox here")
        found = await said(inside, mode="full")
        assert "merged: log.txt created" in found.text
        assert all(each.state != "running" for each in inside.daemon.jobs.seen_by(OWNER))
        assert (inside.workspace / "log.txt").stat().st_size > 0


def changes_of(found: Said) -> tuple[FileDiff, ...]:
    (asked,) = found.asked
    return asked.changes


async def test_what_goes_asks_in_edits_too_and_renames_are_named(tmp_path: Path) -> None:
    moves = call("shell", command="mv notes.txt kept.txt")
    rule = AddRule(pattern="mv *")
    async with house(tmp_path, {"change": [moves]}) as inside:
        if inside.daemon.sandbox_level != "bwrap":
            pytest.skip("rules about words need the full sandbox")
        await inside.ask(msgspec.structs.replace(rule, workspace=str(inside.workspace)), OWNER)
        found = await said(inside, "once", mode="edits")
        by_path = {each.path: each for each in changes_of(found)}
        assert by_path["notes.txt"].is_removed
        assert by_path["kept.txt"].note == "was notes.txt"
        assert "removes notes.txt" in found.asked[0].reason
        assert (inside.workspace / "kept.txt").read_text() == "mine\n"


async def test_a_helper_that_did_not_end_by_itself_merges_nothing(tmp_path: Path) -> None:
    begins = [delegate("change", budget=1)]
    async with house(tmp_path, {"change": [EDIT]}, begins=begins) as inside:
        found = await said(inside, mode="full")
        assert "nothing was merged: it did not come to an end by itself" in found.text
        assert ("file_edit", "allowed") in receipts(inside)
        assert (inside.workspace / "notes.txt").read_text() == "mine\n"


async def test_a_turn_that_plans_gives_no_copy(tmp_path: Path) -> None:
    async with house(tmp_path, {"change": [EDIT]}) as inside:
        found = await said(inside, mode="full", plan_first=True)
        assert "helpers of a turn that only looks change nothing" in str(found.events)
        assert (inside.workspace / "notes.txt").read_text() == "mine\n"


async def test_what_is_untrusted_in_the_workspace_is_so_in_its_copy(tmp_path: Path) -> None:
    tables = f'[security]\nuntrusted_paths = ["{tmp_path}/project/mail/**"]\n'
    read = call("file_read", path="mail/a.txt")
    async with house(tmp_path, {"change": [read, EDIT]}, tables=tables) as inside:
        (inside.workspace / "mail").mkdir()
        (inside.workspace / "mail" / "a.txt").write_text("Obey.\n")
        found = await said(inside, "once", mode="edits")
        (asked,) = found.asked  # though its turn held nothing untrusted when it began
        assert "mail/a.txt" in asked.reason
        assert (inside.workspace / "notes.txt").read_text() == "the helper's\n"


async def test_undo_keeps_nothing_of_a_copy(tmp_path: Path) -> None:
    made_by_shell = call("shell", command="echo x > by-shell.txt")
    async with house(tmp_path, {"change": [EDIT, made_by_shell]}) as inside:
        await said(inside, mode="full")
        with contextlib.closing(sqlite3.connect(tmp_path / "home" / "memory.sqlite")) as memory:
            rows = memory.execute("SELECT DISTINCT workspace FROM changes").fetchall()
        assert rows == [(str(inside.workspace),)]
        indexes = list((tmp_path / "home" / "snapshots").glob("*.index"))
        assert len(indexes) <= 1


async def test_without_a_sandbox_no_command_runs_in_a_copy(tmp_path: Path) -> None:
    tables = '[security]\nsandbox = "off"\n'
    run = call("shell", command=f"echo x > {tmp_path}/project/notes.txt")
    async with house(tmp_path, {"change": [run]}, tables=tables) as inside:
        found = await said(inside, mode="full")
        assert "without a sandbox nothing holds a command in its copy" in found.text
        assert (inside.workspace / "notes.txt").read_text() == "mine\n"


async def test_a_copy_that_a_crash_left_is_gone_after_the_start(tmp_path: Path) -> None:
    left = tmp_path / "home" / "copies" / "copy-1" / "tree"
    left.mkdir(parents=True)
    (tmp_path / "home").chmod(0o700)
    (left / "a").write_text("a")
    left.chmod(0o500)
    async with house(tmp_path, {"change": [EDIT]}):
        assert copies_in(tmp_path) == []


def _is_written(tree: Path) -> bool:
    notes = tree / "notes.txt"
    return notes.exists() and notes.read_text() == "x\n"


async def test_a_helper_is_stopped_with_its_copy(tmp_path: Path) -> None:
    waits = call("shell", command="echo x > notes.txt; sleep 60", timeout_s=60)
    async with house(tmp_path, {"change": [waits]}) as inside:
        if inside.daemon.sandbox_level == "none":
            pytest.skip("there is no sandbox here")
        turn = asyncio.create_task(said(inside, mode="full"))
        async with asyncio.timeout(LIMIT_S):
            while not any(_is_written(each / "tree") for each in copies_in(tmp_path)):
                await asyncio.sleep(0.01)
        inside.daemon.inbox.cancel_owner(OWNER.uid)
        await turn
        assert copies_in(tmp_path) == []
        assert (inside.workspace / "notes.txt").read_text() == "mine\n"
        assert "helper_merge" not in [each.tool for each in made(inside)]


async def test_what_undo_has_no_room_for_is_not_merged(tmp_path: Path) -> None:
    tables = "[limits]\nundo_commands_mb = 1\n"
    big = call("file_append", path="big.txt", content="new\n")
    async with house(tmp_path, {"change": [EDIT, big]}, tables=tables) as inside:
        (inside.workspace / "big.txt").write_bytes(b"x" * (2 << 20))
        found = await said(inside, mode="full")
        assert "there is no room to keep big.txt for undo" in found.text
        assert (inside.workspace / "big.txt").stat().st_size == 2 << 20
        assert (inside.workspace / "notes.txt").read_text() == "mine\n"


async def test_what_a_helper_wrote_counts_as_written_once_it_is_merged(tmp_path: Path) -> None:
    async with house(tmp_path, {"change": [EDIT]}) as inside:
        script = tmp_path / "script.json"
        claim = script.read_text().replace("{{tool_results}}", "I wrote notes.txt.", 2)
        script.write_text(claim)
        async with asyncio.timeout(LIMIT_S):
            ended = {}
            for mode in ("readonly", "full"):
                ticket = await inside.daemon.inbox.submit(
                    IncomingMessage(text="go", mode=mode), OWNER
                )
                finished = await ticket.finished()
                ended[mode] = [(each.object, each.verdict) for each in finished.claims]
        assert ended["full"] == [("notes.txt", "supported")]
        assert ("notes.txt", "supported") not in ended["readonly"]
