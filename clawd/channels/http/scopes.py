"""What a caller's key must allow for a route. Decided by the table of routes alone."""

from aiohttp import web

from clawd.channels.http.caller import Handler, caller_of
from clawd.channels.http.exchange import Caller
from clawd.channels.http.routes_table import ADMIN, PUBLIC, Needs, row_of
from clawd.errors import ForbiddenError

MODELS_SCOPE, CHAT_SCOPE = "models", "chat"


def needs_of(method: str, path: str) -> Needs:
    """Return the scopes that a route needs: none at all (None) for a public one.

    Args:
        method: of HTTP; HEAD is as GET.
        path: of the route, as the router writes it.
    """
    row = row_of(method, path)
    return ADMIN if row is None else row.needs


def route_of(request: web.Request) -> str:
    """Return the path of the route that a request goes to; empty where there is none."""
    resource = request.match_info.route.resource
    return resource.canonical if resource is not None else ""


def is_public(request: web.Request) -> bool:
    """Tell whether a request is answered whoever asks."""
    path = route_of(request)
    return bool(path) and needs_of(request.method, path) is PUBLIC


def require(caller: Caller, *scopes: str) -> None:
    """Make sure that a caller has scopes; without any named, that it has one beside models.

    Who may chat may use models.

    Raises:
        ForbiddenError: it has not; says which is missing.
    """
    held = caller.scopes | ({MODELS_SCOPE} if CHAT_SCOPE in caller.scopes else frozenset())
    missing = [scope for scope in sorted(scopes) if scope not in held]
    if not scopes and held <= {MODELS_SCOPE}:
        missing = [CHAT_SCOPE]
    if missing:
        named = " and ".join(missing)
        whose = f"key {caller.key_id}" if caller.key_id else "a request without a key"
        raise ForbiddenError(
            f"{whose} has not the scope {named}",
            hint=f"Make one: clawctl key create --scope {','.join(sorted(scopes or missing))}",
        )


@web.middleware
async def hold_scopes(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Let a request through to its handler only with the scopes that its route needs."""
    path = route_of(request)
    if not path:
        return await handler(request)
    needs = needs_of(request.method, path)
    if needs is not PUBLIC:
        require(caller_of(request), *(needs or ()))
    return await handler(request)
