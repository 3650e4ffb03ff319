"""Serves one MCP client whose messages come as lines of JSON, as on standard input and output."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import anyio
import mcp_types as types
from mcp.server import NotificationOptions, Server
from mcp.shared.message import SessionMessage

MAX_WAITING = 64
END_GRACE_S = 1.0

_TOOLS_CHANGED = types.JSONRPCNotification(jsonrpc="2.0", method="notifications/tools/list_changed")


async def serve_lines(
    server: Server[Any],
    lines: AsyncIterator[str],
    send: Callable[[str], Awaitable[None]],
    on_change: Callable[[Callable[[], None]], Callable[[], None]],
) -> None:
    """Serve until the lines end; what runs then is cancelled.

    Args:
        server: answers.
        lines: JSON texts of the client.
        send: takes a JSON text for the client.
        on_change: tells when there are other tools. Clients of the older revisions are told of it
            once they have shaken hands; those of the newest ask for it.
    """
    to_server, incoming = anyio.create_memory_object_stream[SessionMessage | Exception](MAX_WAITING)
    outgoing, to_client = anyio.create_memory_object_stream[SessionMessage](MAX_WAITING)
    open_requests = _OpenRequests()
    has_changed, tells = asyncio.Event(), contextlib.ExitStack()

    async def read() -> None:
        async with to_server:
            async for line in lines:
                if line.strip():
                    message = _message(line)
                    open_requests.asked(message)
                    if _is_initialized(message):
                        tells.callback(on_change(has_changed.set))
                    await to_server.send(message)
            await open_requests.wait(END_GRACE_S)

    async def write() -> None:
        async with to_client:
            async for message in to_client:
                await send(message.message.model_dump_json(by_alias=True, exclude_unset=True))
                open_requests.answered(message)

    async def tell_changes() -> None:
        while True:
            await has_changed.wait()
            has_changed.clear()  # many changes that nobody has read of are one
            await outgoing.send(SessionMessage(_TOOLS_CHANGED))

    options = server.create_initialization_options(NotificationOptions(tools_changed=True))
    async with asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(work()) for work in (write, read, tell_changes)]
        try:
            await server.run(incoming, outgoing, options)
        finally:
            tells.close()
            for task in running:
                task.cancel()


class _OpenRequests:
    """The requests of a client that have no answer yet.

    A client that says all it has to say and closes is answered all the same, where that is quick.
    """

    def __init__(self) -> None:
        self._ids: set[object] = set()
        self._none = asyncio.Event()
        self._none.set()

    def asked(self, message: SessionMessage | Exception) -> None:
        """Note a message of the client."""
        if isinstance(message, SessionMessage) and isinstance(
            message.message, types.JSONRPCRequest
        ):
            self._ids.add(message.message.id)
            self._none.clear()

    def answered(self, message: SessionMessage) -> None:
        """Note a message for the client that was sent."""
        if isinstance(message.message, types.JSONRPCResponse | types.JSONRPCError):
            self._ids.discard(message.message.id)
            if not self._ids:
                self._none.set()

    async def wait(self, limit_s: float) -> None:
        """Wait until all are answered, or that long."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                await self._none.wait()


def _is_initialized(message: SessionMessage | Exception) -> bool:
    return (
        isinstance(message, SessionMessage)
        and isinstance(message.message, types.JSONRPCNotification)
        and message.message.method == "notifications/initialized"
    )


def _message(line: str) -> SessionMessage | Exception:
    try:
        return SessionMessage(types.jsonrpc_message_adapter.validate_json(line))
    except ValueError as error:
        return error
