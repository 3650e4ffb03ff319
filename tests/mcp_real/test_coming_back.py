"""A server that is dead or slow: others, turns and prompts do not notice, and it comes back."""

import json
import os
import secrets
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.mcp_real.chats import chat, planned, until_link, until_problem
from tests.mcp_real.servers import hostile, marked, table
from tests.support.chat_server import DONE, HELLO, ChatServer, chunk, in_a_thread, serving, streamed
from tests.support.home import Home

pytestmark = [pytest.mark.daemon, pytest.mark.sandbox, pytest.mark.timeout(400)]

FULL = '[security]\nautonomy = "full"\n'
MODEL = """
[providers.models.web]
kind = "openai-compatible"
model = "m"
base_url = "{url}"
"""
GATED = """
import os, pathlib, sys
if not pathlib.Path("gate").exists():
    sys.exit("the gate is shut")
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""


def gated(home: Home, mark: str) -> str:
    """Return the table of a server that starts only where there is a file called gate."""
    (home.workspace / "gated.py").write_text(GATED)
    script = Path(__file__).parents[1] / "mcp" / "stdio_program.py"
    words = ["-I", "-S", str(script), "good", "2025-11-25", mark]
    return table(
        "gated",
        command=[sys.executable, "-I", "-S", str(home.workspace / "gated.py"), *words],
        readonly_paths=[str(script.parent), sys.prefix, sys.base_prefix],
    )


def calling(name: str, arguments: str) -> Any:
    call = {"index": 0, "id": "c1", "function": {"name": name, "arguments": arguments}}
    return streamed(chunk({"tool_calls": [call]}), chunk({}, "tool_calls"), DONE)


def test_it_comes_back_by_itself_and_prompts_stay_as_they_are(home: Home) -> None:
    mark, gate = f"clawd-mark-{secrets.token_hex(8)}", home.workspace / "gate"
    hello = streamed(*HELLO)
    server = ChatServer(hello, hello, calling("gated__echo", '{"text":"x"}'), hello)
    with in_a_thread(serving(server)) as url:
        tables = gated(home, mark) + hostile("beside", "good", "beside") + FULL
        home.configure(tables=tables + MODEL.format(url=url), provider="web")
        home.start()
        until_problem(home, "gated", "the gate is shut")
        gate.touch()
        until_link(home, "gated", "beside")
        first = chat(home, "one")
        gate.unlink()
        for pid in marked(mark):
            with suppress(ProcessLookupError):  # one of them ends with another
                os.kill(pid, signal.SIGKILL)
        until_problem(home, "gated", "the gate is shut")
        chat(home, "two", first.conversation)
        (away,) = chat(home, "three", first.conversation).results
        assert away.status == "failed"
        assert "tool transport error: the MCP server gated is not connected" in away.output
        assert "the gate is shut" in away.output
        ran = home.ctl("mcp", "tool", "beside", "echo", "--json", '{"text":"still here"}')
        assert ran.stdout == "still here\n"
        gate.touch()
        until_link(home, "gated", connects=2)
        chat(home, "four", first.conversation)
    offered = [json.dumps(each["tools"]) for each in server.requests]
    assert len(offered) == 5 and len(set(offered)) == 1
    assert "gated__echo" in offered[0]
    for before, after in zip(server.requests, server.requests[1:], strict=False):
        assert after["messages"][: len(before["messages"])] == before["messages"]


def test_a_slow_server_holds_up_neither_the_call_beside_it_nor_the_turn(home: Home) -> None:
    calls = [("slow__echo", {"text": "x"}), ("beside__echo", {"text": "quick"})]
    tables = hostile("slow", "hang-in-call", "slow", call_timeout_s=1)
    home.configure(
        *planned({"both": calls, "quick": calls[1:]}),
        tables=tables + hostile("beside", "good", "beside") + FULL,
    )
    home.start()
    until_link(home, "slow", "beside")
    both = chat(home, "both")
    assert [each.status for each in both.results] == ["failed", "allowed"]
    assert "the MCP server slow did not answer within 1 s\nquick" in both.said
    assert "quick" in chat(home, "quick").said


def test_a_turn_that_waits_for_a_slow_server_ends_by_its_own_limit(home: Home) -> None:
    tables = hostile("slow", "hang-in-call", "slow", call_timeout_s=600)
    # So long that the call has begun by then, also on a machine that has much to do.
    limit = "[agent]\nwall_clock_budget_s = 8\n"
    home.configure(
        *planned({"wait": [("slow__echo", {"text": "x"})]}), tables=tables + limit + FULL
    )
    home.start()
    until_link(home, "slow")
    heard = chat(home, "wait")
    assert heard.said == "I stopped: 8 s are used up."
    assert [(each.status, each.output) for each in heard.results] == [
        ("failed", "error: cancelled")
    ]
    assert [each["reason"] for each in home.receipt_lines()] == ["cancelled"]
