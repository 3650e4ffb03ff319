"""The server of the gateway: takes connections, answers, drains and ends."""

import asyncio
import socket
import ssl
from collections.abc import Callable
from typing import Any, ClassVar

from aiohttp import web

from clawd.channels.base import Outgoing
from clawd.channels.http.app import DRAINING
from clawd.channels.http.connections import HANDSHAKE_TIMEOUT_S, Connections
from clawd.channels.http.guard import Traffic, dress
from clawd.channels.http.protocol import Protocol, ProtocolLog
from clawd.config.http import HttpSection
from clawd.runtime.hub import DaemonEvent, Hub

MAX_HEAD_LINE = 8_190
MAX_FIELD = 8_190
MAX_HEADERS = 100
LINGERING_S = 2.0
# aiohttp's own limit of idle connections knows nothing of a head that is under way: ours is used.
KEPT_S = 7 * 86_400.0
CANCEL_S = 2.0


class Server:
    """A gateway that listens.

    Args:
        app: answers; made by `app.make_app`.
        traffic: whose middleware is outermost in it.
        http: limits.
        hub: whose followers at `/events` are told what is sent; None reaches nobody.
    """

    name: ClassVar[str] = "http"
    supports_draft_updates: ClassVar[bool] = False

    def __init__(
        self, app: web.Application, traffic: Traffic, http: HttpSection, hub: Hub | None = None
    ) -> None:
        self._app = app
        self._traffic = traffic
        self._http = http
        self._hub = hub
        self._runner: web.AppRunner | None = None
        self._servers: list[asyncio.Server] = []
        self.addresses: tuple[str, ...] = ()

    async def start(self, sockets: list[socket.socket], tls: ssl.SSLContext | None) -> None:
        """Begin to take connections on bound sockets, which are the server's from now on."""
        self._app.on_response_prepare.append(dress)
        self._runner = web.AppRunner(
            self._app, handler_cancellation=True, access_log=None, shutdown_timeout=CANCEL_S
        )
        await self._runner.setup()
        connections = Connections(self._protocols(self._runner.server), self._http)
        loop = asyncio.get_running_loop()
        handshake_s = HANDSHAKE_TIMEOUT_S if tls is not None else None
        scheme = "http" if tls is None else "https"
        for each in sockets:
            server = await loop.create_server(
                connections, sock=each, ssl=tls, ssl_handshake_timeout=handshake_s
            )
            self._servers.append(server)
        self.addresses = tuple(f"{scheme}://{_shown(each)}" for each in sockets)

    async def send(self, outgoing: Outgoing) -> bool:
        """Tell it to those who follow what happens; tell whether anybody does who may see it."""
        if self._hub is None:
            return False
        owner, about = outgoing.owner, outgoing.conversation_id
        event = DaemonEvent(event=outgoing.notice(), owner=owner, conversation_id=about)
        return self._hub.tell_followers(event)

    def _protocols(self, manager: web.Server | None) -> Callable[[], Protocol]:
        """Return what makes the protocol of each connection."""
        assert manager is not None
        options: dict[str, Any] = {
            "access_log": None,
            "logger": ProtocolLog("clawd.channels.http.protocol"),
            "keepalive_timeout": KEPT_S,
            "max_line_size": MAX_HEAD_LINE,
            "max_field_size": MAX_FIELD,
            "max_headers": MAX_HEADERS,
            "lingering_time": LINGERING_S,
            "auto_decompress": False,
        }
        loop = asyncio.get_running_loop()
        return lambda: Protocol(manager, loop=loop, **options)

    def stop_listening(self) -> None:
        """Take no new connections, and refuse new requests on those there are."""
        self._traffic.is_draining = True
        self._app[DRAINING].set()
        for server in self._servers:
            server.close()

    async def settle(self, grace_s: float) -> None:
        """Let the requests that run end by themselves, at most that long."""
        await self._traffic.settle(grace_s)

    async def close(self) -> None:
        """Cancel what still runs, and close every connection; idempotent."""
        self.stop_listening()
        runner, self._runner = self._runner, None
        if runner is not None:
            await self._traffic.cancel(CANCEL_S)  # aiohttp would first wait for them once more
            await runner.cleanup()


def _shown(bound: socket.socket) -> str:
    host, port = bound.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
