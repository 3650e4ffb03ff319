"""The HTTP application: its routes, and what every handler finds in it."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any

import msgspec
from aiohttp import HttpVersion11, web

from clawd.channels.http.caller import CALLER as CALLER
from clawd.channels.http.caller import Handler as Handler
from clawd.channels.http.caller import caller_of as caller_of
from clawd.channels.http.errors import error_response, nothing_starts
from clawd.channels.http.exchange import Caller, Generations
from clawd.channels.http.facts import Health
from clawd.channels.http.request_counts import count_in, count_requests
from clawd.channels.http.routes_table import starts_work
from clawd.channels.http.scopes import hold_scopes, route_of
from clawd.engine.supervisor import Engine
from clawd.errors import ClawError, InvalidRequestError, NotFoundError
from clawd.mcp.door import ToolDoor
from clawd.mcp.mount import Mount
from clawd.providers.base import Provider
from clawd.runtime.calls import Calls
from clawd.runtime.inbox import Inbox
from clawd.runtime.questions import Questions
from clawd.runtime.settings import RuntimeSettings
from clawd.security.principal import Principal
from clawd.wire.events import Event
from clawd.wire.method import Method
from clawd.wire.reports import ModelList, ProviderLine

Invoke = Callable[[Method[Any], Principal], Awaitable[Any]]
Take = Callable[[Event], Awaitable[None]]
Stream = Callable[[Method[Any], Principal, Take | None], Coroutine[Any, Any, Any]]

TOO_LARGE, NOT_ALLOWED, EXPECTATION_FAILED = 413, 405, 417
MAX_BODY_BYTES = 8 << 20

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
        version: of clawd.
    """

    generations: Generations
    invoke: Invoke
    stream: Stream
    health: Callable[[], Awaitable[Health]]
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
    version: str = ""


GATEWAY: web.AppKey[Gateway] = web.AppKey("gateway", Gateway)
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
        return error_response(request.path, told, TOO_LARGE)
    except web.HTTPMethodNotAllowed as error:
        allowed = ", ".join(sorted(error.allowed_methods))
        told = InvalidRequestError(f"{request.method} is not for this path; it takes {allowed}")
        response = error_response(request.path, told, NOT_ALLOWED)
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


async def expect(request: web.Request) -> web.StreamResponse | None:
    """Answer the header Expect before the body of a request is sent."""
    if request.version < HttpVersion11:
        return None
    if request.headers.get("Expect", "").lower() != "100-continue":
        told = InvalidRequestError("Expect: only 100-continue is known here")
        return error_response(request.path, told, EXPECTATION_FAILED)
    await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    request.writer.output_size = 0  # what follows is the answer
    return None


@web.middleware
async def hold_stop(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Let nothing that sets a model to work begin under the emergency stop."""
    if starts_work(request.method, route_of(request)) and request.app[GATEWAY].is_stopped():
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
    max_body_bytes: int = MAX_BODY_BYTES,
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
        around += [hold_scopes, hold_stop]
    app = web.Application(middlewares=around, client_max_size=max_body_bytes)
    count_in(app)
    app[GATEWAY] = gateway
    app.on_cleanup.append(_end)
    app[DRAINING] = asyncio.Event()
    for route in routes:
        kept = {**route.kwargs, "expect_handler": expect}
        app.router.add_routes([web.route(route.method, route.path, route.handler, **kept)])
    return app
