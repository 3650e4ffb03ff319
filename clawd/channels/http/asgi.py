"""Gives one request of aiohttp to an ASGI application; no server of another kind runs for it."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from aiohttp import web

Message = MutableMapping[str, Any]
Application = Callable[
    [
        Message,
        bytes,
        Callable[[], Awaitable[Message]],
        Callable[[Message], Awaitable[None]],
    ],
    Awaitable[None],
]

_HOP_BY_HOP = frozenset({"connection", "transfer-encoding", "keep-alive", "content-length"})


def scope_of(request: web.Request, state: dict[str, Any]) -> Message:
    """Return the ASGI scope of a request."""
    peer = request.transport.get_extra_info("peername") if request.transport else None
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": f"{request.version.major}.{request.version.minor}",
        "method": request.method,
        "scheme": request.scheme,
        "path": request.path,
        "raw_path": request.rel_url.raw_path.encode(),
        "query_string": request.rel_url.raw_query_string.encode(),
        "root_path": "",
        "headers": [(name.lower(), value) for name, value in request.raw_headers],
        "client": tuple(peer[:2]) if peer else None,
        "server": None,
        "state": state,
    }


async def answer_by(
    application: Application,
    request: web.Request,
    state: dict[str, Any],
    *,
    ending: asyncio.Event | None = None,
) -> web.StreamResponse:
    """Let an application answer a request; a client that leaves ends it.

    Args:
        application: answers.
        request: of the client.
        state: what the application finds in its scope.
        ending: ends an answer that has no end of its own.
    """
    body = await request.read()
    answered = _Answered(request)
    is_read, is_over = False, asyncio.Event()

    async def receive() -> Message:
        nonlocal is_read
        if not is_read:
            is_read = True
            return {"type": "http.request", "body": body, "more_body": False}
        # A client that leaves cancels this task.
        await _first_of(is_over, ending or is_over)
        return {"type": "http.disconnect"}

    try:
        await application(scope_of(request, state), body, receive, answered.take)
    finally:
        is_over.set()
    return answered.response or web.Response(status=500)


async def _first_of(*events: asyncio.Event) -> None:
    waiting = [asyncio.create_task(event.wait()) for event in events]
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in waiting:
            task.cancel()


class _Answered:
    """Turns what an application sends into a response."""

    def __init__(self, request: web.Request) -> None:
        self._request = request
        self.response: web.StreamResponse | None = None

    async def take(self, message: Message) -> None:
        with contextlib.suppress(ConnectionError):  # a client that is gone needs no answer
            if message["type"] == "http.response.start":
                self.response = web.StreamResponse(status=message["status"])
                for name, value in message.get("headers", []):
                    text = name.decode("latin-1")
                    if text.lower() not in _HOP_BY_HOP:
                        self.response.headers.add(text, value.decode("latin-1"))
                await self.response.prepare(self._request)
            elif message["type"] == "http.response.body" and self.response is not None:
                if message.get("body"):
                    await self.response.write(message["body"])
                if not message.get("more_body"):
                    await self.response.write_eof()
