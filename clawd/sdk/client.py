"""An asyncio client of a daemon: each request on a connection of its own.

What ends a connection ends its request, so a turn that nobody waits for any more is cancelled.
"""

import asyncio
import contextlib
import socket
from collections import deque
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Generic, TypeVar

from clawd import __version__, errors
from clawd.wire import codec
from clawd.wire.codec import (
    FrameReader,
    decode_server_frame,
    encode_frame,
    pack,
    unpack,
    unpack_event,
)
from clawd.wire.events import Event
from clawd.wire.method import Method, method_name, result_type

CALL_LIMIT_S = 60.0
CONNECT_LIMIT_S = 30.0  # a daemon on a busy machine may get no processor for seconds
CANCEL_LIMIT_S = 15.0
_READ_BYTES = 256 * 1024
_REQUEST_ID = 1

R = TypeVar("R")

Connect = Callable[[], Awaitable[socket.socket]]
"""Returns a connected socket that does not block; raises ClawError when nobody answers."""


class Client:
    """Calls the methods of a daemon.

    Args:
        connect: makes connections.
    """

    def __init__(self, connect: Connect) -> None:
        self._connect = connect
        self._open: set[asyncio.StreamWriter] = set()

    async def close(self) -> None:
        """Close the connections of the exchanges that nobody left."""
        for writer in tuple(self._open):
            await _close(writer)
        self._open.clear()

    async def call(self, params: Method[R], *, limit_s: float = CALL_LIMIT_S) -> R:
        """Call a method and return its result; events on the way are dropped.

        Raises:
            ClawError: the daemon refused it, or did not answer in time.
        """
        exchange = self.exchange(params)
        try:
            async with asyncio.timeout(limit_s), exchange:
                while await exchange.next() is not None:
                    pass
                return exchange.result
        except TimeoutError as error:
            name = method_name(type(params))
            raise errors.UnreachableError(f"no answer to {name} within {limit_s:g} s") from error

    def exchange(self, params: Method[R]) -> "Exchange[R]":
        """Return a request that streams events; it begins when it is entered."""
        return Exchange(self._connect, params, self._open)


class Exchange(Generic[R]):
    """One request: its events, the answers to their questions, its result.

    Enter it to begin. Leaving it before its end cancels it, and waits until the daemon says so.
    """

    def __init__(
        self, connect: Connect, params: Method[R], connections: set[asyncio.StreamWriter]
    ) -> None:
        self._connect = connect
        self._connections = connections
        self._params = params
        self._frames: deque[codec.ServerFrame] = deque()
        self._reading = asyncio.Lock()
        self._bytes = FrameReader()
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._results: list[R] = []
        self._has_ended = False

    async def __aenter__(self) -> "Exchange[R]":
        connected = await self._connect()
        try:
            self._streams = await asyncio.open_unix_connection(sock=connected)
        except BaseException:
            connected.close()
            raise
        self._connections.add(self._streams[1])
        try:
            await self._greet()
            name = method_name(type(self._params))
            await self._send(codec.Request(id=_REQUEST_ID, method=name, params=pack(self._params)))
        except BaseException:
            self._has_ended = True
            await self._close()
            raise
        return self

    async def __aexit__(self, *_exception: object) -> None:
        try:
            if not self._has_ended:
                await self._cancel()
        finally:
            await self._close()

    @property
    def result(self) -> R:
        """The result; ask only after `next` returned None."""
        return self._results[0]

    async def next(self) -> Event | None:
        """Return the next event; None when the result is there.

        Raises:
            ClawError: the request failed.
        """
        while not self._has_ended:
            frame = await self._receive()
            match frame:
                case codec.EventFrame() if frame.id == _REQUEST_ID:
                    return unpack_event(frame.event)
                case codec.Result() if frame.id == _REQUEST_ID:
                    self._results.append(unpack(frame.value, result_type(type(self._params))))
                    self._has_ended = True
                case codec.Failure() if frame.id in {_REQUEST_ID, None}:
                    self._has_ended = True
                    raise error_of(frame)
                case _:
                    pass
        return None

    async def answer(self, question: str, value: str, digest: str = "") -> None:
        """Answer an approval (with the digest that was shown) or a question."""
        await self._send(
            codec.Answer(id=_REQUEST_ID, question=question, value=value, digest=digest)
        )

    async def _cancel(self) -> None:
        with contextlib.suppress(errors.ClawError, TimeoutError):
            async with asyncio.timeout(CANCEL_LIMIT_S):
                await self._send(codec.Cancel(id=_REQUEST_ID))
                while await self.next() is not None:
                    pass

    async def _close(self) -> None:
        if self._streams is None:
            return
        _, writer = self._streams
        self._streams = None
        self._connections.discard(writer)
        await _close(writer)

    async def _greet(self) -> None:
        hello = codec.Hello(
            min=codec.PROTOCOL_MIN,
            max=codec.PROTOCOL_MAX,
            client="clawd.sdk",
            version=__version__,
        )
        try:
            async with asyncio.timeout(CONNECT_LIMIT_S):
                with contextlib.suppress(errors.UnreachableError):  # a refusal may be there already
                    await self._send(hello)
                frame = await self._receive()
        except TimeoutError as error:
            raise errors.UnreachableError(
                f"the daemon accepts connections, but does not greet within {CONNECT_LIMIT_S:g} s",
                hint="It may hang: see its log.",
            ) from error
        if isinstance(frame, codec.Failure):
            raise error_of(frame)
        if not isinstance(frame, codec.Welcome):
            raise errors.ProtocolError("expected a welcome; is this a clawd?")

    async def _send(self, frame: codec.ClientFrame) -> None:
        assert self._streams is not None
        _, writer = self._streams
        try:
            writer.write(encode_frame(frame))
            await writer.drain()
        except OSError as error:
            raise _lost() from error

    async def _receive(self) -> codec.ServerFrame:
        assert self._streams is not None
        reader, _ = self._streams
        # An interrupted wait may still be on its way out of the reader, which takes one at a time.
        async with self._reading:
            while not self._frames:
                try:
                    data = await reader.read(_READ_BYTES)
                except OSError as error:
                    raise _lost() from error
                if not data:
                    raise _lost()
                self._frames.extend(map(decode_server_frame, self._bytes.feed(data)))
            return self._frames.popleft()


async def connect_any(paths: list[Path]) -> socket.socket:
    """Return a connection to the first socket at which a daemon answers.

    Raises:
        UnreachableError: none does.
    """
    reasons: list[str] = []
    for path in paths:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        connection.setblocking(False)  # noqa: FBT003 - the signature of socket
        try:
            async with asyncio.timeout(CONNECT_LIMIT_S):
                await asyncio.get_running_loop().sock_connect(connection, str(path))
        except (OSError, TimeoutError) as error:
            connection.close()
            reasons.append(f"{path} ({getattr(error, 'strerror', None) or 'no answer'})")
        except BaseException:
            connection.close()
            raise
        else:
            return connection
    raise errors.UnreachableError(
        f"no daemon answers at {', '.join(reasons)}",
        hint="Start one with `clawd`, name its home or its socket, or use Session.local(), which "
        "needs none.",
    )


async def _close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()


def _lost() -> errors.UnreachableError:
    return errors.UnreachableError(
        "the daemon closed the connection", hint="It was stopped or it failed: see its log."
    )


_PLAIN: dict[str, type[errors.ClawError]] = {
    kind.default_code: kind
    for kind in (
        errors.CancelledByUserError,
        errors.ContextFullError,
        errors.EngineError,
        errors.ForbiddenError,
        errors.InvalidRequestError,
        errors.ModelLoadError,
        errors.ModelNotFoundError,
        errors.NotFoundError,
        errors.ProtocolError,
        errors.ReceiptError,
        errors.SandboxUnavailableError,
        errors.StoppedError,
        errors.StorageError,
        errors.UnauthenticatedError,
        errors.UnreachableError,
        errors.WorkerDiedError,
    )
}
_WAITING = {kind.default_code: kind for kind in (errors.BusyError, errors.RateLimitError)}
_KINDS: tuple[errors.ProviderErrorKind, ...] = ("network", "auth", "timeout", "http", "invalid")


def error_of(failure: codec.Failure) -> errors.ClawError:
    """Return the error that a failure tells; a plain ClawError for a code that is not known."""
    message, hint, data = failure.message, failure.hint, failure.data or {}
    if failure.code in _WAITING:
        wait_s = data.get("retry_after_s")
        return _WAITING[failure.code](
            message, hint=hint, retry_after_s=wait_s if isinstance(wait_s, float) else 1.0
        )
    if failure.code == errors.ConfigError.default_code:
        return errors.ConfigError(
            message, hint=hint, problems=tuple(map(str, data.get("problems", ())))
        )
    if failure.code == errors.ProviderError.default_code:
        kind: errors.ProviderErrorKind = next(
            (each for each in _KINDS if each == data.get("kind")), "invalid"
        )
        status = data.get("status")
        return errors.ProviderError(
            message, hint=hint, kind=kind, status=status if isinstance(status, int) else 0
        )
    if failure.code in _PLAIN:
        return _PLAIN[failure.code](message, hint=hint, data=failure.data)
    return errors.ClawError(message, hint=hint, code=failure.code, data=failure.data)
