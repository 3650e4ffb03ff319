"""`/mcp`: the tools of the daemon for MCP clients."""

from collections.abc import Callable

from aiohttp import web

from clawd.channels.http.app import caller_of
from clawd.channels.http.asgi import answer_by
from clawd.channels.http.errors import error_response
from clawd.channels.http.exchange import Caller
from clawd.errors import ForbiddenError, InvalidRequestError
from clawd.mcp.door import ToolDoor
from clawd.mcp.mount import DOOR, Mount

PATH = "/mcp"
NOT_ALLOWED = 405


def mcp_routes(mount: Mount, door_of: Callable[[Caller], ToolDoor]) -> list[web.RouteDef]:
    """Return the routes of an MCP server that knows no sessions.

    Args:
        mount: serves.
        door_of: returns the tools of a caller.
    """

    async def post(request: web.Request) -> web.StreamResponse:
        caller = caller_of(request)
        if "tools" not in caller.scopes:
            raise ForbiddenError(
                "this key may not use tools", hint="Create one with: clawctl key create"
            )
        return await answer_by(mount.serve, request, {DOOR: door_of(caller)})

    async def refuse(request: web.Request) -> web.StreamResponse:
        told = InvalidRequestError(
            f"{request.method} is not for {PATH}: there are no sessions here, POST every message"
        )
        response = error_response(request.path, told, NOT_ALLOWED)
        response.headers["Allow"] = "POST"
        return response

    return [
        web.post(PATH, post),
        web.get(PATH, refuse, allow_head=False),
        web.delete(PATH, refuse),
    ]
