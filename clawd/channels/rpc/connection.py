"""The control socket: takes clients in; each says hello, then makes requests, each in a task.

What is hostile ends this connection with a Failure and a log line; nobody else notices.
"""

import asyncio
import logging
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import msgspec

from clawd import errors
from clawd.kernel.concurrency import Pace
from clawd.runtime.incoming import Door
from clawd.security.approvals import Attendance
from clawd.security.principal import Principal
from clawd.wire import codec as wire
from clawd.wire.codec import FrameReader, decode_client_frame, encode_frame, pack, unpack
from clawd.wire.events import Event
from clawd.wire.method import Method
from clawd.wire.methods import METHODS

HELLO_TIMEOUT_S = 10.0
STALL_S = 30.0
MAX_REQUESTS = 64
MAX_CONNECTIONS = 256
READ_BYTES = 64 * 1024

_log = logging.getLogger(__name__)

AnswerSink = Callable[[wire.Answer], None]


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """What the daemon says of itself in the welcome."""

    version: str
    pid: int
    home: str


@dataclass(eq=False, slots=True)
class Call:
    """One request under way, as its handler sees it."""

    _connection: "Connection"
    _id: int
    principal: Principal
    door: Door = "socket"
    client: str = ""
    ends: bool = True
    shows_events: bool = True
    on_answer: AnswerSink | None = None

    async def emit(self, event: Event) -> None:
        """Send an event; waits while the client is slow.

        Raises:
            ConnectionError: the client is gone or took nothing for STALL_S seconds.
        """
        await self._connection.send(wire.EventFrame(id=self._id, event=pack(event)))

    def attending(
        self, attendance: Attendance, *, interactive: bool = True
    ) -> AbstractContextManager[None]:
        """Count the caller as there, if it sees what is asked and may answer it."""
        may_answer = self.door == "socket" or self.principal.is_admin
        is_there = interactive and self.shows_events and may_answer
        return attendance.attended() if is_there else nullcontext()


Handler = Callable[[Any, Call], Awaitable[Any]]
"""Returns the report of a method, given its parameters."""


@dataclass(eq=False)
class Connection:
    """A client's connection, from hello to its end.

    Args:
        reader: the client's bytes.
        writer: where frames go.
        principal: who the client is.
        identity: what the welcome says.
        handlers: run the methods, by name.
    """

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    principal: Principal
    identity: Identity
    handlers: Mapping[str, Handler]
    client: str = field(default="", init=False)  # what it calls itself in its hello
    _frames: FrameReader = field(default_factory=FrameReader, init=False)
    _calls: dict[int, tuple[asyncio.Task[None], Call]] = field(default_factory=dict, init=False)
    _send_lock: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)

    async def serve(self) -> None:
        """Serve the client until it goes; its requests end with it."""
        try:
            async with asyncio.TaskGroup() as tasks:
                try:
                    frames = self._incoming()
                    await self._greet(frames)
                    async for frame in frames:
                        match frame:
                            case wire.Hello():
                                raise errors.ProtocolError("a second hello")
                            case wire.Request():
                                await self._accept(frame, tasks)
                            case wire.Cancel():
                                self._cancel(frame.id)
                            case wire.Answer():
                                call = self._calls.get(frame.id)
                                if call is not None and call[1].on_answer is not None:
                                    call[1].on_answer(frame)
                finally:
                    for task, _ in self._calls.values():
                        task.cancel()
        except* (ConnectionError, errors.ProtocolError) as group:
            await self._say_goodbye(group.exceptions[0])

    def unfinished(self) -> list[asyncio.Task[None]]:
        """Return the requests that will end by themselves (following a conversation never does)."""
        return [task for task, call in self._calls.values() if call.ends]

    async def send(self, frame: wire.ServerFrame) -> None:
        """Write one frame.

        Raises:
            ConnectionError: the client is gone or took nothing for STALL_S seconds.
        """
        data = encode_frame(frame)
        async with self._send_lock:
            self.writer.write(data)
            transport = self.writer.transport
            if not transport.is_closing() and not transport.get_write_buffer_size():
                return  # it is sent: a timer for each token would cost more than that
            try:
                async with asyncio.timeout(STALL_S):
                    await self.writer.drain()
            except TimeoutError:
                transport.abort()
                raise ConnectionAbortedError(f"the client took nothing for {STALL_S:g} s") from None

    async def _incoming(self) -> AsyncIterator[wire.ClientFrame]:
        pace = Pace()
        while data := await self.reader.read(READ_BYTES):
            for body in self._frames.feed(data):
                await pace.step()
                yield decode_client_frame(body)

    async def _greet(self, frames: AsyncIterator[wire.ClientFrame]) -> None:
        try:
            async with asyncio.timeout(HELLO_TIMEOUT_S):
                hello = await anext(frames)
        except TimeoutError:
            raise errors.ProtocolError(f"no hello within {HELLO_TIMEOUT_S:g} s") from None
        except StopAsyncIteration:
            raise ConnectionAbortedError("the client left before its hello") from None
        if not isinstance(hello, wire.Hello):
            raise errors.ProtocolError("the first frame must be a hello")
        version = min(hello.max, wire.PROTOCOL_MAX)
        if version < max(hello.min, wire.PROTOCOL_MIN):
            older = "clawctl" if hello.max < wire.PROTOCOL_MIN else "clawd"
            raise errors.ProtocolError(
                f"the client speaks protocol {hello.min} to {hello.max}, this daemon "
                f"{wire.PROTOCOL_MIN} to {wire.PROTOCOL_MAX}; upgrade {older}"
            )
        self.client = hello.client
        await self.send(
            wire.Welcome(
                protocol=version,
                version=self.identity.version,
                pid=self.identity.pid,
                home=self.identity.home,
                role=self.principal.role,
            )
        )

    async def _accept(self, request: wire.Request, tasks: asyncio.TaskGroup) -> None:
        try:
            kind = METHODS.get(request.method)
            if kind is None:
                raise errors.InvalidRequestError(
                    f"unknown method {request.method[:64]!r}",
                    hint="This daemon may be older than the client: restart or upgrade it.",
                    code="unknown_method",
                )
            if request.id in self._calls:
                raise errors.InvalidRequestError(f"request id {request.id} is already under way")
            if len(self._calls) >= MAX_REQUESTS:
                text = f"{MAX_REQUESTS} requests are under way here"
                raise errors.BusyError(text, retry_after_s=1.0)
            if kind.admin and not self.principal.is_admin:
                raise errors.ForbiddenError(f"{request.method} needs an admin")
            params = unpack(request.params, kind)
        except errors.ClawError as error:
            await self.send(failure_of(request.id, error))
            return
        call = Call(self, request.id, self.principal, client=self.client)
        task = tasks.create_task(self._answer(request, params, call))
        self._calls[request.id] = (task, call)
        task.add_done_callback(lambda _task: self._calls.pop(request.id, None))
        # It must have begun before a Cancel in the same bytes can reach it: only then it answers.
        await asyncio.sleep(0)

    def _cancel(self, request_id: int) -> None:
        """Cancel a request once; a second Cancel must not break off its answer to the first."""
        under_way = self._calls.get(request_id)
        if under_way is not None and not under_way[0].cancelling():
            under_way[0].cancel()

    async def _answer(self, request: wire.Request, params: Method[Any], call: Call) -> None:
        """Run the handler and send what comes of it. The outermost handler of a request."""
        try:
            value = await self.handlers[request.method](params, call)
            reply: wire.ServerFrame = wire.Result(id=request.id, value=pack(value))
            await self.send(reply)
        except errors.ClawError as error:
            if isinstance(error, errors.ReceiptError | errors.StorageError):
                # The disk fails: the operator must learn it, not the client alone.
                _log.error("method %s failed: %s", request.method, error.message)
            await self.send(failure_of(request.id, error))
        except ConnectionError:
            self.writer.transport.abort()
        except asyncio.CancelledError:
            await self._tell_cancelled(request.id)
            raise
        except Exception as error:  # noqa: BLE001 - a defect ends its request, not the daemon
            _log.error("method %s failed with a defect", request.method, exc_info=error)
            text = f"{request.method} failed inside the daemon: {type(error).__name__}"
            hint = "The daemon's log has the details; please report it."
            await self.send(wire.Failure(id=request.id, code="internal", message=text, hint=hint))

    async def _tell_cancelled(self, request_id: int) -> None:
        if self.writer.is_closing():
            return
        try:
            await self.send(wire.Failure(id=request_id, code="cancelled", message="cancelled"))
        except ConnectionError:
            return

    async def _say_goodbye(self, error: BaseException) -> None:
        if not isinstance(error, errors.ProtocolError):
            return
        _log.warning(
            "a client was cut off: %s", error.message, extra={"peer_pid": self.principal.pid}
        )
        try:
            await self.send(failure_of(None, error))
        except ConnectionError:
            return


def failure_of(request_id: int | None, error: errors.ClawError) -> wire.Failure:
    """Return the frame that tells an error."""
    return wire.Failure(
        id=request_id,
        code=error.code,
        message=error.message,
        hint=error.hint,
        data=error.data,
    )


class RpcServer:
    """Serves the control socket.

    Args:
        handlers: for every name in METHODS what answers it.
        identify: tells who is at the other end of a connected socket; raises ForbiddenError for
            a peer that may not speak at all.
        identity: what the welcome says.
    """

    def __init__(
        self,
        handlers: Mapping[str, Handler],
        *,
        identify: Callable[[socket.socket], Principal],
        identity: Identity,
    ) -> None:
        if missing := METHODS.keys() - handlers.keys():
            raise TypeError(f"no handler for: {', '.join(sorted(missing))}")
        self._handlers = handlers
        self._identify = identify
        self._identity = identity
        self._server: asyncio.Server | None = None
        self._clients: dict[asyncio.Task[None], Connection | None] = {}

    async def start(self, listener: socket.socket) -> None:
        """Accept clients on a bound, listening Unix socket; its file stays its maker's."""
        options: dict[str, Any] = {}
        if sys.version_info >= (3, 13):  # since then asyncio removes the file, systemd's too
            options["cleanup_socket"] = False
        self._server = await asyncio.start_unix_server(self._serve, sock=listener, **options)

    async def take(self, connected: socket.socket) -> None:
        """Serve a client at the other end of a connected socket, and close it at the end."""
        reader, writer = await asyncio.open_unix_connection(sock=connected)
        task = asyncio.create_task(self._serve(reader, writer))
        self._clients[task] = None

    async def stop_listening(self) -> None:
        """Take no more clients; those that are connected stay."""
        if self._server is not None:
            self._server.close()
            self._server = None

    async def settle(self, limit_s: float) -> None:
        """Give the requests under way that long to tell their results."""
        tasks = [
            task
            for connection in self._clients.values()
            if connection is not None
            for task in connection.unfinished()
        ]
        if tasks:
            await asyncio.wait(tasks, timeout=limit_s)

    async def close(self) -> None:
        """Stop accepting, and end every connection."""
        await self.stop_listening()
        for task in tuple(self._clients):
            task.cancel()
        if self._clients:
            await asyncio.wait(tuple(self._clients), timeout=5)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._clients[task] = None
        try:
            if len(self._clients) > MAX_CONNECTIONS:
                text = f"{MAX_CONNECTIONS} clients are connected"
                raise errors.BusyError(text, retry_after_s=1.0)
            try:
                principal = self._identify(writer.get_extra_info("socket"))
            except OSError as error:
                text = f"the peer cannot be identified: {error}"
                raise errors.ForbiddenError(text) from error
            connection = Connection(
                reader,
                writer,
                principal=principal,
                identity=self._identity,
                handlers=self._handlers,
            )
            self._clients[task] = connection
            await connection.serve()
        except errors.ClawError as error:
            _log.warning("a client was turned away: %s", error.message)
            writer.write(encode_frame(failure_of(None, error)))
        except asyncio.CancelledError:
            writer.transport.abort()
        except Exception as error:  # noqa: BLE001 - the outermost handler of a connection
            _log.error("a connection failed with a defect", exc_info=error)
        finally:
            del self._clients[task]
            writer.close()
