"""The plainest dialect there can be, and a route that speaks it: what every dialect is tested by.

    POST /say {"messages": [["user", "hello"]], "stream": true, "system": …, "model": …, …}

A stream is one JSON value a line: what was said, tools, pings, the end, errors.
"""

import json
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from aiohttp import web

from clawd.channels.http.answering import StreamTimes, answer, answer_many, open_many
from clawd.channels.http.app import GATEWAY, caller_of
from clawd.channels.http.body import read_object
from clawd.channels.http.model_api import (
    Answered,
    GatewayEvent,
    Generation,
    ModelRequest,
)
from clawd.providers.base import Finished, Message, Sampling, ToolCall, ToolSpec
from clawd.wire.events import (
    ApprovalRequested,
    HopUsage,
    PromptProgress,
    TextDelta,
    ToolFinished,
    ToolRequested,
)
from tests.channels.http.rig import LIMIT_S, Served

# The first event is waited for however slow the machine is, so that a refusal is always a status.
PACE = StreamTimes(first_s=LIMIT_S)
Said = tuple[str, str]


def line(**values: Any) -> bytes:
    return json.dumps(values).encode() + b"\n"


def _tokens(usage: HopUsage) -> dict[str, int]:
    """Return the counts that depend on the conversation, not on the machine or what came before."""
    names = ("prompt_tokens", "cached_tokens", "completion_tokens")
    return {name: getattr(usage, name) for name in names}


class Plain:
    """Writes lines of JSON."""

    content_type = "text/plain"
    ping = line(ping=1)

    def begin(self, generation: Generation) -> Iterable[bytes]:
        return (line(begin=generation.model),)

    def take(self, event: GatewayEvent) -> Iterable[bytes]:
        match event:
            case TextDelta():
                return (line(text=event.text),)
            case PromptProgress():
                return (line(progress=event.processed),)
            case ToolRequested():
                return (line(tool=event.tool),)
            case ToolFinished():
                return (line(status=event.status),)
            case ApprovalRequested():
                return (line(approval=event.approval_id, digest=event.digest),)
            case Finished():
                return (line(end=event.reason, usage=_tokens(event.usage)),)
            case _:
                return ()

    def broken(self, error: Exception) -> Iterable[bytes]:
        return (line(error=str(error)),)

    def whole(self, generation: Generation, answered: Answered) -> Any:
        return {
            "text": answered.text,
            "end": answered.finished.reason,
            "model": generation.model,
            "calls": [call.name for call in answered.calls],
            "usage": _tokens(answered.usage),
        }


class PlainMany:
    """The same for several answers."""

    content_type = "text/plain"
    ping = line(ping=1)

    def begin(self, generations: Sequence[Generation]) -> Iterable[bytes]:
        return (line(begin=len(generations)),)

    def take(self, number: int, event: GatewayEvent) -> Iterable[bytes]:
        return (line(number=number, text=event.text),) if isinstance(event, TextDelta) else ()

    def end(self) -> Iterable[bytes]:
        return (line(end="all"),)

    def broken(self, error: Exception) -> Iterable[bytes]:
        return (line(error=str(error)),)

    def whole(self, generations: Sequence[Generation], answers: Sequence[Answered]) -> Any:
        return [answered.text for answered in answers]


def request_of(body: dict[str, Any]) -> ModelRequest:
    names = {"system", "model", "conversation_id", "tool_choice", "is_plain", "inject", "prompt"}
    return ModelRequest(
        messages=tuple(map(_message, body.get("messages", []))),
        tools=tuple(
            ToolSpec(name=name, description=name, parameters={"type": "object"})
            for name in body.get("tools", [])
        ),
        sampling=msgspec.convert(body.get("sampling", {}), Sampling),
        response_format=body.get("response_format"),
        metadata=body.get("metadata", {}),
        **{name: body[name] for name in names if name in body},
    )


def _message(said: Any) -> Message:
    if isinstance(said, dict):
        calls = tuple(ToolCall(id=each, name="theirs") for each in said.pop("calls", []))
        return Message(tool_calls=calls, **said)
    return Message(role=said[0], content=said[1])


async def say(request: web.Request) -> web.StreamResponse:
    body = await read_object(request)
    generations, caller = request.app[GATEWAY].generations, caller_of(request)
    stream = body.get("stream", False)
    if "n" in body:
        many = await open_many(generations, [request_of(body)] * body["n"], caller)
        return await answer_many(request, many, PlainMany(), stream=stream, pace=PACE)
    generation = await generations.open(request_of(body), caller)
    return await answer(request, generation, Plain(), stream=stream, pace=PACE)


async def count(request: web.Request) -> web.Response:
    asked = request_of(await read_object(request))
    tokens = await request.app[GATEWAY].generations.count(asked, caller_of(request))
    return web.json_response({"tokens": tokens})


# What is in no table of scopes is for admins: keys with less ask at a path that is.
CHAT_PATH = "/v1/completions"
ROUTES = [web.post("/say", say), web.post(CHAT_PATH, say), web.post("/count", count)]


class Chat:
    """A client that keeps a chat as clients do, and sends the whole of it each time."""

    def __init__(self, door: Served, **fields: Any) -> None:
        self.door = door
        self.fields = fields
        self.messages: list[Said] = []
        self.conversation = ""
        self.usage: dict[str, int] = {}

    async def say(self, text: str, *, stream: bool = False) -> str:
        self.messages.append(("user", text))
        body = {"messages": self.messages, "stream": stream, **self.fields}
        async with self.door.session.post(self.door.url + "/say", json=body) as response:
            told = await response.text()
            assert response.status == 200, told
            self.conversation = response.headers.get("X-Clawd-Conversation", "")
        lines = [json.loads(each) for each in told.splitlines()]
        assert not [each for each in lines if "error" in each], lines
        said = "".join(each.get("text", "") for each in lines)
        self.usage = lines[-1]["usage"]
        self.messages.append(("assistant", said))
        return said

    def copy(self, upto: int) -> "Chat":
        """Return the same chat as it was after so many messages."""
        made = Chat(self.door, **self.fields)
        made.messages = list(self.messages[:upto])
        return made


def lines_of(text: str) -> list[dict[str, Any]]:
    return [json.loads(each) for each in text.splitlines()]
