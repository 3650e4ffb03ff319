"""The transport of a server at a URL: the SDK's, over a client that nothing can hang or flood.

The SDK's transport ends, with every call in it, when one request fails below it. So requests do
not fail here: what the network or the server's status says becomes the JSON-RPC error of that one
request, with a sentence that a model can read. Bodies, waits and events are bounded.
"""

import contextlib
import json
from collections.abc import AsyncIterator, Callable, Iterator

import anyio
import httpx2
from mcp.client._transport import TransportStreams
from mcp.client.streamable_http import streamable_http_client
from typing_extensions import override

from clawd.kernel.concurrency import Allowance, Pace
from clawd.mcp.connection_end import MAX_LINE_BYTES, TRANSPORT_ERROR, Trouble, shown
from clawd.mcp.model import ServerSettings

MAX_BODY_BYTES = MAX_LINE_BYTES
MAX_STREAM_BYTES = 64 << 20

FLOOD_BYTES = 2 * MAX_BODY_BYTES
FLOOD_BYTES_PER_S = 256 << 10
"""What may come on streams that stay open, on which a server speaks unasked."""

_SLICE_BYTES = 4 << 10

_SLACK_S = 5.0
_LEAVE_S = 2.0
_MAX_CONNECTIONS = 64
_OTHERS_LIMIT_S = 30.0
_OTHERS_BYTES = 1 << 20
_SESSION = "mcp-session-id"
_PROTOCOL_ACCEPTS = ("application/json, text/event-stream", "text/event-stream")


class BodyTooLargeError(Exception):
    """A body has more bytes than are read."""


class Bearer(httpx2.Auth):
    """Sends a token; it is in no header that is set for good, and in no log."""

    def __init__(self, token: str) -> None:
        self._token = token

    @override
    def auth_flow(self, request: httpx2.Request) -> "Iterator[httpx2.Request]":  # type: ignore[override]
        request.headers["Authorization"] = f"Bearer {self._token}"
        yield request


@contextlib.asynccontextmanager
async def http_transport(
    settings: ServerSettings, auth: httpx2.Auth | None, trouble: Trouble
) -> AsyncIterator[TransportStreams]:
    """Give the streams of a server's messages; nothing is sent before the first of them.

    A redirect is followed within the URL's origin only, by the SDK.
    """
    guard = GuardedTransport(httpx2.AsyncHTTPTransport(limits=_limits()), settings, trouble)
    timeout = httpx2.Timeout(
        connect=settings.connect_timeout_s, read=None, write=_OTHERS_LIMIT_S, pool=None
    )
    # Packed bodies could be small here and endless once unpacked.
    headers = {"Accept-Encoding": "identity"}
    async with (
        httpx2.AsyncClient(transport=guard, auth=auth, timeout=timeout, headers=headers) as client,
        streamable_http_client(
            settings.url, http_client=client, max_sse_event_size=MAX_BODY_BYTES
        ) as streams,
    ):
        yield streams


class GuardedTransport(httpx2.AsyncBaseTransport):
    """Bounds what comes, and turns failures into answers.

    Args:
        inner: does the work.
        settings: of the server; its limits and what to say of it.
        trouble: told what ends the connection.
    """

    def __init__(
        self, inner: httpx2.AsyncBaseTransport, settings: ServerSettings, trouble: Trouble
    ) -> None:
        self._inner = inner
        self._settings = settings
        self._trouble = trouble
        self._unasked = Allowance(burst=FLOOD_BYTES, per_s=FLOOD_BYTES_PER_S)

    @override
    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        if request.headers.get("accept") not in _PROTOCOL_ACCEPTS:
            return await self._other(request)
        limit_s = self._limit(request)
        try:
            with anyio.fail_after(limit_s):
                response = await self._inner.handle_async_request(request)
                return await self._judged(request, response, limit_s)
        except TimeoutError:
            return self._made_up(request, 504, f"the server did not answer within {limit_s:g} s")
        except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
            sentence = f"the server cannot be reached at {self._place()}: {shown(_why(error))}"
            if request.method == "POST":
                self._trouble.unreachable(sentence)
            return self._made_up(request, 502, sentence)
        except httpx2.HTTPError as error:
            return self._made_up(request, 502, f"the connection broke: {shown(_why(error))}")
        except BodyTooLargeError as error:
            return self._made_up(request, 502, str(error))

    @override
    async def aclose(self) -> None:
        with anyio.move_on_after(_LEAVE_S):
            await self._inner.aclose()

    def _limit(self, request: httpx2.Request) -> float | None:
        """Return how long an answer may take; its own limit is watched by who makes the call."""
        if request.method == "DELETE":
            return _LEAVE_S
        if request.method == "GET" or _is_subscription(request):
            return None
        return self._settings.call_timeout_s + _SLACK_S

    async def _judged(
        self, request: httpx2.Request, response: httpx2.Response, limit_s: float | None
    ) -> httpx2.Response:
        if response.status_code >= 400:
            return await self._refused(request, response)
        if response.headers.get("content-encoding", "identity") != "identity":
            await response.aclose()
            return self._made_up(request, 502, "the server packs its answers, unasked")
        kind = response.headers.get("content-type", "").lower()
        stream = response.stream
        assert isinstance(stream, httpx2.AsyncByteStream)
        if kind.startswith("text/event-stream"):
            response.stream = _Bounded(stream, limit_s, self._is_flooded)
            return response
        if kind.startswith("application/json"):
            body = await _read(response, MAX_BODY_BYTES)
            return httpx2.Response(
                response.status_code, headers=_kept(response), content=body, request=request
            )
        return response

    def _is_flooded(self, size: int) -> bool:
        """Count bytes of a stream that stays open; too many end the connection."""
        if self._unasked.take(size):
            return False
        self._trouble.end(
            "the server was disconnected: it sends too much that nobody asked for: over "
            f"{FLOOD_BYTES >> 20} MiB, and more than {FLOOD_BYTES_PER_S >> 10} KiB a second"
        )
        return True

    async def _refused(self, request: httpx2.Request, response: httpx2.Response) -> httpx2.Response:
        """Answer for a server that refused: with its own JSON-RPC error, or with a sentence."""
        status = response.status_code
        try:
            body = await _read(response, _OTHERS_BYTES)
        except BodyTooLargeError:
            body = b""
        if status == 404 and request.headers.get(_SESSION) and request.method == "POST":
            self._trouble.lose()
        if status in {401, 403} and request.method == "POST":
            return self._not_let_in(request, response)
        if _is_rpc_error(body):
            headers = {"content-type": "application/json"}
            return httpx2.Response(status, headers=headers, content=body, request=request)
        phrase = httpx2.codes.get_reason_phrase(status)
        return self._made_up(request, status, f"the server answered HTTP {status} {phrase}".strip())

    def _not_let_in(self, request: httpx2.Request, response: httpx2.Response) -> httpx2.Response:
        status, asks = response.status_code, response.headers.get("www-authenticate", "")
        alias = self._settings.alias
        if status == 403:
            todo = f"the token of mcp.servers.{alias} may not do this"
        elif self._settings.oauth:
            todo = f"sign in again with: clawctl mcp connect {alias}"
        elif self._settings.token:
            todo = f"the token of mcp.servers.{alias} is wrong or has expired"
        else:
            todo = f"set auth_token or auth_env of mcp.servers.{alias}, or oauth = true"
        phrase = "Unauthorized" if status == 401 else "Forbidden"
        said = f" (it asks for: {shown(asks)[:200]})" if asks else ""
        sentence = f"the server answered HTTP {status} {phrase}: {todo}{said}"
        if not self._settings.oauth:  # else the answer goes to who signs in, first
            self._trouble.refuse(status, sentence)
        made = self._made_up(request, status, sentence)
        if asks:
            made.headers["www-authenticate"] = asks
        return made

    def _made_up(self, request: httpx2.Request, status: int, sentence: str) -> httpx2.Response:
        error = {"code": TRANSPORT_ERROR, "message": sentence, "data": {"status": status}}
        body = json.dumps({"jsonrpc": "2.0", "id": None, "error": error}).encode()
        headers = {"content-type": "application/json"}
        return httpx2.Response(status, headers=headers, content=body, request=request)

    def _place(self) -> str:
        url = httpx2.URL(self._settings.url)
        return shown(str(url.copy_with(userinfo=b"", query=None, fragment=None)))

    async def _other(self, request: httpx2.Request) -> httpx2.Response:
        """Make a request of the sign-in, which is small."""
        try:
            with anyio.fail_after(_OTHERS_LIMIT_S):
                response = await self._inner.handle_async_request(request)
                body = await _read(response, _OTHERS_BYTES)
        except (TimeoutError, BodyTooLargeError) as error:
            raise httpx2.ReadTimeout(f"no usable answer: {error}", request=request) from error
        return httpx2.Response(
            response.status_code, headers=_kept(response), content=body, request=request
        )


class _Bounded(httpx2.AsyncByteStream):
    """A stream of events with an end: in time, and in bytes.

    Args:
        inner: the stream as it comes.
        limit_s: how long it may take; None for one that stays open.
        is_flooded: counts the bytes of one that stays open, and says when they are too many.
    """

    def __init__(
        self,
        inner: httpx2.AsyncByteStream,
        limit_s: float | None,
        is_flooded: Callable[[int], bool],
    ) -> None:
        self._inner = inner
        self._is_flooded = is_flooded if limit_s is None else lambda _size: False
        self._deadline = float("inf") if limit_s is None else anyio.current_time() + limit_s
        self._left: float = float("inf") if limit_s is None else MAX_STREAM_BYTES

    @override
    async def __aiter__(self) -> AsyncIterator[bytes]:
        pieces, pace = self._inner.__aiter__(), Pace()
        while True:
            try:
                with anyio.fail_after(self._deadline - anyio.current_time()):
                    piece = await anext(pieces, None)
            except TimeoutError as error:
                raise httpx2.ReadTimeout("the stream of events takes too long") from error
            if piece is None:
                return
            self._left -= len(piece)
            if self._left < 0 or self._is_flooded(len(piece)):
                raise httpx2.ReadError("the stream of events has too many bytes")
            # What the SDK makes of a piece takes a while, so it gets little at a time.
            for at in range(0, len(piece), _SLICE_BYTES):
                await pace.step()
                yield piece[at : at + _SLICE_BYTES]

    @override
    async def aclose(self) -> None:
        await self._inner.aclose()


async def _read(response: httpx2.Response, limit: int) -> bytes:
    """Read a body that is not packed, and close it."""
    body = bytearray()
    stream = response.stream
    assert isinstance(stream, httpx2.AsyncByteStream)
    try:
        async for piece in stream:
            body += piece
            if len(body) > limit:
                raise BodyTooLargeError(f"the server's answer has more than {limit} bytes")
    finally:
        await response.aclose()
    return bytes(body)


def _kept(response: httpx2.Response) -> list[tuple[str, str]]:
    dropped = {"content-length", "transfer-encoding"}
    return [(k, v) for k, v in response.headers.multi_items() if k.lower() not in dropped]


def _is_subscription(request: httpx2.Request) -> bool:
    return str(request.headers.get("mcp-method", "")) == "subscriptions/listen"


def _is_rpc_error(body: bytes) -> bool:
    try:
        error = json.loads(body).get("error")
    except (ValueError, AttributeError, RecursionError):
        return False
    return isinstance(error, dict) and {"code", "message"} <= error.keys()


def _why(error: Exception) -> str:
    return str(error) or type(error).__name__


def _limits() -> httpx2.Limits:
    return httpx2.Limits(max_connections=_MAX_CONNECTIONS, max_keepalive_connections=8)
