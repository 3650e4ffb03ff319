"""The connections of the gateway: how many there are, and how long each may take or be idle.

aiohttp bounds the size of a request's head but neither its time nor the number of connections.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import cast

import msgspec
from aiohttp import web
from typing_extensions import override

from clawd.channels.http.errors import body_of
from clawd.config.http import HttpSection
from clawd.errors import BusyError, InvalidRequestError
from clawd.security.principal import Principal

BUSY = 503
HANDSHAKE_TIMEOUT_S = 10.0
# So many passes of the loop take up what lies in a socket, down to the handler of a request.
_PASSES = 16

_FULL = "too many connections; try again"
_SLOW = "the head of the request took too long"

_log = logging.getLogger(__name__)


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
