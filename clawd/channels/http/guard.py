"""What every request passes before a handler: where it comes from, whose it is, how much it is.

In this order: Host, Origin and Sec-Fetch-Site; preflights; the key; its rate; the body. Whatever
of it fails is a refusal: a handler is reached by a return alone.

Connections are counted, and each may take or be idle only so long: aiohttp bounds the size of a
request's head but neither its time nor the number of connections.
"""

import asyncio
import contextlib
import ipaddress
import logging
import re
import secrets
import time
from collections.abc import Callable
from typing import Any, cast

import msgspec
from aiohttp import web
from typing_extensions import override

from clawd.channels.http.app import CALLER, WAS_TOLD, Handler
from clawd.channels.http.errors import body_of, error_response
from clawd.config.sections import HttpSection
from clawd.errors import BusyError, ForbiddenError, InvalidRequestError, RateLimitError
from clawd.security.principal import Principal
from clawd.wire.safe_text import visible_line

BUSY = 503
HANDSHAKE_TIMEOUT_S = 10.0
# So many passes of the loop take up what lies in a socket, down to the handler of a request.
_PASSES = 16

_FULL = "too many connections; try again"
_SLOW = "the head of the request took too long"


def _short_answer(status: str, told: str, *headers: str) -> bytes:
    """Return an answer to who sent no whole request: which dialect it speaks nobody knows.

    The form is OpenAI's, whose fields `error` and `message` clients of the others read as well.
    """
    code = int(status.split()[0])
    error = BusyError(told, retry_after_s=1.0) if code == BUSY else InvalidRequestError(told)
    text = msgspec.json.encode({"type": "error", **body_of("openai", error, code)})
    lines = [f"HTTP/1.1 {status}", "Content-Type: application/json"]
    lines.append(f"Content-Length: {len(text)}")
    head = "\r\n".join([*lines, *headers, "Connection: close", "", ""])
    return head.encode("ascii") + text


class ProtocolFactory:
    """Makes the protocol of each new connection, at most so many at a time.

    Args:
        make: makes aiohttp's own protocol.
        limits: how many, and how long.
    """

    def __init__(self, make: Callable[[], asyncio.Protocol], limits: HttpSection) -> None:
        self._make = make
        self._limits = limits
        self._open: set[TimedProtocol] = set()
        # Of connections whose TLS handshake has not ended: those that fail are never told to us.
        self._awaited: dict[TimedProtocol, float] = {}

    def __len__(self) -> int:
        """Return how many are open."""
        return len(self._open)

    def __call__(self) -> asyncio.Protocol:
        """Return the protocol of a new connection."""
        now = asyncio.get_running_loop().time()
        while self._awaited and next(iter(self._awaited.values())) < now - HANDSHAKE_TIMEOUT_S:
            self._awaited.pop(next(iter(self._awaited)))
        if len(self._open) + len(self._awaited) >= self._limits.max_connections:
            return _TurnedAway()
        connection = TimedProtocol(self._make(), self._limits, opened=self.opened, lost=self.lost)
        self._awaited[connection] = now
        return connection

    def opened(self, connection: "TimedProtocol") -> None:
        """Take note of an open one."""
        self._awaited.pop(connection, None)
        self._open.add(connection)

    def lost(self, connection: "TimedProtocol") -> None:
        """Take note that it is gone."""
        self._open.discard(connection)


class _Limit:
    """A limit of time for the other side, which may be over because the loop itself was late.

    Whatever came or went meanwhile lies in the sockets, so it is looked at before `over` is called.
    """

    def __init__(self, over: Callable[[], None]) -> None:
        self._over = over
        self._next: asyncio.Handle | None = None

    def begin(self, seconds: float) -> None:
        """Begin anew."""
        self.end()
        loop = asyncio.get_running_loop()
        self._next = loop.call_later(seconds, self._look, _PASSES)

    def end(self) -> None:
        """There is none any more."""
        if self._next is not None:
            self._next.cancel()
            self._next = None

    def _look(self, passes: int) -> None:
        if passes:
            self._next = asyncio.get_running_loop().call_soon(self._look, passes - 1)
        else:
            self._next = None
            self._over()


class TimedProtocol(asyncio.Protocol):
    """Hands everything on to aiohttp's protocol, and ends what takes too long.

    Attributes:
        peer: who is at the other end, once somebody found out; or why it is nobody.
    """

    def __init__(
        self,
        inner: asyncio.Protocol,
        limits: HttpSection,
        *,
        opened: Callable[["TimedProtocol"], None],
        lost: Callable[["TimedProtocol"], None],
    ) -> None:
        self.peer: Principal | str | None = None
        self._inner = inner
        self._limits = limits
        self._opened, self._lost = opened, lost
        self._transport: asyncio.Transport | None = None
        self._time = _Limit(self._too_late)
        self._stall = _Limit(self._abort)
        self._unread = 0
        self._is_running = self._is_idle = False

    def begin(self) -> None:
        """Take note that the head of a request is there, and the request runs."""
        self._is_running, self._is_idle = True, False
        self._time.end()

    def end(self) -> None:
        """Take note that it was answered."""
        self._is_running, self._is_idle = False, True
        self._arm(self._limits.idle_timeout_s)

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._opened(self)
        self._arm(self._limits.header_timeout_s)
        self._inner.connection_made(transport)

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self._time.end()
        self._stall.end()
        self._transport = None
        self._lost(self)
        self._inner.connection_lost(exc)

    @override
    def data_received(self, data: bytes) -> None:
        if self._is_idle:
            self._is_idle = False
            self._arm(self._limits.header_timeout_s)
        self._inner.data_received(data)

    @override
    def eof_received(self) -> bool | None:
        return self._inner.eof_received()

    @override
    def pause_writing(self) -> None:
        # A client that reads nothing would hold a model for ever.
        self._stall.begin(self._limits.idle_timeout_s)
        self._inner.pause_writing()

    @override
    def resume_writing(self) -> None:
        self._stall.end()
        self._inner.resume_writing()

    def _arm(self, seconds: float) -> None:
        if self._transport is not None:
            self._time.begin(seconds)

    def _too_late(self) -> None:
        if self._transport is None or self._is_running:
            return
        if not self._is_idle:
            peer = str(self._transport.get_extra_info("peername") or "")
            _log.info("a request's head did not come in time: 408", extra={"peer": peer})
            self._transport.write(_short_answer("408 Request Timeout", _SLOW))
        elif unread := self._transport.get_write_buffer_size():
            if unread == self._unread:
                self._abort()
                return
            self._unread = unread
            self._arm(self._limits.idle_timeout_s)  # it still reads the last answer
            return
        self._transport.close()

    def _abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()


class _TurnedAway(asyncio.Protocol):
    """Says that there are too many connections, and closes this one."""

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        out = cast("asyncio.Transport", transport)
        out.write(_short_answer("503 Service Unavailable", _FULL, "Retry-After: 1"))
        out.close()


def connection_of(request: web.Request) -> TimedProtocol | None:
    """Return the connection that a request came over; None for one that another server took."""
    transport = request.transport
    found = transport.get_protocol() if transport is not None else None
    return found if isinstance(found, TimedProtocol) else None


# Which requests may come from where: the rules about Host, Origin and Sec-Fetch-Site. Pure.
#
# A page in a browser can send requests to loopback. It can neither leave out its Origin where it
# matters nor name a Host that is not its own: so both are looked at before anything else, for every
# method. A name that resolves to loopback (DNS rebinding) is a Host that nobody configured.

_HOST = re.compile(r"(?:\[(?P<six>[0-9a-f:.]+)\]|(?P<name>[a-z0-9._-]+))(?::(?P<port>\d{1,5}))?")
_ORIGIN_FORM = re.compile(
    r"(?P<scheme>[a-z][a-z0-9+.-]{0,40})://"
    r"(?P<host>\[[0-9a-f:.]{2,45}\]|[A-Za-z0-9._-]{1,253})(?::\d{1,5})?"
)
_OURSELVES = frozenset({"same-origin", "none"})
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"})
_MAX_ASKED_HEADERS = 64


class DoorRules(msgspec.Struct, frozen=True, kw_only=True):
    """What is configured.

    Attributes:
        hosts: names and addresses to be called by, beside localhost and loopback addresses.
        origins: of the pages that may ask; `http://localhost:*` with any port or none, and
            `vscode-webview://*` every page of a scheme that is not the web's.
        is_tls: whether TLS is spoken here.
    """

    hosts: frozenset[str] = frozenset()
    origins: frozenset[str] = frozenset()
    is_tls: bool = False


class RequestOrigin(msgspec.Struct, frozen=True, kw_only=True):
    """What a request says of where it comes from.

    Attributes:
        target: the request target as it was sent.
        hosts: the values of its Host headers.
        origins: those of its Origin headers.
        fetch_sites: those of its Sec-Fetch-Site headers.
        local_address: the address that the connection came to.
    """

    method: str
    target: str
    hosts: tuple[str, ...]
    origins: tuple[str, ...] = ()
    fetch_sites: tuple[str, ...] = ()
    local_address: str = ""


def refusal(asked: RequestOrigin, rules: DoorRules) -> str:
    """Return why a request is refused, or "" when it may go on."""
    return _host_problem(asked, rules) or _origin_problem(asked, rules)


def cross_origin(asked: RequestOrigin, rules: DoorRules) -> str:
    """Return the configured origin that a request comes from, or "" for none."""
    origin = asked.origins[0] if len(asked.origins) == 1 else ""
    return origin if _is_listed(origin, rules.origins) else ""


def _is_listed(origin: str, listed: frozenset[str]) -> bool:
    """Return whether an origin is one of those, or of their patterns."""
    if origin in listed and "*" not in origin:
        return True
    match = _ORIGIN_FORM.fullmatch(origin)
    if match is None:
        return False
    scheme = match["scheme"]
    if scheme in {"http", "https"}:
        return f"{scheme}://{match['host']}:*" in listed
    return f"{scheme}://*" in listed


def preflight_problem(method: str, headers: str) -> str:
    """Return what is wrong with what a preflight asks for, or ""."""
    if method not in _METHODS:
        return f"method {method[:20]!r} is not for pages"
    names = asked_headers(headers)
    if len(names) > _MAX_ASKED_HEADERS or not all(map(_HEADER_NAME.fullmatch, names)):
        return "the headers that are asked for are no header names"
    return ""


def asked_headers(headers: str) -> list[str]:
    """Return the names in an Access-Control-Request-Headers."""
    return [name.strip() for name in headers.split(",") if name.strip()]


def _host_problem(asked: RequestOrigin, rules: DoorRules) -> str:
    if len(asked.hosts) != 1 or not asked.hosts[0]:
        return "a request must name one host"
    host = asked.hosts[0].lower()
    match = _HOST.fullmatch(host)
    if match is None:
        return "the host is no name and no address"
    if not asked.target.startswith("/") and asked.target != "*":
        scheme, _, rest = asked.target.partition("://")
        authority = rest.partition("/")[0].partition("?")[0].lower()
        if scheme.lower() not in {"http", "https"} or authority != host:
            return "the address that is asked for is not on the host that is named"
    name = match["name"] or match["six"]
    if name == "localhost" or name in rules.hosts or _is_ours(name, asked.local_address):
        return ""
    return (
        f"{name} is no name of this gateway; an admin can add it to [channels.http] allowed_hosts"
    )


def _is_ours(name: str, local_address: str) -> bool:
    """Return whether it is a loopback address, or the very one that the connection came to."""
    try:
        address = ipaddress.ip_address(name)
        mapped = getattr(address, "ipv4_mapped", None)
        return mapped is None and (
            address.is_loopback
            or (bool(local_address) and address == ipaddress.ip_address(local_address))
        )
    except ValueError:
        return False


def _origin_problem(asked: RequestOrigin, rules: DoorRules) -> str:
    if len(asked.origins) > 1:
        return "a request may name one origin"
    if asked.origins:
        origin = asked.origins[0]
        own = f"{'https' if rules.is_tls else 'http'}://{asked.hosts[0].lower()}"
        if _is_listed(origin, rules.origins) or origin == own:
            return ""
        return (
            "pages of this origin may not ask; an admin can add it to [channels.http] cors_origins"
        )
    if any(site not in _OURSELVES for site in asked.fetch_sites):
        return "pages of other sites may not ask"
    return ""


# How much memory the bodies of all requests together may take.


class _BodyBudget:
    """A number of bytes that are taken and given back; who comes first is served first.

    Args:
        size: how many there are.
    """

    def __init__(self, size: int) -> None:
        self._left = size
        self._turn = asyncio.Lock()
        self._freed = asyncio.Event()

    async def take(self, count: int) -> None:
        """Wait until so many are left, at most the size, and take them."""
        async with self._turn:
            while self._left < count:
                self._freed.clear()
                await self._freed.wait()
            self._left -= count

    def give(self, count: int) -> None:
        """Give some back."""
        self._left += count
        self._freed.set()


# How many requests each key may make in a minute: one bucket of tokens for each. Pure.

MAX_BUCKETS = 4_096


class Rates:
    """Buckets that hold a minute's requests and fill evenly.

    Args:
        per_minute: of each caller; 0 is no limit.
        clock: monotonic seconds.
    """

    def __init__(self, per_minute: int, clock: Callable[[], float]) -> None:
        self._per_minute = per_minute
        self._clock = clock
        self._buckets: dict[str, tuple[float, float]] = {}

    def take(self, who: str) -> float:
        """Take one request; return 0, or in how many seconds there is one to take."""
        if not self._per_minute:
            return 0.0
        now, per_second = self._clock(), self._per_minute / 60
        left, at = self._buckets.pop(who, (float(self._per_minute), now))
        left = min(float(self._per_minute), left + (now - at) * per_second)
        wait_s = 0.0 if left >= 1 else (1 - left) / per_second
        # Put back last: the first of the dict is the one that was idle longest.
        self._buckets[who] = (left if wait_s else left - 1, now)
        if len(self._buckets) > MAX_BUCKETS:
            self._buckets.pop(next(iter(self._buckets)))
        return wait_s


_PREFLIGHT_AGE_S = 600
_TOLD_LIMIT = 200
_TOGETHER_BYTES = 256 << 20
_SMALL_BYTES = 64 << 10
_UNAUTHORIZED = 401

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
        if why := refusal(asked, rules):
            extra = {"host": _short(",".join(asked.hosts)), "origin": _short(str(asked.origins))}
            _log.info("a request is refused by where it comes from", extra=extra)
            raise ForbiddenError(why)
        if origin := cross_origin(asked, rules):
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
    budget = _BodyBudget(max(_TOGETHER_BYTES, 4 * max_bytes))

    @web.middleware
    async def read(request: web.Request, handler: Handler) -> web.StreamResponse:
        if refused := _unwelcome(request, max_bytes):
            return refused
        if not request.can_read_body:
            return await handler(request)
        length = request.content_length
        held = max_bytes if length is None else length
        held = held if held > _SMALL_BYTES else 0
        try:
            async with asyncio.timeout(limit_s):
                await budget.take(held)
        except TimeoutError:
            return _closing(request, 503, "too many long requests are under way")
        try:
            if refused := await _read(request, max_bytes, limit_s):
                return refused
            taken = len(await request.read())  # it is at hand
            budget.give(held - min(held, taken))
            held = min(held, taken)
            return await handler(request)
        finally:
            budget.give(held)

    return read


def _unwelcome(request: web.Request, max_bytes: int) -> web.Response | None:
    """Return the answer to a request whose body is not even begun to be read."""
    encoding = request.headers.get("Content-Encoding", "identity").lower()
    if encoding != "identity":
        told = f"a body in {_short(encoding)} is not taken: send it as it is"
        return _closing(request, 415, told)
    length = request.content_length
    if length is not None and length > max_bytes:
        return _closing(request, 413, f"the body has {length} bytes, over {_limit(max_bytes)}")
    if request.can_read_body and request.get(CALLER) is None:
        return _closing(request, 400, "no body is taken here")
    return None


def _limit(max_bytes: int) -> str:
    return f"{max_bytes} (max_body_bytes in [channels.http])"


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
        return _closing(request, 413, f"the body has more bytes than {_limit(max_bytes)}")
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
    if response.status == _UNAUTHORIZED:
        headers["WWW-Authenticate"] = 'Bearer realm="clawd"'
    headers.add("Vary", "Origin")
    if origin := request.get(_ORIGIN):
        headers["Access-Control-Allow-Origin"] = origin
        headers["Access-Control-Expose-Headers"] = _EXPOSED
    elif "Cross-Origin-Resource-Policy" not in headers:
        headers["Cross-Origin-Resource-Policy"] = "same-origin"


def _asked(request: web.Request) -> RequestOrigin:
    transport = request.transport
    ours = transport.get_extra_info("sockname") if transport is not None else None
    headers = request.headers
    return RequestOrigin(
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
    if why := preflight_problem(method, wanted):
        raise ForbiddenError(why)
    response.headers["Access-Control-Allow-Methods"] = method
    response.headers["Access-Control-Max-Age"] = str(_PREFLIGHT_AGE_S)
    if names := asked_headers(wanted):
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
    return visible_line(text, _TOLD_LIMIT)
