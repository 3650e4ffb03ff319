"""The file tools on files of a conversation, and that none of them leads into the file system."""

import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clawd.errors import ClawError
from clawd.memory.rows import Conversation
from clawd.memory.store import Memory
from clawd.security.paths import classify, path_rules
from clawd.security.policy import PolicySettings
from clawd.tools.base import ToolContext, ToolResult
from clawd.tools.builtin.file_tools import _read
from clawd.tools.session_files import SessionAccess, SessionFile
from tests.support.rows import each_row
from tests.tools.builtin.conftest import Bench
from tests.wire.test_references import NEARLY

OWNER = 1000
ROOM = 2_000


@pytest.fixture
async def memory(tmp_path: Path, bench: Bench) -> AsyncIterator[Memory]:
    opened = await Memory.open(tmp_path / "memory.sqlite")
    await opened.conversations.create(Conversation(id="c1", owner=OWNER, workspace="/w"))
    bench.changes["sessions"] = SessionAccess(store=opened.session_files, room_bytes=ROOM)
    yield opened
    await opened.close()


def on_disk(bench: Bench) -> list[str]:
    return [name for _, folders, files in os.walk(bench.workspace) for name in (*folders, *files)]


async def tried(bench: Bench, tool: str, **arguments: Any) -> ToolResult:
    """Call as dispatch does: an error is a result."""
    try:
        return await bench.call(tool, **arguments)
    except ClawError as error:
        return ToolResult(success=False, error=f"{error.message} {error.hint}")


async def test_the_model_writes_adds_lists_and_reads(bench: Bench, memory: Memory) -> None:
    assert (await bench.call("file_list", path="file+session://")).output == "(no session files)"
    wrote = await bench.call("file_write", path="file+session://notes.txt", content="one\n")
    assert wrote.output == "wrote file+session://notes.txt (4 B)"
    added = await bench.call("file_append", path=" file+session://notes.txt", content="two\nthree")
    assert added.output == "added 9 bytes to file+session://notes.txt (13 B in all)"
    read = await bench.call("file_read", path="file+session://notes.txt")
    assert (read.success, read.output) == (True, "1|one\n2|two\n3|three")
    part = await bench.call("file_read", path="file+session://notes.txt", start_line=2, max_lines=1)
    assert part.output == "2|two\n(lines 2 to 2 of 3; 13 bytes; go on with start_line=3)"
    first = await bench.call("file_read", path="file+session://notes.txt", max_lines=1)
    assert first.output == "1|one\n(lines 1 to 1 of 3; 13 bytes; go on with start_line=2)"
    listed = await bench.call("file_list", path="file+session://", recursive=True)
    assert listed.output == "notes.txt (text/plain, 13 bytes): 3 lines: one two three"
    found = await bench.call("grep", pattern="^t", path="file+session://notes.txt")
    assert found.output == "file+session://notes.txt:2:two\nfile+session://notes.txt:3:three"
    added = await bench.call("file_append", path="file+session://notes.txt", content="four")
    assert added.output == "added 5 bytes to file+session://notes.txt (18 B in all)"
    assert on_disk(bench) == []


@each_row("tool", ["file_read", "file_write", "file_append", "file_list", "grep"], fresh=["bench"])
def test_they_are_of_low_risk_and_touch_no_file(bench: Bench, tool: str) -> None:
    arguments = {"path": "file+session://notes.txt", "content": "x", "pattern": "x"}
    known = bench.tool(tool).parameters["properties"]
    given = {name: value for name, value in arguments.items() if name in known}
    assessment = bench.risk(tool, **given)
    assert (assessment.risk, assessment.blocked, assessment.outward) == ("low", "", False)
    touched = bench.tool(tool).touches(given, bench.context())
    assert (touched.reads, touched.writes) == ((), ())


CALLS: list[tuple[str, dict[str, Any]]] = [
    ("file_read", {}),
    ("file_read", {"start_line": 1}),
    ("file_write", {"content": "x"}),
    ("file_append", {"content": "x"}),
    ("file_edit", {"old_text": "x", "new_text": "y"}),
    ("file_list", {}),
    ("grep", {"pattern": "x"}),
    ("glob", {"pattern": "*"}),
    ("check_path", {}),
]


# Blanks and quotes around a path are taken off before a tool sees it.
TRULY = [path for path in NEARLY if path.strip("\"'`") == path.strip() == path]


@each_row("path", TRULY, fresh=["bench", "memory"])
async def test_nothing_that_looks_like_one_reaches_the_file_system(
    bench: Bench, memory: Memory, path: str
) -> None:
    for tool, arguments in CALLS:
        done = await tried(bench, tool, path=path, **arguments)
        assert not done.success, (tool, done.output)
        assert '{"path": "file+session://' in done.error, (tool, done.error)
    operations = [{"op": op, "path": path} for op in ("read", "list", "check")]
    operations += [
        {"op": "write", "path": path, "content": "x"},
        {"op": "append", "path": path, "content": "x"},
        {"op": "edit", "path": path, "old_text": "x", "new_text": "y"},
    ]
    for operation in operations:
        done = await tried(bench, "fs_ops", operations=[operation], continue_on_error=True)
        assert "nothing was done" in done.error, operation
    await tried(bench, "pdf_extract", source=path)
    await tried(bench, "glob", pattern=path)
    assert on_disk(bench) == []
    assert await memory.session_files.list("c1", owner=OWNER) == ()


@each_row(("tool", "arguments"), [CALLS[4], *CALLS[7:]], fresh=["bench", "memory"])
async def test_tools_that_take_none_refuse_a_good_reference_too(
    bench: Bench, memory: Memory, tool: str, arguments: dict[str, Any]
) -> None:
    path = "file+session://notes.txt"
    assert bench.risk(tool, path=path, **arguments).blocked.endswith(f'{{"path": "{path}"}}')
    done = await tried(bench, tool, path=path, **arguments)
    assert "session files are for file_read, file_write" in done.error
    assert on_disk(bench) == []


async def test_a_batch_with_a_session_file_is_refused_before_any_of_it(
    bench: Bench, memory: Memory
) -> None:
    operations = [
        {"op": "write", "path": "a.txt", "content": "x"},
        {"op": "read", "path": "file+session://notes.txt"},
    ]
    done = await tried(bench, "fs_ops", operations=operations)
    assert "operation 2: 'file+session://notes.txt' is no path of the file system" in done.error
    assert on_disk(bench) == []
    assert bench.risk("fs_ops", operations=operations).risk == "low"


async def test_the_file_system_itself_refuses_them(tmp_path: Path) -> None:
    rules = path_rules(PolicySettings(), workspace=tmp_path, home=None)
    for path in (*NEARLY, "file+session://notes.txt"):
        with pytest.raises(ClawError):
            classify(path, rules)


async def test_outside_of_a_conversation_there_are_none(bench: Bench, memory: Memory) -> None:
    tool = bench.tool("file_write")
    outside = msgspec.structs.replace(bench.context(), conversation_id="")
    with pytest.raises(ClawError, match="belong to a conversation, and this call is made outside"):
        await tool.invoke({"path": "file+session://a", "content": "x"}, outside)
    bench.changes.clear()
    done = await tried(bench, "file_read", path="file+session://a")
    assert "belong to a conversation" in done.error
    assert on_disk(bench) == []


async def test_a_missing_one_is_told_with_the_way_to_list_them(
    bench: Bench, memory: Memory
) -> None:
    done = await tried(bench, "file_read", path="file+session://gone.txt")
    assert done.error == (
        "there is no session file 'gone.txt' in this conversation; "
        'file_list with path "file+session://" lists those that there are '
    )


async def test_conversations_do_not_see_each_others(bench: Bench, memory: Memory) -> None:
    await memory.conversations.create(Conversation(id="c2", owner=OWNER, workspace="/w"))
    await memory.conversations.create(Conversation(id="c3", owner=1001, workspace="/w"))
    for identity in ("c2", "c3"):
        await memory.session_files.save(identity, "a.txt", b"theirs", owner=None)
    assert "no session file" in (await tried(bench, "file_read", path="file+session://a.txt")).error
    tool, context = bench.tool("file_read"), bench.context()
    stolen: ToolContext = msgspec.structs.replace(context, conversation_id="c3")
    with pytest.raises(ClawError, match="there is no conversation 'c3'"):
        await tool.invoke({"path": "file+session://a.txt"}, stolen)


async def test_binary_content_is_described_and_not_shown(bench: Bench, memory: Memory) -> None:
    await memory.session_files.save("c1", "a.png", b"\x89PNG\0\0", owner=OWNER)
    done = await bench.call("file_read", path="file+session://a.png")
    assert done.error == "file+session://a.png is no text: image/png, 6 bytes"
    assert (await bench.call("grep", pattern="P", path="file+session://a.png")).output == (
        "no matches"
    )


async def test_output_that_looks_binary_is_shown_as_it_was_told(
    bench: Bench, memory: Memory
) -> None:
    kept = await memory.session_files.keep("c1", "shell", "\0a\n\0b�\n".encode(), owner=OWNER)
    assert (kept.mime, kept.summary) == ("text/plain", "2 lines: a b�")
    path = "file+session://shell-1.txt"
    assert (await bench.call("file_read", path=path)).output == "1|\0a\n2|\0b�"
    assert (await bench.call("grep", pattern="b", path=path)).output == f"{path}:2:\0b�"


async def test_too_much_is_refused_and_changes_nothing(bench: Bench, memory: Memory) -> None:
    memory.session_files.limits = memory.session_files.limits.model_copy(
        update={"max_file_bytes": 10}
    )
    await bench.call("file_write", path="file+session://a", content="12345678")
    done = await tried(bench, "file_append", path="file+session://a", content="901")
    assert "would have 12 bytes; the limit is 10" in done.error
    assert (await bench.call("file_read", path="file+session://a")).output == "1|12345678"


def file_of(data: bytes) -> SessionFile:
    return SessionFile(
        name="a", mime="text/plain", summary="", size=len(data), is_kept=True,
        created_at="", updated_at="",
    )  # fmt: skip


def told(output: str) -> tuple[list[str], dict[str, int]]:
    """Return the text of the lines, and the arguments to go on with."""
    lines = output.split("\n")
    further: dict[str, int] = {}
    if lines[-1].startswith("("):
        _, is_more, rest = lines.pop().rstrip(")").partition("go on with ")
        if is_more:
            name, _, number = rest.partition("=")
            further = {name: int(number)}
    return [line.partition("|")[2] for line in lines], further


TEXTS = st.text(st.sampled_from("ab\né€😀"), min_size=1, max_size=3_000)


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(TEXTS, st.integers(60, 600), st.integers(1, 5_000))
def test_going_on_by_bytes_shows_all_of_it_and_never_too_much(
    text: str, room: int, max_bytes: int
) -> None:
    data, offset, seen = text.encode(), 0, b""
    while True:
        arguments = {"path": "file+session://a", "offset": offset, "max_bytes": max_bytes}
        result = _read(arguments, file_of(data), data, room)
        assert result.success
        assert len(result.output.encode()) <= max(room, 12) + 100
        _, further = told(result.output)
        end = further.get("offset", len(data))
        assert end > offset
        seen += data[offset:end]
        offset = end
        if not further:
            break
    assert seen == data


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.lists(st.text("abé", max_size=40), min_size=1, max_size=80), st.integers(100, 600))
def test_going_on_by_lines_shows_every_line_once(lines: list[str], room: int) -> None:
    data, seen, line = "\n".join([*lines, ""]).encode(), list[str](), 1
    while True:
        arguments = {"path": "file+session://a", "start_line": line, "max_lines": 30}
        result = _read(arguments, file_of(data), data, room)
        assert len(result.output.encode()) <= room + 100
        shown, further = told(result.output)
        seen += shown
        if not further:
            break
        line = further["start_line"]
    assert seen == lines


def test_a_line_that_is_too_long_is_read_on_by_bytes() -> None:
    data = b"short\n" + b"x" * 5_000 + b"\nend\n"
    result = _read({"path": "a", "start_line": 2}, file_of(data), data, 500)
    assert result.output == "2|\n(line 2 is too long to be shown whole; go on with offset=6)"
    after = _read({"path": "a", "offset": 5_000}, file_of(data), data, 5_000)
    assert after.output.split("\n")[1:] == ["3|end", "(bytes 5000 to 5011 of 5011)"]
    assert after.output.startswith("2|xxx")
