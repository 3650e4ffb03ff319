"""An RPC server with stub handlers on a real socket, and a client that says whatever it likes."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from clawd.channels.rpc.connection import Call, Identity, RpcServer
from clawd.errors import NotFoundError, StorageError
from clawd.security.principal import Principal
from clawd.service.control_socket import listen
from clawd.wire.codec import (
    Answer,
    ClientFrame,
    EventFrame,
    Failure,
    FrameReader,
    Hello,
    Request,
    Result,
    ServerFrame,
    Welcome,
    decode_server_frame,
    encode_frame,
    pack,
    unpack,
)
from clawd.wire.daemon import ConfigText, Ping
from clawd.wire.events import TextDelta, TurnFinished
from clawd.wire.method import Done, Method, method_name, result_type
from clawd.wire.methods import METHODS
from clawd.wire.turns import FollowConversation, SendMessage

R = TypeVar("R")
LIMIT_S = 60.0
ADA = Principal(uid=1000, gid=1000, pid=77)
ROOT = Principal(uid=0, gid=0, pid=78, role="admin")
IDENTITY = Identity(version="9.9", pid=4242, home="/home/ada/.clawd")


class StubHandlers:
    """Handlers that say who they are; some wait, stream, fail or answer too much."""

    def __init__(self) -> None:
        self.started: asyncio.Queue[str] = asyncio.Queue()
        self.ended: asyncio.Queue[str] = asyncio.Queue()
        self.open = asyncio.Event()
        self.event = TextDelta(text="x" * 60_000)

    def __getattr__(self, name: str) -> Callable[[Any, Call], Any]:
        if name not in METHODS:
            raise AttributeError(name)

        async def plain(_params: Any, call: Call) -> Done:
            return Done(message=f"{name} for {call.principal.uid}")

        return plain

    async def status(self, _params: Any, _call: Call) -> Done:
        """Wait until the door is open."""
        await self._waiting("status")
        return Done(message="the door is open")

    async def send_message(self, params: SendMessage, call: Call) -> TurnFinished:
        """Stream two events; then end with what an Answer says, if the text is `ask`."""
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        call.on_answer = answer.set_result
        await call.emit(TextDelta(text="one"))
        await call.emit(TextDelta(text="two"))
        text = params.text
        if text == "ask":
            said = await answer
            text = f"{said.question}={said.value} {said.digest}"
        return TurnFinished(conversation_id="c", turn_id="t", text=text)

    async def follow_conversation(self, _params: FollowConversation, call: Call) -> Done:
        """Stream big events for as long as somebody takes them."""
        self.started.put_nowait("follow")
        try:
            while True:
                await call.emit(self.event)
        except ConnectionError as error:
            self.ended.put_nowait(str(error))
            raise
        except asyncio.CancelledError:
            self.ended.put_nowait("cancelled")
            raise

    async def show_config(self, _params: Any, _call: Call) -> ConfigText:
        """Answer more than a frame holds."""
        return ConfigText(path="x" * (17 << 20), values={})

    async def list_tools(self, _params: Any, _call: Call) -> Done:
        """Refuse."""
        raise NotFoundError("no such thing", hint="look elsewhere")

    async def list_approvals(self, _params: Any, _call: Call) -> Done:
        """Find the disk full."""
        raise StorageError("the disk is full")

    async def list_rules(self, _params: Any, _call: Call) -> Done:
        """Be defective."""
        raise KeyError("a secret detail")

    async def _waiting(self, name: str) -> None:
        self.started.put_nowait(name)
        try:
            await self.open.wait()
        except asyncio.CancelledError:
            self.ended.put_nowait("cancelled")
            raise


class RawClient:
    """Sends frames or bytes and reads frames, each wait under a limit."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self._frames = FrameReader()
        self._bodies: list[bytes] = []

    @property
    def has_bytes(self) -> bool:
        """Whether something came that was not read."""
        return bool(self._bodies or self.reader._buffer)  # type: ignore[attr-defined]

    async def hello(self) -> Welcome:
        self.send(Hello(min=1, max=1, client="test"))
        frame = await self.read()
        assert isinstance(frame, Welcome)
        return frame

    def send(self, *frames: ClientFrame) -> None:
        self.send_bytes(b"".join(map(encode_frame, frames)))

    def send_bytes(self, data: bytes) -> None:
        self.writer.write(data)

    async def read(self) -> ServerFrame:
        """Return the next frame.

        Raises:
            EOFError: the server closed the connection.
        """
        async with asyncio.timeout(LIMIT_S):
            while not self._bodies:
                try:
                    data = await self.reader.read(1 << 16)
                except ConnectionError:
                    data = b""
                if not data:
                    raise EOFError
                self._bodies += self._frames.feed(data)
        return decode_server_frame(self._bodies.pop(0))

    async def rest(self) -> list[ServerFrame]:
        """Return everything until the server closes."""
        frames = []
        while True:
            try:
                frames.append(await self.read())
            except EOFError:
                return frames

    async def failure(self) -> Failure:
        frame = await self.read()
        assert isinstance(frame, Failure), frame
        return frame

    async def done(self) -> str:
        frame = await self.read()
        assert isinstance(frame, Result), frame
        return unpack(frame.value, Done).message

    async def ping(self, request_id: int = 1) -> str:
        self.send(request(request_id, Ping()))
        return await self.done()

    def close(self) -> None:
        self.writer.close()


class Door:
    """The way to a server whose clients are whom the test says: `identify` takes `principal`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.principal = ADA
        self.clients: list[RawClient] = []

    async def client(self, principal: Principal = ADA) -> RawClient:
        """Connect as somebody and say hello."""
        self.principal = principal
        client = RawClient(*await asyncio.open_unix_connection(self.path))
        self.clients.append(client)
        await client.hello()
        return client

    async def ask(self, params: Method[R], principal: Principal = ADA) -> R:
        """Make a request on a connection of its own; events are left aside."""
        client = await self.client(principal)
        client.send(request(1, params))
        while isinstance(frame := await client.read(), EventFrame):
            pass
        assert isinstance(frame, Result), frame
        client.close()
        return unpack(frame.value, result_type(type(params)))

    async def refused(self, params: Method[Any], principal: Principal = ADA) -> Failure:
        """Make a request that fails."""
        client = await self.client(principal)
        client.send(request(1, params))
        while isinstance(frame := await client.read(), EventFrame):
            pass
        assert isinstance(frame, Failure), frame
        client.close()
        return frame

    def close(self) -> None:
        for client in self.clients:
            client.writer.transport.abort()


class Rig:
    """A server under test."""

    def __init__(self, handlers: StubHandlers, path: Path) -> None:
        self.handlers = handlers
        self.path = path
        self.principal = ADA
        self.server: RpcServer
        self._clients: list[RawClient] = []

    def identify(self, _peer: socket.socket) -> Principal:
        return self.principal

    async def client(self) -> RawClient:
        """Connect and say nothing yet."""
        client = RawClient(*await asyncio.open_unix_connection(self.path))
        self._clients.append(client)
        return client

    async def greeted(self) -> RawClient:
        """Connect and say hello."""
        client = await self.client()
        await client.hello()
        return client

    async def soon(self, queue: asyncio.Queue[str]) -> str:
        async with asyncio.timeout(LIMIT_S):
            return await queue.get()

    def close(self) -> None:
        for client in self._clients:
            client.writer.transport.abort()


@asynccontextmanager
async def serving(path: Path) -> AsyncIterator[Rig]:
    rig = Rig(StubHandlers(), path)
    answers = {name: getattr(rig.handlers, name) for name in METHODS}
    rig.server = RpcServer(answers, identify=lambda s: rig.identify(s), identity=IDENTITY)
    await rig.server.start(listen(path))
    try:
        yield rig
    finally:
        rig.close()
        await rig.server.close()


def request(request_id: int, params: Method[Any]) -> Request:
    return Request(id=request_id, method=method_name(type(params)), params=pack(params))
