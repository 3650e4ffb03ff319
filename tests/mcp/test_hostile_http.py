"""Servers at a URL that do what they must not: what the daemon makes of it.

In every case a well-behaved server beside it goes on, and the call is answered in words.
"""

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import msgspec
import pytest

from clawd.mcp.model import ServerSettings
from tests.mcp.http_server import HttpServer
from tests.mcp.test_events import Heard, wanted
from tests.mcp.world import PATIENT, World, nothing, told
from tests.support.rows import all_at_once

# What it does, how it stands afterwards, and what the call's answer says.
CASES = [
    ("good", "ready", "hi"),
    ("modern", "ready", "hi"),
    ("hang-at-connect", "waiting", "is not connected: "),
    ("hang-at-discover", "ready", "hi"),
    ("hang-at-list", "waiting", "is not connected: "),
    ("hang-at-delete", "ready", "hi"),
    ("absurd-revision", "waiting", "never"),
    ("401", "waiting", "HTTP 401 Unauthorized: set auth_token"),
    ("403", "waiting", "HTTP 403 Forbidden"),
    ("500", "ready", "hi"),
    ("redirects", "ready", "hi"),
    ("one-bad-tool", "ready", "hi"),
    ("cursor-loop", "ready", "hi"),
    ("hang-in-call", "ready", "did not answer within 1 s"),
    ("cuts-in-call", "ready", "the connection broke"),
    ("cuts-the-body", "ready", "the connection broke"),
    ("401-in-call", "waiting", "HTTP 401 Unauthorized"),
    ("403-in-call", "waiting", "HTTP 403 Forbidden"),
    ("500-in-call", "ready", "HTTP 500 Internal Server Error"),
    ("404-in-call", "ready", "hi"),
    ("404-with-error", "ready", "hi"),
    ("404-for-ever", None, "does not know this session"),
    ("no-json", "ready", "Failed to parse"),
    ("text", "ready", "Unexpected content type: text/plain"),
    ("no-type", "ready", "Unexpected content type"),
    ("accepted", "ready", "202"),
    ("no-http", "ready", "the connection broke"),
    ("endless-head", "ready", "the connection broke"),
    ("endless-body", "ready", "has more than"),
    ("endless-error", "ready", "HTTP 500"),
    ("slow-body", "ready", "did not answer within 1 s"),
    ("30-mb", "ready", "has more than"),
    ("packed", "ready", "packs its answers"),
    ("null-is-error", "ready", "hi"),
    ("no-content", "ready", ""),
    ("call-error", "ready", "tool dispatch failed: wrong arguments"),
    ("sse", "ready", "hi"),
    ("sse-cut", "ready", "SSE stream ended without a response"),
    ("sse-cut-with-id", "ready", "reconnection attempts were exhausted"),
    ("resumes", "ready", "resumed"),
    ("sse-hangs", "ready", "did not answer within 1 s"),
    ("sse-junk", "ready", "Failed to parse"),
    ("sse-endless-event", "ready", "SSE stream failed"),
    ("sse-flood", "ready", "hi"),
]
# Of these, one is asked for the newest revision in vain, and has to be connected all the same.
_HANGS_AT_CONNECT = {"hang-at-connect": 1.5, "hang-at-discover": 12.0, "hang-at-list": 1.5}
_HANGS_IN_CALL = {"hang-in-call", "slow-body", "sse-hangs"}

Serve = Callable[[str], Awaitable[HttpServer]]


def settings_of(server: HttpServer, **more: object) -> ServerSettings:
    settings = ServerSettings(
        alias=server.how, url=server.url, connect_timeout_s=60.0, call_timeout_s=60.0
    )
    return msgspec.structs.replace(settings, **more)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    world = World(tmp_path)
    yield world
    await world.close()


@contextlib.asynccontextmanager
async def serving() -> AsyncIterator[Serve]:
    servers: list[HttpServer] = []

    async def start(how: str) -> HttpServer:
        server = HttpServer(how)
        await server.start()
        servers.append(server)
        return server

    try:
        yield start
    finally:
        for server in servers:
            await server.close()


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    async with serving() as start:
        yield start


@pytest.mark.timeout(600)
async def test_a_server_that_misbehaves_harms_nobody_else(tmp_path: Path) -> None:
    await all_at_once(
        (how, functools.partial(_harms_nobody_else, tmp_path / how, how, link, words))
        for how, link, words in CASES
    )


async def _harms_nobody_else(folder: Path, how: str, link: str | None, words: str) -> None:
    folder.mkdir()
    world = World(folder)
    async with serving() as serve, contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(world.close)
        bad = settings_of(
            await serve(how),
            connect_timeout_s=_HANGS_AT_CONNECT.get(how, 60.0),
            call_timeout_s=1.0 if how in _HANGS_IN_CALL else 60.0,
        )
        if link != "waiting":
            world.timing = PATIENT
        world.start(bad, settings_of(await serve("good"), alias="beside"))
        await world.ready("beside")
        async with asyncio.timeout(90):
            await world.servers.connect(how)
        await world.call_beside(how, words)
        if link == "waiting":  # until it is tried again, which is soon
            await world.until(lambda: (how, "waiting") in world.links)
        elif link is not None:
            assert world.state(how).link == link, world.state(how).problem


async def test_one_failed_call_does_not_touch_those_beside_it(world: World, serve: Serve) -> None:
    server = await serve("hang-in-call")
    world.start(settings_of(server))
    await world.ready("hang-in-call")
    waiting = asyncio.create_task(world.call("hang-in-call"))
    while len([each for each in server.requests if _method(each.body) == "tools/call"]) < 1:
        await asyncio.sleep(0.01)
    server.how = "cuts-in-call"
    assert "broke" in told(await world.call("hang-in-call"))
    server.how = "good"
    assert told(await world.call("hang-in-call", "next")) == "next"
    assert not waiting.done()
    server.go_on.set()
    assert told(await waiting) == "hi"
    assert world.state("hang-in-call").connects == 1


async def test_one_that_goes_away_and_comes_back_is_connected_again(
    world: World, serve: Serve
) -> None:
    server = await serve("good")
    world.start(settings_of(server))
    await world.ready("good")
    await server.stop()
    assert "cannot be reached" in told(await world.call("good"))
    await world.until(lambda: world.state("good").link == "waiting")
    assert "cannot be reached" in world.state("good").problem
    await server.start()
    await world.ready("good", connects=2)
    assert told(await world.call("good", "again")) == "again"


async def test_one_that_is_not_there_at_the_start_is_found_later(
    world: World, serve: Serve
) -> None:
    server = await serve("good")
    await server.stop()
    world.start(settings_of(server))
    await world.until(lambda: world.state("good").link == "waiting")
    await server.start()
    await world.ready("good")


async def test_a_call_finds_a_server_that_was_restarted_without_an_error(
    world: World, serve: Serve
) -> None:
    server = await serve("good")
    world.start(settings_of(server))
    await world.ready("good")
    await server.stop()
    await server.start()
    assert told(await world.call("good", "same")) == "same"


async def test_the_token_goes_to_its_server_and_to_nobody_else(
    world: World, serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    token = "letmein-4711-letmein"
    elsewhere, server = await serve("good"), await serve("redirects")
    world.start(settings_of(server, token=token))
    await world.ready("redirects")
    assert {each.headers.get("authorization") for each in server.requests} == {f"Bearer {token}"}
    assert elsewhere.requests == []
    assert token not in caplog.text
    assert token not in str(world.servers.states())


async def test_a_wrong_token_is_named_as_such(world: World, serve: Serve) -> None:
    world.start(settings_of(await serve("401"), token="letmein-4711-letmein"))
    await world.until(lambda: world.state("401").link == "waiting")
    problem = world.state("401").problem
    assert "HTTP 401 Unauthorized: the token of mcp.servers.401 is wrong or has expired" in problem
    assert 'it asks for: Bearer realm="tests"' in problem


async def test_the_newest_revision_is_spoken_and_its_changes_heard(
    world: World, serve: Serve
) -> None:
    server = await serve("modern")
    world.start(settings_of(server))
    assert (await world.ready("modern")).revision == "2026-07-28"
    async with asyncio.timeout(60):
        await server.listening.wait()
    server.tools.append({"name": "more", "inputSchema": {"type": "object"}})
    await server.push()
    await world.until(lambda: len(world.state("modern").tools) == 2)
    assert world.state("modern").connects == 1


async def test_the_newest_revision_is_asked_for_what_is_wanted_and_heard(
    world: World, serve: Serve
) -> None:
    server, heard = await serve("modern"), Heard()
    servers = world.start(settings_of(server))
    await world.ready("modern")
    async with asyncio.timeout(60):
        await server.listening.wait()
        server.listening.clear()
        servers.listen({"modern": wanted("resource note://a", "log error")}, heard)
        await server.listening.wait()
    asked = [r.body for r in server.requests if _method(r.body) == "subscriptions/listen"]
    assert [each["params"]["notifications"] for each in asked] == [
        {"toolsListChanged": True},
        {"toolsListChanged": True, "resourceSubscriptions": ["note://a"]},
    ]
    await server.push("resources/updated", uri="note://b")
    await server.push("resources/updated", uri="note://a")
    async with asyncio.timeout(60):
        await heard.came.wait()
    assert heard.lines == ["the resource note://a was updated"]
    await world.call("modern")
    (call,) = (r.body for r in server.requests if _method(r.body) == "tools/call")
    assert call["params"]["_meta"]["io.modelcontextprotocol/logLevel"] == "error"
    servers.listen({}, heard)
    await world.call("modern")
    call = [r.body for r in server.requests if _method(r.body) == "tools/call"][-1]
    assert "io.modelcontextprotocol/logLevel" not in call["params"]["_meta"]


async def test_older_revisions_are_heard_on_their_stream(world: World, serve: Serve) -> None:
    server = await serve("pushes")
    world.start(settings_of(server))
    assert (await world.ready("pushes")).revision == "2025-11-25"
    async with asyncio.timeout(60):
        await server.listening.wait()
    server.tools.append({"name": "more", "inputSchema": {"type": "object"}})
    await server.push()
    await world.until(lambda: len(world.state("pushes").tools) == 2)


async def test_legacy_never_asks_for_the_newest_revision(world: World, serve: Serve) -> None:
    server = await serve("modern")
    world.start(settings_of(server, mode="legacy"))
    assert (await world.ready("modern")).revision == "2025-11-25"
    assert "server/discover" not in [_method(each.body) for each in server.requests]


async def test_one_that_ignores_the_question_is_not_asked_again(world: World, serve: Serve) -> None:
    server = await serve("hang-at-discover")
    world.start(settings_of(server, connect_timeout_s=5.0))
    await world.ready("hang-at-discover")
    await server.stop()
    await world.call("hang-at-discover")
    await server.start()
    await world.ready("hang-at-discover", connects=2)
    asked = [each for each in server.requests if _method(each.body) == "server/discover"]
    assert len(asked) == 1


async def test_a_cancelled_call_returns_at_once(world: World, serve: Serve) -> None:
    server = await serve("hang-in-call")
    world.start(settings_of(server))
    await world.ready("hang-in-call")
    task = asyncio.create_task(world.servers.call("hang-in-call", "echo", {}, progress=nothing))
    while "tools/call" not in [_method(each.body) for each in server.requests]:
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    async with asyncio.timeout(60):
        while "notifications/cancelled" not in [_method(each.body) for each in server.requests]:
            await asyncio.sleep(0.01)


async def test_dead_and_silent_servers_do_not_delay_the_others(world: World, serve: Serve) -> None:
    dead = settings_of(await serve("hang-at-list"))
    world.start(dead, settings_of(await serve("good")))
    await world.ready("good")
    assert world.state("hang-at-list").link == "connecting"
    assert told(await world.call("good")) == "hi"


async def test_a_call_of_one_that_is_being_connected_waits_only_shortly(
    world: World, serve: Serve
) -> None:
    world.start(settings_of(await serve("hang-at-list")))
    assert "it is just being connected" in told(await world.call("hang-at-list"))


def _method(body: object) -> str:
    return str(body.get("method")) if isinstance(body, dict) else ""
