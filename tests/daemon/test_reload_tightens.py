"""What a reload forbids is forbidden at once: to commands, and to calls that wait for a person."""

import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from clawd.memory.rows import TAINT, Conversation
from clawd.security.principal import Principal
from clawd.wire.codec import Answer, EventFrame, Result, unpack, unpack_event
from clawd.wire.daemon import Reload
from clawd.wire.events import ApprovalRequested
from clawd.wire.memory import ClearMemory
from clawd.wire.tools import RunTool, ToolOutcome
from tests.channels.rpc.rig import request
from tests.support.inprocess import OWNER, Inside, daemon_in
from tests.support.rows import each_row

SOURCE = "http://news.example"
BOB = Principal(uid=OWNER.uid + 1, gid=OWNER.gid, pid=OWNER.pid)


def tool(name: str, conversation_id: str = "", **arguments: Any) -> RunTool:
    return RunTool(
        name=name,
        arguments=json.dumps(arguments),
        conversation_id=conversation_id,
        interactive=True,
    )


async def reload_with(inside: Inside, security: str) -> None:
    path = inside.daemon.loaded.path
    path.write_text(path.read_text() + f"\n[security]\n{security}\n")
    await inside.ask(Reload(), OWNER)


@pytest.mark.sandbox
async def test_commands_do_not_see_what_a_reload_forbids(tmp_path: Path) -> None:
    async with daemon_in(tmp_path) as inside:
        private = inside.workspace / "private"
        private.mkdir()
        (private / "key.txt").write_text("the key")
        # Not named in the command: only the sandbox can keep it from the file.
        command = tool("shell", command="find . -type f | xargs cat")
        await reload_with(inside, 'autonomy = "full"')
        assert "the key" in (await inside.ask(command, OWNER)).output
        path = inside.daemon.loaded.path
        path.write_text(path.read_text() + f'forbidden_paths = ["{private}"]\n')
        await inside.ask(Reload(), OWNER)
        after = await inside.ask(command, OWNER)
        assert (after.status, "the key" in after.output) == ("allowed", False)


async def test_a_reload_reaches_every_setting_of_the_sandbox(tmp_path: Path) -> None:
    async with daemon_in(tmp_path) as inside:
        await reload_with(
            inside,
            'writable_run_later = [".envrc"]\n[limits]\nmax_command_disk_bytes = 1048576',
        )
        settings = inside.daemon.sandbox._settings
        assert settings.writable_run_later == (".envrc",)
        assert settings.limits.disk_bytes == 1 << 20


async def approve_after(
    inside: Inside, call: RunTool, between: Callable[[], Awaitable[None]]
) -> ToolOutcome:
    """Make a call, do something while it waits for a person, and say yes to it."""
    client = await inside.client(OWNER)
    client.send(request(1, call))
    frame = await client.read()
    assert isinstance(frame, EventFrame)
    asked = unpack_event(frame.event)
    assert isinstance(asked, ApprovalRequested)
    await between()
    client.send(Answer(id=1, question=asked.approval_id, value="once", digest=asked.digest))
    while isinstance(frame, EventFrame):
        frame = await client.read()
    assert isinstance(frame, Result)
    return unpack(frame.value, ToolOutcome)


async def test_a_call_that_waited_is_judged_by_the_policy_that_is_in_force_then(
    tmp_path: Path,
) -> None:
    async with daemon_in(tmp_path) as inside:
        file = inside.workspace / "private" / "a.txt"

        async def forbid() -> None:
            await reload_with(inside, f'forbidden_paths = ["{file.parent}"]')

        call = tool("file_write", path="private/a.txt", content="x")
        outcome = await approve_after(inside, call, forbid)
        assert (outcome.status, file.exists()) == ("denied", False)
        (receipt,) = inside.receipts()
        assert (receipt.status, receipt.risk, receipt.approval) == ("denied", "medium", "none")


@each_row("who", [BOB, OWNER])
async def test_clearing_memory_takes_no_taint_from_a_call_that_waits(
    tmp_path: Path, who: Principal
) -> None:
    async with daemon_in(tmp_path) as inside:
        kept = await inside.daemon.memory.conversations.create(
            Conversation(
                owner=OWNER.uid,
                workspace=str(inside.workspace),
                provider="mock",
                metadata={TAINT: [SOURCE]},
            )
        )

        async def clear() -> None:
            await inside.ask(ClearMemory(), who)

        call = tool("file_write", kept.id, path="a.txt", content="x")
        assert (await approve_after(inside, call, clear)).status == "allowed"
        book = inside.daemon.inbox.book
        files = book._taint.files
        assert SOURCE in await files.sources((inside.workspace / "a.txt",))
