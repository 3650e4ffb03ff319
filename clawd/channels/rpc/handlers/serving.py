"""Handlers by which a client becomes the door of another protocol: MCP on standard input."""

import asyncio
import sys
from collections.abc import AsyncIterator

from clawd import __version__
from clawd.channels.rpc.connection import Call
from clawd.channels.rpc.handlers.parts import Handler
from clawd.mcp.mount import load_sdk
from clawd.runtime.tool_client import ClientKind
from clawd.wire.events import McpLine
from clawd.wire.messages import Answer
from clawd.wire.reports import Done
from clawd.wire.serving_methods import LINE, ServeMcp

MAX_WAITING_BYTES = 64 << 20


class ServingHandlers(Handler):
    """Each method handles the wire method of its name."""

    async def serve_mcp(self, _params: ServeMcp, call: Call) -> Done:
        """Serve an MCP client until its messages end or the caller goes.

        Raises:
            ConnectionError: the caller went before it was told all.
        """
        lines = _Lines()
        call.on_answer = lines.take  # before anything is waited for: the client has begun already
        call.ends = False
        await load_sdk()
        from clawd.mcp.lines import serve_lines
        from clawd.mcp.server import make_server

        kind = ClientKind(
            label="MCP client", patterns=lambda: self.parts.tool_clients.settings().tools_allow
        )
        door = self.parts.tool_clients.door(call.principal, kind)

        async def send(text: str) -> None:
            await call.emit(McpLine(text=text))

        on_change = self.parts.tool_clients.registry.on_change
        server = make_server(lambda _ctx: door, version=__version__, on_change=on_change)
        try:
            await serve_lines(server, lines.all(), send, on_change)
        except ExceptionGroup as group:
            _, others = group.split(ConnectionError)
            if others is not None:
                raise others from None
            raise ConnectionResetError("the client is gone") from None
        return Done(message="the client has left")


class _Lines:
    """The messages of a client, as they come; too many that nobody reads end it."""

    def __init__(self) -> None:
        self._lines: asyncio.Queue[str | None] = asyncio.Queue()
        self._bytes = 0
        self._is_over = False

    def take(self, answer: Answer) -> None:
        """Take a message, or the end of them."""
        if self._is_over:
            return
        # As they lie in memory: many short messages are much more than their letters.
        self._bytes += sys.getsizeof(answer.value)
        self._is_over = answer.question != LINE or self._bytes > MAX_WAITING_BYTES
        self._lines.put_nowait(None if self._is_over else answer.value)

    async def all(self) -> AsyncIterator[str]:
        """Return the messages until their end."""
        while (line := await self._lines.get()) is not None:
            self._bytes -= sys.getsizeof(line)
            yield line
