"""One MCP client whose messages come as lines: what it may ask for at once."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from clawd.mcp.server import MAX_OPEN, make_server, serve_lines
from clawd.service.handlers import mcp
from clawd.tools.offer import ListedTool
from clawd.tools.outcome import CallOutcome
from clawd.wire.codec import Answer
from clawd.wire.mcp import LINE

LIMIT_S = 60.0


class WaitingDoor:
    """A door whose calls wait for ever, as those that need an approval do."""

    def __init__(self) -> None:
        self.under_way = 0
        self.most = 0

    def listed(self) -> tuple[ListedTool, ...]:
        return ()

    async def call(self, name: str, arguments: str, report: Callable[[str], None]) -> CallOutcome:
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        try:
            await asyncio.Event().wait()
        finally:
            self.under_way -= 1
        raise AssertionError


class Client:
    def __init__(self) -> None:
        self.lines: asyncio.Queue[str | None] = asyncio.Queue()
        self.told: asyncio.Queue[dict[str, Any]] = asyncio.Queue()

    def say(self, **fields: Any) -> None:
        self.lines.put_nowait(json.dumps({"jsonrpc": "2.0", **fields}))

    def call(self, number: Any) -> None:
        self.say(id=number, method="tools/call", params={"name": "wait", "arguments": {}})

    async def hear(self, number: Any) -> dict[str, Any]:
        while (told := await self.told.get()).get("id") != number:
            pass
        return told


def unchanged(_listener: Callable[[], None]) -> Callable[[], None]:
    return lambda: None


@asynccontextmanager
async def serving_one(door: WaitingDoor) -> AsyncIterator[Client]:
    client = Client()

    async def lines() -> AsyncIterator[str]:
        while (line := await client.lines.get()) is not None:
            yield line

    async def send(text: str) -> None:
        client.told.put_nowait(json.loads(text))

    server = make_server(lambda _ctx: door, version="1", on_change=unchanged)
    async with asyncio.timeout(LIMIT_S):
        running = asyncio.create_task(serve_lines(server, lines(), send, unchanged))
        asked = {"protocolVersion": "2025-06-18", "capabilities": {}}
        asked["clientInfo"] = {"name": "a test", "version": "1"}
        client.say(id="hello", method="initialize", params=asked)
        await client.hear("hello")
        client.say(method="notifications/initialized")
        try:
            yield client
        finally:
            client.lines.put_nowait(None)
            await running


async def test_a_client_has_so_many_calls_under_way_and_no_more() -> None:
    door = WaitingDoor()
    async with serving_one(door) as client:
        for number in range(MAX_OPEN + 50):
            client.call(number)
        for number in range(MAX_OPEN, MAX_OPEN + 50):
            assert "under way" in (await client.hear(number))["error"]["message"]
        while door.under_way < MAX_OPEN:
            await asyncio.sleep(0)
        for number in range(10):  # what was cancelled makes room
            client.say(method="notifications/cancelled", params={"requestId": number})
        client.say(method="notifications/cancelled", params={"requestId": True})
        for number in range(1_000, 1_011):
            client.call(number)
        assert "error" in await client.hear(1_010)
        while door.under_way < MAX_OPEN:
            await asyncio.sleep(0)
    assert door.most == MAX_OPEN and door.under_way == 0


async def test_a_number_that_is_under_way_is_not_taken_again() -> None:
    door = WaitingDoor()
    async with serving_one(door) as client:
        for _ in range(200):
            client.call("same")
        for _ in range(199):
            assert "already" in (await client.hear("same"))["error"]["message"]
    assert door.most == 1


async def test_short_messages_that_nobody_reads_are_counted_as_they_lie_in_memory(
    monkeypatch: Any,
) -> None:
    monkeypatch.setattr(mcp, "MAX_WAITING_BYTES", 100_000)
    lines = mcp._Lines()
    for number in range(100_000):
        lines.take(Answer(id=1, question=LINE, value=f"{number}"))
    assert lines._lines.qsize() < 2_500
    kept = [line async for line in lines.all()]
    assert kept[:3] == ["0", "1", "2"]
