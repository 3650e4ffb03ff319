"""An MCP server as an ASGI application: without sessions one POST, one answer.

A batch of messages is of revision 2025-03-26 alone; its messages are answered one after another.

The answer is plain JSON, or a stream of events where the client asked to be told of progress and
can read one. With sessions, which are an option, every answer is a stream; a session is its
owner's alone. The SDK is loaded with the first request.
"""

import asyncio
import importlib
import json
import threading
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import AsyncExitStack
from types import ModuleType
from typing import Any, Protocol

from clawd.tools.offer import ListedTool
from clawd.tools.outcome import CallOutcome

# What an MCP server of clawd's own serves: tools for one client, behind the gate.

_Report = Callable[[str], None]
"""Takes what a running call says; never blocks."""


class ToolDoor(Protocol):
    """The tools as one client is offered them."""

    def listed(self) -> tuple[ListedTool, ...]:
        """Return what may be called, by name."""
        ...

    async def call(self, name: str, arguments: str, report: _Report) -> CallOutcome:
        """Make one call; `arguments` is JSON text.

        Raises:
            ReceiptError, StorageError: the trail cannot be written; nothing may be told.
        """
        ...


# Loading the MCP SDK: off the loop, and never by two threads at once.
#
# Its modules import each other in circles. Two threads that begin at different ends would each find
# a module of the other half made, and both would fail.

_one_at_a_time = threading.Lock()


async def load(name: str) -> ModuleType:
    """Return a module that imports the SDK; it takes up to seconds in which others are answered.

    Raises:
        ImportError: it cannot be loaded.
    """
    return await asyncio.to_thread(_load, name)


def _load(name: str) -> ModuleType:
    with _one_at_a_time:
        return importlib.import_module(name)


_Scope = MutableMapping[str, Any]
_Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
_Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

DOOR = "clawd.door"
OWNER = "clawd.owner"
"""In a scope's state: for whom sessions are kept."""
_MAX_SESSIONS = 1_000

_PROGRESS = b'"progressToken"'
_STREAM = b"text/event-stream"
_MANAGERS = "mcp.server.streamable_http_manager"
_SERVING = (_MANAGERS, "clawd.mcp.server", "clawd.mcp.server")
_ANYTHING = b"application/json, text/event-stream"

_MAX_BATCH = 50
_BATCHES = b"2025-03-26"
_REVISION_HEADER = b"mcp-protocol-version"
_PARSE_ERROR, _INVALID_REQUEST = -32700, -32600
_SHOWN = 40


async def load_sdk() -> None:
    """Load what serving takes; off the loop, as it takes seconds in which others are answered."""
    for name in _SERVING:
        await load(name)


class _Manager(Protocol):
    async def handle_request(self, scope: _Scope, receive: _Receive, send: _Send) -> None: ...


class Mount:
    """Serves what `make` returns: an SDK server, made when the first request comes.

    Attributes:
        keeps_sessions: clients may open sessions, listen with GET, and end them with DELETE.
    """

    def __init__(
        self,
        make: Callable[[], Any],
        *,
        max_body_bytes: int = 4 << 20,
        keeps_sessions: bool = False,
    ) -> None:
        self.keeps_sessions = keeps_sessions
        self._make = make
        self._max_body_bytes = max_body_bytes
        self._ready: asyncio.Future[None] | None = None
        self._running: asyncio.Task[None] | None = None
        self._plain: _Manager | None = None
        self._streaming: _Manager | None = None
        self._wanted = asyncio.Event()

    async def serve(self, scope: _Scope, body: bytes, receive: _Receive, send: _Send) -> None:
        """Answer one request whose body was read already; `receive` yields it again."""
        await self._start()
        if scope["method"] == "POST" and body.lstrip()[:1] == b"[":
            await self._serve_batch(scope, body, send)
            return
        accept = b", ".join(value for name, value in scope["headers"] if name == b"accept")
        if not accept and scope["method"] == "POST":
            # The smallest clients say nothing, and read JSON.
            scope["headers"] = [*scope["headers"], (b"accept", _ANYTHING)]
        if self.keeps_sessions:
            scope["user"] = _owner(scope["state"].get(OWNER, ""))
            manager = self._streaming
        else:
            manager = self._streaming if _PROGRESS in body and _STREAM in accept else self._plain
        assert manager is not None
        await manager.handle_request(scope, receive, send)

    async def _serve_batch(self, scope: _Scope, body: bytes, send: _Send) -> None:
        """Answer a batch by the answers of its messages, in their order."""
        revision = next(
            (value for name, value in scope["headers"] if name == _REVISION_HEADER), _BATCHES
        )
        try:
            messages = json.loads(body)
        except (ValueError, RecursionError):
            await _answer(send, 400, _error(_PARSE_ERROR, "the body is no JSON"))
            return
        problem = ""
        if revision != _BATCHES or self.keeps_sessions:
            said = revision.decode("latin-1")[:_SHOWN]
            problem = (
                f"batches are of revision 2025-03-26, and this is {said}; send each message alone"
            )
        elif not messages or len(messages) > _MAX_BATCH:
            problem = f"a batch has 1 to {_MAX_BATCH} messages, this one {len(messages)}"
        elif any(isinstance(e, dict) and e.get("method") == "initialize" for e in messages):
            problem = "initialize is sent alone, not in a batch"
        if problem:
            await _answer(send, 400, _error(_INVALID_REQUEST, problem))
            return
        answers: list[Any] = []
        for message in messages:
            answers += await self._answer_of(scope, message)
        await _answer(send, 200 if answers else 202, answers or None)

    async def _answer_of(self, scope: _Scope, message: Any) -> list[Any]:
        """Return the answer to one message of a batch; nothing where it wants none."""
        body = json.dumps(message).encode()
        dropped = {b"content-length", b"accept"}
        headers = [each for each in scope["headers"] if each[0] not in dropped]
        headers += [(b"accept", _ANYTHING), (b"content-length", str(len(body)).encode())]
        received = iter([{"type": "http.request", "body": body, "more_body": False}])
        sent = bytearray()

        async def receive() -> MutableMapping[str, Any]:
            if (first := next(received, None)) is None:
                await asyncio.Event().wait()  # a client that leaves cancels this task
            return first or {}

        async def take(part: MutableMapping[str, Any]) -> None:
            sent.extend(part.get("body", b""))

        assert self._plain is not None
        await self._plain.handle_request({**scope, "headers": headers}, receive, take)
        try:
            return [json.loads(sent)] if sent.strip() else []
        except ValueError:
            return [_error(_INVALID_REQUEST, "this message of the batch cannot be answered")]

    async def close(self) -> None:
        """End what runs; idempotent."""
        self._wanted.set()
        if self._running is not None:
            await asyncio.wait({self._running}, timeout=5)

    async def _start(self) -> None:
        if self._ready is None:
            self._ready = asyncio.get_running_loop().create_future()
            self._running = asyncio.create_task(self._run(self._ready))
        # It is for all who wait: one who leaves must not take it along.
        await asyncio.shield(self._ready)

    async def _run(self, ready: asyncio.Future[None]) -> None:
        """Hold the managers open; they must be entered and left by one task."""
        try:
            await load_sdk()
            module = importlib.import_module(_MANAGERS)
            server = await asyncio.to_thread(self._make)
            async with AsyncExitStack() as stack:
                managers = [
                    module.StreamableHTTPSessionManager(
                        server,
                        json_response=is_plain,
                        stateless=not self.keeps_sessions,
                        max_request_body_size=self._max_body_bytes,
                        max_sessions=_MAX_SESSIONS,
                    )
                    for is_plain in (True, False)
                ]
                for manager in managers:
                    await stack.enter_async_context(manager.run())
                self._plain, self._streaming = managers
                ready.set_result(None)
                await self._wanted.wait()
        except Exception as error:
            if ready.done():
                raise
            self._ready = None  # the next request tries again
            ready.set_exception(error)


def _error(code: int, message: str) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": message}}


async def _answer(send: _Send, status: int, value: Any) -> None:
    body = b"" if value is None else json.dumps(value).encode()
    headers = [(b"content-type", b"application/json")] if body else []
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": False})


def _owner(name: str) -> Any:
    """Return what the SDK tells the owners of sessions apart by."""
    from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
    from mcp.server.auth.provider import AccessToken

    return AuthenticatedUser(AccessToken(token="", client_id=name, scopes=[]))
