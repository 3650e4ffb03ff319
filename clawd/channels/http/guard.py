"""What every request passes before a handler: where it comes from, whose it is, how much it is.

In this order: Host, Origin and Sec-Fetch-Site; preflights; the key; its rate; the body. Whatever
of it fails is a refusal: a handler is reached by a return alone.
"""

import asyncio
import contextlib
import logging
import secrets
import time
from typing import Any

from aiohttp import web

from clawd.channels.http import origins
from clawd.channels.http.app import CALLER, Handler
from clawd.channels.http.connections import connection_of
from clawd.channels.http.errors import error_response
from clawd.channels.http.origins import Asked, DoorRules
from clawd.channels.http.rates import Rates
from clawd.channels.http.request_counts import WAS_TOLD
from clawd.channels.http.room import Room
from clawd.errors import BusyError, ForbiddenError, InvalidRequestError, RateLimitError
from clawd.wire.safe_text import visible_line

PREFLIGHT_AGE_S = 600
TOLD_LIMIT = 200
TOGETHER_BYTES = 256 << 20
SMALL_BYTES = 64 << 10
UNAUTHORIZED = 401

_log = logging.getLogger(__name__)
_ORIGIN: web.RequestKey[str] = web.RequestKey("origin", str)
_ID: web.RequestKey[str] = web.RequestKey("id", str)
_EXPOSED = "X-Request-Id, X-Clawd-Conversation, Retry-After"


class Traffic:
    """The requests that run, and whether new ones are taken."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[Any]] = set()
        self._is_over = asyncio.Event()
        self._is_over.set()
        self.is_draining = False

    @property
    def running(self) -> int:
        """How many run now."""
        return len(self._running)

    def observing(self) -> Any:
        """Return the outermost middleware: counts and times requests, and says so in the log."""

        @web.middleware
        async def observe(request: web.Request, handler: Handler) -> web.StreamResponse:
            request[_ID] = f"req_{secrets.token_hex(12)}"
            connection = connection_of(request)
            if connection is not None:
                connection.begin()
            task = asyncio.current_task()
            assert task is not None
            self._running.add(task)
            self._is_over.clear()
            began, status = time.monotonic(), 0
            try:
                response = await self._answer(request, handler)
                status = response.status
                return response
            finally:
                self._running.discard(task)
                if not self._running:
                    self._is_over.set()
                if connection is not None:
                    connection.end()
                _tell(request, status or request.get(WAS_TOLD, 0), time.monotonic() - began)

        return observe

    async def settle(self, limit_s: float) -> None:
        """Wait until none runs, at most that long."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                await self._is_over.wait()

    async def cancel(self, limit_s: float) -> None:
        """Cancel those that run, and wait until they have ended, at most that long."""
        for task in self._running:
            task.cancel()
        await self.settle(limit_s)

    async def _answer(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if not self.is_draining:
            return await handler(request)
        leaving = BusyError("the daemon is ending", retry_after_s=5)
        response = error_response(request.path, leaving)
        response.force_close()
        return response


def guarding(rules: DoorRules) -> Any:
    """Return the middleware about Host, Origin and preflights."""

    @web.middleware
    async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        asked = _asked(request)
        if why := origins.refusal(asked, rules):
            extra = {"host": _short(",".join(asked.hosts)), "origin": _short(str(asked.origins))}
            _log.info("a request is refused by where it comes from", extra=extra)
            raise ForbiddenError(why)
        if origin := origins.cross_origin(asked, rules):
            request[_ORIGIN] = origin
        if request.method == "OPTIONS":
            return _preflight(request)
        if request.method in {"CONNECT", "TRACE"}:
            raise InvalidRequestError(f"{request.method} is not for this gateway")
        return await handler(request)

    return guard


def rating(rates: Rates) -> Any:
    """Return the middleware about how often each key may ask."""

    @web.middleware
    async def rate(request: web.Request, handler: Handler) -> web.StreamResponse:
        caller = request.get(CALLER)
        if caller is not None:
            wait_s = rates.take(caller.key_id or f"uid {caller.principal.uid}")
            if wait_s:
                raise RateLimitError("too many requests in a minute", retry_after_s=wait_s)
        return await handler(request)

    return rate


def reading(max_bytes: int, limit_s: float) -> Any:
    """Return the middleware that reads the body, so that no handler waits for a slow one.

    Nothing is read of those whom nobody vouches for. The long bodies of all requests together have
    a bound, too; one that does not fit waits for others to be answered.
    """
    room = Room(max(TOGETHER_BYTES, 4 * max_bytes))

    @web.middleware
    async def read(request: web.Request, handler: Handler) -> web.StreamResponse:
        if refused := _unwelcome(request, max_bytes):
            return refused
        if not request.can_read_body:
            return await handler(request)
        length = request.content_length
        held = max_bytes if length is None else length
        held = held if held > SMALL_BYTES else 0
        try:
            async with asyncio.timeout(limit_s):
                await room.take(held)
        except TimeoutError:
            return _closing(request, 503, "too many long requests are under way")
        try:
            if refused := await _read(request, max_bytes, limit_s):
                return refused
            taken = len(await request.read())  # it is at hand
            room.give(held - min(held, taken))
            held = min(held, taken)
            return await handler(request)
        finally:
            room.give(held)

    return read


def _unwelcome(request: web.Request, max_bytes: int) -> web.Response | None:
    """Return the answer to a request whose body is not even begun to be read."""
    encoding = request.headers.get("Content-Encoding", "identity").lower()
    if encoding != "identity":
        told = f"a body in {_short(encoding)} is not taken: send it as it is"
        return _closing(request, 415, told)
    length = request.content_length
    if length is not None and length > max_bytes:
        return _closing(request, 413, f"the body has {length} bytes, over {max_bytes}")
    if request.can_read_body and request.get(CALLER) is None:
        return _closing(request, 400, "no body is taken here")
    return None


async def _read(request: web.Request, max_bytes: int, limit_s: float) -> web.Response | None:
    """Read the body; return the answer where it does not come as it should."""
    try:
        async with asyncio.timeout(limit_s):
            await request.read()
    except TimeoutError:
        peer = str(request.remote or "")
        _log.info("a request's body did not come in time: 408", extra={"peer": peer})
        return _closing(request, 408, "the body took too long")
    except web.HTTPRequestEntityTooLarge:
        return _closing(request, 413, f"the body has over {max_bytes} bytes")
    except web.RequestPayloadError as error:
        return _closing(request, 400, f"the body is broken: {_short(str(error))}")
    return None


async def dress(request: web.Request, response: web.StreamResponse) -> None:
    """Put on a response, a stream or an error too, what all of them wear."""
    headers = response.headers
    headers["Server"] = "clawd"
    headers["X-Content-Type-Options"] = "nosniff"
    if request_id := request.get(_ID):
        headers["X-Request-Id"] = headers["Request-Id"] = request_id
    if response.status == UNAUTHORIZED:
        headers["WWW-Authenticate"] = 'Bearer realm="clawd"'
    headers.add("Vary", "Origin")
    if origin := request.get(_ORIGIN):
        headers["Access-Control-Allow-Origin"] = origin
        headers["Access-Control-Expose-Headers"] = _EXPOSED
    elif "Cross-Origin-Resource-Policy" not in headers:
        headers["Cross-Origin-Resource-Policy"] = "same-origin"


def _asked(request: web.Request) -> Asked:
    transport = request.transport
    ours = transport.get_extra_info("sockname") if transport is not None else None
    headers = request.headers
    return Asked(
        method=request.method,
        target=request.raw_path,
        hosts=tuple(headers.getall("Host", [])),
        origins=tuple(headers.getall("Origin", [])),
        fetch_sites=tuple(headers.getall("Sec-Fetch-Site", [])),
        local_address=str(ours[0]) if isinstance(ours, tuple) else "",
    )


def _preflight(request: web.Request) -> web.StreamResponse:
    """Answer OPTIONS: a page of a configured origin may send what it asks for."""
    response = web.Response(status=204)
    method = request.headers.get("Access-Control-Request-Method", "")
    if _ORIGIN not in request or not method:
        response.headers["Allow"] = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"
        return response
    wanted = request.headers.get("Access-Control-Request-Headers", "")
    if why := origins.preflight_problem(method, wanted):
        raise ForbiddenError(why)
    response.headers["Access-Control-Allow-Methods"] = method
    response.headers["Access-Control-Max-Age"] = str(PREFLIGHT_AGE_S)
    if names := origins.asked_headers(wanted):
        response.headers["Access-Control-Allow-Headers"] = ", ".join(names)
    if request.headers.get("Access-Control-Request-Private-Network") == "true":
        response.headers["Access-Control-Allow-Private-Network"] = "true"
    headers = "Access-Control-Request-Method, Access-Control-Request-Headers"
    response.headers["Vary"] = headers
    return response


def _closing(request: web.Request, status: int, told: str) -> web.Response:
    response = error_response(request.path, InvalidRequestError(told), status)
    response.force_close()
    return response


def _tell(request: web.Request, status: int, took_s: float) -> None:
    caller = request.get(CALLER)
    extra = {
        "method": _short(request.method),
        "target": _short(request.path),  # without the query: people put keys there
        "status": status,
        "took_ms": round(took_s * 1000),
        "key": caller.key_id if caller is not None else "",
        "request": request.get(_ID, ""),
    }
    _log.debug("a request was answered", extra=extra)


def _short(text: str) -> str:
    return visible_line(text, TOLD_LIMIT)
