"""The hosts of a server on standard input and output: those of its settings, in its receipts."""

import asyncio
import contextlib
import os
import signal
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from clawd.errors import ForbiddenError
from clawd.mcp.model import RemoteResult, ServerSettings
from clawd.mcp.server_hosts import ServerReach
from clawd.security.network import NetworkRules
from clawd.security.sandbox.egress import Egress
from clawd.security.sandbox.run import Sandbox, SandboxSettings
from clawd.tools.call_hosts import ReachSettings
from clawd.wire.policy import is_listed_form, this_machine_among
from tests.mcp.conftest import Shop
from tests.mcp.remote import a_tool
from tests.mcp.world import LIMIT_S, World, told
from tests.support.dispatching import Bench
from tests.support.rows import Rows, each_row

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello"


class Site:
    """Answers every connection on this machine; one that sends no request is echoed."""

    def __init__(self) -> None:
        self.connections = 0
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._server.accept()
                self.connections += 1
                threading.Thread(target=self._answer, args=(client,), daemon=True).start()

    def _answer(self, client: socket.socket) -> None:
        client.settimeout(LIMIT_S)
        with contextlib.suppress(OSError), client:
            while data := client.recv(65536):
                if data.startswith(b"GET "):
                    client.sendall(ANSWER)
                    return
                client.sendall(data)

    def close(self) -> None:
        self._server.close()


@pytest.fixture
def site() -> Iterator[Site]:
    made = Site()
    yield made
    made.close()


async def to_here(_host: str, _port: int) -> list[str]:
    return ["127.0.0.1"]


@contextlib.asynccontextmanager
async def reaching(root: Path, *allowed: str) -> AsyncIterator[tuple[World, Egress]]:
    """Give a world whose servers have a way out; every name leads to this machine."""
    egress = Egress(lambda: NetworkRules(allowed_addresses=allowed), resolve=to_here)
    world = World(root)
    world.ways = ReachSettings(egress=egress)
    try:
        yield world, egress
    finally:
        await world.close()
        await egress.close()


@pytest.mark.sandbox
async def test_a_server_reaches_its_hosts_alone_and_each_call_tells_which(
    tmp_path: Path, site: Site
) -> None:
    good = f"good.test:{site.port}"
    async with reaching(tmp_path, good) as (world, egress):
        world.start(world.program("reaches-out", hosts=(good,)))
        await world.ready("reaches-out")

        async def call(words: str) -> RemoteResult:
            return await world.call("reaches-out", words)

        result = await call(f"get http://{good}/x")
        assert (told(result), result.refused) == ("hello", {})
        name, address, moved, by = " ".join(result.contacted).split()
        assert (name, address, by) == (good, "127.0.0.1", "config")
        assert moved.endswith(f"/{len(ANSWER)}")
        result = await call("get http://bad.test/")
        assert (result.contacted, list(result.refused)) == ((), ["bad.test:80"])
        assert 'hosts = ["bad.test:80"]' not in told(result)
        assert "bad.test:80" in world.state("reaches-out").reach_problem
        result = await call(f"direct 127.0.0.1:{site.port}")
        assert (told(result)[:7], result.contacted, result.refused) == ("failed:", (), {})
        for _ in range(2):  # one connection, and each receipt has its own part of it
            result = await call(f"keep {good}")
            assert told(result) == "1000 bytes"
            assert result.contacted == (f"{good} 127.0.0.1 1000/1000 config",)
        assert site.connections == 2
        os.kill(egress.proxy_pid, signal.SIGKILL)
        async with asyncio.timeout(LIMIT_S):
            while egress.proxy_pid:
                await asyncio.sleep(0.01)
        result = await call(f"get http://{good}/x")
        assert (told(result), len(result.contacted)) == ("hello", 1), "it has another proxy now"


@pytest.mark.sandbox
async def test_without_hosts_a_server_has_no_way_out_and_what_died_in_the_start_is_told(
    tmp_path: Path, site: Site
) -> None:
    good = f"good.test:{site.port}"
    async with reaching(tmp_path, good) as (world, egress):
        shut = world.program("reaches-out")
        world.start(shut)
        await world.ready("reaches-out")
        result = await world.call("reaches-out", f"get http://{good}/")
        assert (told(result)[:7], result.contacted, result.refused) == ("failed:", (), {})
        assert (site.connections, egress.proxy_pid) == (0, 0)
        fetch = "curl -sS http://get.test/ >&2; exit 3"
        dying = msgspec.structs.replace(
            shut, alias="dying", hosts=(good,), command=("/bin/sh", "-c", fetch)
        )
        await world.servers.adopt((dying,))
        await world.until(lambda: world.state("dying").link == "waiting")
        assert "it was refused get.test:80, which hosts of [mcp.servers.dying]" in (
            world.state("dying").problem
        )


_PUBLIC = "8.8.8.8"


@each_row(
    ("hosts", "wanted", "leads_to", "is_reached"),
    [
        (("a.test:443",), "a.test:443", _PUBLIC, True),
        (("a.test:443",), "a.test:80", _PUBLIC, False),
        (("a.test:443",), "b.a.test:443", _PUBLIC, False),
        (("a.test:443",), "a.test:443", "127.0.0.1", False),
        (("*.a.test:443",), "b.a.test:443", _PUBLIC, True),
        (("*.a.test:443",), "a.test:443", _PUBLIC, False),
        (("*",), "any.test:25", _PUBLIC, True),
        (("*",), "any.test:80", "10.0.0.1", False),
        (("*",), "any.test:80", "169.254.169.254", False),
        (("*",), "any.test:80", "::ffff:127.0.0.1", False),
        (("*",), "127.0.0.1:80", "127.0.0.1", False),
        (("*",), "localhost:80", "127.0.0.1", False),
        (("*",), "8.8.8.8:53", "8.8.8.8", True),
        (("127.0.0.1:8080",), "127.0.0.1:8080", "127.0.0.1", True),
        (("127.0.0.1:8080",), "127.0.0.1:8081", "127.0.0.1", False),
        (("localhost:8080",), "localhost:8080", "127.0.0.1", True),
        (("[::1]:8080",), "[::1]:8080", "::1", True),
        (("10.0.0.5:5432",), "10.0.0.5:5432", "10.0.0.5", True),
        (("10.0.0.5:5432",), "a.test:5432", "10.0.0.5", False),
        ((), "a.test:443", _PUBLIC, False),
    ],
)
async def test_hosts_mean_names_and_ports_and_no_private_address_that_is_not_one_of_them(
    hosts: tuple[str, ...], wanted: str, leads_to: str, *, is_reached: bool
) -> None:
    async def resolve(_host: str, _port: int) -> list[str]:
        return [leads_to]

    async def connect(addresses: tuple[str, ...], _port: int) -> tuple[socket.socket, str]:
        return socket.socket(), addresses[0]

    ways = ReachSettings(egress=Egress(resolve=resolve, connect=connect))
    way = ServerReach(ServerSettings(alias="a", hosts=hosts), ways).way_out()
    assert (way is None) == (not hosts)
    if way is None:
        return
    host, _, port = wanted.rpartition(":")
    try:
        connected, address = await way._connected(host, int(port))
    except ForbiddenError:
        assert not is_reached
        return
    connected.close()
    assert (is_reached, address) == (True, leads_to)


async def test_egress_that_is_switched_off_is_so_for_servers_that_are_connected() -> None:
    is_on = True
    ways = ReachSettings(egress=Egress(), is_on=lambda: is_on)
    reach = ServerReach(ServerSettings(alias="a", hosts=("*",)), ways)
    assert await reach._decide("a.test", 443) is None
    is_on = False
    denial = await reach._decide("a.test", 443)
    assert denial is not None
    assert 'egress = "off"' in denial.reason


def test_what_a_config_may_list_for_one_program() -> None:
    rows = Rows()
    for text, fits in {
        "a.test:443": True, "*.a.test:443": True, "*": True, "127.0.0.1:80": True,
        "[::1]:80": True, "A.Test:443": True, "a.test": False, "*.test:443": False, "*:443": False,
        "http://a.test/": False, "": False, "a.test:0": False, "a b.test:1": False,
    }.items():  # fmt: skip
        with rows.row(text):
            assert is_listed_form(text, any_host=True) is fits
    rows.check()
    assert not is_listed_form("*")
    named = ("127.0.0.1:80", "a.test:80", "[fe80::1]:1", "localhost:1", "127.0.0.1.a.test:1", "*")
    assert this_machine_among(named) == ("127.0.0.1:80", "[fe80::1]:1", "localhost:1")


async def test_the_receipt_of_a_call_has_what_its_server_reached(bench: Bench, shop: Shop) -> None:
    async def act(_tool: str, _arguments: Any, _progress: Any) -> RemoteResult:
        refused = {"b.test:443": "b.test:443 is not among the hosts"}
        return RemoteResult(contacted=("a.test:443 8.8.8.8 1/2 config",), refused=refused)

    shop.servers.act = act
    server = ServerSettings(
        alias="files", command=("x",), hosts=("a.test:443",), auto_approve=("files__*",)
    )
    (tool,) = await shop.stock(server, a_tool("read"))
    assert (tool.outward, tool.reaches_hosts) == (True, False)
    outcome = await bench.called(tool, '{"text": "x"}', sandbox_level="bwrap")
    (receipt,) = bench.receipts()
    assert (receipt.contacted, receipt.refused) == ("a.test:443 8.8.8.8 1/2 config", "b.test:443")
    assert "[clawd refused a connection: b.test:443 is not among the hosts]" in outcome.text
    assert outcome.metadata["hosts_contacted"] == ["a.test:443"]


@pytest.mark.sandbox
async def test_a_server_runs_by_a_program_of_the_person_with_caches_of_its_own_and_no_name(
    tmp_path: Path,
) -> None:
    person = tmp_path / "ada"
    world = World(tmp_path)
    node = person / ".tools/bin/node9"
    node.parent.mkdir(parents=True)
    node.write_text('#!/bin/sh\nexec /usr/bin/python3 "$@"\n')
    node.chmod(0o755)
    (person / ".tools/.npmrc").write_text("//r.test/:_authToken=secret")
    (person / ".gitconfig").write_text("[user]\n\tname = Ada\n\temail = ada@a.test\n")
    (person / ".bash_profile").write_text(f'export PATH="{node.parent}:$PATH"\n')
    world.sandbox = Sandbox(
        SandboxSettings(
            home=world.home, toolchains="auto", person=person, caches=world.home / "caches"
        ),
        registry=world.registry,
    )
    settings = world.program("looks-around")
    world.start(msgspec.structs.replace(settings, command=("node9", *settings.command[1:])))
    try:
        await world.ready("looks-around")
        secret = person / ".tools/.npmrc"
        script = (
            f"echo $HOME; cat ~/.gitconfig; cat {secret}; git config user.email; "
            "cat ~/.cache/kept 2>/dev/null; echo once > ~/.cache/kept"
        )
        first = told(await world.call("looks-around", script))
        assert first.startswith("/tmp/home\n")
        assert [word for word in ("secret", "ada@a.test", "Ada", "once") if word in first] == []
        await world.servers.connect("looks-around")
        again = told(await world.call("looks-around", "cat ~/.cache/kept"))
        assert again == "once\n"
        kept = world.sandbox.caches
        assert kept is not None
        assert [each.workspace for each in kept.all()] == ["MCP server looks-around"]
    finally:
        await world.close()
