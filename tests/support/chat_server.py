"""A real HTTP server on loopback that answers what is posted to it as it is told."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from typing import Any

import msgspec
from aiohttp import web
from aiohttp.test_utils import TestServer

READY_LIMIT_S = 60.0


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What one request gets: a status, headers, and the body in pieces.

    `hang` waits before the headers, after the headers or after the last piece; `cut` breaks the
    connection after the last piece.
    """

    status: int = 200
    headers: dict[str, str] = {}
    pieces: tuple[bytes, ...] = ()
    hang: str = ""
    cut: bool = False


class ChatServer:
    """Answers in order; the last answer repeats. Keeps what it was asked."""

    def __init__(self, *answers: Answer, models: Answer | None = None) -> None:
        self.answers = list(answers)
        self.models = models or Answer(pieces=(b'{"data":[{"id":"m"}]}',))
        self.requests: list[dict[str, Any]] = []
        self.paths: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.closed = asyncio.Event()

    async def chat(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(await request.json())
        self.paths.append(request.path)
        self.headers.append(dict(request.headers))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return await self.reply(request, answer)

    async def list_models(self, request: web.Request) -> web.StreamResponse:
        self.headers.append(dict(request.headers))
        return await self.reply(request, self.models)

    async def reply(self, request: web.Request, answer: Answer) -> web.StreamResponse:
        try:
            if answer.hang == "headers":
                await asyncio.sleep(3600)
            response = web.StreamResponse(status=answer.status, headers=answer.headers)
            await response.prepare(request)
            if answer.hang == "body":
                await asyncio.sleep(3600)
            for piece in answer.pieces:
                await response.write(piece)
            if answer.hang == "end":
                await asyncio.sleep(3600)
            if answer.cut and request.transport is not None:
                request.transport.abort()
            return response
        except (asyncio.CancelledError, ConnectionError):
            self.closed.set()
            raise


def routes(server: ChatServer) -> web.Application:
    app = web.Application()
    for path in ("/v1/chat/completions", "/v1/completions", "/v1/embeddings"):
        app.router.add_post(path, server.chat)
    app.router.add_get("/v1/models", server.list_models)
    return app


@asynccontextmanager
async def serving(server: ChatServer) -> AsyncIterator[str]:
    """Serve on loopback; gives the base URL."""
    test_server = TestServer(routes(server), handler_cancellation=True)
    await test_server.start_server(shutdown_timeout=0.1)
    try:
        yield f"http://127.0.0.1:{test_server.port}/v1"
    finally:
        await test_server.close()


@contextmanager
def in_a_thread(served: AbstractAsyncContextManager[str]) -> Iterator[str]:
    """Serve what gives its address in a loop and thread of its own."""
    address: list[str] = []
    ready = threading.Event()
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()

    async def serve() -> None:
        async with served as url:
            address.append(url)
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    try:
        assert ready.wait(READY_LIMIT_S)
        yield address[0]
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(READY_LIMIT_S)
        loop.close()


def event(value: Any) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"


def chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
    return event({"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})


DONE = b"data: [DONE]\n\n"
HELLO = (
    chunk({"role": "assistant", "content": ""}),
    chunk({"content": "He"}),
    chunk({"content": "llo"}),
    chunk({}, "stop"),
    event({"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 2}}),
    DONE,
)


def streamed(*pieces: bytes, **fields: Any) -> Answer:
    headers = {"Content-Type": "text/event-stream"}
    return Answer(pieces=pieces, headers=headers, **fields)
