"""Servers that misbehave, used through chat: the model reads what happened, and the daemon serves.

All of them are there at once. What each does is tested more closely with the parts themselves.
"""

import asyncio
import secrets
from contextlib import AsyncExitStack

import pytest

from tests.mcp.http_server import HttpServer
from tests.mcp_real.chats import Heard, chat, lines, planned, until_link
from tests.mcp_real.servers import hostile, marked, table
from tests.support.home import Home

pytestmark = [pytest.mark.daemon, pytest.mark.sandbox, pytest.mark.timeout(400)]

# What a server does, and what the model reads of a call.
STDIO = [
    ("hang-in-call", "did not answer within 1 s"),
    ("stops-reading", "did not answer within 1 s"),
    ("dies-in-call", "ended with code 9"),
    ("huge-line", "a line has more than"),
    ("large-result", "is file+session://large-result__echo-1.txt; file_read with"),
    ("call-error", "tool dispatch failed: no such tool"),
    ("result-is-a-list", "is no valid message"),
    ("deep-result", "nests more than"),
    ("unknown-content", "hologram"),
    ("null-is-error", "hi"),
    ("wrong-answer", "hi"),
    ("answers-twice", "hi"),
    ("asks-for-everything", "hi"),
    ("junk", "hi"),
    ("bad-schemas", "hi"),
    ("absurd-names", "hi"),
    ("grandchildren", "hi"),
    ("ignores-everything", "hi"),
]
FLOODS = {
    "stderr-flood": "hi",
    "notification-flood": "prints too much that nobody asked for",
    "list-changed-storm": "prints too much that nobody asked for",
}
HTTP = [
    ("hang-in-call", "did not answer within 1 s"),
    ("cuts-in-call", "the connection broke"),
    ("401-in-call", "HTTP 401 Unauthorized"),
    ("404-in-call", "hi"),
    ("404-for-ever", "does not know this session"),
    ("500-in-call", "HTTP 500 Internal Server Error"),
    ("no-json", "Failed to parse"),
    ("text", "Unexpected content type: text/plain"),
    ("30-mb", "has more than"),
    ("sse-cut", "SSE stream ended without a response"),
    ("sse-flood", "hi"),
    ("cursor-loop", "hi"),
]
ARGUMENTS = {"text": "hi"}
LIMIT_S = 60.0


def limits(how: str) -> dict[str, float]:
    call_s = 1.0 if how in {"hang-in-call", "stops-reading"} else 60.0
    return {"call_timeout_s": call_s, "connect_timeout_s": 60.0}


def word(kind: str, how: str) -> str:
    return f"use {kind} {how}."


def configure(home: Home, mark: str, urls: dict[str, str]) -> None:
    """Name all servers, and let a message that names one make a call of it."""
    tables = [hostile(how, how, mark, **limits(how)) for how, _ in STDIO]
    tables += [hostile(how, how, mark) for how in (*FLOODS, "good")]
    tables += [table(f"http-{how}", url=url, **limits(how)) for how, url in urls.items()]
    calls = {word("stdio", how): [(f"{how}__echo", ARGUMENTS)] for how, _ in STDIO}
    calls |= {word("stdio", how): [(f"{how}__echo", ARGUMENTS)] for how in (*FLOODS, "good")}
    calls |= {word("http", how): [(f"http-{how}__echo", ARGUMENTS)] for how in urls}
    home.configure(*planned(calls), tables="\n".join([*tables, '[security]\nautonomy = "full"']))


async def test_each_call_is_answered_in_words_and_the_daemon_serves(home: Home) -> None:
    mark = f"clawd-mark-{secrets.token_hex(8)}"
    async with AsyncExitStack() as stack:
        urls = {}
        for how, _ in HTTP:
            server = HttpServer(how)
            await server.start()
            stack.push_async_callback(server.close)
            urls[how] = server.url
        configure(home, mark, urls)
        await asyncio.to_thread(home.start)
        ready = [how for how, _ in STDIO] + [f"http-{how}" for how, _ in HTTP]
        await asyncio.to_thread(until_link, home, *ready, "good")
        for kind, cases in (("stdio", STDIO), ("http", HTTP)):
            for how, words in cases:
                heard = await said(home, kind, how)
                assert words in heard.said, (kind, how, heard.said)
        for how, words in FLOODS.items():
            heard = await said(home, "stdio", how)
            assert words in heard.said, (how, heard.said)
        assert (await said(home, "stdio", "good")).said == "hi"
        assert (await asyncio.to_thread(lines, home))["good"].connects == 1
        receipts = home.receipt_lines()
        assert len(receipts) == len(STDIO) + len(HTTP) + len(FLOODS) + 1
        verified = await asyncio.to_thread(home.ctl, "receipt", "verify")
        assert verified.returncode == 0
        await asyncio.to_thread(home.kill)
        async with asyncio.timeout(LIMIT_S):
            while marked(mark):
                await asyncio.sleep(0.05)


async def said(home: Home, kind: str, how: str) -> Heard:
    """Let the model call a server that has misbehaved for as long as it lived."""
    heard = await asyncio.to_thread(chat, home, word(kind, how))
    assert len(heard.results) == 1, how
    return heard
