"""A door with OpenAI's routes whose answers are given events, and raw ways to ask it."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import msgspec
from aiohttp import web

from clawd.channels.http.app import CALLER, Gateway, Handler, make_app
from clawd.channels.http.model_api import Caller, GatewayEvent, Generation, ModelRequest
from clawd.channels.http.openai import chat, completions, responses
from clawd.providers.base import Finished
from clawd.providers.scripted import ScriptedProvider
from clawd.runtime.settings import RuntimeSettings
from clawd.wire.events import HopUsage, TextDelta
from clawd.wire.models import ModelList, ProviderLine
from tests.channels.http.rig import EVERYTHING, LIMIT_S
from tests.support.inprocess import OWNER

ROUTES = [*chat.ROUTES, *completions.ROUTES, *responses.ROUTES]
USAGE = HopUsage(prompt_tokens=11, cached_tokens=4, completion_tokens=3)
DONE = Finished(reason="stop", usage=USAGE)
HELLO: tuple[GatewayEvent, ...] = (TextDelta(text="He"), TextDelta(text="llo"), DONE)


class Fixed:
    """A generation of given events."""

    def __init__(self, events: Sequence[GatewayEvent], model: str, conversation_id: str) -> None:
        self.model = model
        self.conversation_id = conversation_id
        self.is_closed = False
        self._events = self._run(events)

    def __aiter__(self) -> AsyncIterator[GatewayEvent]:
        return self._events

    async def aclose(self) -> None:
        self.is_closed = True
        await self._events.aclose()

    @staticmethod
    async def _run(events: Sequence[GatewayEvent]) -> AsyncGenerator[GatewayEvent, None]:
        for event in events:
            yield event
            await asyncio.sleep(0)


class FixedGenerations:
    """Gives the answers in turn, the last one again and again; keeps what was asked."""

    def __init__(self, *answers: Sequence[GatewayEvent], conversation_id: str = "") -> None:
        self.asked: list[ModelRequest] = []
        self.opened: list[Fixed] = []
        self.refusal: Exception | None = None
        self._answers = answers or (HELLO,)
        self._conversation_id = conversation_id

    async def open(self, request: ModelRequest, caller: Caller) -> Generation:
        if self.refusal is not None:
            raise self.refusal
        events = self._answers[min(len(self.opened), len(self._answers) - 1)]
        self.asked.append(request)
        self.opened.append(Fixed(events, request.model or "tiny", self._conversation_id))
        return self.opened[-1]

    async def count(self, request: ModelRequest, caller: Caller) -> int:
        self.asked.append(request)
        return 42


class Parts:
    """Of a gateway what these routes ask for: a model that nobody has a tokenizer of."""

    mcp = None

    def __init__(self, generations: FixedGenerations) -> None:
        self.generations = generations

    def ping_s(self) -> float:
        return 1.0

    def is_stopped(self) -> bool:
        return False

    def providers(self) -> dict[str, ScriptedProvider]:
        return {"mock": ScriptedProvider()}

    def settings(self) -> RuntimeSettings:
        return RuntimeSettings(
            workspace=Path("/"), workspace_roots=(), default_provider="mock", default_model=""
        )

    def provider_lines(self) -> tuple[ProviderLine, ...]:
        return ()

    def models(self) -> ModelList:
        return ModelList(folder="", items=())


class Answer(msgspec.Struct, frozen=True):
    """What came over the socket."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)

    def data(self) -> list[Any]:
        """Return the data of the events of a chat stream, checking that `[DONE]` ends it."""
        assert self.status == 200, self.body
        *events, last = [value for _, value in self.events()]
        assert last == "[DONE]"
        return events

    def events(self) -> list[tuple[str, Any]]:
        return events_of(self.body)


def events_of(body: bytes) -> list[tuple[str, Any]]:
    """Return the events of a stream; every byte of it must belong to an event or a comment."""
    found: list[tuple[str, Any]] = []
    assert body.endswith(b"\n\n")
    for block in body.decode().removesuffix("\n\n").split("\n\n"):
        name, data = "", None
        for line in block.split("\n"):
            if line.startswith("event: "):
                name = line.removeprefix("event: ")
            elif line.startswith("data: "):
                assert data is None
                data = line.removeprefix("data: ")
            else:
                assert line.startswith(":"), block
        if data is not None:
            found.append((name, data if data == "[DONE]" else json.loads(data)))
    return found


class Door:
    """A server with OpenAI's routes."""

    def __init__(self, generations: FixedGenerations) -> None:
        self.generations = generations
        self.port = 0

    @property
    def asked(self) -> ModelRequest:
        return self.generations.asked[-1]

    async def post(self, path: str, body: Any, **headers: str) -> Answer:
        """Post over a raw socket."""
        return await raw_post(self.port, path, body, **headers)

    async def chat(self, body: dict[str, Any], **headers: str) -> Answer:
        asked = {"messages": [{"role": "user", "content": "hello"}], **body}
        return await self.post("/v1/chat/completions", asked, **headers)


async def raw_post(port: int, path: str, body: Any, **headers: str) -> Answer:
    """Post a JSON value (or bytes) over a socket of our own, and read until the server closes."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [f"POST {path} HTTP/1.1", "Host: 127.0.0.1", "Connection: close"]
    lines += [f"Content-Length: {len(data)}", "Content-Type: application/json"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    async with asyncio.timeout(LIMIT_S):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write("\r\n".join([*lines, "", ""]).encode() + data)
        raw = await reader.read()
        writer.close()
        await writer.wait_closed()
    head, _, rest = raw.partition(b"\r\n\r\n")
    first, *fields = head.decode().split("\r\n")
    told = {name.lower(): value for name, _, value in (line.partition(": ") for line in fields)}
    if told.get("transfer-encoding") == "chunked":
        rest = _joined(rest)
    return Answer(int(first.split()[1]), told, rest)


def _joined(rest: bytes) -> bytes:
    body = b""
    while True:
        size, _, rest = rest.partition(b"\r\n")
        count = int(size, 16)
        if not count:
            return body
        body += rest[:count]
        rest = rest[count + 2 :]


@asynccontextmanager
async def door(*answers: Sequence[GatewayEvent], conversation_id: str = "") -> AsyncIterator[Door]:
    """Serve OpenAI's routes with answers of given events."""
    generations = FixedGenerations(*answers, conversation_id=conversation_id)
    found = Door(generations)

    @web.middleware
    async def vouch(request: web.Request, handler: Handler) -> web.StreamResponse:
        request[CALLER] = Caller(principal=OWNER, scopes=EVERYTHING)
        return await handler(request)

    app = make_app(cast(Gateway, Parts(generations)), ROUTES, [vouch])
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    found.port = runner.addresses[0][1]
    try:
        yield found
    finally:
        await runner.cleanup()
