"""The way out of a sandbox: by name, through the proxy; by anything else nothing gets out."""

import asyncio
import contextlib
import os
import signal
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from clawd.security.network import NetworkRules
from clawd.security.sandbox.egress import MAX_HOSTS, Connect, Denial, Egress, WayOut, _FromProxy
from clawd.security.sandbox.egress_proxy import (
    MAX_CONNECTIONS,
    ProxyTarget,
    RefusedRequest,
    parse_request,
    refusal,
    server_name,
)
from clawd.security.sandbox.plan import ChildCommand
from clawd.security.sandbox.process import ChildResult
from clawd.security.sandbox.run import Sandbox, SandboxSettings
from tests.support.rows import Rows, each_row
from tests.support.tls import self_signed

LIMIT_S = 60.0


# --- what the proxy reads


def _request(line: str, *headers: str) -> bytes:
    return "\r\n".join([line, *headers, "", ""]).encode("latin-1")


@each_row(
    ("head", "asked"),
    [
        (_request("CONNECT Example.ORG.:443 HTTP/1.1", "Host: x"), ProxyTarget("example.org", 443)),
        (_request("CONNECT [2001:db8::1]:443 HTTP/1.1"), ProxyTarget("[2001:db8::1]", 443)),
        # What follows is inside the tunnel: no other reader of it is there.
        (_request("CONNECT a.org:443 HTTP/1.1", "Content-Length: 9"), ProxyTarget("a.org", 443)),
        (
            _request("GET http://a.org/ HTTP/1.1", "Host: b.org", "Host: c.org", "hOST: d.org"),
            ProxyTarget(
                "a.org", 80,
                _request("GET / HTTP/1.1", "Host: a.org", "Connection: close"), 0,
            ),
        ),
        (
            _request(
                "GET http://Example.org:8080/a?b=1#c HTTP/1.1", "Host: evil.test", "X-A: 1",
                "Proxy-Authorization: Basic eDp5", "Connection: keep-alive, X-Gone", "X-Gone: 2",
            ),
            ProxyTarget(
                "example.org", 8080,
                _request(
                    "GET /a?b=1 HTTP/1.1", "Host: example.org:8080", "X-A: 1", "Connection: close"
                ),
                0,
            ),
        ),
        (
            _request("POST http://example.org HTTP/1.0", "Content-Length: 5"),
            ProxyTarget(
                "example.org", 80,
                _request(
                    "POST / HTTP/1.1", "Host: example.org", "Content-Length: 5", "Connection: close"
                ),
                5,
            ),
        ),
        (
            _request("GET http://e.org?q HTTP/1.1", "Transfer-Encoding: Chunked"),
            ProxyTarget(
                "e.org", 80,
                _request(
                    "GET /?q HTTP/1.1", "Host: e.org", "Transfer-Encoding: Chunked",
                    "Connection: close",
                ),
                -1,
            ),
        ),
        (
            _request("GET http://e.org/ws HTTP/1.1", "Upgrade: websocket", "Connection: Upgrade"),
            ProxyTarget(
                "e.org", 80,
                _request(
                    "GET /ws HTTP/1.1", "Host: e.org", "Connection: Upgrade", "Upgrade: websocket"
                ),
                None,
            ),
        ),
    ],
)  # fmt: skip
def test_a_request_is_taken_as_its_server_is_to_see_it(head: bytes, asked: ProxyTarget) -> None:
    assert parse_request(head) == asked


@each_row(
    "head",
    [
        _request("GET /index.html HTTP/1.1", "Host: example.org"),
        _request("GET https://example.org/ HTTP/1.1"),
        _request("GET http://example.org:443/ HTTP/1.1"),
        _request("GET http://ada@example.org/ HTTP/1.1"),
        _request("GET http://example.org@evil.test/ HTTP/1.1"),
        _request("GET http://exa%6dple.org/ HTTP/1.1"),
        _request("GET http:///x HTTP/1.1"),
        _request("GET http://exämple.org/ HTTP/1.1"),
        _request("GET http://ex\u0430mple.org/ HTTP/1.1".encode().decode("latin-1")),
        _request("CONNECT \xadexample.org:443 HTTP/1.1"),
        _request("CONNECT example.org\t:443 HTTP/1.1"),
        _request("CONNECT example.org..:443 HTTP/1.1"),
        _request("CONNECT [::1%25lo]:443 HTTP/1.1"),
        _request("CONNECT ::1:443 HTTP/1.1"),
        _request("CONNECT http://example.org:443 HTTP/1.1"),
        _request("GET http://a.org/ HTTP/1.1\nHost: b.org"),
        _request("GET http://a.org\\@b.org/ HTTP/1.1"),
        _request("GET ftp://a.org/ HTTP/1.1"),
        _request(
            "POST http://e.org/ HTTP/1.1", "Transfer-Encoding: chunked", "Transfer-Encoding: x"
        ),
        _request("POST http://e.org/ HTTP/1.1", "Transfer-Encoding: \x0bchunked"),
        _request("POST http://e.org/ HTTP/1.1", "Content-Length: 1, 1"),
        _request("POST http://e.org/ HTTP/1.1", "Content-Length: 0x1"),
        _request("GET http://e.org/ HTTP/2.0"),
        _request("GET  http://e.org/ HTTP/1.1"),
        _request("CONNECT example.org HTTP/1.1"),
        _request("CONNECT example.org:0 HTTP/1.1"),
        _request("CONNECT example.org:65536 HTTP/1.1"),
        _request("CONNECT example.org:443:443 HTTP/1.1"),
        _request("CONNECT -example.org:443 HTTP/1.1"),
        _request("CONNECT example..org:443 HTTP/1.1"),
        _request(f"CONNECT {'a.' * 130}org:443 HTTP/1.1"),
        _request("CONNECT [fe80::1%25eth0]:443 HTTP/1.1"),
        _request("POST http://e.org/ HTTP/1.1", "Content-Length: 1", "Transfer-Encoding: chunked"),
        _request("POST http://e.org/ HTTP/1.1", "Content-Length: 1", "Content-Length: 2"),
        _request("POST http://e.org/ HTTP/1.1", "Content-Length: +1"),
        _request("POST http://e.org/ HTTP/1.1", "Transfer-Encoding: gzip, chunked"),
        _request("GET http://e.org/ HTTP/1.1", "X: 1", " folded"),
        _request("GET http://e.org/ HTTP/1.1", "X : 1"),
        _request("GET http://e.org/ HTTP/1.1", "X: 1\nHost: evil.test"),
        _request("GET http://e.org/ HTTP/1.1", *["X: 1"] * 300),
    ],
)
def test_a_request_that_two_readers_could_take_differently_is_refused(head: bytes) -> None:
    with pytest.raises(RefusedRequest):
        parse_request(head)


def test_the_host_of_a_tls_connection_is_read_from_every_split_of_its_first_message() -> None:
    hello = client_hello("files.example.org")
    assert server_name(hello) == "files.example.org"
    assert {server_name(hello[:end]) for end in range(len(hello))} == {None}
    assert server_name(client_hello("")) == ""
    body, pieces = hello[5:], b""
    for start in range(0, len(body), 50):
        part = body[start : start + 50]
        pieces += hello[:3] + len(part).to_bytes(2, "big") + part
    assert server_name(pieces) == "files.example.org"
    for other in (b"SSH-2.0-x\r\n", b"GET / HTTP/1.1\r\n\r\n", hello[:5] + b"\2" + hello[6:]):
        assert server_name(other) == ""


def test_a_refusal_says_why_where_programs_show_it_and_is_a_comment_to_a_shell() -> None:
    told = refusal(
        RefusedRequest(403, "a.org:443 is not granted", "clawctl policy\r\nallow")
    ).decode()
    head, _, body = told.partition("\r\n\r\n")
    assert head.startswith("HTTP/1.1 403 clawd refused: a.org:443 is not granted\r\n")
    assert body and all(line.startswith("#") for line in body.splitlines())
    assert subprocess.run(["sh", "-c", body], check=True, capture_output=True).stdout == b""


def client_hello(host: str) -> bytes:
    outgoing = ssl.MemoryBIO()
    context = ssl.create_default_context()
    context.check_hostname = False
    client = context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname=host or None)
    with contextlib.suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


# --- the fences

_TRIES = """
import os, socket, sys
sys.path.append(ROOT)
from clawd.security.sandbox.ROLE import raise_fence
made = socket.socket()
def unix(): socket.socket(socket.AF_UNIX)
def tries():
    yield "open", lambda: open("/etc/hostname")
    yield "write", lambda: open("/tmp/clawd-egress-test", "w")
    yield "exec", lambda: os.execv("/bin/true", ["true"])
    yield "connect", lambda: made.connect(("127.0.0.1", 1))
    if ROLE == "egress_proxy":
        yield "socket", lambda: socket.socket()
        yield "bind", lambda: made.bind(("127.0.0.1", 0))
        yield "fork", lambda: os.fork()
raise_fence()
for name, act in tries():
    try:
        act()
    except PermissionError:
        continue
    except OSError as error:
        os.write(1, f"{name}: {error}\\n".encode())
    os.write(1, f"{name} worked\\n".encode())
os.write(1, b"end")
"""


@each_row("role", ["egress_proxy", "egress_enter"])
def test_neither_process_can_open_start_or_connect_to_anything_by_itself(role: str) -> None:
    root = str(Path(__file__).parents[2])
    script = _TRIES.replace("sandbox.ROLE", f"sandbox.{role}").replace("ROLE ==", f"{role!r} ==")
    script = script.replace("ROOT", repr(root))
    argv = [sys.executable, "-I", "-S", "-E", "-c", script]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert (done.stdout, done.returncode) == ("end", 0), done.stderr


# --- in the sandbox


class Canary:
    """A server that notes what reaches it, and answers each connection with the same bytes."""

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        self.connections = 0
        self.received = b""
        self.ended = self._own = 0
        self.answer = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
        self._context = context
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def visits(self) -> int:
        """Return how many came so far: one more goes last through the queue, and is told."""
        with socket.create_connection(("127.0.0.1", self.port), LIMIT_S) as last:
            last.sendall(b"GET / HTTP/1.0\r\n\r\n")
            assert last.recv(1)
        self._own += 1
        return self.connections - self._own

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._server.accept()
                self.connections += 1
                threading.Thread(target=self._answer, args=(client,), daemon=True).start()

    def _answer(self, client: socket.socket) -> None:
        client.settimeout(LIMIT_S)
        with contextlib.suppress(OSError), client:
            if self._context is None:
                self._talk(client)
                return
            with self._context.wrap_socket(client, server_side=True) as inner:
                self._talk(inner)

    def _talk(self, client: socket.socket) -> None:
        data = client.recv(65536)
        if not data:
            self.ended += 1
            return
        self.received += data
        length = data.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
        rest = int(length or 0) - len(data.partition(b"\r\n\r\n")[2])
        while rest > 0 and (data := client.recv(65536)):
            self.received += data
            rest -= len(data)
        client.sendall(self.answer)

    def close(self) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()


class Place:
    """A sandbox with a way out to `good.test`, which is the canary on this machine."""

    def __init__(self, folder: Path, canary: Canary) -> None:
        self.canary = canary
        self.workspace = folder
        self.asked: list[tuple[str, int]] = []
        self.resolved: list[str] = []
        self.answers: Callable[[str], list[str]] = lambda _host: ["127.0.0.1"]
        self.granted = {("good.test", canary.port)}
        self.sandbox = Sandbox(SandboxSettings())
        self.egress = self.with_(NetworkRules(allowed_addresses=(f"good.test:{canary.port}",)))

    def with_(
        self, rules: NetworkRules, *, connect: Connect | None = None, max_bytes: int = 10**9
    ) -> Egress:
        self.egress = Egress(
            lambda: rules, resolve=self._resolve, connect=connect, max_bytes=max_bytes
        )
        return self.egress

    async def _resolve(self, host: str, port: int) -> list[str]:
        self.resolved.append(host)
        return self.answers(host)

    async def _decide(self, host: str, port: int) -> Denial | None:
        self.asked.append((host, port))
        if (host, port) in self.granted:
            return None
        return Denial(reason=f"{host}:{port} is not granted", hint="clawctl policy allow …")

    async def run(self, script: str, *, timeout_s: float = LIMIT_S) -> tuple[ChildResult, WayOut]:
        way_out = self.egress.way_out(self._decide)
        command = ChildCommand(
            argv=("bash", "-c", script), workspace=self.workspace, timeout_s=timeout_s
        )
        return await self.sandbox.run(command, way_out=way_out), way_out


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    canary = Canary()
    made = Place(tmp_path, canary)
    try:
        yield made
    finally:
        await made.egress.close()
        canary.close()


sandboxed = pytest.mark.sandbox


@sandboxed
async def test_a_granted_host_is_reached_and_what_was_moved_is_counted(place: Place) -> None:
    port = place.canary.port
    url = f"http://good.test:{port}/x"
    result, way_out = await place.run(f"curl -sS {url} && curl -sS -p {url}")
    assert (result.exit_code, result.output) == (0, "hellohello")
    assert list(way_out.contacts) == [f"good.test:{port}"]
    contact = way_out.contacts[f"good.test:{port}"]
    assert (contact.address, contact.connections) == ("127.0.0.1", 2)
    assert contact.up == len(place.canary.received)
    assert contact.down == 2 * len(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")
    assert (way_out.refused, way_out.problem) == ({}, "")


@sandboxed
async def test_a_body_is_copied_whole_with_a_length_and_nothing_after_it(place: Place) -> None:
    url = f"http://good.test:{place.canary.port}/x"
    result, _ = await place.run(f"head -c 300000 /dev/zero | curl -sS --data-binary @- {url}")
    assert (result.output, place.canary.received.count(b"\0")) == ("hello", 300_000)
    smuggled = f"POST {url} HTTP/1.1\\r\\nContent-Length: 2\\r\\n\\r\\nabGET /evil HTTP/1.1\\r\\n"
    result, _ = await place.run(
        f"exec 3<>/dev/tcp/127.0.0.1/3128; printf '{smuggled}' >&3; cat <&3 | tail -c 5"
    )
    assert result.output == "hello"
    assert b"evil" not in place.canary.received


@sandboxed
async def test_a_host_that_is_not_granted_is_neither_resolved_nor_connected_to(
    place: Place,
) -> None:
    result, way_out = await place.run(
        f"curl -sS http://bad.test:{place.canary.port}/; curl -sS https://bad.test/; "
        "curl -sS -o /dev/null -w '%{http_code} ' http://other.test/"
    )
    assert "# clawd refused: bad.test" in result.output
    assert result.output.endswith("403 ")
    assert set(way_out.refused) == {
        f"bad.test:{place.canary.port}", "bad.test:443", "other.test:80"
    }  # fmt: skip
    assert (way_out.contacts, place.resolved, place.canary.connections) == ({}, [], 0)


_DIRECT = """
import socket, struct
from socket import AF_INET, AF_PACKET, AF_UNIX, IPPROTO_ICMP, SOCK_DGRAM, SOCK_RAW, SOCK_STREAM
def sent(to, kind=(AF_INET, SOCK_DGRAM)): socket.socket(*kind).sendto(b"\\x08", to)
def names(): socket.getaddrinfo("good.test", 80)
def udp(): sent(("192.0.2.1", 53))
def udp_443(): sent(("192.0.2.1", 443))
def multicast(): sent(("224.0.0.251", 5353))
def ping(): sent(("192.0.2.1", 0), (AF_INET, SOCK_DGRAM, IPPROTO_ICMP))
def tcp(): socket.create_connection(("192.0.2.1", 80), 2)
def host(): socket.create_connection(("127.0.0.1", PORT), 2)
def link_local(): socket.create_connection(("169.254.169.254", 80), 2)
def link_local_6(): socket.create_connection(("fe80::1", 80), 2)
def link_local_scoped(): socket.create_connection(("fe80::1%lo", 80), 2)
def host_6(): socket.create_connection(("::1", PORT), 2)
def mapped(): socket.create_connection(("::ffff:127.0.0.1", PORT), 2)
def abstract(): socket.socket(AF_UNIX).connect(chr(0) + "dbus")
def bluetooth(): socket.socket(31, SOCK_STREAM)
def can(): socket.socket(29, SOCK_RAW)
def xdp(): socket.socket(44, SOCK_RAW)
def alg(): socket.socket(38, 5)
def sctp(): socket.socket(AF_INET, SOCK_STREAM, 132).connect(("192.0.2.1", 80))
def quic(): sent(("2001:4860:4860::8888", 443), (socket.AF_INET6, SOCK_DGRAM))
def udp_host(): udp_to(("127.0.0.1", PORT))
def udp_to(to):
    made = socket.socket(AF_INET, SOCK_DGRAM)
    made.connect(to)
    made.send(b"x")
    made.settimeout(0.2)
    made.recv(1)
def other_interface():
    if [name for _, name in socket.if_nameindex()] == ["lo"]: raise OSError("only its own")
def settings(): open("/etc/resolv.conf").read()
def packet_by_netlink():
    made = socket.socket(16, SOCK_RAW, 0)  # RTM_NEWROUTE, a default route by lo
    made.bind((0, 0))
    body = struct.pack("=BBBBBBBBI", 2, 0, 0, 0, 254, 3, 0, 1, 0) + struct.pack("=HHI", 8, 4, 1)
    made.send(struct.pack("=IHHII", 16 + len(body), 24, 0x605, 1, 0) + body)
    if struct.unpack("=i", made.recv(4096)[16:20])[0]: raise OSError("refused")
def name_server(): socket.create_connection(("127.0.0.1", 53), 2)
def raw(): socket.socket(AF_INET, SOCK_RAW, IPPROTO_ICMP)
def packet(): socket.socket(AF_PACKET, SOCK_RAW)
def vsock(): socket.socket(40, SOCK_STREAM)
def unix(): socket.socket(AF_UNIX)
for each in (names, udp, udp_443, multicast, tcp, host, link_local, link_local_6, raw, packet,
             vsock, unix, ping, name_server, link_local_scoped, host_6, mapped, abstract,
             bluetooth, can, xdp, alg, sctp, quic, udp_host, other_interface, settings,
             packet_by_netlink):
    try:
        each()
    except OSError:
        continue
    print("out by", each.__name__)
"""


@sandboxed
async def test_nothing_gets_out_beside_the_proxy(place: Place) -> None:
    (place.workspace / "direct.py").write_text(_DIRECT.replace("PORT", str(place.canary.port)))
    result, way_out = await place.run("python3 direct.py")
    assert (result.exit_code, result.output) == (0, "")
    assert (place.asked, place.resolved, place.canary.connections) == ([], [], 0)
    assert (way_out.contacts, place.egress.proxy_pid) == ({}, 0)


@sandboxed
async def test_odd_and_refused_addresses_are_refused_without_a_question(place: Place) -> None:
    port = place.canary.port
    hosts = ["2130706433", "0x7f.1", "0177.0.0.1", "127.1", "[::1]", "127.0.0.1", "localhost",
             "169.254.169.254", "[fe80::1]", "10.0.0.1", "[::ffff:127.0.0.1]", "a.localhost",
             "good.test@127.0.0.1", "127.0.0.1%00.good.test", "169.254.169.254.", "0xa9fea9fe",
             "2852039166", "0251.0376.0251.0376", "169.254.43518", "[::ffff:a9fe:a9fe]",
             "[::169.254.169.254]", "[64:ff9b::a9fe:a9fe]", "[2002:a9fe:a9fe::1]", "[fe80::1%25lo]",
             "[fd00:ec2::254]", "100.100.100.200", "168.63.129.16", "192.0.0.192", "0.0.0.0",
             "[::]", "\\342\\205\\260ocalhost", "LOCALHOST.", "127.0.0.1.",
             "224.0.0.251"]  # fmt: skip
    asking = (
        f"exec 3<>/dev/tcp/127.0.0.1/3128; printf 'CONNECT {host.replace('%', '%%')}:{port} "
        "HTTP/1.1\\r\\n\\r\\n' >&3; head -1 <&3"
        for host in hosts
    )
    result, way_out = await place.run("\n".join(asking))
    lines = result.output.splitlines()
    rows = Rows()
    for host, line in zip(hosts, lines, strict=True):
        with rows.row(host):
            assert " 403 " in line or " 400 " in line
    rows.check()
    assert (place.asked, place.resolved, place.canary.connections) == ([], [], 0)
    assert len(way_out.refused) == len({host.lower().removesuffix(".") for host in hosts})


@sandboxed
async def test_a_resolver_that_changes_its_answer_leads_to_no_address_that_was_not_judged(
    place: Place,
) -> None:
    answers = iter([["8.8.8.8"], ["127.0.0.1"], ["8.8.8.8", "169.254.169.254"], ["10.0.0.1"]])
    place.answers = lambda _host: next(answers)
    reached: list[tuple[str, ...]] = []

    async def connect(addresses: tuple[str, ...], port: int) -> tuple[socket.socket, str]:
        reached.append(addresses)
        connection = socket.create_connection(("127.0.0.1", place.canary.port))
        connection.setblocking(False)
        return connection, addresses[0]

    place.with_(NetworkRules(), connect=connect)
    place.granted.add(("good.test", 80))
    once = "curl -sS -o /dev/null -w '%{http_code} ' http://good.test/; "
    result, way_out = await place.run(once * 4)
    assert result.output == "200 403 403 403 "
    assert (reached, len(place.resolved), place.canary.connections) == ([("8.8.8.8",)], 4, 1)
    assert way_out.contacts["good.test:80"].address == "8.8.8.8"


@sandboxed
async def test_tls_to_another_host_than_the_granted_one_is_not_passed_on(
    place: Place, tmp_path: Path
) -> None:
    folder = tmp_path / "keys"
    folder.mkdir()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*self_signed(folder))
    canary = Canary(context)

    async def connect(addresses: tuple[str, ...], port: int) -> tuple[socket.socket, str]:
        connection = socket.create_connection(("127.0.0.1", canary.port))
        connection.setblocking(False)
        return connection, addresses[0]

    place.answers = lambda _host: ["8.8.8.8"]
    place.with_(NetworkRules(), connect=connect)
    place.granted.add(("good.test", 443))
    result, way_out = await place.run("curl -sSk https://good.test/")
    assert result.output == "hello"
    canary.received = b""
    front = "curl -sSk --connect-to evil.test:443:good.test:443 https://evil.test/"
    plain = (
        "exec 3<>/dev/tcp/127.0.0.1/3128; printf 'CONNECT good.test:443 HTTP/1.1\\r\\n\\r\\n' >&3"
    )
    result, way_out = await place.run(
        f"{front} 2>&1; {plain}; printf 'SSH-2.0-secret\\r\\n\\r\\n\\r\\n' >&3; cat <&3"
    )
    assert "hello" not in result.output
    assert canary.received == b""
    assert "TLS named" in way_out.refused["good.test:443"]
    canary.close()


@sandboxed
async def test_when_the_proxy_dies_nothing_leads_out_and_the_next_command_has_a_new_one(
    place: Place,
) -> None:
    url = f"http://good.test:{place.canary.port}/"
    flag = place.workspace / "flag"
    script = f"curl -sS {url}; while [ ! -e flag ]; do sleep 0.01; done; curl -sS {url}; echo $?"
    task = asyncio.create_task(place.run(script))
    async with asyncio.timeout(LIMIT_S):
        while not place.canary.connections or not place.egress.proxy_pid:
            await asyncio.sleep(0.01)
        os.kill(place.egress.proxy_pid, signal.SIGKILL)
        while place.egress.proxy_pid:
            await asyncio.sleep(0.01)
    flag.touch()
    result, way_out = await task
    assert result.output.endswith(("7\n", "56\n", "52\n"))
    assert (place.canary.connections, way_out.problem) == (1, "the egress proxy ended")
    result, _ = await place.run(f"curl -sS {url}")
    assert (result.output, place.canary.connections) == ("hello", 2)


@sandboxed
async def test_a_child_that_outlives_its_command_has_no_way_out(place: Place) -> None:
    url = f"http://good.test:{place.canary.port}/"
    again = f"while true; do curl -sS {url}; done"
    result, _ = await place.run(f"curl -sS {url}; setsid -f bash -c '{again}' >/dev/null 2>&1")
    assert result.output == "hello"
    before = place.canary.visits()
    _, way_out = await place.run("true")  # all of the first is dead by now
    assert (place.canary.visits(), way_out.contacts) == (before, {})


@sandboxed
async def test_a_command_moves_no_more_bytes_than_it_may(place: Place) -> None:
    rules = NetworkRules(allowed_addresses=(f"good.test:{place.canary.port}",))
    place.with_(rules, max_bytes=100_000)
    url = f"http://good.test:{place.canary.port}/"
    result, way_out = await place.run(
        f"head -c 3000000 /dev/zero | curl -sS --data-binary @- {url}; curl -sS {url}"
    )
    assert "hello" not in result.output
    assert way_out.contacts[f"good.test:{place.canary.port}"].up <= 100_000 + (1 << 18)
    assert len(place.canary.received) <= 100_000


@sandboxed
async def test_the_time_limit_stands_still_while_a_host_is_asked_about_and_a_defect_is_a_no(
    place: Place,
) -> None:
    async def decide(host: str, port: int) -> Denial | None:
        if host == "waits.test":
            await asyncio.sleep(2.5)
        raise RuntimeError("a defect")

    way_out = place.egress.way_out(decide)
    script = "curl -sS http://waits.test/; curl -sS http://good.test/; sleep 60"
    command = ChildCommand(argv=("bash", "-c", script), workspace=place.workspace, timeout_s=6.0)
    result = await place.sandbox.run(command, way_out=way_out)
    assert result.timed_out
    assert 8.0 < result.duration_ms / 1000 < 60
    assert result.output.count("could not be judged") == 2
    assert (place.resolved, place.canary.connections) == ([], 0)


@sandboxed
@pytest.mark.landlock
async def test_where_there_is_no_network_namespace_there_is_no_way_out(tmp_path: Path) -> None:
    canary = Canary()
    place = Place(tmp_path, canary)
    try:
        for settings in (SandboxSettings(levels=("landlock",)), SandboxSettings(mode="off")):
            place.sandbox = Sandbox(settings)
            result, way_out = await place.run('env; [ -z "$HTTP_PROXY" ]')
            assert result.exit_code == 0
            assert "no network namespace" in way_out.problem
            assert (place.asked, place.egress.proxy_pid) == ([], 0)
    finally:
        await place.egress.close()
        canary.close()


@sandboxed
async def test_a_name_server_is_a_host_like_any_other(place: Place) -> None:
    ask = (
        "exec 3<>/dev/tcp/127.0.0.1/3128; printf 'CONNECT {} HTTP/1.1\\r\\n\\r\\n' >&3; head -1 <&3"
    )
    hosts = ("8.8.8.8:53", "dns.test:53", "dns.test:853", "dns.test:443")
    result, way_out = await place.run("\n".join(map(ask.format, hosts)))
    assert result.output.count(" 403 ") == len(hosts)
    assert (set(way_out.refused), place.resolved) == (set(hosts), [])


@sandboxed
async def test_a_command_has_no_way_out_by_the_proxy_of_another(place: Place) -> None:
    port = place.canary.port
    url = f"http://good.test:{port}/"
    waits = f"curl -sS {url}; touch begun; while [ ! -e flag ]; do sleep 0.01; done; curl -sS {url}"
    first = asyncio.create_task(place.run(waits))
    async with asyncio.timeout(LIMIT_S):
        while not (place.workspace / "begun").exists():
            await asyncio.sleep(0.01)
    with pytest.raises(OSError, match="refused"):  # nothing listens outside, either
        socket.create_connection(("127.0.0.1", 3128), 2)
    try_it = (
        f"curl -sS -x http://127.0.0.1:3128 -o /dev/null -w '%{{http_code}}' {url}; echo \" $?\""
    )
    command = ChildCommand(argv=("bash", "-c", try_it), workspace=place.workspace)
    without = await place.sandbox.run(command)
    assert without.output.endswith("000 7\n"), "one without a way out finds no proxy"
    place.granted.clear()
    other, way_out = await place.run(try_it)
    assert (other.output, list(way_out.refused)) == ("403 0\n", [f"good.test:{port}"])
    place.granted.add(("good.test", port))
    (place.workspace / "flag").touch()
    result, way_out = await first
    assert (result.output, way_out.refused) == ("hellohello", {})


@sandboxed
async def test_a_redirect_leads_to_no_host_that_was_not_granted(place: Place) -> None:
    port = place.canary.port
    place.canary.answer = (
        b"HTTP/1.1 302 Found\r\nLocation: http://evil.test/?k=secret\r\nContent-Length: 0\r\n\r\n"
    )
    result, way_out = await place.run(f"curl -sSL http://good.test:{port}/")
    assert "# clawd refused: evil.test:80" in result.output
    assert (list(way_out.contacts), place.resolved) == ([f"good.test:{port}"], ["good.test"])


_MANY = """
import socket, sys
port, most = int(sys.argv[1]), int(sys.argv[2])
def begin():
    made = socket.create_connection(("127.0.0.1", 3128), 30)
    made.sendall(b"CONNECT good.test:%d HTTP/1.1\\r\\n\\r\\n" % port)
    return made
held = [begin() for _ in range(most)]
print(sum(b" 200 " in each.recv(100) for each in held))
extra = begin()
extra.settimeout(0.5)
try:
    print(extra.recv(100))
except TimeoutError:
    print("waits")
held.pop().close()
extra.settimeout(30)
print(extra.recv(100)[:12])
"""


@sandboxed
async def test_a_command_has_so_many_connections_and_the_next_one_waits(place: Place) -> None:
    (place.workspace / "many.py").write_text(_MANY)
    result, way_out = await place.run(f"python3 many.py {place.canary.port} {MAX_CONNECTIONS}")
    assert result.output == f"{MAX_CONNECTIONS}\nwaits\nb'HTTP/1.1 200'\n"
    assert way_out.contacts[f"good.test:{place.canary.port}"].connections == MAX_CONNECTIONS + 1


@sandboxed
async def test_what_a_child_holds_open_is_cut_with_its_command(place: Place) -> None:
    keep = (
        f"exec 3<>/dev/tcp/127.0.0.1/3128; printf 'CONNECT good.test:{place.canary.port} "
        "HTTP/1.1\\r\\n\\r\\n' >&3; head -1 <&3; setsid -f sleep 600 3<&3 >/dev/null 2>&1"
    )
    result, way_out = await place.run(keep)
    assert " 200 " in result.output
    async with asyncio.timeout(LIMIT_S):
        while not place.canary.ended:
            await asyncio.sleep(0.01)
    assert (place.canary.received, way_out.contacts[f"good.test:{place.canary.port}"].live) == (
        b"",
        0,
    )


@sandboxed
async def test_commands_with_a_way_out_see_the_certificates_that_a_person_named(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS", "PIP_CERT", "CARGO_HTTP_CAINFO",
             "GIT_SSL_CAINFO", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")  # fmt: skip
    hidden, shown = tmp_path / "hidden", tmp_path / "certificates"
    for folder in (hidden, shown):
        folder.mkdir()
        for name in names:
            (folder / name).write_text(f"the certificates of {name}\n")
    (shown / "key.pem").write_text("PRIVATE")
    place.workspace = tmp_path / "workspace"
    place.workspace.mkdir()
    place.sandbox = Sandbox(SandboxSettings(home=hidden))
    show = "".join(f'echo "${name}"; cat "${name}"; ' for name in names) + f"cat {shown}/key.pem"
    for name in names:
        monkeypatch.setenv(name, str(shown / name))
    result, _ = await place.run(f"({show}) 2>/dev/null")
    told = [line for name in names for line in (str(shown / name), f"the certificates of {name}")]
    assert result.output.splitlines() == told
    command = ChildCommand(argv=("bash", "-c", f"env; {show}"), workspace=place.workspace)
    assert "the certificates of" not in (await place.sandbox.run(command)).output
    for value in (str(hidden / "PIP_CERT"), "certificates/PIP_CERT", str(tmp_path / "gone"), ""):
        monkeypatch.setenv("PIP_CERT", value)
        result, _ = await place.run('echo "[$PIP_CERT]"')
        assert result.output == "[]\n", value


# --- the daemon's side, without a sandbox


class Noting(Egress):
    """Keeps what the proxy would be told, and starts none."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.told: list[dict[str, Any]] = []

    def tell(self, message: dict[str, Any], descriptor: int = -1) -> None:
        self.told.append(message)


async def _connected(addresses: tuple[str, ...], _port: int) -> tuple[socket.socket, str]:
    return socket.socket(), addresses[0]


async def _public(_host: str, _port: int) -> list[str]:
    return ["8.8.8.8"]


async def test_an_answer_for_a_proxy_that_died_is_told_to_no_other() -> None:
    asked, answer = asyncio.Event(), asyncio.Event()

    async def decide(_host: str, _port: int) -> Denial | None:
        asked.set()
        await answer.wait()
        return None

    for is_lasting in (False, True):
        asked.clear()
        answer.clear()
        egress = Noting(resolve=_public, connect=_connected)
        way = egress.way_out(decide, is_lasting=is_lasting)
        way.take(_FromProxy(op="ask", command=way.number, ask=1, host="good.test", port=443))
        await asked.wait()
        way.lose("the egress proxy ended")
        answer.set()
        async with way.held():
            pass
        assert (egress.told, way.contacts, way.losses) == ([], {}, 1)


async def test_a_command_asks_for_so_many_hosts_and_no_more() -> None:
    async def decide(_host: str, _port: int) -> Denial | None:
        return None

    egress = Noting(resolve=_public, connect=_connected)
    way = egress.way_out(decide)
    async with way.held():
        for number in range(MAX_HOSTS + 5):
            host = f"h{number}.test"
            way.take(_FromProxy(op="ask", command=1, ask=number, host=host, port=443))
            async with asyncio.timeout(LIMIT_S):
                while len(egress.told) <= number:
                    await asyncio.sleep(0)
    assert [each["op"] for each in egress.told].count("allow") == MAX_HOSTS
    assert len(way.refused) == 5
    assert "has asked for" in way.refused[f"h{MAX_HOSTS}.test:443"]


async def test_every_time_limit_of_a_command_stands_still_while_a_host_is_asked_about() -> None:
    answer = asyncio.Event()

    async def decide(_host: str, _port: int) -> Denial | None:
        await answer.wait()
        return Denial(reason="no")

    way = Noting().way_out(decide)
    async with way.held(), asyncio.timeout(LIMIT_S) as outer, asyncio.timeout(LIMIT_S) as inner:
        way.halt(outer)
        first = asyncio.create_task(way._decided("a.test", 443))
        second = asyncio.create_task(way._decided("b.test", 443))
        while outer.when() is not None:
            await asyncio.sleep(0)
        way.halt(inner)  # one that comes while somebody is asked
        assert inner.when() is None
        answer.set()
        assert [each is not None for each in await asyncio.gather(first, second)] == [True, True]
        assert outer.when() is not None
        assert inner.when() is not None
