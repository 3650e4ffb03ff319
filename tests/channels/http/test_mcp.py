"""`/mcp` as clients meet it: raw messages, and the official client of every revision."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import httpx2
import msgspec
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.client.subscriptions import SubscriptionLost
from mcp.shared.subscriptions import ToolsListChanged

from clawd.channels.http.app import DRAINING, GATEWAY, McpServed
from clawd.channels.http.model_api import Caller
from clawd.mcp.mount import DOOR, Mount
from clawd.mcp.server import make_server
from clawd.security.principal import Principal
from clawd.wire.events import ApprovalRequested, ToolFinished
from tests.channels.http.rig import LIMIT_S, Served, served
from tests.support.inprocess import OWNER
from tests.support.rows import each_row

HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    },
}
LIST = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}


@asynccontextmanager
async def mcp_door(folder: Path, tables: str = "") -> AsyncIterator[Served]:
    async with served(folder, tables=tables) as door:
        yield door


def call(tool: str, **arguments: Any) -> dict[str, Any]:
    params = {"name": tool, "arguments": arguments}
    return {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params}


async def test_the_smallest_client_lists_and_calls_without_a_handshake(tmp_path: Path) -> None:
    async with mcp_door(tmp_path) as door:
        status, listed = await door.post("/mcp", LIST)
        assert status == 200
        names = [tool["name"] for tool in listed["result"]["tools"]]
        known = {tool.name for tool in door.inside.daemon.registry.all()}
        assert names == sorted(known - {"ask_user"}), "behind a program nobody answers"
        (time,) = (tool for tool in listed["result"]["tools"] if tool["name"] == "time")
        assert time["annotations"]["readOnlyHint"] is True
        status, done = await door.post("/mcp", call("calculator", expression="6*7"))
        assert done["result"]["content"][0]["text"] == "42"
        (receipt,) = door.inside.receipts()
        assert done["result"]["_meta"]["clawd/receipt"] == receipt.id
        assert receipt.conversation_id


async def test_a_client_that_accepts_nothing_in_words_is_answered_in_json(tmp_path: Path) -> None:
    async with (
        mcp_door(tmp_path) as door,
        door.session.post(door.url + "/mcp", json=LIST, skip_auto_headers=["Accept"]) as response,
    ):
        assert response.status == 200
        assert response.content_type == "application/json"


@each_row("method", ["GET", "DELETE", "PUT"])
async def test_what_is_no_message_is_refused(tmp_path: Path, method: str) -> None:
    async with mcp_door(tmp_path) as door:
        headers = {"Accept": "text/event-stream"}
        async with door.session.request(method, door.url + "/mcp", headers=headers) as response:
            assert response.status == 405
            assert "POST" in response.headers["Allow"]


@each_row(
    ("tool", "arguments", "status", "told"),
    [
        ("file_read", {}, "failed", "path"),
        ("no_such_tool", {}, "failed", "there is no tool"),
        ("file_read", {"path": "/etc/shadow"}, "denied", "denied:"),
        ("shell", {"command": "rm -rf /"}, "denied", "denied:"),
    ],
)
async def test_a_call_that_does_not_run_says_why_and_leaves_one_receipt(
    tmp_path: Path, tool: str, arguments: dict[str, Any], status: str, told: str
) -> None:
    async with mcp_door(tmp_path) as door:
        _, done = await door.post("/mcp", call(tool, **arguments))
        assert done["result"]["isError"] is True
        assert told in done["result"]["content"][0]["text"]
        (receipt,) = door.inside.receipts()
        assert receipt.status == status


async def test_a_key_without_the_scope_for_tools_is_refused(tmp_path: Path) -> None:
    async with mcp_door(tmp_path) as door:
        door.caller = Caller(principal=OWNER, scopes=frozenset({"chat"}))
        status, told = await door.post("/mcp", LIST)
        assert status == 403 and "tools" in told["error"]["message"]


async def test_who_is_an_admin_no_more_calls_as_a_user(tmp_path: Path) -> None:
    async with mcp_door(tmp_path) as door:
        roles: list[Literal["admin", "user"]] = ["admin", "user"]
        for role in roles:
            principal = Principal(uid=OWNER.uid, gid=OWNER.gid, pid=0, role=role)
            door.caller = Caller(principal=principal, scopes=frozenset({"tools"}), key_id="k")
            calling = asyncio.create_task(
                door.post("/mcp", call("file_write", path="a", content="b"))
            )
            async with asyncio.timeout(LIMIT_S):
                while not (pending := door.inside.daemon.approvals.pending(OWNER)):
                    await asyncio.sleep(0)
            (asked,) = pending
            assert asked.question.action.principal.role == role
            door.inside.daemon.approvals.answer(asked.id, "deny", OWNER, digest=asked.digest)
            await calling
        conversations = {receipt.conversation_id for receipt in door.inside.receipts()}
        assert len(conversations) == 1


async def test_under_the_emergency_stop_nothing_runs_and_the_client_is_told(tmp_path: Path) -> None:
    async with mcp_door(tmp_path) as door:
        await door.inside.daemon.estop.set_from_loop("test", "a test")
        _, done = await door.post("/mcp", call("time"))
        assert done["result"]["content"][0]["text"].startswith("denied: emergency stop is set")
        assert [receipt.status for receipt in door.inside.receipts()] == ["denied"]


async def test_a_waiting_approval_is_told_as_progress_and_answered_elsewhere(
    tmp_path: Path,
) -> None:
    async with mcp_door(tmp_path) as door:
        told: asyncio.Queue[str] = asyncio.Queue()

        async def note(progress: float, total: float | None, message: str | None) -> None:
            await told.put(message or "")

        async with Client(streamable_http_client(door.url + "/mcp")) as client:
            arguments = {"path": "note.txt", "content": "hello"}
            calling = asyncio.create_task(
                client.call_tool("file_write", arguments, progress_callback=note)
            )
            message = await asyncio.wait_for(told.get(), LIMIT_S)
            assert message.startswith("waiting for an approval: clawctl approval approve ")
            (pending,) = door.inside.daemon.approvals.pending(OWNER)
            door.inside.daemon.approvals.answer(pending.id, "once", OWNER, digest=pending.digest)
            done = await asyncio.wait_for(calling, LIMIT_S)
        assert not done.is_error
        assert (door.inside.workspace / "note.txt").read_text() == "hello"


async def test_who_follows_the_daemon_is_told_of_the_calls_of_clients(tmp_path: Path) -> None:
    async with mcp_door(tmp_path) as door:
        events = door.inside.daemon.hub.subscribe(OWNER)
        calling = asyncio.create_task(door.post("/mcp", call("file_write", path="a", content="")))
        async with asyncio.timeout(LIMIT_S):
            asked = await anext(
                each async for each in events if isinstance(each.event, ApprovalRequested)
            )
            assert asked.owner == OWNER.uid and asked.conversation_id
            assert isinstance(asked.event, ApprovalRequested)
            answer = {"answer": "deny", "digest": asked.event.digest}
            await door.post(f"/approvals/{asked.event.approval_id}", answer)
            await calling
            await anext(each async for each in events if isinstance(each.event, ToolFinished))


async def test_what_is_untrusted_stays_so_for_a_client_also_after_a_restart(tmp_path: Path) -> None:
    ids = set()
    for _ in range(2):
        async with mcp_door(tmp_path) as door:
            await door.post("/mcp", call("time"))
            conversation = door.inside.receipts()[-1].conversation_id
            ids.add(conversation)
            taint = door.inside.daemon.inbox.book._taint
            if len(door.inside.receipts()) == 1:
                taint.mark(conversation, "https://example.org/")
                await door.post("/mcp", call("time"))
            assert taint.sources(conversation) == ("https://example.org/",)
    assert len(ids) == 1


async def test_two_callers_share_no_conversation(tmp_path: Path) -> None:
    async with mcp_door(tmp_path) as door:
        await door.post("/mcp", call("time"))
        other = Principal(uid=OWNER.uid + 1, gid=1, pid=0)
        door.caller = Caller(principal=other, scopes=frozenset({"tools"}))
        await door.post("/mcp", call("time"))
        door.caller = Caller(principal=OWNER, scopes=frozenset({"tools"}), key_id="k1")
        await door.post("/mcp", call("time"))
        receipts = door.inside.receipts()
        assert len({receipt.conversation_id for receipt in receipts}) == 3
        assert receipts[1].uid == other.uid


async def test_a_deleted_conversation_of_a_client_is_made_anew(tmp_path: Path) -> None:
    async with mcp_door(tmp_path) as door:
        await door.post("/mcp", call("time"))
        first = door.inside.receipts()[0].conversation_id
        memory = door.inside.daemon.memory
        await memory.conversations.delete(first, owner=OWNER.uid)
        door.inside.daemon.inbox.book.forget(first)
        _, done = await door.post("/mcp", call("time"))
        assert done["result"]["isError"] is False
        assert door.inside.receipts()[-1].conversation_id != first


@each_row("mode", ["auto", "legacy", "2026-07-28"])
async def test_the_official_client_works_in_every_mode(tmp_path: Path, mode: Any) -> None:
    async with (
        mcp_door(tmp_path) as door,
        Client(streamable_http_client(door.url + "/mcp"), mode=mode) as client,
    ):
        listed = await client.list_tools()
        assert "calculator" in {tool.name for tool in listed.tools}
        done = await client.call_tool("calculator", {"expression": "2+3"})
        assert done.content[0].model_dump()["text"] == "5"
        # A pinned revision asks the server nothing about itself.
        assert mode == "2026-07-28" or "receipt" in (client.instructions or "")


async def test_fifty_calls_at_once_are_all_answered(tmp_path: Path) -> None:
    async with mcp_door(tmp_path) as door:
        answers = await asyncio.gather(
            *(door.post("/mcp", call("calculator", expression=f"{n}+1")) for n in range(50))
        )
        assert [a["result"]["content"][0]["text"] for _, a in answers] == [
            str(n + 1) for n in range(50)
        ]
        assert len(door.inside.receipts()) == 50


async def test_a_client_that_leaves_takes_its_call_with_it(tmp_path: Path) -> None:
    async with mcp_door(tmp_path) as door:
        async with httpx2.AsyncClient(timeout=LIMIT_S) as client, asyncio.timeout(LIMIT_S):
            asking = asyncio.create_task(
                client.post(
                    door.url + "/mcp",
                    json=call("file_write", path="a.txt", content="x"),
                    headers={"Accept": "application/json, text/event-stream"},
                )
            )
            while not door.inside.daemon.approvals.pending(OWNER):
                await asyncio.sleep(0.01)
            asking.cancel()
            await asyncio.wait({asking})
        async with asyncio.timeout(LIMIT_S):
            while not door.inside.receipts():
                await asyncio.sleep(0.01)
        (receipt,) = door.inside.receipts()
        assert receipt.status in {"failed", "denied"}
        assert not door.inside.daemon.approvals.pending(OWNER)
        assert not (door.inside.workspace / "a.txt").exists()


async def test_who_listens_is_told_of_other_tools_until_the_daemon_ends(tmp_path: Path) -> None:
    async with mcp_door(tmp_path) as door:
        registry = door.inside.daemon.registry
        before = dict(registry._listeners)
        async with (
            asyncio.timeout(LIMIT_S),
            Client(streamable_http_client(door.url + "/mcp"), mode="2026-07-28") as client,
            client.listen(tools_list_changed=True) as heard,
        ):
            registry.replace(tool for tool in registry.all() if tool.name != "calculator")
            assert await anext(aiter(heard)) == ToolsListChanged()
            names = {tool.name for tool in (await client.list_tools(cache_mode="bypass")).tools}
            assert "time" in names and "calculator" not in names
            door.app[DRAINING].set()
            with contextlib.suppress(SubscriptionLost):
                async for _ in heard:
                    pass
        async with asyncio.timeout(LIMIT_S):
            while registry._listeners != before:
                await asyncio.sleep(0.01)


async def test_who_has_stopped_to_listen_is_told_no_more(tmp_path: Path) -> None:
    async with mcp_door(tmp_path) as door:
        registry = door.inside.daemon.registry
        before = dict(registry._listeners)
        async with (
            asyncio.timeout(LIMIT_S),
            Client(streamable_http_client(door.url + "/mcp"), mode="2026-07-28") as client,
            client.listen(tools_list_changed=True),
        ):
            assert len(registry._listeners) == len(before) + 1
        async with asyncio.timeout(LIMIT_S):
            while registry._listeners != before:
                await asyncio.sleep(0.01)


async def test_a_session_is_its_owners_alone_and_ends_when_it_says_so(tmp_path: Path) -> None:
    async with mcp_door(tmp_path) as door:
        mount = Mount(lambda: _fixture(door), keeps_sessions=True)
        before = door.app[GATEWAY].mcp
        assert before is not None
        served = McpServed(mount=mount, door_of=before.door_of)
        door.app._state[GATEWAY] = msgspec.structs.replace(door.app[GATEWAY], mcp=served)
        both = {"Accept": "application/json, text/event-stream"}
        async with door.session.post(door.url + "/mcp", json=HELLO, headers=both) as response:
            assert response.status == 200
            both["Mcp-Session-Id"] = response.headers["Mcp-Session-Id"]
            await response.read()
        mine = door.caller
        for other in (
            Caller(principal=Principal(uid=OWNER.uid + 1, gid=1, pid=0), scopes=mine.scopes),
            Caller(principal=OWNER, scopes=mine.scopes, key_id="k1"),
        ):
            door.caller = other
            for method in ("POST", "GET", "DELETE"):
                assert await _asked(door, method, both) == 404
        door.caller = mine
        assert await _asked(door, "POST", both) == 200
        async with door.session.get(door.url + "/mcp", headers=both) as stream:
            assert stream.status == 200 and stream.content_type == "text/event-stream"
            door.app[DRAINING].set()
            await stream.read()
        assert await _asked(door, "DELETE", both) == 200
        assert await _asked(door, "POST", both) == 404
        await mount.close()


async def _asked(door: Served, method: str, headers: dict[str, str]) -> int:
    body = LIST if method == "POST" else None
    async with door.session.request(
        method, door.url + "/mcp", json=body, headers=headers
    ) as response:
        if response.status == 200:
            await response.read()
        return response.status


def _fixture(door: Served) -> Any:
    def door_of(ctx: Any) -> Any:
        return ctx.request.scope["state"][DOOR]

    return make_server(door_of, version="1", on_change=door.inside.daemon.registry.on_change)


async def test_a_call_that_the_official_client_cancels_ends(tmp_path: Path) -> None:
    async with mcp_door(tmp_path) as door, asyncio.timeout(LIMIT_S):
        waiting = asyncio.Event()

        async def note(progress: float, total: float | None, message: str | None) -> None:
            waiting.set()

        async with Client(streamable_http_client(door.url + "/mcp"), mode="2026-07-28") as client:
            arguments = {"path": "note.txt", "content": "hello"}
            calling = asyncio.create_task(
                client.call_tool("file_write", arguments, progress_callback=note)
            )
            await waiting.wait()
            calling.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await calling
            while not door.inside.receipts():
                await asyncio.sleep(0.01)
        (receipt,) = door.inside.receipts()
        assert receipt.reason == "cancelled"
        assert not door.inside.daemon.approvals.pending(OWNER)


def test_nothing_of_the_sdk_is_loaded_before_a_client_comes() -> None:
    import subprocess
    import sys

    code = "import clawd.service.http, sys\nprint('mcp' in sys.modules, 'starlette' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]
