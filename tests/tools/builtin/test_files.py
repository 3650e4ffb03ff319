"""file_list, file_read, file_write, file_append, check_path, cwd and workspace."""

import contextlib
import os
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from clawd.errors import ClawError, InvalidRequestError
from clawd.security.paths import acts_later
from clawd.tools.builtin.files import LIST_LIMIT
from tests.support.rows import each_row
from tests.tools.builtin.conftest import Bench


async def test_a_list_has_one_name_a_line_and_slashes_on_folders(bench: Bench) -> None:
    bench.put("b.txt", "")
    bench.put("a/c/d.txt", "")
    bench.put(".git/config", "")
    bench.put("keys/id", "private")
    (bench.workspace / "odd\nname").write_text("")
    assert (await bench.call("file_list")).output == ".git/\na/\nb.txt\nodd\\nname"
    assert (await bench.call("file_list", path="a")).output == "c/"
    deep = await bench.call("file_list", path=".", recursive=True)
    assert deep.output == "a/\na/c/\na/c/d.txt\nb.txt\nodd\\nname"


_BLANKS = st.sampled_from(["", " ", "\t", "\u00a0", "\n "])
_NAMES = st.sampled_from([".vscode", "~", "a", "AGENTS.md", ".git", "..", "."])
_PARTS = st.tuples(_BLANKS, _NAMES, _BLANKS).map("".join)


@settings(max_examples=60, deadline=None)
@given(_BLANKS, st.sampled_from(["", "./", "ws/"]), st.lists(_PARTS, min_size=1, max_size=3))
@example("", "", [".vscode ", "tasks.json"])
@example(" ", "ws/", [".git ", "hooks ", "pre-commit "])
@example("", "./", ["~", "x"])
async def test_what_is_judged_is_what_is_written(blank: str, start: str, parts: list[str]) -> None:
    with TemporaryDirectory() as folder:
        bench = Bench(Path(folder).resolve())
        for name in (".vscode", ".git/hooks", "a"):
            (bench.workspace / name).mkdir(parents=True)
        prefix = f"{bench.workspace}/" if start == "ws/" else start
        call = {"path": blank + prefix + "/".join(parts) + blank, "content": "x"}
        tool = bench.tool("file_write")
        assessment = tool.risk(call, bench.context())
        (judged,) = tool.touches(call, bench.context()).writes
        before = set(bench.workspace.parent.rglob("*"))
        if assessment.blocked:
            with pytest.raises(ClawError):
                await tool.invoke(call, bench.context())
            assert set(bench.workspace.parent.rglob("*")) == before
            return
        with contextlib.suppress(ClawError):  # the workspace itself is no file
            await tool.invoke(call, bench.context())
        made = [p for p in set(bench.workspace.parent.rglob("*")) - before if p.is_file()]
        assert made in ([judged], [])
        assert assessment.outward is acts_later(judged.relative_to(bench.workspace))


async def test_a_search_reads_what_it_found_whatever_its_name(bench: Bench) -> None:
    bench.policy = msgspec.structs.replace(bench.policy, workspace_only=False)
    for name in ("~/x", "b ", "b"):
        bench.put(name, f"word of {name}")
    found = (await bench.call("grep", pattern="word")).output.splitlines()
    assert found == ["b:1:word of b", "b :1:word of b ", "~/x:1:word of ~/x"]


async def test_an_empty_folder_says_so_and_a_file_is_no_folder(bench: Bench) -> None:
    bench.put("f", "")
    (bench.workspace / "e").mkdir()
    assert (await bench.call("file_list", path="e")).output == "(empty)"
    with pytest.raises(InvalidRequestError, match="no folder"):
        await bench.call("file_list", path="f")
    missing = await bench.call("file_list", path="none")
    assert missing.error == "none does not exist; file_list shows what is there"


async def test_a_long_list_ends_with_a_line_that_says_so(bench: Bench) -> None:
    for number in range(LIST_LIMIT + 5):
        (bench.workspace / f"{number:05}").touch()
    lines = (await bench.call("file_list")).output.splitlines()
    assert len(lines) == LIST_LIMIT + 1
    assert lines[-1].startswith("[more")


async def test_names_that_are_not_utf8_are_shown_all_the_same(bench: Bench) -> None:
    (bench.workspace / os.fsdecode(b"bad\xff")).write_text("word")
    assert (await bench.call("file_list")).output == "bad�"
    assert (await bench.call("grep", pattern="word")).output == "bad�:1:word"


async def test_lines_are_numbered(bench: Bench) -> None:
    bench.put("f", "one\ntwo\r\n\nfour")
    whole = await bench.call("file_read", path="f")
    assert whole.output == "1|one\n2|two\n3|\n4|four"
    assert whole.metadata == {"size": 14, "total_lines": 4, "truncated": False}
    assert (await bench.call("file_read", path="f", start_line=1)).output == whole.output


async def test_lines_from_the_middle_keep_their_numbers_and_the_total_is_told(bench: Bench) -> None:
    bench.put("f", "".join(f"line {n}\n" for n in range(1, 501)))
    part = await bench.call("file_read", path="f", start_line=100, max_lines=2)
    assert part.output == "100|line 100\n101|line 101\n(lines 100 to 101 of 500; 4392 bytes)"
    first = await bench.call("file_read", path="f", max_lines=2)
    assert first.output == "1|line 1\n2|line 2\n(lines 1 to 2 of 500; 4392 bytes)"
    bytes_too = await bench.call("file_read", path="f", max_lines=2, offset=7, max_bytes=6)
    assert bytes_too.output == "2|line 2\n(lines 2 to 2 of 500; 4392 bytes)"
    usual = await bench.call("file_read", path="f", start_line=1)
    assert len(usual.output.splitlines()) == 201
    beyond = await bench.call("file_read", path="f", start_line=501)
    assert "has 500 lines" in beyond.error


async def test_bytes_from_the_middle_are_numbered_by_their_lines(bench: Bench) -> None:
    bench.put("f", "one\ntwo\nthree\n")
    part = await bench.call("file_read", path="f", offset=4, max_bytes=6)
    assert part.output == "2|two\n3|th\n(lines 2 to 3 of 3; 14 bytes)"
    beyond = await bench.call("file_read", path="f", offset=400)
    assert not beyond.success


async def test_a_large_file_is_read_in_part(bench: Bench) -> None:
    bench.put("f", "x" * 99 + "\n")
    bench.put("g", ("x" * 99 + "\n") * 10_000)
    part = await bench.call("file_read", path="g")
    assert len(part.output) < 80_000
    assert part.output.endswith("(lines 1 to 656 of 10000; 1000000 bytes)")
    many = await bench.call("file_read", path="g", start_line=1, max_lines=9999)
    assert len(many.output.splitlines()) == 2001
    bench.put("h", ("x" * 99 + "\n") * 100_000)
    assert "more than can be counted" in (await bench.call("file_read", path="h")).output


async def test_an_empty_file_and_a_binary_one_are_said_to_be_so(bench: Bench) -> None:
    bench.put("empty", "")
    assert (await bench.call("file_read", path="empty")).output == "(empty)"
    (bench.workspace / "a.png").write_bytes(b"\x89PNG\r\n\0\0")
    (bench.workspace / "latin").write_bytes(b"\xfcbung 7")
    binary = await bench.call("file_read", path="a.png")
    assert binary.error == "a.png is a binary file, not text: image/png, 8 bytes"
    assert "binary" in (await bench.call("file_read", path="latin", start_line=1)).error


async def test_near_names_are_none_that_may_not_be_seen(bench: Bench) -> None:
    bench.put("keys/signing.txt", "")
    outside = bench.workspace.parent / "outside"
    outside.mkdir()
    (outside / "ledger.txt").write_text("")
    (bench.workspace / "link").symlink_to(outside)
    for path in ("signing.txt", "notes/signing.txt", "ledger.txt", "notes/ledger.txt"):
        missing = await bench.call("file_read", path=path)
        assert missing.error == f"{path} does not exist; file_list shows what is there"
    bench.put("notes/signing.txt", "")  # where it may be seen it is named
    assert "notes/signing.txt" in (await bench.call("file_read", path="signing.txt")).error


async def test_a_missing_file_comes_with_near_names(bench: Bench) -> None:
    bench.put("sub/Notes.txt", "")
    result = await bench.call("file_read", path="sub/note.txt")
    assert result.error == "sub/note.txt does not exist; near names are sub/Notes.txt"
    result = await bench.call("file_read", path="notes.txt")
    assert result.error == "notes.txt does not exist; near names are sub/Notes.txt"
    result = await bench.call("file_read", path="sbu/notes.text")
    assert result.error == "sbu/notes.text does not exist; near names are sub/Notes.txt"
    result = await bench.call("grep", pattern="a", path="subs")
    assert result.error == "subs does not exist; near names are sub"
    bench.put(".git/notes.txt", "")
    bench.put("sub/deep/a.txt", "")
    assert "file_list" in (await bench.call("file_read", path="b.txt")).error
    assert "file_list" in (await bench.call("file_read", path="xyzzy")).error


async def test_a_write_creates_folders_and_says_what_it_did(bench: Bench) -> None:
    made = await bench.call("file_write", path="a/b/c.txt", content="grün")
    assert (made.output, made.metadata) == (
        "created a/b/c.txt (5 B)",
        {"bytes": 5, "created": True},
    )
    again = await bench.call("file_write", path="a/b/c.txt", content="")
    assert again.output == "updated a/b/c.txt (0 B)"
    assert (bench.workspace / "a/b/c.txt").read_bytes() == b""


async def test_an_append_adds_and_creates(bench: Bench) -> None:
    assert (
        await bench.call("file_append", path="log", content="a\n")
    ).output == "created log (2 B)"
    added = await bench.call("file_append", path="log", content="b\n")
    assert added.output == "added 2 bytes to log"
    assert (bench.workspace / "log").read_text() == "a\nb\n"


@each_row(
    ("before", "content", "after"),
    [
        (b"milk", "bread", b"milk\nbread"),
        (b"milk\nbread", "tea\n", b"milk\nbread\ntea\n"),
        (b"milk\r\nbread", "tea", b"milk\r\nbread\r\ntea"),
        (b"milk\n", "bread", b"milk\nbread"),
        (b"milk", "\nbread", b"milk\nbread"),
        (b"milk\n", "\nbread", b"milk\n\nbread"),
        (b"milk", "", b"milk"),
        (b"", "milk", b"milk"),
        (b"\0\1", "x", b"\0\1x"),
        (b"a\n" * 5_000 + b"b", "c", b"a\n" * 5_000 + b"b\nc"),
    ],
    fresh=["bench"],
)
async def test_what_is_added_stands_on_a_line_of_its_own(
    bench: Bench, before: bytes, content: str, after: bytes
) -> None:
    (bench.workspace / "list").write_bytes(before)
    added = await bench.call("file_append", path="list", content=content)
    assert added.output == f"added {len(after) - len(before)} bytes to list"
    assert (bench.workspace / "list").read_bytes() == after


async def test_a_content_over_the_limit_is_refused_and_nothing_is_written(bench: Bench) -> None:
    tool = bench.tool("file_write")
    arguments = {"path": "big", "content": "x" * (8 << 20) + "y"}
    result = await tool.invoke(arguments, bench.context())
    assert not result.success
    assert not (bench.workspace / "big").exists()


async def test_check_path_says_what_is_there(bench: Bench) -> None:
    bench.put("a.txt", "four")
    (bench.workspace / "d").mkdir()
    os.mkfifo(bench.workspace / "fifo")
    file = await bench.call("check_path", path="a.txt")
    assert file.output.startswith(
        f"{bench.workspace}/a.txt: a file of 4 bytes, text/plain, changed"
    )
    assert "a folder" in (await bench.call("check_path", path="d")).output
    assert "neither" in (await bench.call("check_path", path="fifo")).output
    missing = await bench.call("check_path", path="a.tx")
    assert missing.output.endswith("there is nothing; near names are a.txt")


async def test_cwd_and_workspace_say_where_one_is(bench: Bench) -> None:
    assert (await bench.call("cwd")).output == str(bench.workspace)
    told = (await bench.call("workspace")).output
    assert told == f"workspace: {bench.workspace}\noutside of it: nothing"
