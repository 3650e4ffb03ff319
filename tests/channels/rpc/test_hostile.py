"""Hostile clients: each ends by itself, the others do not notice."""

import asyncio
import socket

import msgspec
import pytest

from clawd.channels.rpc import connection
from clawd.wire.codec import (
    HEADER,
    MAX_FRAME_BYTES,
    Cancel,
    Failure,
    Hello,
    Result,
    Welcome,
    encode_frame,
)
from clawd.wire.daemon import Ping, Status
from clawd.wire.turns import FollowConversation
from tests.channels.rpc.rig import LIMIT_S, Rig, request
from tests.support.rows import each_row

DEEP = b"\x91" * 100_000 + b"\xc0"


def framed(body: bytes) -> bytes:
    return HEADER.pack(len(body)) + body


@each_row(
    ("first", "reason"),
    [
        (encode_frame(request(1, Ping())), "first frame must be a hello"),
        (encode_frame(Cancel(id=1)), "first frame must be a hello"),
        (framed(b"\xc0"), "not a frame of a client"),
        (framed(DEEP), "recursion|not a frame"),
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "a frame of 1195725856 bytes"),
        (HEADER.pack(0), "a frame of 0 bytes"),
        (HEADER.pack(MAX_FRAME_BYTES + 1), f"a frame of {MAX_FRAME_BYTES + 1} bytes"),
        (framed(msgspec.msgpack.encode({"type": "welcome", "protocol": 1})), "not a frame"),
    ],
    ids=["request", "cancel", "nil", "deep", "http", "zero", "over", "welcome"],
    fresh=["rig"],
)
async def test_whoever_does_not_begin_with_a_hello_is_told_and_cut_off(
    rig: Rig, caplog: pytest.LogCaptureFixture, first: bytes, reason: str
) -> None:
    bystander = await rig.greeted()
    client = await rig.client()
    client.send_bytes(first)
    (failure,) = await client.rest()
    assert isinstance(failure, Failure)
    assert (failure.id, failure.code) == (None, "protocol")
    assert any(part in failure.message for part in reason.split("|"))
    assert "a client was cut off" in caplog.text
    assert await bystander.ping() == "ping for 1000"


@each_row(
    "bad",
    [
        encode_frame(Hello(min=1, max=1)),
        framed(b"\x00"),
        framed(DEEP),
        HEADER.pack(MAX_FRAME_BYTES + 1),
        framed(b"\x82\xa4type\xa6cancel\xa2id\xdb\xff\xff\xff\xff"),
        b"\xff" * 300_000,
    ],
    ids=["second hello", "no frame", "deep", "over", "lie", "garbage"],
    fresh=["rig"],
)
async def test_later_nonsense_cuts_off_this_client_and_its_requests(rig: Rig, bad: bytes) -> None:
    bystander, client = await rig.greeted(), await rig.greeted()
    client.send(request(1, Status()))
    await rig.soon(rig.handlers.started)
    client.send_bytes(bad)
    frames = await client.rest()
    assert all(isinstance(frame, Failure) for frame in frames)
    told = {frame.id: frame.code for frame in frames if isinstance(frame, Failure)}
    assert told.get(1, "cancelled") == "cancelled"
    assert await rig.soon(rig.handlers.ended) == "cancelled"
    assert await bystander.ping() == "ping for 1000"


async def test_sixty_four_requests_may_be_under_way_and_no_more(rig: Rig) -> None:
    client = await rig.greeted()
    count = connection.MAX_REQUESTS
    client.send(*(request(number, Status()) for number in range(count)))
    for _ in range(count):
        await rig.soon(rig.handlers.started)
    client.send(request(count, Ping()))
    failure = await client.failure()
    assert (failure.id, failure.code) == (count, "busy")
    assert failure.data == {"retry_after_s": 1.0}
    rig.handlers.open.set()
    ids = {
        frame.id
        for frame in [await client.read() for _ in range(count)]
        if isinstance(frame, Result)
    }
    assert ids == set(range(count))
    assert await client.ping(count) == "ping for 1000"


async def test_ten_thousand_requests_at_once_harm_nobody_else(rig: Rig) -> None:
    bystander, client = await rig.greeted(), await rig.greeted()
    count = 10_000
    client.send(*(request(n, Status() if n < 100 else Ping()) for n in range(count)))

    async def answers() -> dict[int | None, str]:
        told: dict[int | None, str] = {}
        while len(told) < count - connection.MAX_REQUESTS:
            frame = await client.read()
            assert isinstance(frame, (Result, Failure))
            told[frame.id] = frame.code if isinstance(frame, Failure) else "ok"
        return told

    reading = asyncio.create_task(answers())
    for number in range(20):
        assert await bystander.ping(number) == "ping for 1000"
    told = await reading
    assert set(told) == set(range(connection.MAX_REQUESTS, count))
    assert set(told.values()) == {"busy"}
    rig.handlers.open.set()
    assert {await client.done() for _ in range(connection.MAX_REQUESTS)} == {"the door is open"}


async def test_ten_thousand_small_requests_are_all_answered(rig: Rig) -> None:
    client = await rig.greeted()
    client.send(*(request(number, Ping()) for number in range(10_000)))
    for _ in range(10_000):
        frame = await client.read()
        assert isinstance(frame, Result) or (isinstance(frame, Failure) and frame.code == "busy")


async def test_silence_instead_of_a_hello_is_not_waited_for_long(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "HELLO_TIMEOUT_S", 0.05)
    client = await rig.client()
    client.send_bytes(b"\x00\x00")
    (failure,) = await client.rest()
    assert isinstance(failure, Failure)
    assert "no hello within" in failure.message


async def test_a_client_that_leaves_before_its_hello_is_no_event(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    for data in (b"", b"\x00\x00\x00"):
        client = await rig.client()
        client.send_bytes(data)
        client.writer.write_eof()
        assert await client.rest() == []
    assert caplog.text == ""


async def test_a_client_that_takes_nothing_is_cut_off(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "STALL_S", 0.3)
    bystander = await rig.greeted()
    deaf = socket.socket(socket.AF_UNIX)
    with deaf:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.connect(str(rig.path))
        follow = request(1, FollowConversation(conversation_id="c"))
        deaf.sendall(encode_frame(Hello(min=1, max=1)) + encode_frame(follow))
        assert await rig.soon(rig.handlers.started) == "follow"
        assert "took nothing" in await rig.soon(rig.handlers.ended)
        assert await bystander.ping() == "ping for 1000"


async def test_a_client_that_vanishes_in_mid_stream_ends_its_request(rig: Rig) -> None:
    client = await rig.greeted()
    client.send(request(1, FollowConversation(conversation_id="c")))
    await rig.soon(rig.handlers.started)
    client.writer.transport.abort()
    assert await rig.soon(rig.handlers.ended)


async def test_one_client_too_many_is_told_to_come_back(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "MAX_CONNECTIONS", 2)
    first, second = await rig.greeted(), await rig.greeted()
    third = await rig.client()
    (failure,) = await third.rest()
    assert isinstance(failure, Failure)
    assert failure.code == "busy"
    assert await first.ping() == "ping for 1000"
    second.close()
    assert await second.rest() == []
    welcome = None
    async with asyncio.timeout(LIMIT_S):
        while welcome is None:
            again = await rig.client()
            again.send(Hello(min=1, max=1))
            frame = await again.read()
            welcome = frame if isinstance(frame, Welcome) else None
