"""Answers whose every event a test chooses, and a client that shows the bytes of an exchange."""

import asyncio
import codecs
import json
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from typing import Any
from urllib.parse import urlsplit

import msgspec

from clawd.channels.http.model_api import Caller, GatewayEvent, Generation, ModelRequest
from clawd.providers.base import Finished, StopReason
from clawd.wire.events import HopUsage, PromptEvaluated

LIMIT_S = 60.0
EVALUATED = PromptEvaluated(
    tokens=30, cached=12, elapsed_ms=5.0, context_used=30, context_size=4096
)


def finished(reason: StopReason = "stop", tokens: int = 7) -> Finished:
    usage = HopUsage(
        prompt_tokens=30, cached_tokens=12, completion_tokens=tokens, tokens_per_s=50.0
    )
    return Finished(reason=reason, usage=usage, provider="told", model="m")


class Told:
    """Gives every request the same events; an `asyncio.Event` among them is waited for."""

    def __init__(self, *events: GatewayEvent | asyncio.Event, count: int = 0) -> None:
        self.events = events
        self.requests: list[ModelRequest] = []
        self.closed = asyncio.Event()
        self._count = count

    async def open(self, request: ModelRequest, caller: Caller) -> Generation:
        self.requests.append(request)
        return ToldGeneration(self)

    async def count(self, request: ModelRequest, caller: Caller) -> int:
        self.requests.append(request)
        return self._count


class ToldGeneration:
    def __init__(self, told: Told) -> None:
        self.model = "told-model"
        self.conversation_id = ""
        self._told = told
        self._events = self._run()

    def __aiter__(self) -> AsyncIterator[GatewayEvent]:
        return self._events

    async def aclose(self) -> None:
        await self._events.aclose()
        self._told.closed.set()

    async def _run(self) -> AsyncGenerator[GatewayEvent, None]:
        for event in self._told.events:
            if isinstance(event, asyncio.Event):
                await event.wait()
            else:
                yield event


class Raw(msgspec.Struct, frozen=True, kw_only=True):
    """What came over the wire: header names are in small letters, the body is without chunks."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


async def raw(
    url: str, path: str, body: Any = None, *, method: str = "", headers: Sequence[str] = ()
) -> Raw:
    """Ask over a socket of its own; without headers that are not given, the length excepted."""
    data = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    method = method or ("GET" if body is None else "POST")
    head = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1", "Connection: close", *headers]
    if body is not None:
        head.append(f"Content-Length: {len(data)}")
    split = urlsplit(url)
    async with asyncio.timeout(LIMIT_S):
        reader, writer = await asyncio.open_connection(split.hostname, split.port)
        try:
            writer.write("\r\n".join(head).encode() + b"\r\n\r\n" + data)
            await writer.drain()
            return _parsed(await reader.read())
        finally:
            writer.close()


def _parsed(answer: bytes) -> Raw:
    head, _, body = answer.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    pairs = [line.partition(":") for line in lines]
    headers = {name.lower(): value.strip() for name, _, value in pairs}
    if headers.get("transfer-encoding") == "chunked":
        body = _unchunked(body)
    return Raw(status=int(first.split()[1]), headers=headers, body=body)


def _unchunked(body: bytes) -> bytes:
    pieces: list[bytes] = []
    while True:
        size, _, rest = body.partition(b"\r\n")
        length = int(size, 16)
        if not length:
            return b"".join(pieces)
        pieces.append(rest[:length])
        body = rest[length + 2 :]


def pieces_of(data: bytes, cuts: Sequence[int]) -> Iterator[bytes]:
    """Return the data in pieces that end at these places."""
    places = sorted({cut % (len(data) + 1) for cut in cuts})
    for start, end in zip([0, *places], [*places, len(data)], strict=True):
        yield data[start:end]


def reread_sse(data: bytes, cuts: Sequence[int] = ()) -> list[tuple[str, Any]]:
    """Read a stream as a client does that gets it in these pieces; nothing may be left over."""
    decoder = codecs.getincrementaldecoder("utf-8")("strict")
    buffer, events = "", []
    for piece in pieces_of(data, cuts):
        *blocks, buffer = (buffer + decoder.decode(piece)).split("\n\n")
        for block in blocks:
            if block.startswith(":"):
                continue  # a comment, which says that somebody is there
            # As readers split that know all of Unicode's line ends.
            fields = [line.partition(": ") for line in block.splitlines()]
            assert [name for name, _, _ in fields] == ["event", "data"], block
            events.append((fields[0][2], json.loads(fields[1][2])))
    assert not buffer and not decoder.decode(b"", final=True)
    return events


def reread_lines(data: bytes, cuts: Sequence[int] = ()) -> list[Any]:
    """Read a stream of a JSON value a line, in these pieces."""
    decoder = codecs.getincrementaldecoder("utf-8")("strict")
    text = "".join([*map(decoder.decode, pieces_of(data, cuts)), decoder.decode(b"", final=True)])
    assert text.endswith("\n")
    return [json.loads(line) for line in text.splitlines()]
