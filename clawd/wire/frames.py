"""The frames of the control socket. Every frame is one msgpack value of one of two tagged unions.

client                                   daemon
Hello(min, max, client, version)    →
                                    ←    Welcome(protocol, version, pid, home, role)
Request(id, method, params)         →
                                    ←    Event(id, event)*
Answer(id, question, value)         →
Cancel(id)                          →
                                    ←    Result(id, value) | Failure(id, code, message, …)
"""

from typing import Any

import msgspec

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
