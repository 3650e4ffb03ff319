"""The frames of the control socket, to bytes and back without I/O: client and server share them.

A frame on the wire is a 4-byte big-endian length and that many bytes of msgpack.

client                                   daemon
Hello(min, max, client, version)    →
                                    ←    Welcome(protocol, version, pid, home, role)
Request(id, method, params)         →
                                    ←    Event(id, event)*
Answer(id, question, value)         →
Cancel(id)                          →
                                    ←    Result(id, value) | Failure(id, code, message, …)
"""

import re
import struct
from dataclasses import dataclass, field
from functools import cache
from typing import Any, TypeVar

import msgspec

from clawd.errors import InvalidRequestError, ProtocolError
from clawd.wire.events import Event, Unknown

PROTOCOL_MIN = 1
PROTOCOL_MAX = 1


class Hello(msgspec.Struct, frozen=True, kw_only=True, tag="hello"):
    """The first frame of a client: the protocol versions it speaks."""

    min: int
    max: int
    client: str = ""
    version: str = ""


class Request(msgspec.Struct, frozen=True, kw_only=True, tag="request"):
    """Call a method; `id` is the client's, unique among its requests that are under way."""

    id: int
    method: str
    params: msgspec.Raw = msgspec.Raw(b"\x80")


class Cancel(msgspec.Struct, frozen=True, kw_only=True, tag="cancel"):
    """Stop the request; its Failure says `cancelled`. Unknown ids are ignored."""

    id: int


class Answer(msgspec.Struct, frozen=True, kw_only=True, tag="answer"):
    """Answer an approval or a question that an event of request `id` asked.

    Attributes:
        question: the approval's or question's id.
        value: an approval's word (`deny`, `once`, `conversation`, `project`, `always`,
            `edit`) or a
            question's text.
        digest: of an approval: the digest that the event carried, proof of what was shown.
        arguments: of an approval, with the word `edit`: JSON that the call shall have in place of
            what was shown. It is asked about anew; a daemon that cannot do that takes it as a no.
    """

    id: int
    question: str
    value: str
    digest: str = ""
    arguments: str = ""


class Welcome(msgspec.Struct, frozen=True, kw_only=True, tag="welcome"):
    """The daemon's answer to Hello: the version it chose, and who the client is to it."""

    protocol: int
    version: str
    pid: int
    home: str
    role: str


class Result(msgspec.Struct, frozen=True, kw_only=True, tag="result"):
    """A request's value; nothing follows for its id."""

    id: int
    value: msgspec.Raw


class Failure(msgspec.Struct, frozen=True, kw_only=True, tag="failure"):
    """A request failed, or (id None) the connection did; nothing follows for its id."""

    id: int | None
    code: str
    message: str
    hint: str = ""
    data: dict[str, Any] | None = None


class EventFrame(msgspec.Struct, frozen=True, kw_only=True, tag="event"):
    """An event of a request that streams; see `wire.events`."""

    id: int
    event: msgspec.Raw


ClientFrame = Hello | Request | Cancel | Answer
ServerFrame = Welcome | Result | Failure | EventFrame


MAX_FRAME_BYTES = 16 * 1024 * 1024
HEADER = struct.Struct(">I")

_T = TypeVar("_T")
_S = TypeVar("_S", bound=msgspec.Struct)

_encoder = msgspec.msgpack.Encoder()


class _Tagged(msgspec.Struct, frozen=True, kw_only=True):
    type: str


# Made when they are first needed: a one-shot command reads no events and no frames of clients, and
# one decoder of a large union takes a millisecond to make.


@cache
def _client_frames() -> "msgspec.msgpack.Decoder[ClientFrame]":
    return msgspec.msgpack.Decoder(ClientFrame)


@cache
def _server_frames() -> "msgspec.msgpack.Decoder[ServerFrame]":
    return msgspec.msgpack.Decoder(ServerFrame)


@cache
def _events() -> "msgspec.msgpack.Decoder[Event]":
    return msgspec.msgpack.Decoder(Event)


@cache
def _tags() -> "msgspec.msgpack.Decoder[_Tagged]":
    return msgspec.msgpack.Decoder(_Tagged)


def encode_frame(frame: ClientFrame | ServerFrame) -> bytes:
    """Return the frame with its length in front.

    Raises:
        InvalidRequestError: it is a request and would be over MAX_FRAME_BYTES.
        ProtocolError: it is another frame and would be so.
    """
    body = _encoded(frame)
    if len(body) > MAX_FRAME_BYTES:
        if isinstance(frame, Request):
            raise InvalidRequestError(
                f"a request of {len(body)} bytes is over the limit of {MAX_FRAME_BYTES}",
                hint="Send fewer or smaller files with one message; files of the workspace, and "
                "parts of them, the model reads with its tools.",
            )
        raise ProtocolError(
            f"a frame of {len(body)} bytes is over the limit of {MAX_FRAME_BYTES}",
            hint="Ask for less at a time: lists take `limit` and `cursor`.",
        )
    return HEADER.pack(len(body)) + body


def decode_client_frame(body: bytes) -> ClientFrame:
    """Decode what a client sent.

    Raises:
        ProtocolError: it is no frame of a client.
    """
    try:
        return _client_frames().decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ProtocolError(f"not a frame of a client: {error}") from error


def decode_server_frame(body: bytes) -> ServerFrame:
    """Decode what the daemon sent.

    Raises:
        ProtocolError: it is no frame of a daemon.
    """
    try:
        return _server_frames().decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ProtocolError(f"not a frame of a daemon: {error}") from error


def pack(value: object) -> msgspec.Raw:
    """Return the value as msgpack, to stand inside a frame."""
    return msgspec.Raw(_encoded(value))


def unpack(raw: msgspec.Raw, kind: type[_T]) -> _T:
    """Decode what stands inside a frame as `kind`; unknown fields are ignored.

    Raises:
        InvalidRequestError: it is no such value; the message says where.
    """
    try:
        return msgspec.msgpack.decode(raw, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidRequestError(f"invalid {kind.__name__}: {error}") from error


def unpack_event(raw: msgspec.Raw) -> Event:
    """Decode an event; one that this side does not know becomes Unknown.

    Raises:
        ProtocolError: it is no event at all.
    """
    try:
        return _events().decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        try:
            name = _tags().decode(raw).type
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise ProtocolError(f"not an event: {error}") from error
        return Unknown(name=name)


def mirror(kind: type[_S], source: object, /, **given: Any) -> _S:
    """Return a struct of a kind with what is given, and all its other fields of a source.

    Raises:
        AttributeError: the source has no field of such a name; no default stands in for it.
    """
    wanted = (name for name in kind.__struct_fields__ if name not in given)
    return kind(**{name: getattr(source, name) for name in wanted}, **given)


def to_builtins(value: object) -> Any:  # JSON-like data for --json output
    """Return the value as dicts, lists and scalars."""
    return msgspec.to_builtins(value)


@dataclass(slots=True)
class FrameReader:
    """Cuts a byte stream into frame bodies; what it holds back is bounded."""

    max_frame_bytes: int = MAX_FRAME_BYTES
    _data: bytearray = field(default_factory=bytearray, init=False)

    def feed(self, data: bytes) -> list[bytes]:
        """Take bytes and return the bodies that are whole now.

        Raises:
            ProtocolError: a length of zero or over the limit; the stream cannot be trusted further.
        """
        self._data += data
        bodies: list[bytes] = []
        start = 0
        while len(self._data) - start >= HEADER.size:
            (size,) = HEADER.unpack_from(self._data, start)
            if not 0 < size <= self.max_frame_bytes:
                raise ProtocolError(
                    f"a frame of {size} bytes; expected 1 to {self.max_frame_bytes}"
                )
            end = start + HEADER.size + size
            if len(self._data) < end:
                break
            bodies.append(bytes(self._data[start + HEADER.size : end]))
            start = end
        del self._data[:start]
        return bodies


def _encoded(value: object) -> bytes:
    """Encode; halves of surrogate pairs (file names, model text) become U+FFFD, as UTF-8 wants."""
    try:
        return _encoder.encode(value)
    except UnicodeEncodeError:
        return _encoder.encode(_without_surrogates(msgspec.to_builtins(value)))


def _without_surrogates(value: Any) -> Any:
    match value:
        case str():
            return re.sub("[\ud800-\udfff]", "\N{REPLACEMENT CHARACTER}", value)
        case dict():
            return {_without_surrogates(k): _without_surrogates(v) for k, v in value.items()}
        case list() | tuple():
            return [_without_surrogates(item) for item in value]
        case _:
            return value
