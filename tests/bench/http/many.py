"""Many streams at once on the scripted provider, over HTTP and over the socket in turn.

Every stream asks for its own text, a quarter of them in each dialect, and must get it whole with
the right counts; else there is no result. CPU time and memory are those of the daemon's process.
"""

import asyncio
import os
from collections.abc import Callable, Coroutine, Iterator, Sequence
from functools import partial
from pathlib import Path

import msgspec

from clawd import __version__
from clawd.wire.codec import (
    PROTOCOL_MAX,
    PROTOCOL_MIN,
    EventFrame,
    Failure,
    FrameReader,
    Hello,
    Request,
    Result,
    ServerFrame,
    decode_server_frame,
    encode_frame,
    pack,
    unpack,
)
from clawd.wire.codec import unpack_event as event_of
from clawd.wire.events import TextDelta, TurnFinished
from clawd.wire.method import method_name
from clawd.wire.turns import SendMessage
from tests.bench.http.client import Gathering
from tests.bench.http.daemon import Gateway, running_gateway
from tests.bench.http.dialects import DIALECTS, Asked, Told, told
from tests.bench.http.rows import row
from tests.bench.http.scale import Scale
from tests.bench.llama_server import ANSWER_LIMIT_S, HOST
from tests.bench.report import Row, quantile
from tests.bench.streams import BenchError, now, user_texts

_P95 = 0.95
FIRST_ROUNDS = 3


class Round(msgspec.Struct, frozen=True, kw_only=True):
    """What many streams took together.

    Attributes:
        first_p95_ms: from the request to the first text, of all but the slowest twentieth.
        all_ms: from the first request to the last byte of the last.
        cpu_ms: of the daemon, for one stream.
        memory_mb: of the daemon afterwards.
    """

    first_p95_ms: float
    all_ms: float
    cpu_ms: float
    memory_mb: float


Ask = Callable[[Gateway, Sequence[str]], Coroutine[None, None, list[Told]]]


def rows(
    folder: Path, scale: Scale, wanted: Sequence[str], say: Callable[[str], None]
) -> Iterator[Row]:
    """Measure rounds over HTTP and over the socket in turn; memory of HTTP alone, before that."""
    with running_gateway(folder / "many", provider="mock") as gateway:
        # The first rounds make what stays: pools, caches, the allocator's arenas.
        memory_mb: list[float] = []
        for number in range(FIRST_ROUNDS + scale.stream_rounds):
            found = one_round(gateway, scale, over_http, f"memory {number}")
            memory_mb.append(found.memory_mb)
            say(f"{scale.streams} streams, round {number + 1}: {found}")
        if "many_memory" in wanted:
            yield row("many_memory", [(memory_mb[-1], memory_mb[FIRST_ROUNDS - 1])])
        pairs = [
            (
                one_round(gateway, scale, over_http, f"pair {number}"),
                one_round(gateway, scale, over_socket, f"pair {number}"),
            )
            for number in range(scale.stream_rounds)
        ]
    figures = {
        "many_first_p95": [(ours.first_p95_ms, peer.first_p95_ms) for ours, peer in pairs],
        "many_all": [(ours.all_ms, peer.all_ms) for ours, peer in pairs],
        "many_cpu": [(ours.cpu_ms, peer.cpu_ms) for ours, peer in pairs],
    }
    yield from (row(name, figure) for name, figure in figures.items() if name in wanted)


def one_round(gateway: Gateway, scale: Scale, ask: Ask, seed: str) -> Round:
    """Ask everything at once and check every answer.

    Raises:
        BenchError: something was lost.
    """
    texts = user_texts(scale.echo_words, scale.streams, seed)
    pid = gateway.pid
    cpu_s = _cpu_s(pid)
    answers = asyncio.run(ask(gateway, texts))
    cpu_s = _cpu_s(pid) - cpu_s
    for text, answer in zip(texts, answers, strict=True):
        if answer.text != text or answer.counts[1] != scale.echo_words:
            raise BenchError(
                f"a stream of {scale.echo_words} words ended after {answer.counts[1]} and "
                f"{len(answer.text)} of {len(text)} characters"
            )
    began = min(answer.sent_at for answer in answers)
    return Round(
        first_p95_ms=quantile([answer.first_ms for answer in answers], _P95),
        all_ms=1000 * (max(answer.ended_at for answer in answers) - began),
        cpu_ms=1000 * cpu_s / len(answers),
        memory_mb=_memory_mb(pid),
    )


async def over_http(gateway: Gateway, texts: Sequence[str]) -> list[Told]:
    """Ask everything over HTTP, each on a connection that is open before the clock starts."""
    loop = asyncio.get_running_loop()
    streams = [_HttpStream() for _ in texts]
    for stream in streams:
        await loop.create_connection(partial(_itself, stream), HOST, gateway.port)
    dialects = [DIALECTS[number % len(DIALECTS)] for number in range(len(texts))]
    asked = [Asked(text=text, model="mock", stream=True) for text in texts]
    requests = [
        gateway.request(dialect, each, one_pass=True)
        for dialect, each in zip(dialects, asked, strict=True)
    ]
    for stream, request in zip(streams, requests, strict=True):
        stream.send(request)
    async with asyncio.timeout(ANSWER_LIMIT_S):
        await asyncio.gather(*(stream.ended for stream in streams))
    answers = [
        told(dialect, stream.gathering.heard(stream.sent_at), stream=True)
        for dialect, stream in zip(dialects, streams, strict=True)
    ]
    for text, answer in zip(texts, answers, strict=True):
        if answer.counts[0] != len(text.split()):
            raise BenchError(f"a prompt of {len(text.split())} words counts {answer.counts[0]}")
    return answers


async def over_socket(gateway: Gateway, texts: Sequence[str]) -> list[Told]:
    """Ask everything over the control socket, in the same way."""
    loop = asyncio.get_running_loop()
    streams = [_SocketStream() for _ in texts]
    for stream in streams:
        await loop.create_unix_connection(partial(_itself, stream), str(gateway.socket))
    async with asyncio.timeout(ANSWER_LIMIT_S):
        await asyncio.gather(*(stream.greeted for stream in streams))
        for stream, text in zip(streams, texts, strict=True):
            stream.send(text)
        await asyncio.gather(*(stream.ended for stream in streams))
    return [stream.told() for stream in streams]


class _Stream(asyncio.Protocol):
    """One stream; what comes is kept with its time."""

    transport: asyncio.Transport

    def __init__(self) -> None:
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.sent_at = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.ended.done():
            self.ended.set_exception(BenchError(f"a stream was cut off: {exc}"))

    def end(self) -> None:
        self.ended.set_result(None)
        self.transport.close()


class _HttpStream(_Stream):
    def __init__(self) -> None:
        super().__init__()
        self.gathering = Gathering()

    def send(self, request: bytes) -> None:
        self.sent_at = now()
        self.transport.write(request)

    def data_received(self, data: bytes) -> None:
        if self.gathering.feed(data, now()):
            self.end()


class _SocketStream(_Stream):
    def __init__(self) -> None:
        super().__init__()
        self.greeted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._reader = FrameReader()
        self._frames: list[tuple[float, ServerFrame]] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        hello = Hello(min=PROTOCOL_MIN, max=PROTOCOL_MAX, client="bench", version=__version__)
        self.transport.write(encode_frame(hello))

    def send(self, text: str) -> None:
        asked = SendMessage(text=text)
        self.sent_at = now()
        frame = Request(id=1, method=method_name(SendMessage), params=pack(asked))
        self.transport.write(encode_frame(frame))

    def data_received(self, data: bytes) -> None:
        at = now()
        for body in self._reader.feed(data):
            if not self.greeted.done():
                self.greeted.set_result(None)
                continue
            frame = decode_server_frame(body)
            self._frames.append((at, frame))
            if isinstance(frame, Result | Failure):
                self.end()

    def told(self) -> Told:
        ended_at, last = self._frames[-1]
        if not isinstance(last, Result):
            raise BenchError(f"the socket answered {last}")
        finished = unpack(last.value, TurnFinished)
        text_at = tuple(
            at
            for at, frame in self._frames
            if isinstance(frame, EventFrame) and isinstance(event_of(frame.event), TextDelta)
        )
        return Told(
            text=finished.text,
            counts=(finished.usage.prompt_tokens, finished.usage.completion_tokens),
            sent_at=self.sent_at,
            ended_at=ended_at,
            first_byte_at=text_at[0],
            text_at=text_at,
        )


def _itself(stream: _Stream) -> _Stream:
    return stream


def _cpu_s(pid: int) -> float:
    """Return the CPU time of a process so far."""
    stat = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
    return (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK")


def _memory_mb(pid: int) -> float:
    """Return the resident memory of a process, in millions of bytes."""
    pages = int(Path(f"/proc/{pid}/statm").read_text("utf-8").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6
