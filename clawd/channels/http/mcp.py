"""`/mcp`: the tools of the daemon for MCP clients."""

from aiohttp import web

from clawd.channels.http.app import GATEWAY, caller_of
from clawd.channels.http.asgi import answer_by
from clawd.channels.http.errors import error_response
from clawd.errors import ForbiddenError, InvalidRequestError, NotFoundError
from clawd.mcp.mount import DOOR

PATH = "/mcp"
NOT_ALLOWED = 405


async def post(request: web.Request) -> web.StreamResponse:
    """Answer one message, or several that belong together, without a session."""
    caller, served = caller_of(request), request.app[GATEWAY].mcp
    if served is None:
        raise NotFoundError(
            f"{PATH} is switched off", hint="Set mcp = true in [channels.http] of the config."
        )
    if "tools" not in caller.scopes:
        raise ForbiddenError(
            "this key may not use tools", hint="Make one with: clawctl key create --scope tools"
        )
    return await answer_by(served.mount.serve, request, {DOOR: served.door_of(caller)})


async def refuse(request: web.Request) -> web.StreamResponse:
    """Say that there are no sessions: nothing can be followed or ended."""
    told = InvalidRequestError(
        f"{request.method} is not for {PATH}: there are no sessions here, POST every message"
    )
    response = error_response(request.path, told, NOT_ALLOWED)
    response.headers["Allow"] = "POST"
    return response


ROUTES = [
    web.post(PATH, post),
    web.get(PATH, refuse, allow_head=False),
    web.delete(PATH, refuse),
]
