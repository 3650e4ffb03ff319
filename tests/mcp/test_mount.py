"""The server that is mounted: it is loaded once, for whoever comes while that takes its time."""

import asyncio
from pathlib import Path

import pytest

from clawd.channels.http.request_counts import COUNTS
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
