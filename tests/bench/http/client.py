"""A raw HTTP client that is no bottleneck: it keeps what comes and when, and reads it later."""

import socket
from collections.abc import Iterator, Sequence

import msgspec

from tests.bench.llama_server import ANSWER_LIMIT_S, HOST
from tests.bench.streams import BenchError, now

RECEIVE_BYTES = 256 * 1024
_HEAD_END = b"\r\n\r\n"
_LAST_CHUNK = b"0\r\n\r\n"

Part = tuple[float, bytes]
"""Bytes, and when they came."""


class Heard(msgspec.Struct, frozen=True, kw_only=True):
    """One response as it came; times are those of `streams.now`.

    Attributes:
        sent_at: when the request was sent.
        ended_at: when the last byte was there.
        parts: of the body, without the marks between chunks; a part's time is that of its end.
    """

    sent_at: float
    ended_at: float
    status: int
    parts: tuple[Part, ...]

    @property
    def body(self) -> bytes:
        """The whole body."""
        return b"".join(data for _, data in self.parts)

    def lines(self) -> Iterator[Part]:
        """Return the lines of the body without their ends, each with when its end came."""
        rest = b""
        for at, data in self.parts:
            *whole, rest = (rest + data).split(b"\n")
            for line in whole:
                yield at, line
        if rest:
            yield self.ended_at, rest


class Gathering:
    """Takes in what comes of one response, and knows when it is whole."""

    def __init__(self) -> None:
        self._parts: list[Part] = []
        self._head = b""
        self._tail = b""
        self._left: int | None = None  # None: in chunks

    def feed(self, data: bytes, at: float) -> bool:
        """Take bytes; return whether they are the last."""
        self._parts.append((at, data))
        if _HEAD_END not in self._head:
            self._head += data
            head, mark, data = self._head.partition(_HEAD_END)
            if not mark:
                return False
            self._left = _length(head)
        if self._left is not None:
            self._left -= len(data)
            return self._left <= 0
        self._tail = (self._tail + data)[-len(_LAST_CHUNK) :]
        return self._tail == _LAST_CHUNK

    def heard(self, sent_at: float) -> Heard:
        """Return the response.

        Raises:
            BenchError: it is none.
        """
        head, mark, _ = self._head.partition(_HEAD_END)
        words = head.split(maxsplit=2)
        if not mark or len(words) < 2 or not words[1].isdigit():
            raise BenchError(f"the server answered with {head[:200]!r}, expected a response")
        body = tuple(_without(self._parts, len(head) + len(mark)))
        return Heard(
            sent_at=sent_at,
            ended_at=self._parts[-1][0],
            status=int(words[1]),
            parts=body if self._left is not None else tuple(_unchunked(body)),
        )


class Connection:
    """One connection, for one request after the other."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._socket = self._connected()

    def close(self) -> None:
        """Close it."""
        self._socket.close()

    def reopen(self) -> None:
        """Close it and connect anew, for a server that closes it after a stream."""
        self.close()
        self._socket = self._connected()

    def ask(self, request: bytes) -> Heard:
        """Send a request and read its response to the end.

        Raises:
            BenchError: the connection ended before.
        """
        gathering = Gathering()
        sent_at = now()
        self._socket.sendall(request)
        is_whole = False
        while not is_whole:
            data = self._socket.recv(RECEIVE_BYTES)
            if not data:
                raise BenchError("the server closed the connection in the middle of an answer")
            is_whole = gathering.feed(data, now())
        return gathering.heard(sent_at)

    def _connected(self) -> socket.socket:
        connected = socket.create_connection((HOST, self._port), timeout=ANSWER_LIMIT_S)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connected


def request_bytes(port: int, path: str, body: object, headers: Sequence[str] = ()) -> bytes:
    """Return a POST with a JSON body."""
    data = msgspec.json.encode(body)
    lines = [
        f"POST {path} HTTP/1.1",
        f"Host: {HOST}:{port}",
        "Content-Type: application/json",
        f"Content-Length: {len(data)}",
        *headers,
    ]
    return "\r\n".join([*lines, "", ""]).encode("ascii") + data


def _length(head: bytes) -> int | None:
    """Return the length that a head tells; None for a body in chunks."""
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"content-length":
            return int(value)
        if name.strip().lower() == b"transfer-encoding":
            return None
    return 0


def _without(parts: Sequence[Part], count: int) -> Iterator[Part]:
    """Return the parts without the first so many bytes."""
    for at, data in parts:
        rest, count = data[count:], max(0, count - len(data))
        if rest:
            yield at, rest


def _unchunked(parts: Sequence[Part]) -> Iterator[Part]:
    """Return the contents of the chunks, each with when its end came."""
    rest = b""
    for at, data in parts:
        rest += data
        begin = 0
        while (mark := rest.find(b"\r\n", begin)) >= 0:
            length = int(rest[begin:mark], 16)
            end = mark + 2 + length
            if len(rest) < end + 2:
                break
            if length:
                yield at, rest[mark + 2 : end]
            begin = end + 2
        rest = rest[begin:]
