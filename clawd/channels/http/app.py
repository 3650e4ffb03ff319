"""The HTTP application: its routes, and what every handler finds in it."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any

import msgspec
from aiohttp import HttpVersion11, web

from clawd.channels.http.errors import error_response, nothing_starts
from clawd.channels.http.model_api import Caller, Generations
from clawd.channels.http.routes_table import ADMIN, PUBLIC, Needs, row_of, starts_work
from clawd.counts import MAX_SERIES, OTHER, Histogram, Tally
from clawd.engine.supervisor import Engine
from clawd.errors import ClawError, ForbiddenError, InvalidRequestError, NotFoundError
from clawd.mcp.mount import Mount, ToolDoor
from clawd.providers.base import Provider
from clawd.runtime.approval_prompts import Questions
from clawd.runtime.calls import Calls
from clawd.runtime.inbox import Inbox
from clawd.runtime.settings import RuntimeSettings
from clawd.security.principal import Principal
from clawd.wire.events import Event
from clawd.wire.method import Method
from clawd.wire.models import ModelList, ProviderLine

# Who sent a request, as handlers and middlewares find it.

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

CALLER: web.RequestKey[Caller] = web.RequestKey("caller", Caller)


def caller_of(request: web.Request) -> Caller:
    """Return who sent a request; the middleware about keys has put it there.

    Raises:
        ForbiddenError: nobody has: a handler is never reached without.
    """
    caller = request.get(CALLER)
    if not isinstance(caller, Caller):
        raise ForbiddenError("nobody vouches for this request")
    return caller


PAGE_PATH = "/page/"
"""Where the files of the page are: public, as it holds nothing of anybody's."""
LOGIN_PATH = PAGE_PATH + "login"
"""Where a one-time link becomes a key."""
HOOK_PATH = "/hook"
"""Where a secret begins its schedule."""
HOOK_KEY = "hook:"
"""What stands before the schedule's id in place of a key's."""

# What a caller's key must allow for a route. Decided by the table of routes alone.

_MODELS_SCOPE, _CHAT_SCOPE = "models", "chat"


def needs_of(method: str, path: str) -> Needs:
    """Return the scopes that a route needs: none at all (None) for a public one.

    Args:
        method: of HTTP; HEAD is as GET.
        path: of the route, as the router writes it.
    """
    row = row_of(method, path)
    return ADMIN if row is None else row.needs


def _route_of(request: web.Request) -> str:
    """Return the path of the route that a request goes to; empty where there is none."""
    resource = request.match_info.route.resource
    return resource.canonical if resource is not None else ""


def require(caller: Caller, *scopes: str) -> None:
    """Make sure that a caller has scopes; without any named, that it has one beside models.

    Who may chat may use models.

    Raises:
        ForbiddenError: it has not; says which is missing.
    """
    held = caller.scopes | ({_MODELS_SCOPE} if _CHAT_SCOPE in caller.scopes else frozenset())
    missing = [scope for scope in sorted(scopes) if scope not in held]
    if not scopes and held <= {_MODELS_SCOPE}:
        missing = [_CHAT_SCOPE]
    if missing:
        named = " and ".join(missing)
        whose = f"key {caller.key_id}" if caller.key_id else "a request without a key"
        raise ForbiddenError(
            f"{whose} has not the scope {named}",
            hint=f"Make one: clawctl key create --scope {','.join(sorted(scopes or missing))}",
        )


@web.middleware
async def _hold_scopes(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Let a request through to its handler only with the scopes that its route needs."""
    path = _route_of(request)
    if not path:
        return await handler(request)
    needs = needs_of(request.method, path)
    if needs is not PUBLIC:
        require(caller_of(request), *(needs or ()))
    return await handler(request)


# What the service tells the gateway about itself.


class GatewayHealth(msgspec.Struct, frozen=True, kw_only=True):
    """Whether requests can be answered.

    Attributes:
        problem: why not; empty when they can.
        model: the default one.
        model_loaded: whether it answers at once; a remote one counts as loaded.
        slots_processing: generations of local models that run; so many more could: `slots_idle`.
    """

    problem: str = ""
    model: str = ""
    model_loaded: bool = False
    slots_processing: int = 0
    slots_idle: int = 0


# Counts requests by route and status, and what is open.

_NO_ROUTE = "none"
_LEFT = "499"
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
WAS_TOLD: web.RequestKey[int] = web.RequestKey("was_told", int)
"""The status of a stream that was sent to its end: who leaves after that has the whole answer."""
IS_STREAM: web.RequestKey[bool] = web.RequestKey("is_stream", bool)
"""Set when the head of an answer in pieces was sent."""


class RequestCounts:
    """What came over HTTP so far.

    Attributes:
        requests: by method, route and status; 499 for a client that left before the end.
        open: requests that are being answered.
        streams: of these, answers that are sent in pieces.
        seconds: how long requests took, by route.
    """

    def __init__(self) -> None:
        self.requests = Tally("method", "route", "status")
        self.open = 0
        self.streams = 0
        self.seconds: dict[str, Histogram] = {}

    def took(self, route: str, seconds: float) -> None:
        """Take note of how long a request took; routes past a bound are one, `other`."""
        known = route in self.seconds or len(self.seconds) < MAX_SERIES
        self.seconds.setdefault(route if known else OTHER, Histogram()).observe(seconds)


COUNTS: web.AppKey[RequestCounts] = web.AppKey("request_counts", RequestCounts)


@web.middleware
async def count_requests(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Count a request; stands outside of everything else."""
    counts = request.app[COUNTS]
    method = request.method if request.method in _METHODS else "other"
    status, began = _LEFT, time.monotonic()
    counts.open += 1
    try:
        response = await handler(request)
        status = str(response.status)
        return response
    except web.HTTPException as error:
        status = str(error.status)
        raise
    finally:
        if status == _LEFT and WAS_TOLD in request:
            status = str(request[WAS_TOLD])
        counts.open -= 1
        counts.streams -= bool(request.get(IS_STREAM))
        route = _route_of(request) or _NO_ROUTE
        counts.requests.add(method, route, status)
        counts.took(route, time.monotonic() - began)


async def _note_stream(request: web.Request, response: web.StreamResponse) -> None:
    if not isinstance(response, web.Response) and not request.get(IS_STREAM):
        request[IS_STREAM] = True
        request.app[COUNTS].streams += 1


def _count_in(app: web.Application) -> None:
    """Let an application count; `count_requests` is the first of its middlewares."""
    app[COUNTS] = RequestCounts()
    app.on_response_prepare.append(_note_stream)


Invoke = Callable[[Method[Any], Principal], Awaitable[Any]]
Take = Callable[[Event], Awaitable[None]]
Stream = Callable[[Method[Any], Principal, Take | None], Coroutine[Any, Any, Any]]

_TOO_LARGE, _NOT_ALLOWED, _EXPECTATION_FAILED = 413, 405, 417
_MAX_BODY_BYTES = 8 << 20

_log = logging.getLogger(__name__)


class McpServed(msgspec.Struct, frozen=True, kw_only=True):
    """The MCP server of a gateway, and what finds the tools of a caller."""

    mount: Mount
    door_of: Callable[[Caller], ToolDoor]


class Gateway(msgspec.Struct, frozen=True, kw_only=True):
    """What handlers work with; connected by service/http.

    Attributes:
        generations: runs requests to models.
        invoke: runs a method of the control socket for a principal, with the same checks.
        stream: the same, and gives its events to a function as they come.
        health: says whether requests can be answered.
        calls: makes single tool calls.
        inbox: takes messages.
        questions: those of tools that wait for a person.
        providers: returns the providers by name.
        settings: returns the settings in force.
        engine: holds local models.
        models: reads the folder of local models; called off the loop.
        provider_lines: returns what the config says of the providers.
        ping_s: returns after how much silence a stream gets a sign of life.
        is_stopped: returns whether the emergency stop is set.
        mcp: serves MCP clients; None where that is switched off.
        has_page: whether a browser gets the page.
        page_icon: the file of its icon; empty for its own.
        version: of clawd.
    """

    generations: Generations
    invoke: Invoke
    stream: Stream
    health: Callable[[], Awaitable[GatewayHealth]]
    calls: Calls
    inbox: Inbox
    questions: Questions
    providers: Callable[[], Mapping[str, Provider]]
    settings: Callable[[], RuntimeSettings]
    engine: Engine
    models: Callable[[], ModelList]
    provider_lines: Callable[[], tuple[ProviderLine, ...]] = lambda: ()
    ping_s: Callable[[], float] = lambda: 1.0
    is_stopped: Callable[[], bool] = lambda: False
    mcp: McpServed | None = None
    has_page: bool = True
    page_icon: str = ""
    version: str = ""


GATEWAY: web.AppKey[Gateway] = web.AppKey("gateway", Gateway)
KEEPING: web.AppKey[asyncio.Lock] = web.AppKey("keeping", asyncio.Lock)
"""Held while a model is pulled or removed."""
GOING_ON: web.AppKey[set[asyncio.Task[Any]]] = web.AppKey("going_on", set)
"""Turns that go on after the request that began them was answered."""
DRAINING: web.AppKey[asyncio.Event] = web.AppKey("draining", asyncio.Event)
"""Set when the daemon ends: streams that have no end of their own end then."""


@web.middleware
async def tell_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Tell every error in the envelope of the path; the outermost handler of a request."""
    try:
        return await handler(request)
    except ClawError as error:
        return error_response(request.path, error)
    except web.HTTPRequestEntityTooLarge as error:
        told = InvalidRequestError(f"the body is over {error.text or 'the limit'}")
        return error_response(request.path, told, _TOO_LARGE)
    except web.HTTPMethodNotAllowed as error:
        allowed = ", ".join(sorted(error.allowed_methods))
        told = InvalidRequestError(f"{request.method} is not for this path; it takes {allowed}")
        response = error_response(request.path, told, _NOT_ALLOWED)
        response.headers["Allow"] = allowed
        return response
    except web.HTTPNotFound:
        return error_response(request.path, NotFoundError(f"there is nothing at {request.path}"))
    except web.HTTPException:
        raise
    except ConnectionError:
        raise
    except Exception as error:  # noqa: BLE001 - a defect ends its request, not the daemon
        _log.error("a request failed with a defect", exc_info=error)
        return error_response(request.path, error)


async def _expect(request: web.Request) -> web.StreamResponse | None:
    """Answer the header Expect before the body of a request is sent."""
    if request.version < HttpVersion11:
        return None
    if request.headers.get("Expect", "").lower() != "100-continue":
        told = InvalidRequestError("Expect: only 100-continue is known here")
        return error_response(request.path, told, _EXPECTATION_FAILED)
    await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    request.writer.output_size = 0  # what follows is the answer
    return None


@web.middleware
async def _hold_stop(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Let nothing that sets a model to work begin under the emergency stop."""
    if starts_work(request.method, _route_of(request)) and request.app[GATEWAY].is_stopped():
        raise nothing_starts()
    return await handler(request)


async def _end(app: web.Application) -> None:
    served = app[GATEWAY].mcp
    if served is not None:
        await served.mount.close()


def make_app(
    gateway: Gateway,
    routes: list[web.RouteDef],
    middlewares: list[Any] | None = None,
    *,
    outermost: list[Any] | None = None,
    max_body_bytes: int = _MAX_BODY_BYTES,
    is_scoped: bool = True,
) -> web.Application:
    """Return the application.

    Args:
        gateway: what handlers work with.
        routes: of all dialects.
        middlewares: run before the handlers, outermost first; one of them sets the caller.
        outermost: run around all that, and see errors as responses.
        max_body_bytes: a longer body is refused.
        is_scoped: ask for the scopes that the table of routes names, which knows clawd's own alone.

    Requests are counted outside of them, and scopes and the emergency stop are asked for inside.
    """
    around = [count_requests, *(outermost or []), tell_errors, *(middlewares or [])]
    if is_scoped:
        around += [_hold_scopes, _hold_stop]
    app = web.Application(middlewares=around, client_max_size=max_body_bytes)
    _count_in(app)
    app[GATEWAY] = gateway
    app.on_cleanup.append(_end)
    app[DRAINING] = asyncio.Event()
    app[KEEPING] = asyncio.Lock()
    app[GOING_ON] = set()
    for route in routes:
        kept = {**route.kwargs, "expect_handler": _expect}
        app.router.add_routes([web.route(route.method, route.path, route.handler, **kept)])
    return app
