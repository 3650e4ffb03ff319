"""`clawctl mcp serve`: the real command and daemon, with the official client at the other end."""

import asyncio
import contextlib
import json
import subprocess
import sys
from typing import Any

import pexpect
import pytest
from mcp import Client, StdioServerParameters
from mcp.shared.subscriptions import ToolsListChanged
from mcp_types import ToolListChangedNotification

from tests.support.home import Home
from tests.support.lent_home import LentHome

pytestmark = pytest.mark.daemon

HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    },
}
READY = {"jsonrpc": "2.0", "method": "notifications/initialized"}


@pytest.fixture
def home(lent_home: LentHome) -> Home:
    lent_home.configure()
    lent_home.start()
    return lent_home


def server_of(home: Home) -> StdioServerParameters:
    arguments = ["-m", "clawctl", "--no-start", "mcp", "serve"]
    return StdioServerParameters(command=sys.executable, args=arguments, env=home.environ)


def spoken(home: Home, *lines: str | dict[str, Any]) -> list[Any]:
    """Say lines to `clawctl mcp serve`, close, and return what it answered."""
    text = "".join((x if isinstance(x, str) else json.dumps(x)) + "\n" for x in lines)
    done = home.ctl("--no-start", "mcp", "serve", stdin=text)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


async def test_the_official_client_lists_calls_and_is_told_of_progress(home: Home) -> None:
    async with asyncio.timeout(90), Client(server_of(home)) as client:
        names = {tool.name for tool in (await client.list_tools()).tools}
        assert {"calculator", "file_read", "shell"} <= names
        done = await client.call_tool("calculator", {"expression": "6*7"})
        assert done.content[0].model_dump()["text"] == "42"
        told: asyncio.Queue[str] = asyncio.Queue()
        (home.workspace / "a.txt").write_text("replaced unread: a client is no turn")

        async def note(progress: float, total: float | None, message: str | None) -> None:
            await told.put(message or "")

        writing = asyncio.create_task(
            client.call_tool(
                "file_write", {"path": "a.txt", "content": "hi"}, progress_callback=note
            )
        )
        approval = (await told.get()).removeprefix("waiting for an approval: ").split(" (")[0]
        answered = await asyncio.to_thread(home.ctl, *approval.split()[1:])
        assert answered.returncode == 0, answered.stderr
        assert not (await writing).is_error
    assert (home.workspace / "a.txt").read_text() == "hi"
    receipts = home.receipt_lines()
    assert [line["tool"] for line in receipts] == ["calculator", "file_write"]
    assert len({line["conversation_id"] for line in receipts}) == 1


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_a_client_is_told_when_the_tools_were_loaded_anew(home: Home, mode: Any) -> None:
    told = asyncio.Event()

    async def note(message: Any) -> None:
        if isinstance(message, ToolListChangedNotification):
            told.set()

    async with (
        asyncio.timeout(90),
        Client(server_of(home), mode=mode, message_handler=note) as client,
        contextlib.AsyncExitStack() as stack,
    ):
        await client.list_tools()
        heard = None
        if mode == "legacy":
            assert client.server_capabilities.tools.list_changed  # type: ignore[union-attr]
        else:
            heard = await stack.enter_async_context(client.listen(tools_list_changed=True))
        reloaded = await asyncio.to_thread(home.ctl, "tool", "reload")
        assert reloaded.returncode == 0, reloaded.stderr
        if heard is None:
            await told.wait()
        else:
            assert await anext(aiter(heard)) == ToolsListChanged()


def test_lines_are_answered_in_the_words_of_the_protocol_whatever_they_are(home: Home) -> None:
    ping = {"jsonrpc": "2.0", "id": 2, "method": "ping"}
    answers = spoken(home, HELLO, READY, "", "rubbish", "[1]", '{"jsonrpc": 7}', ping)
    by_id = {answer.get("id"): answer for answer in answers}
    assert by_id[1]["result"]["serverInfo"]["name"] == "clawd"
    assert by_id[2]["result"] == {}


def test_a_client_that_closes_in_the_middle_of_a_call_leaves_nothing_running(home: Home) -> None:
    call = {
        "jsonrpc": "2.0",
        "id": 3,
        "method": "tools/call",
        "params": {"name": "file_write", "arguments": {"path": "b.txt", "content": "x"}},
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "clawctl", "--no-start", "mcp", "serve"],
        env=home.environ,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None and process.stdout is not None
    for line in (HELLO, READY, call):
        process.stdin.write(json.dumps(line) + "\n")
    process.stdin.flush()
    json.loads(process.stdout.readline())
    while not home.json("approval", "list"):
        pass
    process.kill()
    process.wait()
    process.stdin.close()
    process.stdout.close()
    while home.json("approval", "list"):
        pass
    while not home.receipt_lines():  # written when nobody can be asked any more
        pass
    assert [line["reason"] for line in home.receipt_lines()] == ["cancelled"]
    assert not (home.workspace / "b.txt").exists()


def test_a_line_that_never_ends_is_refused(home: Home) -> None:
    done = home.ctl("--no-start", "mcp", "serve", stdin="x" * (9 << 20))
    assert done.returncode == 1
    assert "a line of the client is over" in done.stderr


def test_without_a_daemon_it_says_so(own_home: Home) -> None:
    own_home.configure()
    done = own_home.ctl("--no-start", "mcp", "serve", stdin="")
    assert done.returncode == 6


def test_a_person_at_a_terminal_is_told_who_it_is_for(home: Home) -> None:
    child = pexpect.spawn(
        sys.executable, ["-m", "clawctl", "mcp", "serve"], env=home.environ, encoding="utf-8"
    )
    child.expect("let a client start it", timeout=60)
    child.expect(pexpect.EOF, timeout=60)
    child.wait()  # its terminal goes a moment before it does
    child.close()
    assert child.exitstatus == 2
