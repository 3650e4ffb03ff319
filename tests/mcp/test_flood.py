"""Readers of what never ends: none holds up the loop, and a flood that nobody asked for ends."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import anyio
import httpx2
import pytest
from mcp.shared.message import SessionMessage
from typing_extensions import override

from clawd.channels.rpc.connection import Connection, Identity
from clawd.config.schema import ProviderSection
from clawd.kernel.concurrency import Allowance, Pace
from clawd.mcp.connection_end import StderrLog, Trouble
from clawd.mcp.http import GuardedTransport
from clawd.mcp.model import ServerSettings
from clawd.mcp.stdio import FLOOD_BYTES, FLOOD_BYTES_PER_S, _Noise, _Reader
from clawd.providers.http import AnswerReader
from clawd.providers.openai import OpenAICompatibleProvider
from clawd.security.principal import Principal
from clawd.security.sandbox.long_lived import OpenChild
from clawd.security.sandbox.plan import ChildCommand
from clawd.security.sandbox.run import Sandbox, SandboxSettings
from clawd.wire.codec import Cancel, encode_frame

SETTINGS = ServerSettings(alias="loud", url="http://127.0.0.1:9/mcp")
PIECE_BYTES = 64 << 10
PIECES = (50 << 20) // PIECE_BYTES
MOST_GAP_S = 0.5
"""Processor time of this thread; a reader that never gives way takes many times that."""

NOTE = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"data": "x"}}
JUNK = {
    "lines": b"x\n",
    "blank lines": b"\n",
    "broken JSON": b'{"half": \n',
    "no messages": b"[1, 2]\n",
    "brackets": b"[" * 500 + b"\n",
    "notifications": json.dumps(NOTE).encode() + b"\n",
    "batches": json.dumps([NOTE] * 50).encode() + b"\n",
    "requests": b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}\n',
    "answers to nothing": b'{"jsonrpc": "2.0", "id": 7, "result": {}}\n',
}


class Beat:
    """Measures the most processor time for which the loop came to nothing else."""

    def __init__(self) -> None:
        self.most_s = 0.0
        self.count = 0

    async def run(self) -> None:
        while True:
            at = time.thread_time()
            await asyncio.sleep(0)
            self.most_s = max(self.most_s, time.thread_time() - at)
            self.count += 1


@asynccontextmanager
async def beating() -> AsyncIterator[Beat]:
    beat = Beat()
    task = asyncio.create_task(beat.run())
    await asyncio.sleep(0)
    try:
        yield beat
    finally:
        task.cancel()


class Loud:
    """A child that has printed 50 MB before anybody looked, and goes on."""

    is_dead = False

    def __init__(self, piece: bytes) -> None:
        self.read_bytes = 0
        self._piece = piece * (PIECE_BYTES // len(piece))

    async def read(self) -> bytes:
        self.read_bytes += len(self._piece)
        await asyncio.sleep(0)
        return self._piece if self.read_bytes < PIECES * PIECE_BYTES else b""

    async def wait(self) -> None:
        pass


async def heard(piece: bytes, folder: Path) -> tuple[Loud, Trouble, Beat]:
    child, trouble, log = Loud(piece), Trouble(), StderrLog(folder / "log", str)
    to_session, came = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    reader = _Reader(
        cast("OpenChild", child), to_session, SETTINGS, _Noise(lambda request: request == 1)
    )

    async def take() -> None:
        with came:
            async for _ in came:
                pass

    async with beating() as beat, asyncio.TaskGroup() as tasks:
        tasks.create_task(reader.run(log, trouble))
        tasks.create_task(take())
    return child, trouble, beat


async def test_s5_a_flood_on_standard_output_ends_the_server_and_holds_up_nobody(
    tmp_path: Path,
) -> None:
    wrong: dict[str, object] = {}
    for name, piece in JUNK.items():
        began = time.monotonic()
        child, trouble, beat = await heard(piece, tmp_path)
        may_come = 2 * FLOOD_BYTES + (time.monotonic() - began) * FLOOD_BYTES_PER_S
        if (
            "prints too much that nobody asked for" not in trouble.problem
            or child.read_bytes > may_come
            or beat.most_s > MOST_GAP_S
        ):
            wrong[name] = (trouble.problem, child.read_bytes, beat.most_s)
    assert not wrong


async def test_s5_what_was_asked_for_is_no_flood_however_much_it_is(tmp_path: Path) -> None:
    large = json.dumps({"jsonrpc": "2.0", "id": 1, "result": {"text": "x" * 60_000}}).encode()
    child, trouble, _ = await heard(large + b"\n", tmp_path)
    assert child.read_bytes >= PIECES * PIECE_BYTES
    assert trouble.problem == "the server closed its output"


async def test_s5_each_read_of_a_child_gives_way_however_fast_it_prints(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    sandbox = Sandbox(SandboxSettings(mode="off", home=tmp_path / "home", levels=()))
    errors = 0

    def complain(data: bytes) -> None:
        nonlocal errors
        errors += len(data)

    command = ChildCommand(
        argv=("bash", "-c", "yes >&2 & exec yes"), workspace=tmp_path, workspace_writable=False
    )
    async with beating() as beat, sandbox.open(command, on_errors=complain) as child:
        starved = 0
        began = time.monotonic()
        for _ in range(500):
            before = beat.count
            assert await child.read()
            starved += beat.count == before
        took_s = time.monotonic() - began
    assert starved == 0
    # Its errors are read at leisure: the full pipe holds it back.
    assert 0 < errors <= PIECE_BYTES * (2 + (took_s + 10) / 0.01)


class _Endless(httpx2.AsyncByteStream):
    sent = 0

    @override
    async def __aiter__(self) -> AsyncIterator[bytes]:
        while self.sent < 4 * PIECES:
            self.sent += 1
            yield b":\n" * (PIECE_BYTES // 2)


class _Remote(httpx2.AsyncBaseTransport):
    def __init__(self) -> None:
        self.stream = _Endless()

    @override
    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        headers = {"content-type": "text/event-stream"}
        return httpx2.Response(200, headers=headers, stream=self.stream, request=request)


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_s5_a_flood_of_events_ends_and_holds_up_nobody(method: str) -> None:
    remote, trouble = _Remote(), Trouble()
    guard = GuardedTransport(remote, SETTINGS, trouble)
    lines = 0
    async with beating() as beat, httpx2.AsyncClient(transport=guard) as client:
        with pytest.raises(httpx2.ReadError, match="too many bytes"):
            accept = {"accept": "text/event-stream"}
            async with client.stream(method, SETTINGS.url, headers=accept) as response:
                async for piece in response.aiter_bytes():
                    lines += piece.count(b"\n")
    assert 0 < lines < 2 * PIECES * PIECE_BYTES
    assert beat.most_s < MOST_GAP_S
    assert ("nobody asked for" in trouble.problem) is (method == "GET")


async def test_s5_a_stream_of_a_provider_holds_up_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    # With a slice of nothing each event gives way, however fast the machine is.
    monkeypatch.setattr("clawd.providers.http.Pace", partial(Pace, 0.0))
    left = 40

    async def readany() -> bytes:
        nonlocal left
        left -= 1
        return b"data: {}\n\n" * 600 if left else b""

    class Taken:
        is_done = has_reason = False
        count = 0

        def take(self, _data: str) -> list[Any]:
            self.count += 1
            return []

    section = ProviderSection(kind="openai-compatible", base_url="http://127.0.0.1:9")
    server = OpenAICompatibleProvider("loud", section)
    response = cast("Any", SimpleNamespace(content=SimpleNamespace(readany=readany)))
    taken = Taken()
    async with beating() as beat:
        async for _ in server._read_events(response, await readany(), cast("AnswerReader", taken)):
            pass
    assert taken.count == 39 * 600
    assert beat.count >= taken.count


async def test_s5_a_client_that_floods_the_socket_holds_up_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("clawd.channels.rpc.connection.Pace", partial(Pace, 0.0))
    reader = asyncio.StreamReader()
    frame = encode_frame(Cancel(id=1))
    count = (256 << 10) // len(frame)
    reader.feed_data(frame * count)
    reader.feed_eof()
    connection = Connection(
        reader,
        cast("asyncio.StreamWriter", None),
        principal=Principal(uid=1, gid=1, pid=1),
        identity=Identity(version="", pid=1, home=""),
        handlers={},
    )
    async with beating() as beat:
        found = 0
        async for _ in connection._incoming():
            found += 1
    assert found == count
    assert beat.count >= count


async def test_a_reader_gives_way_when_its_slice_is_used_up_and_not_before() -> None:
    async with beating() as beat:
        pace, before = Pace(3_600), beat.count
        for _ in range(100):
            await pace.step()
        assert beat.count == before
        await Pace(0).step()
        assert beat.count == before + 1


def test_an_allowance_is_used_up_and_comes_back() -> None:
    spent = Allowance(burst=10, per_s=0)
    assert [spent.take(5), spent.take(5), spent.take(1)] == [True, True, False]
    soon = Allowance(burst=10, per_s=1e9)
    assert [soon.take(10), soon.take(10)] == [True, True]
