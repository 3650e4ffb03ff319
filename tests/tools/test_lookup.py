"""tool_lookup: the index, the manuals, and what is near to a name that is not there."""

from pathlib import Path

import msgspec

from clawd.tools.registry import MEMBERS, ToolMode
from tests.support.dispatching import Bench, request
from tests.tools.test_off_spec_calls import tools_in


async def looked_up(
    bench: Bench, folder: Path, arguments: str = "{}", mode: ToolMode = "split", **scope: object
) -> str:
    dispatcher = bench.dispatcher(tools_in(folder))
    asked = msgspec.structs.replace(bench.scope(**scope), mode=mode)  # type: ignore[arg-type]
    return (await dispatcher.call(request("tool_lookup", arguments), asked)).text


async def test_without_a_name_it_lists_what_is_offered(bench: Bench, tmp_path: Path) -> None:
    lines = (await looked_up(bench, tmp_path)).splitlines()
    assert lines == sorted(lines)
    assert "time: Tell the current date, time and time zone." in lines
    assert len(lines) == len(tools_in(tmp_path))
    few = await looked_up(bench, tmp_path, offered=["time", "tool_lookup"])
    assert [line.partition(":")[0] for line in few.splitlines()] == ["time", "tool_lookup"]


async def test_the_names_are_those_of_the_session(bench: Bench, tmp_path: Path) -> None:
    names = [
        line.partition(":")[0]
        for line in (await looked_up(bench, tmp_path, mode="unified")).splitlines()
    ]
    flat = {tool.name for tool in tools_in(tmp_path)}
    assert names == sorted((flat - set(MEMBERS)) | {"fs", "web"})
    assert "shell" in names


async def test_a_part_of_a_name_shows_the_manuals(bench: Bench, tmp_path: Path) -> None:
    text = await looked_up(bench, tmp_path, '{"name": "FILE_R"}')
    assert text.startswith("file_read\nAnswers lines as `number|text`.")
    assert "  path (string, required): Path, relative to the workspace." in text
    assert "  start_line (integer, optional): First line, from 1." in text
    assert text.endswith('example: file_read {"path":"notes.txt"}')
    many = await looked_up(bench, tmp_path, '{"name": "file_"}')
    assert [part.split("\n")[0] for part in many.split("\n\n")] == [
        "file_append", "file_edit", "file_list", "file_read", "file_write"
    ]  # fmt: skip
    fs = await looked_up(bench, tmp_path, '{"name": "fs"}', "unified")
    assert "  action (one of list, read, write" in fs
    assert 'example: fs {"action":"list","path":"."}' in fs


async def test_what_is_not_there_tells_the_nearest(bench: Bench, tmp_path: Path) -> None:
    text = await looked_up(bench, tmp_path, '{"name": "file_reader"}')
    assert "the nearest are: file_read" in text
    assert text.endswith('A correct call looks like this: tool_lookup {"name":"file_read"}')
    hidden = await looked_up(bench, tmp_path, '{"name": "shell"}', offered=["time", "tool_lookup"])
    assert hidden.startswith("error: no tool has 'shell' in its name")
