"""file_edit: exact texts and line ranges, once or not at all."""

from typing import Any

from tests.support.rows import each_row
from tests.tools.builtin.conftest import Bench

_TEXT = "alpha\nbeta\ngamma\nbeta\n"


@each_row(
    ("arguments", "result"),
    [
        ({"old_text": "alpha", "new_text": "A"}, "A\nbeta\ngamma\nbeta\n"),
        ({"old_text": "beta\ngamma", "new_text": "x"}, "alpha\nx\nbeta\n"),
        ({"old_text": "gamma\n", "new_text": ""}, "alpha\nbeta\nbeta\n"),
        ({"start_line": 2, "new_text": "B"}, "alpha\nB\ngamma\nbeta\n"),
        ({"start_line": 2, "end_line": 4, "new_text": "x\ny\n"}, "alpha\nx\ny\n"),
        ({"start_line": 1, "end_line": 1, "new_text": ""}, "beta\ngamma\nbeta\n"),
        ({"start_line": 1, "end_line": 0, "new_text": "top"}, "top\n" + _TEXT),
        ({"start_line": 5, "end_line": 4, "new_text": "end"}, _TEXT + "end\n"),
        ({"start_line": "3", "end_line": "3", "new_text": "G"}, "alpha\nbeta\nG\nbeta\n"),
        ({"start_line": 1, "end_line": 4, "new_text": ""}, ""),
    ],
    fresh=["bench"],
)
async def test_a_part_is_replaced(bench: Bench, arguments: dict[str, Any], result: str) -> None:
    file = bench.put("f", _TEXT)
    edited = await bench.call("file_edit", path="f", **arguments)
    assert file.read_text() == result
    assert edited.output == f"updated f ({len(result)} B)"


@each_row(
    ("arguments", "words"),
    [
        ({"old_text": "beta", "new_text": "B"}, "stands 2 times in f (lines 2, 4)"),
        ({"old_text": "gamna", "new_text": "B"}, "the nearest is\n3|gamma"),
        ({"old_text": "xyzzy", "new_text": "B"}, "does not stand in f"),
        ({"old_text": "delta", "new_text": "gamma"}, "new_text does: either it is changed already"),
        ({"old_text": "gamna", "new_text": "alpha"}, "swapped; the nearest is\n3|gamma"),
        ({"old_text": "alpha", "new_text": "alpha"}, "would stay as it is"),
        ({"start_line": 0, "new_text": "x"}, "the file has 4 lines"),
        ({"start_line": 6, "new_text": "x"}, "the file has 4 lines"),
        ({"start_line": 3, "end_line": 1, "new_text": "x"}, "are not there"),
        ({"start_line": 2, "end_line": 9, "new_text": "x"}, "are not there"),
        ({"new_text": "x"}, "give either"),
        ({"old_text": "alpha", "start_line": 1, "new_text": "x"}, "give either"),
    ],
    fresh=["bench"],
)
async def test_what_is_not_there_just_once_is_refused_and_nothing_changes(
    bench: Bench, arguments: dict[str, Any], words: str
) -> None:
    file = bench.put("f", _TEXT)
    result = await bench.call("file_edit", path="f", **arguments)
    assert not result.success
    assert words in result.error
    assert file.read_text() == _TEXT


async def test_a_missing_or_binary_file_is_refused(bench: Bench) -> None:
    bench.put("notes.txt", "x")
    missing = await bench.call("file_edit", path="note.txt", old_text="x", new_text="y")
    assert missing.error == "note.txt does not exist; near names are notes.txt"
    (bench.workspace / "b").write_bytes(b"\0\1\2")
    assert "binary" in (await bench.call("file_edit", path="b", old_text="x", new_text="")).error


async def test_line_ends_stay_as_the_file_has_them(bench: Bench) -> None:
    file = bench.workspace / "f"
    file.write_bytes(b"one\r\ntwo\r\nthree")
    await bench.call("file_edit", path="f", old_text="one\ntwo", new_text="1\n2")
    assert file.read_bytes() == b"1\r\n2\r\nthree"
    await bench.call("file_edit", path="f", start_line=2, new_text="x\ny")
    assert file.read_bytes() == b"1\r\nx\r\ny\r\nthree"
    await bench.call("file_edit", path="f", start_line=4, new_text="z")
    assert file.read_bytes() == b"1\r\nx\r\ny\r\nz"
    await bench.call("file_edit", path="f", start_line=5, end_line=4, new_text="end")
    assert file.read_bytes() == b"1\r\nx\r\ny\r\nz\r\nend"


@each_row("path", [".git/hooks/post-commit", "sub/conftest.py", ".envrc"], fresh=["bench"])
def test_writing_what_runs_later_outside_says_so(bench: Bench, path: str) -> None:
    said = bench.risk("file_write", path=path, content="x")
    assert (said.risk, said.reason) == (
        "medium",
        "writes a file, which programs outside the sandbox run or obey later",
    )
    assert bench.risk("file_write", path="main.py", content="x").reason == "writes a file"
    assert bench.risk("file_read", path=path).reason == bench.risk("file_read", path="a").reason
