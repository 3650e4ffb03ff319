"""A canary for tests of the network: it counts who connects, and sees where anybody tries to."""

import asyncio
import contextlib
import errno
import ipaddress
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from typing import Any

_LIMIT_S = 60.0


class _Watch:
    """Sees each connect of this process while it is on, and lets none leave the machine."""

    def __init__(self) -> None:
        self.attempts: list[str] | None = None
        self._is_installed = False

    def _hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event != "socket.connect" or self.attempts is None:
            return
        address = arguments[1]
        host = str(address[0]) if isinstance(address, tuple) else f"unix:{address!r}"
        self.attempts.append(host)
        if not _is_local(host):
            raise OSError(errno.ENETUNREACH, "tests open no connection to another machine")

    @contextlib.contextmanager
    def on(self) -> Iterator[list[str]]:
        if not self._is_installed:
            sys.addaudithook(self._hook)  # it cannot be taken out again
            self._is_installed = True
        attempts: list[str] = []
        self.attempts = attempts
        try:
            yield attempts
        finally:
            self.attempts = None


_WATCH = _Watch()


def _is_local(host: str) -> bool:
    with contextlib.suppress(ValueError):
        address = ipaddress.ip_address(host)
        if isinstance(address, ipaddress.IPv6Address):
            address = address.ipv4_mapped or address
        return address.is_loopback or address.is_unspecified
    return False


class Canary:
    """Listens on every address of this machine and answers with how many came before.

    Attributes:
        port: where it listens.
        attempts: the addresses that this process tried to connect to, its own visits left out.
    """

    def __init__(self, port: int, attempts: list[str]) -> None:
        self.port = port
        self.attempts = attempts
        self._connections = 0
        self._own = 0

    async def visits(self) -> int:
        """Count the connections so far: one more goes last through the queue and is told."""
        seen = len(self.attempts)
        async with asyncio.timeout(_LIMIT_S):
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
            del self.attempts[seen:]
            writer.write(b"GET / HTTP/1.0\r\n\r\n")
            told = await reader.read()
            writer.close()
            await writer.wait_closed()
        self._own += 1
        return int(told.rpartition(b"\n")[2]) - self._own + 1

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        count, self._connections = self._connections, self._connections + 1
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            body = f"\n{count}".encode()
            writer.write(b"HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\n\r\n" + body)
            await writer.drain()
        writer.close()


@contextlib.asynccontextmanager
async def canary() -> AsyncIterator[Canary]:
    """Set one up, and watch what this process connects to."""
    has_v6 = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if has_v6 else socket.AF_INET
    listener = socket.create_server(("", 0), family=family, dualstack_ipv6=has_v6)
    with _WATCH.on() as attempts:
        bird = Canary(listener.getsockname()[1], attempts)
        server = await asyncio.start_server(bird.serve, sock=listener)
        try:
            yield bird
        finally:
            server.close()
            await server.wait_closed()


class Names:
    """A resolver without a network: addresses in any notation, and names that a test gives.

    `answers` maps a name to what it answers the first time, the second and so on; the last
    answer stays. `asked` lists the names that were asked for.
    """

    def __init__(self, answers: dict[str, list[list[str]]] | None = None) -> None:
        self.answers = {name: list(each) for name, each in (answers or {}).items()}
        self.asked: list[str] = []

    async def __call__(self, host: str, port: int) -> list[str]:
        self.asked.append(host)
        name = host.rstrip(".").lower()
        if name in self.answers:
            each = self.answers[name]
            return each.pop(0) if len(each) > 1 else each[0]
        if name == "localhost" or name.endswith(".localhost"):
            return ["127.0.0.1"]
        found = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
        return [str(answer[4][0]) for answer in found]
