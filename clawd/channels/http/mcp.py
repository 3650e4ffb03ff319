"""`/mcp`: the tools of the daemon for MCP clients."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from aiohttp import web

from clawd.channels.http.app import DRAINING, GATEWAY, McpServed, caller_of
from clawd.channels.http.errors import error_response
from clawd.errors import ForbiddenError, InvalidRequestError, NotFoundError
from clawd.mcp.mount import DOOR, OWNER

# Gives one request of aiohttp to an ASGI application; no server of another kind runs for it.

_Message = MutableMapping[str, Any]
_Application = Callable[
    [_Message, bytes, Callable[[], Awaitable[_Message]], Callable[[_Message], Awaitable[None]]],
    Awaitable[None],
]

_HOP_BY_HOP = frozenset({"connection", "transfer-encoding", "keep-alive", "content-length"})


def _scope_of(request: web.Request, state: dict[str, Any]) -> _Message:
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


async def _answer_by(
    application: _Application,
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

    async def receive() -> _Message:
        nonlocal is_read
        if not is_read:
            is_read = True
            return {"type": "http.request", "body": body, "more_body": False}
        # A client that leaves cancels this task.
        await _first_of(is_over, ending or is_over)
        return {"type": "http.disconnect"}

    try:
        await application(_scope_of(request, state), body, receive, answered.take)
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

    async def take(self, message: _Message) -> None:
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


_PATH = "/mcp"
_NOT_ALLOWED = 405
_METHOD = "Mcp-Method"
_LISTEN = "subscriptions/listen"


async def _post(request: web.Request) -> web.StreamResponse:
    """Answer one message, or several that belong together."""
    served = _served(request)
    if request.headers.get(_METHOD) == _LISTEN:
        return await _until_the_end(request, served)
    return await _answered(request, served)


async def _follow(request: web.Request) -> web.StreamResponse:
    """Tell what concerns a session, as it comes; where there are none, say so."""
    served = _served(request)
    if not served.mount.keeps_sessions:
        return _refused(request)
    return await _until_the_end(request, served)


async def _end(request: web.Request) -> web.StreamResponse:
    """End a session; where there are none, say so."""
    served = _served(request)
    if not served.mount.keeps_sessions:
        return _refused(request)
    return await _answered(request, served)


def _served(request: web.Request) -> McpServed:
    """Return the server, for a caller who may use it."""
    served = request.app[GATEWAY].mcp
    if served is None:
        raise NotFoundError(
            f"{_PATH} is switched off", hint="Set mcp = true in [channels.http] of the config."
        )
    if "tools" not in caller_of(request).scopes:
        raise ForbiddenError(
            "this key may not use tools", hint="Make one with: clawctl key create --scope tools"
        )
    return served


async def _answered(
    request: web.Request, served: McpServed, *, ending: asyncio.Event | None = None
) -> web.StreamResponse:
    caller = caller_of(request)
    owner = f"{caller.principal.uid} {caller.key_id}"
    state = {DOOR: served.door_of(caller), OWNER: owner}
    return await _answer_by(served.mount.serve, request, state, ending=ending)


async def _until_the_end(request: web.Request, served: McpServed) -> web.StreamResponse:
    """Answer with a stream that has no end of its own: it ends when the daemon does."""
    return await _answered(request, served, ending=request.app[DRAINING])


def _refused(request: web.Request) -> web.Response:
    told = InvalidRequestError(
        f"{request.method} is not for {_PATH}: there are no sessions here, POST every message"
    )
    response = error_response(request.path, told, _NOT_ALLOWED)
    response.headers["Allow"] = "POST"
    return response


ROUTES = [
    web.post(_PATH, _post),
    web.get(_PATH, _follow, allow_head=False),
    web.delete(_PATH, _end),
]
