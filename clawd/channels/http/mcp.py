"""`/mcp`: the tools of the daemon for MCP clients."""

import asyncio

from aiohttp import web

from clawd.channels.http.app import DRAINING, GATEWAY, McpServed, caller_of
from clawd.channels.http.asgi import answer_by
from clawd.channels.http.errors import error_response
from clawd.errors import ForbiddenError, InvalidRequestError, NotFoundError
from clawd.mcp.mount import DOOR, OWNER

PATH = "/mcp"
NOT_ALLOWED = 405
_METHOD = "Mcp-Method"
_LISTEN = "subscriptions/listen"


async def post(request: web.Request) -> web.StreamResponse:
    """Answer one message, or several that belong together."""
    served = _served(request)
    if request.headers.get(_METHOD) == _LISTEN:
        return await _until_the_end(request, served)
    return await _answered(request, served)


async def follow(request: web.Request) -> web.StreamResponse:
    """Tell what concerns a session, as it comes; where there are none, say so."""
    served = _served(request)
    if not served.mount.keeps_sessions:
        return _refused(request)
    return await _until_the_end(request, served)


async def end(request: web.Request) -> web.StreamResponse:
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
            f"{PATH} is switched off", hint="Set mcp = true in [channels.http] of the config."
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
    return await answer_by(served.mount.serve, request, state, ending=ending)


async def _until_the_end(request: web.Request, served: McpServed) -> web.StreamResponse:
    """Answer with a stream that has no end of its own: it ends when the daemon does."""
    return await _answered(request, served, ending=request.app[DRAINING])


def _refused(request: web.Request) -> web.Response:
    told = InvalidRequestError(
        f"{request.method} is not for {PATH}: there are no sessions here, POST every message"
    )
    response = error_response(request.path, told, NOT_ALLOWED)
    response.headers["Allow"] = "POST"
    return response


ROUTES = [
    web.post(PATH, post),
    web.get(PATH, follow, allow_head=False),
    web.delete(PATH, end),
]
