"""A batch and a computation on a daemon: one question, one receipt, one undo, one stop."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from clawd.security.principal import Principal
from clawd.wire.codec import Answer, EventFrame, Result, unpack_event
from clawd.wire.daemon import SetEstop
from clawd.wire.events import ApprovalRequested, ToolProgress
from clawd.wire.tools import RunTool, ToolOutcome
from tests.channels.rpc.rig import LIMIT_S, RawClient, request
from tests.support.inprocess import Inside, daemon_in

pytestmark = pytest.mark.sandbox

ADA = Principal(uid=70_010, gid=70_010, pid=1)
OPERATIONS = [
    {"op": "write", "path": "new.txt", "content": "new\n"},
    {"op": "edit", "path": "a.txt", "start_line": 1, "new_text": "ONE"},
]


@pytest.fixture
async def inside(tmp_path: Path) -> AsyncIterator[Inside]:
    async with daemon_in(tmp_path) as made:
        (made.workspace / "a.txt").write_text("one\ntwo\n")
        yield made


async def event_of(client: RawClient, kind: type[Any]) -> Any:
    async with asyncio.timeout(LIMIT_S):
        while True:
            frame = await client.read()
            assert isinstance(frame, EventFrame), frame
            if isinstance(event := unpack_event(frame.event), kind):
                return event


async def outcome_of(client: RawClient) -> Any:
    async with asyncio.timeout(LIMIT_S):
        while isinstance(frame := await client.read(), EventFrame):
            pass
    assert isinstance(frame, Result), frame
    return bytes(frame.value)


async def run(inside: Inside, word: str, tool: str, **arguments: Any) -> tuple[Any, Any]:
    """Make a call, answer its question; return the question and what came of the call."""
    client = await inside.client(ADA)
    client.send(request(1, RunTool(name=tool, arguments=json.dumps(arguments), interactive=True)))
    asked = await event_of(client, ApprovalRequested)
    client.send(Answer(id=1, question=asked.approval_id, value=word, digest=asked.digest))
    return asked, await outcome_of(client)


async def test_a_batch_asks_once_with_all_its_bytes_and_is_undone_as_one(inside: Inside) -> None:
    asked, outcome = await run(inside, "once", "fs_ops", operations=OPERATIONS)
    assert json.loads(asked.arguments) == {"operations": OPERATIONS}
    assert asked.reason == "batch of 2: writes a file; changes a file"
    assert b"2 ops across 2 files (2 done)" in outcome
    assert (inside.workspace / "a.txt").read_text() == "ONE\ntwo\n"
    _, undone = await run(inside, "once", "undo")
    assert b"undone: a.txt restored" in undone
    assert [path.name for path in inside.workspace.iterdir()] == ["a.txt"]
    assert (inside.workspace / "a.txt").read_text() == "one\ntwo\n"
    assert [(r.tool, r.status, r.approval) for r in inside.receipts()] == [
        ("fs_ops", "allowed", "user"),
        ("undo", "allowed", "user"),
    ]


async def test_a_batch_that_is_denied_does_nothing(inside: Inside) -> None:
    _, outcome = await run(inside, "deny", "fs_ops", operations=OPERATIONS)
    assert b"denied" in outcome
    assert [path.name for path in inside.workspace.iterdir()] == ["a.txt"]
    (receipt,) = inside.receipts()
    assert (receipt.tool, receipt.status, receipt.risk) == ("fs_ops", "denied", "medium")


async def test_the_emergency_stop_ends_a_computation(inside: Inside) -> None:
    client = await inside.client(ADA)
    code = json.dumps({"code": "print('begun')\nwhile True: pass"})
    client.send(request(1, RunTool(name="evaluate", arguments=code)))
    assert (await event_of(client, ToolProgress)).text == "begun\n"
    await inside.ask(SetEstop(reason="enough"))
    assert b"emergency stop is set" in await outcome_of(client)
    (receipt,) = inside.receipts()
    assert (receipt.tool, receipt.status, receipt.risk) == ("evaluate", "failed", "low")
    refused: ToolOutcome = await inside.ask(RunTool(name="evaluate", arguments='{"code":"1"}'))
    assert refused.kind == "stopped"
