"""What becomes of servers when a daemon is killed, stopped or reloaded: none of them is left."""

import contextlib
import os
import secrets
import select
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from clawd.wire.daemon import Reload, Status
from clawd.wire.events import ToolProgress, ToolStarted
from clawd.wire.mcp import ConnectMcp
from tests.mcp_real.chats import chat, client_of, lines, planned, send, until_link
from tests.mcp_real.servers import STDIO, hostile, marked, npm, real_servers, repository_in
from tests.support.home import Home

pytestmark = [
    pytest.mark.daemon,
    pytest.mark.sandbox,
    pytest.mark.mcp_servers,
    pytest.mark.timeout(400),
]

LIMIT_S = 60.0
FULL = '[security]\nautonomy = "full"\n'
LONG = {"duration": 600, "steps": 6_000}
HOSTILE = ("grandchildren", "ignores-everything", "stops-reading")
PLAN: dict[str, list[tuple[str, dict[str, Any]]]] = {
    "long": [("everything__trigger-long-running-operation", LONG)],
    "stuck": [("stops-reading__echo", {"text": "x"})],
    "hang": [("hang-in-call__echo", {"text": "x"})],
    "hi": [("everything__echo", {"message": "hi"})],
}


@pytest.fixture
def mark() -> str:
    return f"clawd-mark-{secrets.token_hex(8)}"


@contextlib.contextmanager
def held(mark: str) -> Iterator[list[int]]:
    """Hold all processes with a mark, so that their numbers go to nobody else."""
    found: list[int] = []
    for pid in marked(mark):
        with contextlib.suppress(ProcessLookupError):
            found.append(os.pidfd_open(pid))
    try:
        yield found
    finally:
        for pidfd in found:
            os.close(pidfd)


def gone(held_ones: list[int], mark: str) -> None:
    """Wait for the end of those that are held, and see that nothing else has the mark."""
    for pidfd in held_ones:
        assert select.select([pidfd], [], [], LIMIT_S)[0], "a server is left"
    wait_for(lambda: not marked(mark))


def wait_for(is_so: Callable[[], object]) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def started(home: Home, stack: contextlib.ExitStack, word: str, kind: type) -> None:
    """Begin a turn and leave it in the middle of its call."""
    stream = send(stack.enter_context(client_of(home)), word)
    next(event for event in stream if isinstance(event, kind))


def test_a_killed_daemon_leaves_no_server_and_the_next_comes_up(home: Home, mark: str) -> None:
    repository_in(home.workspace)
    bad = "\n".join(hostile(how, how, mark) for how in HOSTILE)
    home.configure(*planned(PLAN), tables=real_servers(home.workspace, mark) + bad + FULL)
    home.start()
    until_link(home, *STDIO, *HOSTILE)
    with contextlib.ExitStack() as stack:
        started(home, stack, "long", ToolProgress)
        started(home, stack, "stuck", ToolStarted)
        servers = stack.enter_context(held(mark))
        assert len(servers) > len(STDIO) + len(HOSTILE)
        home.kill()
        gone(servers, mark)
    home.start()
    until_link(home, *STDIO, *HOSTILE)
    assert "Echo: hi" in chat(home, "hi").said
    assert home.ctl("receipt", "verify").returncode == 0
    with held(mark) as servers:
        home.close()
        gone(servers, mark)


def test_the_emergency_stop_ends_calls_with_their_servers_and_none_is_started(
    home: Home, mark: str
) -> None:
    env = {"CLAWD_TEST_MARK": mark}
    tables = npm("everything", "mcp-server-everything", workspace_access="none", env=env)
    bad = ("grandchildren", "hang-in-call")
    tables += "\n".join(hostile(how, how, mark) for how in bad)
    home.configure(*planned(PLAN), tables=tables + FULL)
    home.start()
    until_link(home, "everything", *bad)
    with contextlib.ExitStack() as stack:
        started(home, stack, "long", ToolProgress)
        started(home, stack, "hang", ToolStarted)
        servers = stack.enter_context(held(mark))
        assert len(servers) >= 4
        assert home.ctl("estop").returncode == 0
        gone(servers, mark)
    wait_for(lambda: len(home.receipt_lines()) == 2)
    assert {(each["status"], each["reason"]) for each in home.receipt_lines()} == {
        ("failed", "emergency stop is set")
    }
    until_link(home, "everything", *bad, link="waiting")
    assert "emergency stop" in chat(home, "hi").said
    with client_of(home) as client:
        assert client.call(ConnectMcp(alias="everything")).problem == "the emergency stop is set"
    home.kill()
    home.start()
    until_link(home, "everything", *bad, link="waiting")
    assert {each.problem for each in lines(home).values()} == {"the emergency stop is set"}
    assert not marked(mark)
    assert home.ctl("estop", "--clear").returncode == 0
    until_link(home, "everything", *bad)
    assert "Echo: hi" in chat(home, "hi").said
    assert home.ctl("receipt", "verify").returncode == 0


def test_a_reload_ends_a_server_that_it_removes_and_touches_no_other(home: Home, mark: str) -> None:
    leaving, env = mark + "-leaves", {"CLAWD_TEST_MARK": mark + "-stays"}
    stays = npm("everything", "mcp-server-everything", workspace_access="none", env=env)
    leaves = hostile("grandchildren", "grandchildren", leaving)
    home.configure(*planned(PLAN), tables=stays + leaves + FULL)
    home.start()
    until_link(home, "everything", "grandchildren")
    with held(leaving) as servers:
        assert len(servers) >= 2
        home.config.write_text(home.config.read_text().replace(leaves, ""))
        with client_of(home) as client:
            client.call(Reload())
        gone(servers, leaving)
    assert lines(home).keys() == {"everything"}
    assert "Echo: hi" in chat(home, "hi").said
    assert lines(home)["everything"].connects == 1


def test_five_servers_that_hang_delay_neither_the_start_nor_calls_nor_the_end(
    home: Home, mark: str
) -> None:
    deaf = [f"deaf-{number}" for number in range(5)]
    tables = [hostile(each, "hang-at-connect", mark, connect_timeout_s=600) for each in deaf]
    good = npm("everything", "mcp-server-everything", workspace_access="none")
    home.configure(*planned(PLAN), tables="\n".join([*tables, good, FULL]))
    home.start()
    until_link(home, "everything")
    assert "Echo: hi" in chat(home, "hi").said
    with client_of(home) as client:
        assert client.call(Status()).version
        client.call(Reload())
    found = lines(home)
    assert {(found[alias].link, found[alias].connects) for alias in deaf} == {("connecting", 0)}
    with held(mark) as servers:
        home.close()
        gone(servers, mark)
