"""The control socket's listener: takes clients in, finds out who they are, serves each."""

import asyncio
import logging
import socket
import sys
from collections.abc import Callable, Mapping
from typing import Any

from clawd.channels.rpc.connection import Connection, Handler, Identity, failure_of
from clawd.errors import BusyError, ClawError, ForbiddenError
from clawd.security.principal import Principal
from clawd.wire.codec import encode_frame
from clawd.wire.methods import METHODS

MAX_CONNECTIONS = 256

_log = logging.getLogger(__name__)


class RpcServer:
    """Serves the control socket.

    Args:
        handlers: for every name in METHODS what answers it.
        identify: tells who is at the other end of a connected socket; raises ForbiddenError for
            a peer that may not speak at all.
        identity: what the welcome says.
    """

    def __init__(
        self,
        handlers: Mapping[str, Handler],
        *,
        identify: Callable[[socket.socket], Principal],
        identity: Identity,
    ) -> None:
        if missing := METHODS.keys() - handlers.keys():
            raise TypeError(f"no handler for: {', '.join(sorted(missing))}")
        self._handlers = handlers
        self._identify = identify
        self._identity = identity
        self._server: asyncio.Server | None = None
        self._clients: dict[asyncio.Task[None], Connection | None] = {}

    async def start(self, listener: socket.socket) -> None:
        """Accept clients on a bound, listening Unix socket; its file stays its maker's."""
        options: dict[str, Any] = {}
        if sys.version_info >= (3, 13):  # since then asyncio removes the file, systemd's too
            options["cleanup_socket"] = False
        self._server = await asyncio.start_unix_server(self._serve, sock=listener, **options)

    async def take(self, connected: socket.socket) -> None:
        """Serve a client at the other end of a connected socket, and close it at the end."""
        reader, writer = await asyncio.open_unix_connection(sock=connected)
        task = asyncio.create_task(self._serve(reader, writer))
        self._clients[task] = None

    async def stop_listening(self) -> None:
        """Take no more clients; those that are connected stay."""
        if self._server is not None:
            self._server.close()
            self._server = None

    async def settle(self, limit_s: float) -> None:
        """Give the requests under way that long to tell their results."""
        tasks = [
            task
            for connection in self._clients.values()
            if connection is not None
            for task in connection.unfinished()
        ]
        if tasks:
            await asyncio.wait(tasks, timeout=limit_s)

    async def close(self) -> None:
        """Stop accepting, and end every connection."""
        await self.stop_listening()
        for task in tuple(self._clients):
            task.cancel()
        if self._clients:
            await asyncio.wait(tuple(self._clients), timeout=5)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._clients[task] = None
        try:
            principal = self._admit(writer)
            if principal is not None:
                connection = Connection(
                    reader,
                    writer,
                    principal=principal,
                    identity=self._identity,
                    handlers=self._handlers,
                )
                self._clients[task] = connection
                await connection.serve()
        except asyncio.CancelledError:
            writer.transport.abort()
        except Exception as error:  # noqa: BLE001 - the outermost handler of a connection
            _log.error("a connection failed with a defect", exc_info=error)
        finally:
            del self._clients[task]
            writer.close()

    def _admit(self, writer: asyncio.StreamWriter) -> Principal | None:
        """Return who the client is, or tell it why it may not speak."""
        try:
            if len(self._clients) > MAX_CONNECTIONS:
                raise BusyError(f"{MAX_CONNECTIONS} clients are connected", retry_after_s=1.0)
            peer = writer.get_extra_info("socket")
            return self._identify(peer)
        except OSError as error:
            self._turn_away(writer, ForbiddenError(f"the peer cannot be identified: {error}"))
        except ClawError as error:
            self._turn_away(writer, error)
        return None

    def _turn_away(self, writer: asyncio.StreamWriter, error: ClawError) -> None:
        _log.warning("a client was turned away: %s", error.message)
        writer.write(encode_frame(failure_of(None, error)))
