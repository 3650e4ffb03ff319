"""Server-sent events of clawd's own routes: one for every wire event, by its tag.

    event: text
    data: {"type":"text","text":"Hello"}

A comment is sent whenever nothing was for a second, so that nothing between takes the silence for
the end. What fails before the first event is a status; after it, the event `error`.
"""

import asyncio
import contextlib
import time
from collections.abc import Coroutine
from types import TracebackType
from typing import Any

import msgspec
from aiohttp import web

from clawd.channels.http.app import DRAINING
from clawd.channels.http.errors import message_of
from clawd.errors import ClawError

PING_S = 1.0
STALL_S = 30.0
PING = b": ping\n\n"
_HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}


class EventStream:
    """One stream to one client. Use it as a context; the response begins with the first event.

    Args:
        request: what it answers.
        ping_s: so much silence is told as a comment.
        stall_s: a client that takes nothing for that long is cut off.
    """

    def __init__(
        self, request: web.Request, *, ping_s: float = PING_S, stall_s: float = STALL_S
    ) -> None:
        self._request = request
        self._ping_s = ping_s
        self._stall_s = stall_s
        self._response = web.StreamResponse(headers=_HEADERS)
        self._response.content_type = "text/event-stream"
        self._starting = asyncio.Lock()
        self._said_at = time.monotonic()
        self._pinging: asyncio.Task[None] | None = None

    async def __aenter__(self) -> "EventStream":
        self._pinging = asyncio.create_task(self._ping())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        """End it; an error that came after the beginning is told as an event."""
        assert self._pinging is not None
        self._pinging.cancel()
        await asyncio.wait([self._pinging])
        if isinstance(error, ConnectionError):
            return self._response.prepared
        if isinstance(error, ClawError) and self._response.prepared:
            told = {"type": "error", "code": error.code, "message": message_of(error)}
            with contextlib.suppress(ConnectionError):
                await self.send("error", told)
            return True
        return False

    @property
    def response(self) -> web.StreamResponse:
        """What the handler returns."""
        return self._response

    async def start(self) -> None:
        """Send the head of the response, if it was not sent."""
        async with self._starting:
            if not self._response.prepared:
                await self._response.prepare(self._request)

    async def send(self, name: str, value: Any) -> None:
        """Send an event; waits while the client is slow.

        Raises:
            ConnectionError: the client left, or takes nothing.
        """
        data = msgspec.json.encode(value)
        await self._write(b"event: %b\ndata: %b\n\n" % (name.encode(), data))

    async def send_wire(self, event: Any, **more: str) -> None:
        """Send a wire event by its tag, with further fields beside its own.

        Raises:
            ConnectionError: the client left.
        """
        value = msgspec.to_builtins(event)
        await self.send(value["type"], value | more)

    async def _write(self, data: bytes) -> None:
        await self.start()
        self._said_at = time.monotonic()
        try:
            async with asyncio.timeout(self._stall_s):
                await self._response.write(data)
        except TimeoutError:
            if self._request.transport is not None:
                self._request.transport.abort()
            raise ConnectionAbortedError("the client takes nothing") from None

    async def _ping(self) -> None:
        while True:
            silent_s = time.monotonic() - self._said_at
            if silent_s < self._ping_s:
                await asyncio.sleep(self._ping_s - silent_s)
                continue
            try:
                await self._write(PING)
            except ConnectionError:
                return


async def until_drained(request: web.Request, work: Coroutine[Any, Any, Any]) -> None:
    """Do work that has no end of its own; it is cancelled when the daemon ends."""
    drained = asyncio.create_task(request.app[DRAINING].wait())
    working = asyncio.create_task(work)
    try:
        await asyncio.wait({drained, working}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        is_over = working.done()
        drained.cancel()
        working.cancel()
        await asyncio.wait({drained, working})
    if is_over:
        working.result()
