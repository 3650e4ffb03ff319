"""A real MCP server in the sandbox of a real daemon, through clawctl and in chats."""

import json
import os
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.home import Home
from tests.support.lent_home import LentHome

pytestmark = [pytest.mark.daemon, pytest.mark.sandbox]

SERVER = Path(__file__).parents[1] / "support" / "mcp_server.py"
LIMIT_S = 60.0


@pytest.fixture
def home(lent_home: LentHome) -> Home:
    return lent_home


def configure(
    home: Home,
    *replies: dict[str, Any],
    more: str = "",
    rest: str = "",
    server: Path = SERVER,
) -> None:
    words = json.dumps([sys.executable, str(server)])
    seen = json.dumps([str(server.parent), sys.prefix, sys.base_prefix])
    home.configure(
        *replies,
        tables=f"[mcp.servers.hand]\ncommand = {words}\nreadonly_paths = {seen}\n{more}\n{rest}",
    )


def line_of(home: Home, alias: str = "hand") -> dict[str, Any]:
    items = home.json("mcp", "list")["items"]
    found: dict[str, Any] = next(each for each in items if each["alias"] == alias)
    return found


def ready(home: Home, alias: str = "hand", connects: int = 1) -> dict[str, Any]:
    """Wait for a server that is connected, for so many times at least."""
    deadline = time.monotonic() + LIMIT_S
    while (line := line_of(home, alias))["link"] != "ready" or line["connects"] < connects:
        assert time.monotonic() < deadline, (line, home.log())
    return line


def call(tool: str, **arguments: Any) -> dict[str, Any]:
    return {"tool_calls": [{"name": tool, "arguments": arguments}]}


def test_the_life_of_a_server(home: Home) -> None:
    configure(home, more='[mcp.auto_approve]\ntools = ["hand__echo"]')
    home.start()
    line = ready(home)
    assert (line["tools"], line["server"], line["transport"]) == (6, "by-hand 1.0", "stdio")
    assert line["tokens"] > 0
    names = {tool["name"] for tool in home.json("mcp", "tools")["items"]}
    assert {"hand__echo", "hand__write"} <= names
    ran = home.ctl("mcp", "tool", "hand", "echo", "--json", '{"text":"hello"}')
    assert (ran.returncode, ran.stdout) == (0, "hello\n")
    refused = home.ctl("mcp", "tool", "hand", "write", "--json", '{"text":"x"}', "--no-input")
    assert refused.returncode == 3
    off = home.ctl("mcp", "disconnect", "hand")
    assert off.returncode == 0, off.stderr
    assert not any(t["source"] == "mcp:hand" for t in home.json("tool", "list"))
    assert home.ctl("mcp", "tool", "hand", "echo", "--json", '{"text":"x"}').returncode == 1
    on = home.ctl("mcp", "connect", "hand")
    assert on.returncode == 0, on.stderr
    assert home.ctl("mcp", "tool", "hand", "echo", "--json", '{"text":"y"}').returncode == 0
    lines = [(each["tool"], each["status"], each["approval"]) for each in home.receipt_lines()]
    assert lines[0] == ("hand__echo", "allowed", "auto")
    assert lines[1] == ("hand__write", "denied", "none")


def test_a_tool_that_comes_in_a_turn_is_called_in_that_turn(home: Home) -> None:
    configure(
        home,
        call("hand__grow"),
        call("hand__late", text="just in time"),
        {"text": "{{last_tool_result}}"},
        rest='[security]\nautonomy = "full"',
    )
    home.start()
    ready(home)
    done = home.ctl("agent", "-m", "grow")
    assert "just in time" in done.stdout, (done.stderr, home.log())


def test_what_is_no_text_is_kept_with_the_conversation(home: Home) -> None:
    configure(
        home,
        call("hand__picture"),
        {"text": "{{last_tool_result}}"},
        rest='[security]\nautonomy = "full"',
    )
    home.start()
    ready(home)
    done = home.ctl("agent", "-m", "draw")
    assert "file+session://hand__picture-1.png" in done.stdout, done.stderr


def test_a_server_that_dies_in_a_call_says_so_and_comes_back(home: Home) -> None:
    configure(
        home,
        call("hand__die"),
        {"text": "{{last_tool_result}}"},
        rest='[security]\nautonomy = "full"',
    )
    home.start()
    connects = ready(home)["connects"]
    done = home.ctl("agent", "-m", "die")
    assert done.returncode == 0, done.stderr
    assert "error: tool transport error: " in done.stdout
    ready(home, connects=connects + 1)
    again = home.ctl("mcp", "tool", "hand", "echo", "--json", '{"text":"back"}')
    assert again.stdout == "back\n", again.stderr


def test_an_error_of_a_tool_is_advice_to_the_model(home: Home) -> None:
    configure(
        home,
        call("hand__fail"),
        {"text": "{{last_tool_result}}"},
        rest='[security]\nautonomy = "full"',
    )
    home.start()
    ready(home)
    assert "it is broken, try echo" in home.ctl("agent", "-m", "fail").stdout


@pytest.mark.parametrize(("access", "code"), [("read", 1), ("write", 0)])
def test_a_server_writes_to_the_workspace_only_where_it_may(
    home: Home, access: str, code: int
) -> None:
    configure(
        home,
        more=f'workspace_access = "{access}"',
        rest='[security]\nautonomy = "full"',
    )
    home.start()
    ready(home)
    ran = home.ctl("mcp", "tool", "hand", "write", "--json", '{"text":"words"}')
    assert ran.returncode == code, ran.stderr
    assert (home.workspace / "note.txt").exists() is (access == "write")


def test_a_server_that_is_not_there_delays_nothing(home: Home) -> None:
    home.configure(
        tables='[mcp.servers.none]\ncommand = ["no-such-program"]\n'
        '[mcp.servers.deaf]\nurl = "http://127.0.0.1:9/mcp"\n'
    )
    home.start()
    assert home.ctl("agent", "-m", "hello").returncode == 0
    for alias in ("none", "deaf"):
        assert line_of(home, alias)["link"] in {"connecting", "waiting"}


def test_no_server_is_left_when_the_daemon_is_killed(own_home: Home) -> None:
    # Its own copy: other tests have servers of the same name beside this one.
    server = own_home.path.parent / "server" / SERVER.name
    server.parent.mkdir()
    shutil.copy(SERVER, server)
    configure(own_home, server=server)
    own_home.start()
    ready(own_home)
    mine = str(server)
    assert processes_with(mine)
    own_home.kill()
    deadline = time.monotonic() + LIMIT_S
    while left := processes_with(mine):
        assert time.monotonic() < deadline, left


def processes_with(word: str) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
            if entry.name.isdigit() and word in words and int(entry.name) != os.getpid():
                found.append(int(entry.name))
        except OSError:
            continue
    return found
