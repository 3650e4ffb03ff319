"""The server that is mounted: it is loaded once, for whoever comes while that takes its time."""

import asyncio
from pathlib import Path

import pytest

from clawd.channels.http.app import COUNTS
from clawd.mcp import mount
from tests.channels.http.rig import LIMIT_S, served

LIST = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}


async def test_who_leaves_while_the_sdk_is_loaded_takes_nothing_from_those_who_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on, really = asyncio.Event(), asyncio.Event(), mount.load_sdk

    async def slowly() -> None:
        begun.set()
        await go_on.wait()
        await really()

    monkeypatch.setattr(mount, "load_sdk", slowly)
    async with served(tmp_path) as door, asyncio.timeout(LIMIT_S):
        first = asyncio.create_task(door.post("/mcp", LIST))
        await begun.wait()
        waiting = asyncio.create_task(door.post("/mcp", LIST))
        while door.app[COUNTS].open < 2:
            await asyncio.sleep(0.01)
        first.cancel()
        while door.app[COUNTS].open > 1:
            await asyncio.sleep(0.01)
        go_on.set()
        assert (await waiting)[0] == 200
        assert (await door.post("/mcp", LIST))[0] == 200


async def test_an_sdk_that_could_not_be_loaded_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken() -> None:
        raise ImportError("on purpose")

    async with served(tmp_path) as door:
        with monkeypatch.context() as patched:
            patched.setattr(mount, "load_sdk", broken)
            assert (await door.post("/mcp", LIST))[0] == 500
        assert (await door.post("/mcp", LIST))[0] == 200


BATCHES = {"MCP-Protocol-Version": "2025-03-26"}
NOTE = {"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": 1}}
UNKNOWN = {"jsonrpc": "2.0", "id": 2, "method": "nothing/like/it"}


async def test_h8_a_batch_is_answered_in_the_revision_that_has_batches(tmp_path: Path) -> None:
    async with served(tmp_path) as door:
        for headers in (BATCHES, {}):
            status, answers = await door.post("/mcp", [LIST, NOTE, UNKNOWN], **headers)
            assert status == 200
            assert [each["id"] for each in answers] == [1, 2]
            assert answers[0]["result"]["tools"]
            assert answers[1]["error"]["code"] == -32601
        assert await door.post("/mcp", [NOTE, NOTE], **BATCHES) == (202, None)
        # A message that is none costs the others nothing.
        status, answers = await door.post("/mcp", [LIST, 7, {"id": 3}], **BATCHES)
        assert (status, answers[0]["id"]) == (200, 1)
        assert all("error" in each for each in answers[1:])


async def test_h8_other_batches_are_refused_with_what_to_do(tmp_path: Path) -> None:
    newer = {"MCP-Protocol-Version": "2025-06-18"}
    hello = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {}}
    rows: list[tuple[list[object], dict[str, str], str]] = [
        ([LIST, LIST], newer, "batches are of revision 2025-03-26, and this is 2025-06-18"),
        ([], BATCHES, "a batch has 1 to 50 messages, this one 0"),
        ([LIST] * 51, BATCHES, "this one 51"),
        ([hello, LIST], BATCHES, "initialize is sent alone"),
    ]
    wrong: list[object] = []
    async with served(tmp_path) as door:
        for batch, headers, words in rows:
            status, answer = await door.post("/mcp", batch, **headers)
            if status != 400 or words not in answer["error"]["message"]:
                wrong.append((words, status, answer))
        assert not wrong
        assert (await door.post("/mcp", LIST))[0] == 200


async def test_s12_a_client_is_not_offered_to_ask_a_person_who_is_not_there(
    tmp_path: Path,
) -> None:
    async with served(tmp_path) as door:
        _, answers = await door.post("/mcp", [LIST], **BATCHES)
        names = {tool["name"] for tool in answers[0]["result"]["tools"]}
        assert "file_read" in names
        assert "ask_user" not in names
        call = {"name": "ask_user", "arguments": {"question": "Who?"}}
        request = {"jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": call}
        async with asyncio.timeout(LIMIT_S):
            _, answers = await door.post("/mcp", [request], **BATCHES)
        assert answers[0]["result"]["isError"] is True
