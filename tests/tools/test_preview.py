"""What is shown of a call's changes is what it does: the diff that was shown makes the new file."""

import asyncio
import json
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clawd.memory.changes import ChangeLimits
from clawd.security.policy import PolicySettings
from clawd.security.risk import Autonomy
from clawd.security.sandbox.run import Sandbox, SandboxSettings
from clawd.tools.base import Tool, ToolContext, ToolResult
from clawd.tools.builtin.catalogue import builtin_tools
from clawd.tools.builtin.deps import BuiltinDeps
from clawd.tools.outcome import CallOutcome
from clawd.tools.preview import MAX_OLD_BYTES, Preview
from clawd.wire.events import FileDiff, ToolStarted
from tests.security.fakes import ADA
from tests.support.dispatching import LIMIT_S, Bench, bench_in, request
from tests.support.rows import each_row


def applied(old: bytes, diff: FileDiff) -> bytes | None:
    """Return the old content with the diff applied, by its lines and their numbers alone."""
    if diff.is_removed:
        return None
    before, after, at = old.splitlines(keepends=True) if b"\r" not in old else _lines(old), [], 0
    for line in diff.lines:
        if line.mark == "@":
            continue
        data = (line.raw or line.text.encode()) + (b"\n" if line.has_end else b"")
        if line.mark == "-":
            after += before[at : line.number - 1]
            at = line.number
            assert before[at - 1] == data
            continue
        missing = line.number - 1 - len(after)
        after += before[at : at + missing]
        at += missing
        after.append(data)
        if line.mark == " ":
            assert before[at] == data
            at += 1
    return b"".join([*after, *before[at:]])


def _lines(data: bytes) -> list[bytes]:
    parts = data.split(b"\n")
    return [part + b"\n" for part in parts[:-1]] + [each for each in parts[-1:] if each]


def tools_over(changes: Any = None) -> dict[str, Tool]:
    policy = PolicySettings(forbidden_paths=())
    sandbox = Sandbox(SandboxSettings(home=None))
    deps = BuiltinDeps(policy=policy, home=None, sandbox=sandbox, changes=changes)
    return {tool.name: tool for tool in builtin_tools(deps)}


TOOLS = tools_over()


def context(workspace: Path, preview: Preview | None = None) -> ToolContext:
    return ToolContext(
        conversation_id="conv-1",
        call_id="k",
        principal=ADA,
        workspace=workspace,
        preview=preview,
    )


async def shown_and_done(
    workspace: Path, tool: str, arguments: dict[str, Any]
) -> tuple[Preview, ToolResult]:
    preview = await TOOLS[tool].preview(arguments, context(workspace))
    result = await TOOLS[tool].invoke(arguments, context(workspace, preview))
    return preview or Preview(), result


def files(workspace: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(workspace)): path.read_bytes()
        for path in workspace.rglob("*")
        if path.is_file()
    }


def check(before: dict[str, bytes], after: dict[str, bytes], preview: Preview) -> None:
    made = {diff.path: applied(before.get(diff.path, b""), diff) for diff in preview.diffs}
    changed = {path: data for path, data in after.items() if before.get(path) != data}
    assert made == changed
    for diff in preview.diffs:
        assert diff.is_new == (diff.path not in before)
        assert (diff.old_size, diff.new_size) == (
            len(before.get(diff.path, b"")),
            len(after[diff.path]),
        )


CONTENTS = st.one_of(
    st.lists(st.sampled_from(["a", "b", "b", "", "ü", "\ufeffx"]), max_size=12).map("\n".join),
    st.lists(st.sampled_from(["a", "b", "c\r"]), max_size=8).map("\r\n".join),
    st.text(alphabet="ab\n\r", max_size=20),
)
BYTES = st.one_of(
    CONTENTS.map(str.encode),
    st.binary(max_size=30),
    st.lists(st.sampled_from([b"a\n", b"\xff\n", b"\0", b"b\r\n"]), max_size=8).map(b"".join),
)
NAMES = st.sampled_from(["x.txt", "y.txt", "new/z.txt"])
OPERATIONS = st.one_of(
    st.fixed_dictionaries({"op": st.just("write"), "path": NAMES, "content": CONTENTS}),
    st.fixed_dictionaries({"op": st.just("append"), "path": NAMES, "content": CONTENTS}),
    st.fixed_dictionaries(
        {
            "op": st.just("edit"),
            "path": NAMES,
            "start_line": st.integers(1, 6),
            "new_text": CONTENTS,
        }
    ),
    st.fixed_dictionaries(
        {
            "op": st.just("edit"),
            "path": NAMES,
            "old_text": st.sampled_from(["a", "b\n", "a\nb", "ü"]),
            "new_text": CONTENTS,
        }
    ),
    st.fixed_dictionaries({"op": st.just("read"), "path": NAMES}),
    st.fixed_dictionaries({"op": st.just("list"), "path": st.sampled_from([".", "new"])}),
    st.fixed_dictionaries({"op": st.just("grep"), "pattern": st.just("a")}),
)
BATCHES = st.fixed_dictionaries(
    {
        "operations": st.lists(OPERATIONS, min_size=1, max_size=6),
        "continue_on_error": st.booleans(),
    }
)
OLD = st.fixed_dictionaries({"x.txt": BYTES, "y.txt": BYTES})


def _a_batch_does_what_was_shown(old: dict[str, bytes], batch: dict[str, Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        workspace = Path(folder).resolve()
        for name, data in old.items():
            (workspace / name).write_bytes(data)
        preview, result = asyncio.run(shown_and_done(workspace, "fs_ops", batch))
        assert "when this change was shown" not in result.error
        check(old, files(workspace), preview)


@given(old=OLD, batch=BATCHES)
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
def test_s2_a_batch_does_what_was_shown(old: dict[str, bytes], batch: dict[str, Any]) -> None:
    _a_batch_does_what_was_shown(old, batch)


@pytest.mark.slow
@pytest.mark.timeout(600)
@given(old=OLD, batch=BATCHES)
@settings(max_examples=500, deadline=None, suppress_health_check=list(HealthCheck))
def test_s2_many_batches_do_what_was_shown(old: dict[str, bytes], batch: dict[str, Any]) -> None:
    _a_batch_does_what_was_shown(old, batch)


async def test_s2_lines_are_those_of_the_file_before_the_batch(tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text("a\nb\nc\nd\ne\n")
    batch = {
        "operations": [
            {"op": "edit", "path": "x.txt", "start_line": 1, "new_text": "A1\nA2\nA3\n"},
            {"op": "edit", "path": "x.txt", "start_line": 4, "new_text": "D\n"},
        ]
    }
    preview, _ = await shown_and_done(tmp_path, "fs_ops", batch)
    (diff,) = preview.diffs
    assert (diff.added, diff.removed) == (4, 2)
    assert [(line.mark, line.text, line.number) for line in diff.lines] == [
        ("-", "a", 1),
        ("+", "A1", 1),
        ("+", "A2", 2),
        ("+", "A3", 3),
        (" ", "b", 4),
        (" ", "c", 5),
        ("-", "d", 4),
        ("+", "D", 6),
        (" ", "e", 7),
    ]
    assert (tmp_path / "x.txt").read_text() == "A1\nA2\nA3\nb\nc\nD\ne\n"


async def test_s2_what_is_odd_about_a_file_is_shown(tmp_path: Path) -> None:
    """Rows: content before, tool, its arguments, what the diff says of it."""
    rows: list[tuple[bytes | None, str, dict[str, Any], dict[str, Any]]] = [
        (b"a\r\nb\r\n", "file_edit", {"old_text": "a\nb", "new_text": "c\nd"}, {}),
        (b"a\nb", "file_append", {"content": "c"}, {"added": 2, "removed": 1}),
        (b"\xef\xbb\xbfa\n", "file_edit", {"start_line": 1, "new_text": "b"}, {"added": 1}),
        (b"\xff\n\0", "file_append", {"content": "x\n"}, {"is_binary": True}),
        (b"\xff\n", "file_write", {"content": "x\n"}, {"is_binary": True, "removed": 1}),
        (None, "file_write", {"content": ""}, {"is_new": True, "added": 0}),
        (b"", "file_write", {"content": "x"}, {"is_new": False, "added": 1}),
        (b"x\n" * 9_000, "file_write", {"content": ""}, {"is_cut": True, "removed": 9_000}),
        (b"x" * (MAX_OLD_BYTES + 1), "file_append", {"content": "y\n"}, {"is_cut": True}),
        (b"x" * (MAX_OLD_BYTES + 1), "file_write", {"content": "y\n"}, {"is_cut": True}),
        (None, "file_write", {"content": "é" * 400_000 + "\n"}, {"is_cut": True, "added": 1}),
    ]
    wrong = []
    for number, (old, tool, arguments, expected) in enumerate(rows):
        path = tmp_path / f"{number}.txt"
        if old is not None:
            path.write_bytes(old)
        preview, result = await shown_and_done(tmp_path, tool, {"path": path.name, **arguments})
        (diff,) = preview.diffs
        found = {name: getattr(diff, name) for name in expected}
        new = path.read_bytes()
        is_right = diff.is_cut or applied(old or b"", diff) == new
        if found != expected or not is_right or not result.success or diff.new_size != len(new):
            wrong.append((number, found, result.error))
    assert not wrong


# --- through dispatch


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    async with bench_in(tmp_path) as made:
        made.workspace = tmp_path / "ws"
        made.workspace.mkdir()
        yield made


async def test_s2_the_question_carries_the_diff_and_a_file_changed_since_is_left_alone(
    bench: Bench, tmp_path: Path
) -> None:
    """Rows: what happens to the file while a person is asked."""
    changes = await bench.memory.changes(tmp_path / "undo", ChangeLimits)
    dispatcher = bench.dispatcher(tools_over(changes).values())
    path = bench.workspace / "x.txt"
    rows: dict[str, dict[str, Any]] = {
        "file_write": {"path": "x.txt", "content": "new\n"},
        "file_append": {"path": "x.txt", "content": "new\n"},
        "file_edit": {"path": "x.txt", "old_text": "old", "new_text": "new"},
        "fs_ops": {"operations": [{"op": "append", "path": "x.txt", "content": "new\n"}]},
        "undo": {},
    }
    wrong = []
    for tool, arguments in rows.items():
        for meanwhile in (None, b"old\nand more\n"):
            path.write_bytes(b"old\n")
            if tool == "undo":
                await tools_over(changes)["file_write"].invoke(
                    {"path": "x.txt", "content": "written\n"}, context(bench.workspace)
                )
            async with asyncio.timeout(LIMIT_S), asyncio.TaskGroup() as tasks:
                call = request(tool, json.dumps(arguments))
                running = tasks.create_task(dispatcher.call(call, bench.scope()))
                pending = await bench.asked.get()
                before = path.read_bytes()
                if meanwhile is not None:
                    path.write_bytes(meanwhile)
                bench.approvals.answer(pending.id, "once", ADA, digest=pending.digest)
            (diff,) = pending.question.changes
            outcome, now = running.result(), path.read_bytes()
            expected = meanwhile if meanwhile is not None else applied(before, diff)
            is_done = outcome.status == "allowed"
            if now != expected or is_done != (meanwhile is None):
                wrong.append((tool, meanwhile, outcome.text, now))
    assert not wrong


async def test_s2_undo_takes_back_what_was_shown_and_not_what_came_since(
    bench: Bench, tmp_path: Path
) -> None:
    tools = tools_over(await bench.memory.changes(tmp_path / "undo", ChangeLimits))
    dispatcher, here = bench.dispatcher(tools.values()), context(bench.workspace)
    for name in ("one.txt", "two.txt"):
        (bench.workspace / name).write_text("old")
    await tools["file_write"].invoke({"path": "one.txt", "content": "new"}, here)
    async with asyncio.timeout(LIMIT_S), asyncio.TaskGroup() as tasks:
        running = tasks.create_task(dispatcher.call(request("undo", "{}"), bench.scope()))
        pending = await bench.asked.get()
        since = msgspec.structs.replace(here, call_id="later")
        await tools["file_write"].invoke({"path": "two.txt", "content": "new"}, since)
        bench.approvals.answer(pending.id, "once", ADA, digest=pending.digest)
    assert [diff.path for diff in pending.question.changes] == ["one.txt"]
    assert running.result().status == "denied"
    assert "something else" in running.result().text
    assert files(bench.workspace) == {"one.txt": b"new", "two.txt": b"new"}


async def test_s2_a_call_that_nobody_is_asked_about_shows_its_changes_as_it_starts(
    bench: Bench,
) -> None:
    bench.policy = PolicySettings(autonomy="full", forbidden_paths=())
    call = request("file_write", '{"path": "x.txt", "content": "a\\n"}')
    await bench.dispatcher(TOOLS.values()).call(call, bench.scope())
    (started,) = (event for event in bench.events if isinstance(event, ToolStarted))
    assert [(diff.path, diff.is_new, diff.added) for diff in started.changes] == [
        ("x.txt", True, 1)
    ]


async def test_p9_undo_of_nothing_asks_nobody_and_says_so(bench: Bench, tmp_path: Path) -> None:
    changes = await bench.memory.changes(tmp_path / "undo", ChangeLimits)
    dispatcher = bench.dispatcher(tools_over(changes).values())
    outcome = await dispatcher.call(request("undo", "{}"), bench.scope())
    assert bench.asked.empty()
    assert "No change of a tool can be undone" in outcome.text


async def test_p9_undo_of_a_file_that_was_moved_away_says_so_and_uses_no_step_up(
    bench: Bench, tmp_path: Path
) -> None:
    tools = tools_over(await bench.memory.changes(tmp_path / "undo", ChangeLimits))
    here = context(bench.workspace)
    await tools["file_write"].invoke({"path": "made.txt", "content": "x"}, here)
    (bench.workspace / "made.txt").rename(bench.workspace / "moved.txt")
    for _ in range(2):
        result = await tools["undo"].invoke({}, here)
        assert not result.success
        assert "made.txt: it is gone, moved or removed since" in result.error
    (bench.workspace / "moved.txt").rename(bench.workspace / "made.txt")
    assert (await tools["undo"].invoke({}, here)).output == "undone: made.txt removed"


# --- a file that would lose most of what it holds

LONG = "".join(f"line {number}\n" for number in range(214))
CUT = {"path": "x.txt", "content": "a\nb\nc\n"}
LOSES = "replaces 214 lines of x.txt by 3"


async def question_of(
    bench: Bench, call: tuple[str, dict[str, Any]], *, changes: Any = None
) -> tuple[str, CallOutcome]:
    """Make a call; return why a person was asked, "" for nobody, and what came of it with a yes."""
    tool, arguments = call
    dispatcher = bench.dispatcher(tools_over(changes).values())
    reason = ""
    async with asyncio.timeout(LIMIT_S), asyncio.TaskGroup() as tasks:
        made = request(tool, json.dumps(arguments))
        running = tasks.create_task(dispatcher.call(made, bench.scope()))
        asked = tasks.create_task(bench.asked.get())
        await asyncio.wait({running, asked}, return_when=asyncio.FIRST_COMPLETED)
        if asked.done():
            pending = asked.result()
            reason = pending.question.reason
            bench.approvals.answer(pending.id, "once", ADA, digest=pending.digest)
        else:
            asked.cancel()
    return reason, running.result()


@each_row(
    ("mode", "old", "tool", "arguments", "expected"),
    [
        ("edits", LONG, "file_write", CUT, LOSES),
        ("supervised", LONG, "file_write", CUT, f"writes a file; {LOSES}"),
        ("full", LONG, "file_write", CUT, ""),
        ("edits", LONG, "file_write", CUT | {"content": ""}, "replaces 214 lines of x.txt by 0"),
        ("edits", LONG, "file_write", CUT | {"content": "x\n" * 106},
         "replaces 214 lines of x.txt by 106"),
        ("edits", LONG, "file_write", CUT | {"content": "x\n" * 107}, ""),
        ("edits", "x\n" * 21, "file_write", CUT, "replaces 21 lines of x.txt by 3"),
        ("edits", "x\n" * 20, "file_write", CUT, ""),
        ("edits", LONG, "file_write", CUT | {"path": "new.txt"}, ""),
        ("edits", LONG, "file_append", CUT, ""),
        ("edits", LONG, "file_edit", {"path": "x.txt", "old_text": "line 7\n", "new_text": ""}, ""),
        ("edits", LONG, "file_edit",
         {"path": "x.txt", "start_line": 1, "end_line": 212, "new_text": "a\n"}, LOSES),
        ("edits", LONG, "fs_ops", {"operations": [{"op": "write", **CUT}]}, LOSES),
        ("full", LONG, "fs_ops", {"operations": [{"op": "write", **CUT}]}, ""),
        ("edits", "x\n" * (MAX_OLD_BYTES // 2 + 1), "file_write", CUT,
         f"replaces {MAX_OLD_BYTES + 2} bytes of x.txt by 6"),
    ],
    fresh=["bench"],
)  # fmt: skip
async def test_r7_a_file_that_loses_most_of_its_lines_is_asked_about_in_every_mode_but_full(
    bench: Bench, mode: Autonomy, old: str, tool: str, arguments: dict[str, Any], expected: str
) -> None:
    bench.policy = PolicySettings(autonomy=mode, forbidden_paths=())
    (bench.workspace / "x.txt").write_text(old)
    reason, outcome = await question_of(bench, (tool, arguments))
    assert expected == reason if not expected else reason.endswith(expected), reason
    assert outcome.status == "allowed", outcome.text
    (receipt,) = bench.receipts()
    assert ("replaces" in receipt.reason) == (bool(expected) or mode == "full"), receipt.reason


async def test_r7_no_standing_rule_stands_for_what_a_file_loses(bench: Bench) -> None:
    path = bench.workspace / "x.txt"
    path.write_text(LONG)
    dispatcher = bench.dispatcher(TOOLS.values())
    call = request("file_write", json.dumps(CUT))
    for word in ("conversation", "always"):
        async with asyncio.timeout(LIMIT_S), asyncio.TaskGroup() as tasks:
            tasks.create_task(dispatcher.call(call, bench.scope()))
            pending = await bench.asked.get()
            assert LOSES in pending.question.reason
            bench.approvals.answer(pending.id, word, ADA, digest=pending.digest)
        path.write_text(LONG)
    reason, _ = await question_of(bench, ("file_write", CUT))
    assert reason.endswith(LOSES)
    reason, _ = await question_of(bench, ("file_write", CUT))  # of three lines now
    assert reason == ""


async def test_r7_where_nobody_can_be_asked_the_file_stays_and_the_model_is_told_how_to_go_on(
    bench: Bench,
) -> None:
    bench.policy = PolicySettings(autonomy="edits", forbidden_paths=())
    bench.is_reachable = False
    path = bench.workspace / "x.txt"
    path.write_text(LONG)
    call = request("file_write", json.dumps(CUT))
    outcome = await bench.dispatcher(TOOLS.values()).call(call, bench.scope())
    assert (outcome.status, path.read_text()) == ("denied", LONG)
    assert "use file_edit to change a part" in outcome.text
    (receipt,) = bench.receipts()
    assert receipt.status == "denied"


async def test_r7_undo_brings_a_short_file_back_unasked(bench: Bench, tmp_path: Path) -> None:
    changes = await bench.memory.changes(tmp_path / "undo", ChangeLimits)
    bench.policy = PolicySettings(autonomy="edits", forbidden_paths=())
    (bench.workspace / "x.txt").write_text("a\n")
    grown = ("file_write", {"path": "x.txt", "content": LONG})
    assert (await question_of(bench, grown, changes=changes))[0] == ""
    reason, outcome = await question_of(bench, ("undo", {}), changes=changes)
    assert (reason, outcome.status) == ("", "allowed"), outcome.text


async def test_a_model_replaces_no_file_that_it_has_not_seen(bench: Bench) -> None:
    """Rows: calls of one conversation in their order, and what each leaves in the file or says."""
    bench.policy = PolicySettings(autonomy="full", forbidden_paths=())
    dispatcher, seen = bench.dispatcher(TOOLS.values()), set[Path]()
    scope = msgspec.structs.replace(bench.scope(), seen=seen)
    write = {"path": "x.txt", "content": "new\n"}
    batch = {"operations": [{"op": "read", "path": "x.txt"}, {"op": "write", **write}]}
    refused = "error: x.txt is there already and was not read: file_append adds to it, "
    rows: list[tuple[str, dict[str, Any], str]] = [
        ("file_write", write, refused),
        ("file_write", write | {"path": "./x.txt"}, refused.replace("x.txt", "./x.txt")),
        ("fs_ops", batch, refused),
        ("file_append", write, "added"),
        ("file_edit", {"path": "x.txt", "old_text": "old", "new_text": "odd"}, "updated"),
        ("grep", {"pattern": "odd"}, "x.txt"),
        ("file_write", write, refused),
        ("file_read", {"path": "y.txt"}, "error"),
        ("file_write", write, refused),
        ("file_read", {"path": "x.txt"}, "1|odd"),
        ("file_write", write, "updated"),
        ("file_write", write | {"content": "newer\n"}, "updated"),
        ("file_write", write | {"path": "made.txt"}, "created"),
        ("file_write", write | {"path": "made.txt", "content": ""}, "updated"),
        ("file_write", write | {"path": "empty.txt"}, "updated"),
        ("fs_ops", {"operations": [{"op": "read", "path": "other.txt"}]}, "batch"),
        ("file_write", write | {"path": "other.txt"}, "updated"),
    ]
    for name in ("x.txt", "other.txt"):
        (bench.workspace / name).write_text("old\n")
    (bench.workspace / "empty.txt").touch()
    wrong = []
    for number, (tool, arguments, starts) in enumerate(rows):
        before = files(bench.workspace)
        outcome = await dispatcher.call(request(tool, json.dumps(arguments), str(number)), scope)
        is_kept = files(bench.workspace) == before and outcome.status == "failed"
        if not outcome.text.startswith(starts) or is_kept != starts.startswith("error"):
            wrong.append((number, tool, outcome.status, outcome.text))
    assert not wrong
    assert bench.asked.empty()


async def test_nobody_is_asked_about_a_file_that_a_model_has_not_seen_and_a_person_may_replace_it(
    bench: Bench,
) -> None:
    (bench.workspace / "x.txt").write_text("old\n")
    dispatcher = bench.dispatcher(TOOLS.values())
    call = request("file_write", '{"path": "x.txt", "content": "new\\n"}')
    scope = msgspec.structs.replace(bench.scope(), seen=set())
    outcome = await dispatcher.call(call, scope)
    assert (outcome.kind, outcome.status) == ("failed", "failed")
    assert bench.asked.empty()
    assert files(bench.workspace) == {"x.txt": b"old\n"}
    async with asyncio.timeout(LIMIT_S), asyncio.TaskGroup() as tasks:
        running = tasks.create_task(dispatcher.call(call, bench.scope()))
        await bench.answer("once")
    assert running.result().status == "allowed"
    assert files(bench.workspace) == {"x.txt": b"new\n"}
    assert [each.status for each in bench.receipts()] == ["failed", "allowed"]


async def test_a_person_who_edits_a_call_may_let_it_replace_what_the_model_has_not_seen(
    bench: Bench,
) -> None:
    (bench.workspace / "x.txt").write_text("old\n")
    scope = msgspec.structs.replace(bench.scope(), seen=set())
    call = request("file_write", '{"path": "y.txt", "content": "new\\n"}')
    async with asyncio.timeout(LIMIT_S), asyncio.TaskGroup() as tasks:
        running = tasks.create_task(bench.dispatcher(TOOLS.values()).call(call, scope))
        first = await bench.asked.get()
        mended = '{"path": "x.txt", "content": "mended\\n"}'
        bench.approvals.edit(first.id, mended, ADA, digest=first.digest)
        second = await bench.answer("once")
    assert [diff.path for diff in second.question.changes] == ["x.txt"]
    assert running.result().status == "allowed"
    assert files(bench.workspace) == {"x.txt": b"mended\n"}
