"""How an answer goes out: whole or streamed, with pings, errors, slow readers, several at once."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from aiohttp import web

from clawd.channels.http.answering import ReplayGuard, StreamTimes, answer
from clawd.channels.http.app import tell_errors
from clawd.channels.http.model_api import Folding, GatewayEvent
from clawd.errors import BusyError, ProviderError
from clawd.providers.base import Failed, Finished
from clawd.wire.events import (
    HopReset,
    ModelLoading,
    Notice,
    PromptProgress,
    TextDelta,
    ToolRequested,
)
from tests.channels.http.plain import ROUTES, Plain, lines_of
from tests.channels.http.rig import LIMIT_S, served
from tests.support.rows import each_row

QUICK = StreamTimes(ping_s=0.05, first_s=0.05, stall_s=0.3)
PATIENT = StreamTimes(ping_s=60.0, first_s=60.0, stall_s=60.0)
END = Finished(reason="stop")


class Made:
    """A generation that a test makes up."""

    def __init__(self, events: AsyncGenerator[GatewayEvent, None]) -> None:
        self.model = "made"
        self.conversation_id = ""
        self.closed = 0
        self._events = events

    def __aiter__(self) -> AsyncIterator[GatewayEvent]:
        return self._events

    async def aclose(self) -> None:
        await self._events.aclose()
        self.closed += 1


@asynccontextmanager
async def saying(made: Made, pace: StreamTimes) -> AsyncIterator[tuple[str, int]]:
    async def handle(request: web.Request) -> web.StreamResponse:
        return await answer(request, made, Plain(), stream=True, pace=pace)

    app = web.Application(middlewares=[tell_errors])
    app.router.add_get("/", handle)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield runner.addresses[0][:2]
    finally:
        await runner.cleanup()


async def raw(address: tuple[str, int], seen: bytearray | None = None) -> str:
    """Ask, and return all that is answered; `seen` holds what came so far."""
    seen = bytearray() if seen is None else seen
    reader, writer = await asyncio.open_connection(*address)
    writer.write(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    async with asyncio.timeout(LIMIT_S):
        while piece := await reader.read(1 << 16):
            seen += piece
    writer.close()
    return seen.decode()


async def after(wait_s: float, *events: GatewayEvent) -> AsyncGenerator[GatewayEvent, None]:
    await asyncio.sleep(wait_s)
    for event in events:
        yield event


async def test_a_whole_answer_and_a_streamed_one_are_the_same(tmp_path: Path) -> None:
    async with served(tmp_path, {"text": "four words, no more"}, routes=ROUTES) as door:
        body = {"messages": [["user", "hello"]], "is_plain": True}
        status, whole = await door.post("/say", body)
        assert (status, whole["text"]) == (200, "four words, no more")
        _, streamed = await door.stream("/say", {**body, "stream": True})
        lines = lines_of(streamed)
        assert lines[0] == {"begin": "mock"}
        assert "".join(each.get("text", "") for each in lines) == whole["text"]
        assert lines[-1] == {"end": whole["end"], "usage": whole["usage"]}


async def test_an_error_before_the_first_event_is_a_status_also_of_a_stream(tmp_path: Path) -> None:
    reply = {"error": {"kind": "http", "status": 500}}
    async with served(tmp_path, reply, routes=ROUTES) as door:
        for is_plain in (True, False):
            body = {"messages": [["user", "x"]], "stream": True, "is_plain": is_plain}
            status, told = await door.stream("/say", body)
            assert status == 502
            assert json.loads(told)["error"]["type"] == "server_error"


async def test_an_error_after_it_is_an_event_and_the_end(tmp_path: Path) -> None:
    reply = {"text": "so far", "error": {"kind": "http", "status": 500}}
    async with served(tmp_path, reply, routes=ROUTES) as door:
        for is_plain in (True, False):
            body = {"messages": [["user", "x"]], "stream": True, "is_plain": is_plain}
            status, told = await door.stream("/say", body)
            lines = lines_of(told)
            assert status == 200
            assert list(lines[-1]) == ["error"] and "scripted failure" in lines[-1]["error"]
            whole = {**body, "stream": False}
            assert (await door.post("/say", whole))[0] == 502


async def test_what_is_not_there_and_what_is_no_json_is_told_in_the_envelope(
    tmp_path: Path,
) -> None:
    async with served(tmp_path, routes=ROUTES) as door:
        assert (await door.get("/nothing"))[0] == 404
        status, told = await door.get("/say")
        assert status == 405 and told["error"]["type"] == "invalid_request_error"
        async with door.session.post(door.url + "/say", data=b"{") as response:
            assert response.status == 400
            assert "not valid JSON" in (await response.json())["error"]["message"]
        async with door.session.post(door.url + "/say", data=b"[" * 300) as response:
            assert response.status == 400


async def test_silence_is_filled_with_pings_before_the_answer_and_in_it() -> None:
    seen = bytearray()
    events: tuple[GatewayEvent, ...] = (TextDelta(text="a"), TextDelta(text="b"), END)

    async def slowly() -> AsyncGenerator[GatewayEvent, None]:
        for count, event in enumerate(events, 1):
            # Silent until the client was told so, however long that takes here.
            while len(parts := seen.split(b'"text"')) < count or b'"ping"' not in parts[-1]:
                await asyncio.sleep(0.01)
            yield event

    async with saying(Made(slowly()), QUICK) as address:
        text = await raw(address, seen)
    pinged = [part.count('{"ping": 1}') > 0 for part in text.split('"text"')]
    assert pinged == [True, True, True]
    assert text.index("ping") < text.index("begin") < text.index('"text"')


async def test_a_late_error_is_an_event_and_an_early_one_a_status() -> None:
    failed = Failed(error=BusyError("no place", retry_after_s=3.0))
    notice = Notice(level="info", text="wait")
    async with saying(Made(after(0.5, failed)), QUICK) as address:
        text = await raw(address)
        assert text.startswith("HTTP/1.1 200") and '{"error": "no place"}' in text
    loading = ModelLoading(model="m", loaded_bytes=1, total_bytes=2)
    for events in ((failed,), (notice, failed), (loading, failed)):
        async with saying(Made(after(0.2, *events)), PATIENT) as address:
            text = await raw(address)
            assert text.startswith("HTTP/1.1 503") and "Retry-After: 3" in text


@each_row(("status", "told"), [(429, 429), (503, 503), (500, 502), (404, 502)])
async def test_a_server_that_wants_to_be_left_alone_is_told_of(status: int, told: int) -> None:
    busy = ProviderError("not now", kind="http", status=status, retry_after_s=7.2)
    async with saying(Made(after(0, Failed(error=busy))), PATIENT) as address:
        text = await raw(address)
        assert text.startswith(f"HTTP/1.1 {told} ")
        assert "Retry-After: 8" in text


async def test_an_answer_without_an_end_and_a_defect_are_told() -> None:
    async def broken() -> AsyncGenerator[GatewayEvent, None]:
        yield TextDelta(text="a")
        raise ValueError("secret of the daemon")

    async with saying(Made(after(0, TextDelta(text="a"))), PATIENT) as address:
        assert "before it was whole" in await raw(address)
    made = Made(broken())
    async with saying(made, PATIENT) as address:
        text = await raw(address)
    assert '"error"' in text and made.closed


async def test_what_is_at_hand_goes_out_in_one_piece() -> None:
    events = [TextDelta(text=f"{number} ") for number in range(200)]
    async with saying(Made(after(0, *events, END)), PATIENT) as address:
        text = await raw(address)
    body = text.partition("\r\n\r\n")[2]
    chunks, rest = 0, body
    while rest:
        size, _, rest = rest.partition("\r\n")
        rest = rest[int(size, 16) + 2 :]
        chunks += 1
    assert text.count('"text"') == 200
    assert chunks < 20


async def test_a_client_that_reads_nothing_is_cut_off_and_stops_the_work() -> None:
    produced = 0

    async def endless() -> AsyncGenerator[GatewayEvent, None]:
        nonlocal produced
        while True:
            produced += 1
            yield TextDelta(text="x" * 10_000)
            await asyncio.sleep(0)

    made = Made(endless())
    async with saying(made, QUICK) as address:
        _, writer = await asyncio.open_connection(*address, limit=1024)
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        async with asyncio.timeout(LIMIT_S):
            while not made.closed:
                await asyncio.sleep(0.01)
        writer.close()
    assert produced < 10_000  # what sockets and queues hold, and no more


async def test_several_answers_to_one_request(tmp_path: Path) -> None:
    async with served(tmp_path, routes=ROUTES) as door:
        body = {"messages": [["user", "one two"]], "is_plain": True, "n": 3}
        assert await door.post("/say", body) == (200, ["one two"] * 3)
        _, text = await door.stream("/say", {**body, "stream": True})
        lines = lines_of(text)
        assert (lines[0], lines[-1]) == ({"begin": 3}, {"end": "all"})
        for number in range(3):
            mine = [each["text"] for each in lines if each.get("number") == number]
            assert "".join(mine) == "one two"
        for wrong in (0, 129):
            assert (await door.post("/say", {**body, "n": wrong}))[0] == 400
        status, _ = await door.post("/say", {**body, "model": "nobody"})
        assert status == 404


async def test_one_of_several_that_fails_fails_all(tmp_path: Path) -> None:
    reply = {"text": "so far", "error": {"kind": "http", "status": 500}}
    async with served(tmp_path, reply, routes=ROUTES) as door:
        body = {"messages": [["user", "x"]], "is_plain": True, "n": 2}
        assert (await door.post("/say", body))[0] == 502
        _, text = await door.stream("/say", {**body, "stream": True})
        assert "error" in lines_of(text)[-1]


def sent(*events: GatewayEvent) -> str:
    """Return what a stream of events shows, an error as `!`."""
    guard, shown = ReplayGuard(), ""
    for event in events:
        told = guard.take(event)
        if isinstance(told, Failed):
            assert isinstance(told.error, ProviderError)
            return shown + "!"
        if isinstance(told, TextDelta):
            shown += told.text
    return shown


def folded(*events: GatewayEvent) -> str:
    folding = Folding()
    for event in events:
        if answered := folding.add(event):
            return answered.text
    raise AssertionError("no end")


def test_a_hop_that_is_asked_again_is_shown_once() -> None:
    reset, tool = HopReset(reason="broke off"), ToolRequested(call_id="1", tool="t", arguments="{}")
    first, half, other = TextDelta(text="Hello"), TextDelta(text="He"), TextDelta(text="Good day")
    rest = TextDelta(text="llo, you")
    for events in (
        (first, END),
        (half, reset, half, rest, END),
        (half, reset, reset, first, END),
        (reset, first, END),
        (first, tool, half, reset, half, rest, END),
    ):
        assert sent(*events) == folded(*events)
    assert sent(half, reset, other, END) == "He!"
    assert folded(half, reset, other, END) == "Good day"
    assert sent(first, reset, half, END) == "Hello!"


async def test_r4_a_stream_says_within_a_third_of_a_second_that_it_is_there() -> None:
    assert StreamTimes().first_s < 0.3
    release = asyncio.Event()

    async def slowly(first: GatewayEvent) -> AsyncGenerator[GatewayEvent, None]:
        yield first
        await release.wait()
        yield TextDelta(text="hello")
        yield END

    for first in (
        PromptProgress(processed=0, cached=0, total=1_000),
        ModelLoading(model="m", loaded_bytes=1, total_bytes=2),
        Notice(level="info", text="a model is loaded"),
    ):
        release.clear()
        seen = bytearray()
        pace = StreamTimes(ping_s=60.0)
        async with saying(Made(slowly(first)), pace) as address, asyncio.TaskGroup() as group:
            asked = group.create_task(raw(address, seen))
            async with asyncio.timeout(LIMIT_S):
                while not seen.partition(b"\r\n\r\n")[2]:
                    await asyncio.sleep(0.01)
            assert b"hello" not in seen
            release.set()
            assert "hello" in await asked
