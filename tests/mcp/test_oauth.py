"""Signing in at a server: told to a person, kept in a file of the home, used again."""

import asyncio
import base64
import json
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import msgspec
import pytest
from typing_extensions import override

from clawd.mcp.model import ServerSettings
from clawd.mcp.oauth import Callback, TokenFile, sign_in_auth
from tests.mcp.http_server import HttpServer, Request, reply
from tests.mcp.world import World, told
from tests.support.rows import each_row

GIVEN = "access-for-tests"


class SignInServer(HttpServer):
    """An MCP server that is its own authorization server."""

    def __init__(self) -> None:
        super().__init__("good")
        self.accepted = GIVEN
        self.shown: list[str] = []
        self.granted = 0
        self.registered = 0
        self.register_s = 0.0

    @override
    async def _answer(self, request: Request, writer: asyncio.StreamWriter) -> bool:
        base = f"http://127.0.0.1:{self.port}"
        path = request.path.partition("?")[0]
        if path.startswith("/.well-known/oauth-protected-resource"):
            return await self._say(
                writer, {"resource": self.url, "authorization_servers": [f"{base}/"]}
            )
        if path.startswith("/.well-known/"):
            return await self._say(
                writer,
                {
                    "issuer": f"{base}/",
                    "authorization_endpoint": f"{base}/authorize",
                    "token_endpoint": f"{base}/token",
                    "registration_endpoint": f"{base}/register",
                    "response_types_supported": ["code"],
                    "code_challenge_methods_supported": ["S256"],
                },
            )
        if path == "/register":
            self.registered += 1
            await asyncio.sleep(self.register_s)
            return await self._say(writer, request.body | {"client_id": "clawd-1"}, 201)
        if path == "/token":
            self.shown.append(request.headers.get("authorization", ""))
            self.granted += 1
            return await self._say(
                writer, {"access_token": GIVEN, "token_type": "Bearer", "expires_in": 3600}
            )
        if request.headers.get("authorization") != f"Bearer {self.accepted}":
            return await reply(writer, 401, b"", {"WWW-Authenticate": "Bearer"})
        return await super()._answer(request, writer)

    @staticmethod
    async def _say(writer: asyncio.StreamWriter, body: dict[str, Any], status: int = 200) -> bool:
        return await reply(writer, status, json.dumps(body).encode())


@pytest.fixture
async def server() -> AsyncIterator[SignInServer]:
    server = SignInServer()
    await server.start()
    yield server
    await server.close()


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    world = World(tmp_path)
    yield world
    await world.close()


def settings_of(server: HttpServer) -> ServerSettings:
    return ServerSettings(
        alias="books", url=server.url, oauth=True, connect_timeout_s=60.0, call_timeout_s=60.0
    )


async def address_told(world: World) -> dict[str, str]:
    """Wait until a person is asked, and return what the address holds."""
    await world.until(lambda: "a person must sign in" in world.state("books").problem)
    address = world.state("books").problem.partition("open ")[2]
    return {name: values[0] for name, values in parse_qs(urlsplit(address).query).items()}


async def visit(address: str) -> bytes:
    """Do what the browser does when it is sent back."""
    parts = urlsplit(address)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    writer.write(f"GET {parts.path}?{parts.query} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return answer


async def test_a_person_signs_in_once_and_the_tokens_are_kept(
    world: World, server: SignInServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    world.start(settings_of(server))
    asked = await address_told(world)
    assert "wants a person to sign in: books: http://127.0.0.1" in caplog.text
    assert asked["redirect_uri"].startswith("http://127.0.0.1:")
    elsewhere = asked["redirect_uri"].replace("/callback", "/other")
    assert b"404" in await visit(f"{elsewhere}?code=abc&state=x")
    assert b"200 OK" in await visit(f"{asked['redirect_uri']}?code=abc&state={asked['state']}")
    await world.ready("books")
    assert told(await world.call("books")) == "hi"
    file = world.folder / "oauth-books.json"
    assert file.stat().st_mode & 0o777 == 0o600
    assert GIVEN not in caplog.text
    await world.close()
    world.start(settings_of(server))
    await world.ready("books")
    assert server.granted == 1


@each_row("word", ["", "word-for-tests"], fresh=["world", "server"])
async def test_who_was_registered_by_hand_does_not_register(
    world: World, server: SignInServer, word: str
) -> None:
    world.start(
        msgspec.structs.replace(
            settings_of(server), oauth_client_id="by-hand", oauth_client_secret=word
        )
    )
    asked = await address_told(world)
    assert asked["client_id"] == "by-hand"
    await visit(f"{asked['redirect_uri']}?code=abc&state={asked['state']}")
    await world.ready("books")
    assert server.registered == 0
    basic = "Basic " + base64.b64encode(f"by-hand:{word}".encode()).decode()
    assert server.shown == [basic if word else ""]
    assert "word-for-tests" not in (world.folder / "oauth-books.json").read_text()


async def test_a_person_may_take_longer_than_a_server_that_is_asked_for_its_revision(
    world: World, server: SignInServer
) -> None:
    world.start(msgspec.structs.replace(settings_of(server), connect_timeout_s=8.0))
    asked = await address_told(world)
    await asyncio.sleep(4.0)  # longer than the share of the limit that the question has
    assert await address_told(world) == asked
    await visit(f"{asked['redirect_uri']}?code=abc&state={asked['state']}")
    await world.ready("books")
    assert server.granted == 1


async def test_a_state_that_was_not_given_out_signs_nobody_in(
    world: World, server: SignInServer
) -> None:
    world.start(settings_of(server))
    asked = await address_told(world)
    for forged in ("forged", "", asked["state"][:-1], asked["state"] + "x", "%FF"):
        told_it = await visit(f"{asked['redirect_uri']}?code=abc&state={forged}")
        assert b"404" in told_it
    assert server.granted == 0
    assert "a person must sign in" in world.state("books").problem
    # Nor does it end the sign-in of who was asked.
    assert b"200 OK" in await visit(f"{asked['redirect_uri']}?code=abc&state={asked['state']}")
    await world.ready("books")


async def test_tokens_of_another_url_are_not_sent(world: World, server: SignInServer) -> None:
    world.folder.mkdir()
    kept = {
        "url": "http://127.0.0.1:1/mcp",
        "tokens": {"access_token": "old", "token_type": "Bearer"},
    }
    (world.folder / "oauth-books.json").write_text(json.dumps(kept))
    world.start(settings_of(server))
    await address_told(world)
    assert "Bearer old" not in [each.headers.get("authorization") for each in server.requests]


@each_row("text", ["", "{", "[]", '{"url": 5}', '{"tokens": "x"}'], fresh=["world", "server"])
async def test_a_file_that_is_broken_is_as_none(
    world: World, server: SignInServer, text: str
) -> None:
    world.folder.mkdir()
    (world.folder / "oauth-books.json").write_text(text)
    world.start(settings_of(server))
    await address_told(world)


async def test_waiting_for_a_person_delays_no_other_server(
    world: World, server: SignInServer
) -> None:
    other = HttpServer("good")
    await other.start()
    world.start(
        settings_of(server),
        msgspec.structs.replace(settings_of(other), alias="good", oauth=False),
    )
    await address_told(world)
    await world.ready("good")
    assert told(await world.call("good")) == "hi"
    assert "a person must sign in" in told(await world.call("books"))
    await other.close()


@pytest.fixture
def other() -> Iterator[socket.socket]:
    """Another program's socket, which listens."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening


def port_of(asked: dict[str, str]) -> int:
    port = urlsplit(asked["redirect_uri"]).port
    assert port is not None
    return port


async def test_nobody_else_is_given_the_port_that_the_browser_comes_back_to(
    world: World, server: SignInServer
) -> None:
    server.register_s = 2.0
    world.start(settings_of(server))
    async with asyncio.timeout(60):
        while not server.registered:
            await asyncio.sleep(0.01)
    # It is told to the server already, and nobody listens on it yet.
    port = json.loads((world.folder / "oauth-books.json").read_bytes())["port"]
    with socket.socket() as stranger, pytest.raises(OSError, match="in use"):
        stranger.bind(("127.0.0.1", port))
    asked = await address_told(world)
    assert port_of(asked) == port
    await visit(f"{asked['redirect_uri']}?code=abc&state={asked['state']}")
    await world.ready("books")
    with socket.socket() as stranger, pytest.raises(OSError, match="in use"):
        stranger.bind(("127.0.0.1", port))
    await world.close()
    with socket.socket() as stranger:
        stranger.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        stranger.bind(("127.0.0.1", port))


async def test_a_port_that_another_program_took_is_exchanged_for_one_that_is_registered(
    world: World, server: SignInServer, other: socket.socket
) -> None:
    taken = other.getsockname()[1]
    world.folder.mkdir()
    kept = {"url": server.url, "port": taken, "client": {"client_id": "old", "redirect_uris": []}}
    (world.folder / "oauth-books.json").write_text(json.dumps(kept))
    world.start(settings_of(server))
    asked = await address_told(world)
    assert port_of(asked) != taken
    assert asked["client_id"] == "clawd-1"
    await visit(f"{asked['redirect_uri']}?code=abc&state={asked['state']}")
    await world.ready("books")


async def test_who_is_signed_in_needs_no_port(
    world: World, server: SignInServer, other: socket.socket
) -> None:
    taken = other.getsockname()[1]
    world.folder.mkdir()
    tokens = {"access_token": GIVEN, "token_type": "Bearer"}
    kept = {"url": server.url, "port": taken, "tokens": tokens}
    (world.folder / "oauth-books.json").write_text(json.dumps(kept))
    world.start(settings_of(server))
    await world.ready("books")
    assert json.loads((world.folder / "oauth-books.json").read_bytes()) == kept
    await world.close()
    # Until the server wants it again: that it cannot be is said, and the next try moves.
    server.accepted = "another"
    world.start(settings_of(server))
    asked = await address_told(world)
    assert port_of(asked) != taken
    assert any(f"port {taken}, where the browser comes back to" in seen for seen in world.problems)


async def test_many_servers_have_a_port_each() -> None:
    held = [Callback(0) for _ in range(600)]
    try:
        assert all(each.hold() for each in held)
        assert len({each.port for each in held}) == len(held)
    finally:
        for each in held:
            each.close()


async def nobody(_address: str) -> None:
    raise AssertionError


async def test_a_port_that_cannot_be_kept_is_let_go(
    tmp_path: Path, server: SignInServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    held: list[int] = []

    async def full(_file: TokenFile, port: int) -> None:
        held.append(port)
        raise OSError("the disk is full")

    monkeypatch.setattr(TokenFile, "move", full)
    with pytest.raises(OSError, match="the disk is full"):
        async with sign_in_auth(settings_of(server), tmp_path, nobody):
            raise AssertionError
    with socket.socket() as stranger:
        stranger.bind(("127.0.0.1", held[0]))


async def test_who_is_cancelled_while_beginning_to_listen_leaves_nothing_in_the_loop() -> None:
    callback = Callback(0)
    assert callback.hold()
    listening = asyncio.create_task(callback.listen("http://127.0.0.1/?state=a"))
    await asyncio.sleep(0)  # it listens now, and has not come back
    listening.cancel()
    await asyncio.wait({listening})
    assert listening.cancelled()
    await callback.listen("http://127.0.0.1/?state=a")
    callback.close()
    # The next sockets have the descriptors of those that were closed, and the loop looks at them.
    others = [Callback(0) for _ in range(3)]
    try:
        for other in others:
            assert other.hold()
            await other.listen("http://127.0.0.1/?state=b")
        async with asyncio.timeout(60):
            for other in others:
                assert b"404" in await visit(f"{other.url}?state=a")
    finally:
        for other in others:
            other.close()
