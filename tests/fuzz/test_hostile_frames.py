"""Hostile bytes at a real daemon: it cuts off who sent them, and serves everybody else."""

import contextlib
import os
import random
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from clawctl.client import Client, connect
from clawd.wire.codec import (
    MAX_FRAME_BYTES,
    Failure,
    FrameReader,
    Hello,
    Request,
    Result,
    ServerFrame,
    Welcome,
    decode_server_frame,
    encode_frame,
)
from clawd.wire.daemon import Ping
from tests.support.home import Home
from tests.support.rows import thorough

pytestmark = pytest.mark.daemon

HELLO = encode_frame(Hello(min=1, max=1, client="a test"))


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Path]:
    home = Home(tmp_path)
    home.configure()
    home.start()
    try:
        yield Path(home.json("status")["socket"])
    finally:
        assert home.daemon is not None
        assert home.daemon.poll() is None, home.log()
        assert "Traceback" not in home.log()
        home.close()


def raw(path: Path) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(60)
    connection.connect(str(path))
    return connection


def answers(connection: socket.socket, *, until: int = 10_000_000) -> list[ServerFrame]:
    """Return the frames that come until the daemon closes, or so many have come."""
    reader, frames = FrameReader(), list[ServerFrame]()
    with contextlib.suppress(ConnectionError):
        while len(frames) < until and (data := connection.recv(65536)):
            frames += [decode_server_frame(body) for body in reader.feed(data)]
    return frames


def still_serves(witness: Client) -> bool:
    return witness.call(Ping()).message == "pong"


def framed(body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + body


DEEP = b"\x91" * 100_000 + b"\xc0"
HOSTILE = {
    "an overlong length": struct.pack(">I", MAX_FRAME_BYTES + 1),
    "the longest length": b"\xff\xff\xff\xff",
    "a length of zero": struct.pack(">I", 0),
    "garbage": framed(os.urandom(64)),
    "deep nesting": framed(DEEP),
    "deep nesting in the parameters": framed(
        msgspec.msgpack.encode({"type": "request", "id": 1, "method": "ping"})[:-4] + DEEP
    ),
    "an unknown frame": framed(msgspec.msgpack.encode({"type": "bogus"})),
    "a frame of the daemon's": framed(
        msgspec.msgpack.encode({"type": "failure", "id": None, "code": "x", "message": "y"})
    ),
    "a second hello": HELLO,
    "invalid UTF-8": framed(b"\x82\xa4type\xa7request\xa6method\xa2\xff\xfe"),
    "an HTTP request": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
}


@pytest.mark.parametrize("greets", [True, False])
def test_hostile_bytes_end_their_connection_only(daemon: Path, greets: bool) -> None:
    with connect(daemon) as witness:
        for name, data in HOSTILE.items():
            if data == HELLO and not greets:
                continue
            with raw(daemon) as connection:
                connection.sendall((HELLO if greets else b"") + data)
                frames = answers(connection)
            assert isinstance(frames[-1], Failure), name
            assert frames[-1].id is None, name
            assert still_serves(witness), name


def test_a_full_sized_frame_of_nonsense_is_refused(daemon: Path) -> None:
    with connect(daemon) as witness, raw(daemon) as connection:
        connection.sendall(HELLO)
        with contextlib.suppress(ConnectionError):
            connection.sendall(framed(b"\xc1" * MAX_FRAME_BYTES))
        assert isinstance(answers(connection)[-1], Failure)
        assert still_serves(witness)


def test_unknown_methods_and_wrong_parameters_fail_their_request_only(daemon: Path) -> None:
    with raw(daemon) as connection:
        connection.sendall(HELLO)
        wrong = msgspec.Raw(msgspec.msgpack.encode({"text": 5}))
        connection.sendall(encode_frame(Request(id=1, method="no_such_method")))
        connection.sendall(encode_frame(Request(id=2, method="send_message", params=wrong)))
        connection.sendall(encode_frame(Request(id=3, method="ping")))
        welcome, *replies = answers(connection, until=4)
    assert isinstance(welcome, Welcome)
    assert [(type(reply), getattr(reply, "id", None)) for reply in replies] == [
        (Failure, 1),
        (Failure, 2),
        (Result, 3),
    ]


def test_thousands_of_requests_at_once_are_all_answered(daemon: Path) -> None:
    count = 10_000 if thorough() else 3_000
    with connect(daemon) as witness, raw(daemon) as connection:
        connection.sendall(HELLO)
        data = b"".join(encode_frame(Request(id=n, method="status")) for n in range(count))
        sent = 0
        reader, replies = FrameReader(), list[ServerFrame]()
        connection.setblocking(False)
        import select

        while len(replies) < count + 1:
            readable, writable, _ = select.select(
                [connection], [connection] if sent < len(data) else [], [], 60
            )
            assert readable or writable
            if writable:
                sent += connection.send(data[sent : sent + 65536])
            if readable:
                received = connection.recv(65536)
                assert received
                replies += [decode_server_frame(body) for body in reader.feed(received)]
        ids = {reply.id for reply in replies if isinstance(reply, Result | Failure)}
        assert ids == set(range(count))
        assert still_serves(witness)


def test_random_damage_to_good_frames_never_stops_the_daemon(daemon: Path) -> None:
    rng = random.Random(20261121)
    good = (
        HELLO
        + encode_frame(Request(id=1, method="ping"))
        + encode_frame(Request(id=2, method="list_tools"))
    )
    with connect(daemon) as witness:
        for _round in range(150):
            damaged = bytearray(good)
            for _flip in range(rng.randint(1, 4)):
                damaged[rng.randrange(len(damaged))] = rng.randrange(256)
            with raw(daemon) as connection:
                connection.sendall(damaged)
                connection.shutdown(socket.SHUT_WR)
                answers(connection)
        assert still_serves(witness)
