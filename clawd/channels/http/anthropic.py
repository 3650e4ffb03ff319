"""Anthropic's door: POST /v1/messages and /v1/messages/count_tokens.

Queries and the version header are passed over: every version and beta that clients name asks the
same of us.

An answer in the words of /v1/messages: whole, or as a stream of blocks.

    event: message_start        the message without content, the tokens of the prompt
    event: content_block_start  {"index": 0, "content_block": {"type": "text", "text": ""}}
    event: content_block_delta  {"index": 0, "delta": {"type": "text_delta", "text": "…"}}
    event: content_block_stop   {"index": 0}
    event: message_delta        stop_reason, all counts
    event: message_stop

One block is open at a time. What comes for another call before the open one's arguments are whole
is held back until they are.

A body of /v1/messages as a request of ours. Pure.

    {"model": "…", "max_tokens": 1024, "system": "…" | [{"type": "text", "text": "…"}],
     "messages": [{"role": "user", "content": "…" | [blocks]}],
     "tools": [{"name": "…", "description": "…", "input_schema": {…}}]}

What a model here has no use for is passed over: cache marks, metadata, tools that the vendor's own
servers run. What would be lost without a word is refused.
"""

import secrets
from collections.abc import Iterable
from typing import Any

import msgspec
from aiohttp import web

from clawd.channels.http import model_api
from clawd.channels.http.answering import answer
from clawd.channels.http.app import GATEWAY, caller_of
from clawd.channels.http.body import (
    count_of,
    field,
    invalid,
    number_of,
    read_object,
    stops_of,
    top_k_of,
    without_nulls,
)
from clawd.channels.http.errors import body_of, status_of
from clawd.channels.http.header_options import shown, wants_events, with_header_options
from clawd.channels.http.pictures import SentPicture, picture_at, picture_of
from clawd.errors import InvalidRequestError
from clawd.providers.base import (
    CallDelta,
    Failed,
    Finished,
    Message,
    Sampling,
    ToolCall,
    ToolSpec,
    thinking,
    without_pictures,
)
from clawd.wire.events import HopUsage, PromptEvaluated, ReasoningDelta, TextDelta
from clawd.wire.pictures import Picture

_REASONS = {"length": "max_tokens", "tool_calls": "tool_use"}
_Content = TextDelta | ReasoningDelta | CallDelta
_STARTS: dict[str, dict[str, Any]] = {
    "text": {"type": "text", "text": ""},
    "thinking": {"type": "thinking", "thinking": "", "signature": ""},
}


class MessagesAnswer:
    """Writes one answer. `estimate` stands for the prompt's tokens where nobody counts them."""

    content_type = "text/event-stream"
    ping = b'event: ping\ndata: {"type":"ping"}\n\n'

    def __init__(
        self, *, shows_thoughts: bool = True, shows_events: bool = False, estimate: int = 0
    ) -> None:
        self._id = f"msg_{secrets.token_hex(12)}"
        self._shows_thoughts = shows_thoughts
        self._shows_events = shows_events
        self._estimate = estimate
        self._model = ""
        self._evaluated: PromptEvaluated | None = None
        self._is_started = False
        self._blocks = _Blocks()

    def begin(self, generation: model_api.Generation) -> Iterable[bytes]:
        """Return nothing yet: the first event tells the prompt's tokens, and they come later."""
        self._model = generation.model
        return ()

    def take(self, event: model_api.GatewayEvent) -> Iterable[bytes]:
        """Return what an event becomes."""
        match event:
            case PromptEvaluated():
                self._evaluated = self._evaluated or event
                return [*self._started(), *self._told(event)]
            case TextDelta() | ReasoningDelta() | CallDelta():
                is_hidden = isinstance(event, ReasoningDelta) and not self._shows_thoughts
                return [*self._started(), *([] if is_hidden else self._blocks.take(event))]
            case Finished():
                return [*self._started(), *self._blocks.end(), *self._ended(event)]
            case Failed():
                return self.broken(event.error)
            case _:
                return self._told(event)

    def broken(self, error: Exception) -> Iterable[bytes]:
        """Return the event of an error; nothing follows it."""
        return [_event_bytes("error", body_of("anthropic", error, status_of(error)))]

    def whole(self, generation: model_api.Generation, answered: model_api.Answered) -> Any:
        """Return the message."""
        content: list[dict[str, Any]] = []
        if answered.reasoning and self._shows_thoughts:
            content.append(_STARTS["thinking"] | {"thinking": answered.reasoning})
        if answered.text:
            content.append({"type": "text", "text": answered.text})
        content += [
            {
                "type": "tool_use",
                "id": call.id,
                "name": call.name,
                "input": model_api.object_of(call.arguments),
            }
            for call in answered.calls
        ]
        self._model = generation.model
        self._evaluated = answered.evaluated
        reason = _reason_of(answered.finished, has_calls=bool(answered.calls))
        return self._message(content, self._usage(answered.usage)) | reason

    def _started(self) -> list[bytes]:
        if self._is_started:
            return []
        self._is_started = True
        before = self._evaluated
        tokens, cached = (before.tokens, before.cached) if before else (self._estimate, 0)
        usage = _counts(tokens, cached, 0)
        return [_event_bytes("message_start", {"message": self._message([], usage)})]

    def _ended(self, finished: Finished) -> list[bytes]:
        reason = _reason_of(finished, has_calls=self._blocks.has_calls)
        usage = self._usage(finished.usage)
        return [
            _event_bytes("message_delta", {"delta": reason, "usage": usage}),
            _event_bytes("message_stop", {}),
        ]

    def _told(self, event: model_api.GatewayEvent) -> list[bytes]:
        if not self._shows_events:
            return []
        named = shown(event)
        return [_event_bytes(*named)] if named else []

    def _message(self, content: list[Any], usage: dict[str, int]) -> dict[str, Any]:
        return {
            "id": self._id,
            "type": "message",
            "role": "assistant",
            "model": self._model,
            "content": content,
            "stop_reason": None,
            "stop_sequence": None,
            "usage": usage,
        }

    def _usage(self, usage: HopUsage) -> dict[str, int]:
        if usage.prompt_tokens:
            return _counts(usage.prompt_tokens, usage.cached_tokens, usage.completion_tokens)
        before = self._evaluated
        tokens, cached = (before.tokens, before.cached) if before else (self._estimate, 0)
        return _counts(tokens, cached, usage.completion_tokens)


class _Blocks:
    """The blocks of a stream: which is open, and what waits for it to close."""

    def __init__(self) -> None:
        self.has_calls = False
        self._index = -1
        self._kind = ""
        self._call = -1
        self._arguments: list[str] = []
        self._closed_calls: set[int] = set()
        self._held: list[_Content] = []

    def take(self, event: _Content) -> list[bytes]:
        """Return the events of a piece of content."""
        if isinstance(event, CallDelta):
            if event.index in self._closed_calls:
                return []
        elif not event.text:
            return []
        if self._is_open(event):
            told = self._append(event)
        elif self._is_in_call():
            self._held.append(event)
            return []
        else:
            told = [*self._close(), *self._open(event), *self._append(event)]
        if self._held and not self._is_in_call():
            told += self._release()
        return told

    def end(self) -> list[bytes]:
        """Return what is left, and the end of the open block."""
        told = self._close()
        while self._held:
            told += [*self._release(), *self._close()]
        return told

    def _release(self) -> list[bytes]:
        held, self._held = self._held, []
        return [data for event in held for data in self.take(event)]

    def _is_in_call(self) -> bool:
        return self._kind == "tool_use" and not model_api.is_whole("".join(self._arguments))

    def _is_open(self, event: _Content) -> bool:
        match event:
            case TextDelta():
                return self._kind == "text"
            case ReasoningDelta():
                return self._kind == "thinking"
            case CallDelta():
                return self._kind == "tool_use" and self._call == event.index

    def _open(self, event: _Content) -> list[bytes]:
        self._index += 1
        if isinstance(event, CallDelta):
            self._kind, self._call, self._arguments = "tool_use", event.index, []
            self.has_calls = True
            call_id = event.id or f"toolu_{secrets.token_hex(12)}"
            start = {"type": "tool_use", "id": call_id, "name": event.name, "input": {}}
        else:
            self._kind = "text" if isinstance(event, TextDelta) else "thinking"
            start = _STARTS[self._kind]
        return [self._event("content_block_start", content_block=start)]

    def _append(self, event: _Content) -> list[bytes]:
        match event:
            case TextDelta():
                return [self._delta("text_delta", text=event.text)]
            case ReasoningDelta():
                return [self._delta("thinking_delta", thinking=event.text)]
            case CallDelta():
                if not event.arguments:
                    return []
                self._arguments.append(event.arguments)
                return [self._delta("input_json_delta", partial_json=event.arguments)]

    def _close(self) -> list[bytes]:
        if not self._kind:
            return []
        told: list[bytes] = []
        if self._kind == "thinking":
            told.append(self._delta("signature_delta", signature=""))
        if self._kind == "tool_use":
            self._closed_calls.add(self._call)
            if not self._arguments:
                told.append(self._delta("input_json_delta", partial_json="{}"))
        self._kind = ""
        return [*told, self._event("content_block_stop")]

    def _delta(self, kind: str, **fields: str) -> bytes:
        return self._event("content_block_delta", delta={"type": kind} | fields)

    def _event(self, name: str, **fields: Any) -> bytes:
        return _event_bytes(name, {"index": self._index} | fields)


def _reason_of(finished: Finished, *, has_calls: bool) -> dict[str, Any]:
    """Return why an answer ended, in the words of the dialect."""
    reason = _REASONS.get(finished.reason, "end_turn")
    if has_calls and reason == "end_turn":
        reason = "tool_use"
    if reason == "end_turn" and finished.stopped_by:
        return {"stop_reason": "stop_sequence", "stop_sequence": finished.stopped_by}
    return {"stop_reason": reason, "stop_sequence": None}


def _event_bytes(name: str, value: dict[str, Any]) -> bytes:
    """Return one event; its data has the name as its type."""
    data = model_api.on_one_line({"type": name} | value)
    return b"event: %b\ndata: %b\n\n" % (name.encode("ascii"), data)


def _counts(tokens: int, cached: int, generated: int) -> dict[str, int]:
    return {
        "input_tokens": max(0, tokens - cached),
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": cached,
        "output_tokens": generated,
    }


# The content blocks of Anthropic's messages as messages of ours. Pure.
#
# user       tool_result blocks first, as messages of role tool; then what the user says
# assistant  text, tool_use and thinking, whose signature nobody here checks

_BETWEEN = "\n\n"
_FAILED = "error: "
_FAILURES = (_FAILED, "denied: ")
_ONLY_THERE = "pictures stand in messages of the user and in results of tools"


class _Turns:
    """Collects the messages; `system` holds what stands among them as system."""

    def __init__(self) -> None:
        self.system: list[str] = []
        self._out: list[Message] = []
        self._names: dict[str, str] = {}

    def add(self, where: str, message: Any) -> None:
        """Take one message.

        Raises:
            InvalidRequestError: it cannot be meant; says where.
        """
        if not isinstance(message, dict):
            raise invalid(where, "expected an object")
        content = f"{where}.content"
        blocks = _blocks(content, message.get("content"))
        match message.get("role"):
            case "user":
                self._user(content, blocks)
            case "assistant":
                self._assistant(content, blocks)
            case "system":
                self.system += [_text_of(content, block) for block in blocks]
            case role:
                raise invalid(f"{where}.role", f"{role!r} is neither user nor assistant")

    def messages(self) -> tuple[Message, ...]:
        """Return the messages; neighbours of one role are one turn."""
        return tuple(self._out)

    def _user(self, where: str, blocks: list[dict[str, Any]]) -> None:
        said: list[str] = []
        seen: list[Picture] = []
        for number, block in enumerate(blocks):
            here = f"{where}[{number}]"
            match block.get("type"):
                case "tool_result":
                    self._out.append(self._result(here, block))
                case "image":
                    seen.append(_picture(here, block))
                case _:
                    said.append(_text_of(here, block))
        if said or seen or not blocks:
            message = Message(role="user", content=_BETWEEN.join(said), pictures=tuple(seen))
            self._say(message)

    def _result(self, where: str, block: dict[str, Any]) -> Message:
        call_id = field(block, "tool_use_id", str, "", at=where)
        if not call_id:
            raise invalid(f"{where}.tool_use_id", "a result needs the id of its call")
        inner = f"{where}.content"
        parts = _blocks(inner, block.get("content"))
        placed = [(f"{inner}[{number}]", part) for number, part in enumerate(parts)]
        seen = tuple(_picture(*each) for each in placed if each[1].get("type") == "image")
        text = "\n".join(_text_of(*each) for each in placed if each[1].get("type") != "image")
        if field(block, "is_error", bool, default=False, at=where) and not text.startswith(
            _FAILURES
        ):
            text = _FAILED + text
        name = self._names.get(call_id, "")
        said = Message(role="tool", content=text, tool_call_id=call_id, name=name)
        return msgspec.structs.replace(said, pictures=seen)

    def _assistant(self, where: str, blocks: list[dict[str, Any]]) -> None:
        said: list[str] = []
        thoughts: list[str] = []
        calls: list[ToolCall] = []
        for number, block in enumerate(blocks):
            match block.get("type"):
                case "text":
                    said.append(_text_of(f"{where}[{number}]", block))
                case "tool_use":
                    calls.append(self._call(f"{where}[{number}]", block))
                case "thinking":
                    thoughts.append(field(block, "thinking", str, "", at=f"{where}[{number}]"))
                case _:
                    # Thoughts that only the vendor can read, and what its servers did.
                    continue
        message = Message(
            role="assistant",
            content="".join(said),
            tool_calls=tuple(calls),
            reasoning=_BETWEEN.join(filter(None, thoughts)),
        )
        self._say(message)

    def _call(self, where: str, block: dict[str, Any]) -> ToolCall:
        call_id, name = (field(block, key, str, "", at=where) for key in ("id", "name"))
        if not call_id or not name:
            raise invalid(where, "a tool_use needs an id and a name")
        self._names[call_id] = name
        given = field(block, "input", dict[str, Any], {}, at=where)
        return ToolCall(id=call_id, name=name, arguments=msgspec.json.encode(given).decode())

    def _say(self, said: Message) -> None:
        last = self._out[-1] if self._out else None
        if last is None or last.role != said.role:
            self._out.append(said)
            return
        self._out[-1] = Message(
            role=said.role,
            content=_BETWEEN.join(filter(None, (last.content, said.content))),
            pictures=(*last.pictures, *said.pictures),
            tool_calls=(*last.tool_calls, *said.tool_calls),
            reasoning=_BETWEEN.join(filter(None, (last.reasoning, said.reasoning))),
        )


def _picture(where: str, block: dict[str, Any]) -> SentPicture:
    """Return the picture of a block.

    Raises:
        InvalidRequestError: there is none, or only the id of a file; says where.
    """
    source = field(block, "source", dict[str, Any], {}, at=where)
    match source.get("type"):
        case "base64":
            return picture_of(source.get("data"), f"{where}.source.data")
        case "url":
            return picture_at(source.get("url"), f"{where}.source.url")
        case kind:
            raise invalid(f"{where}.source.type", f"{kind!r} is neither base64 nor url")


def _text_of(where: str, block: Any) -> str:
    """Return the text of a block.

    Raises:
        InvalidRequestError: there is none; says where.
    """
    if not isinstance(block, dict):
        raise invalid(where, "expected an object with a type")
    match block.get("type"):
        case "text" if block.get("text") is not None:
            return field(block, "text", str, "", at=where)
        case "text":
            raise invalid(f"{where}.text", "expected text")
        case "document":
            return _document(where, block)
        case "search_result":
            parts = _blocks(f"{where}.content", block.get("content"))
            heads = [field(block, key, str, "", at=where) for key in ("title", "source")]
            return "\n".join([*filter(None, heads), *(_text_of(where, part) for part in parts)])
        case "tool_reference":
            return field(block, "tool_name", str, "", at=where)
        case "image":
            raise invalid(where, f"an image cannot be read here: {_ONLY_THERE}")
        case kind:
            raise invalid(f"{where}.type", f"{kind!r} is no block that is understood here")


def _document(where: str, block: dict[str, Any]) -> str:
    source = field(block, "source", dict[str, Any], {}, at=where)
    match source.get("type"):
        case "text":
            return field(source, "data", str, "", at=f"{where}.source")
        case "content":
            parts = _blocks(f"{where}.source.content", source.get("content"))
            return "\n".join(_text_of(where, part) for part in parts)
        case _:
            raise invalid(where, "a document is read where its source is text or content")


def _blocks(where: str, content: Any) -> list[dict[str, Any]]:
    """Return content as blocks: a text is one block, null and "" are none."""
    if content is None or content == "":
        return []
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    if not isinstance(content, list):
        raise invalid(where, "expected a text or a list of blocks")
    for number, block in enumerate(content):
        if not isinstance(block, dict):
            raise invalid(f"{where}[{number}]", "expected an object with a type")
    return content


_OWN_TOOLS = ("", "custom")
_PRIVATE = "x-anthropic-"
_NOTHING_SAID = (Message(role="user", content=""),)
_NO_PARAMETERS = {"type": "object", "properties": {}}


def request_of(body: dict[str, Any]) -> model_api.ModelRequest:
    """Return the request.

    Raises:
        InvalidRequestError: the body cannot be meant; says which field.
    """
    if body.get("messages") is None:
        raise invalid("messages", "expected a list of messages")
    _no_thread(body)
    turns = _Turns()
    for number, message in enumerate(field(body, "messages", list[Any], [])):
        turns.add(f"messages[{number}]", message)
    tools = _tools(field(body, "tools", list[Any], []))
    choice, parallel = _choice(body, tools)
    messages = turns.messages()
    return model_api.ModelRequest(
        messages=messages or _NOTHING_SAID,
        system=_system(body.get("system"), turns.system),
        tools=tools,
        tool_choice=choice,
        parallel_calls=parallel,
        response_format=_format(body),
        sampling=_sampling(body),
        model=field(body, "model", str, ""),
        is_plain=not messages,
    )


def _no_thread(body: dict[str, Any]) -> None:
    """Refuse a conversation that the server is to keep: clients then send all of it themselves.

    The first turn alone could be answered, but the next one would bring nothing but what is new.
    """
    if body.get("thread") is not None:
        raise InvalidRequestError(
            "thread: conversations are not kept here; send all messages each time",
            data={
                "param": "thread",
                "details": {"error_code": "thread_unsupported_request", "unsupported": ["thread"]},
            },
        )


def shows_thoughts(body: dict[str, Any]) -> bool:
    """Return whether the client wants to see what the model thinks, which it must say.

    Programs that do not ask take the first block of an answer for its text.

    Raises:
        InvalidRequestError: it says so in no way there is.
    """
    wish = field(body, "thinking", dict[str, Any], {})
    kind = field(wish, "type", str, "", at="thinking")
    if kind not in {"", "enabled", "adaptive", "disabled"}:
        raise invalid("thinking.type", f"{kind!r} is none of enabled, adaptive, disabled")
    return kind in {"enabled", "adaptive"} and wish.get("display") != "omitted"


def _wish(body: dict[str, Any]) -> dict[str, Any]:
    return field(body, "thinking", dict[str, Any], {})


def _thinking(body: dict[str, Any]) -> dict[str, Any] | None:
    """Return what the chat template is told; what is adaptive is left to it."""
    kind = _wish(body).get("type")
    wish = {"enabled": "on", "disabled": "off"}.get(kind if isinstance(kind, str) else "")
    return thinking(wish) if wish else None


def _system(given: Any, told: list[str]) -> str | None:
    """Join what the client says as system; its notes to the vendor's servers are left out."""
    texts: list[str] = []
    if isinstance(given, str):
        texts.append(given)
    elif isinstance(given, list):
        texts += [_text_of(f"system[{number}]", block) for number, block in enumerate(given)]
    elif given is not None:
        raise invalid("system", "expected a text or a list of text blocks")
    # The notes may change with every request, and no prompt would begin like the one before it.
    kept = [text for text in (*texts, *told) if text and not text.startswith(_PRIVATE)]
    return "\n\n".join(kept) if kept else None


def _tools(given: list[Any]) -> tuple[ToolSpec, ...]:
    tools: list[ToolSpec] = []
    for number, tool in enumerate(given):
        where = f"tools[{number}]"
        if not isinstance(tool, dict):
            raise invalid(where, "expected an object")
        if (tool.get("type") or "") not in _OWN_TOOLS:
            continue
        name = field(tool, "name", str, "", at=where)
        if not name:
            raise invalid(f"{where}.name", "a tool needs a name")
        schema = without_nulls(field(tool, "input_schema", dict[str, Any], {}, at=where))
        described = field(tool, "description", str, "", at=where)
        tools.append(
            ToolSpec(name=name, description=described, parameters=schema or _NO_PARAMETERS)
        )
    return tuple(tools)


def _choice(body: dict[str, Any], tools: tuple[ToolSpec, ...]) -> tuple[str, bool | None]:
    """Return the choice in our words, and whether several calls are welcome."""
    choice = field(body, "tool_choice", dict[str, Any], {})
    is_single = field(choice, "disable_parallel_tool_use", bool, default=False, at="tool_choice")
    parallel = False if is_single else None
    kind = field(choice, "type", str, "auto", at="tool_choice")
    if kind in {"auto", "none"}:
        return kind, parallel
    if kind not in {"any", "tool"}:
        raise invalid("tool_choice.type", f"{kind!r} is none of auto, any, tool, none")
    if not tools:
        raise invalid("tool_choice", f"{kind!r} needs tools, and none are offered")
    if kind == "any":
        return "required", parallel
    name = field(choice, "name", str, "", at="tool_choice")
    if name not in {tool.name for tool in tools}:
        raise invalid("tool_choice.name", f"no tool named {name!r} is offered")
    return name, parallel


def _format(body: dict[str, Any]) -> dict[str, Any] | None:
    config = field(body, "output_config", dict[str, Any], {})
    name = "output_config.format" if config.get("format") is not None else "output_format"
    wanted = field(config, "format", dict[str, Any], {}, at="output_config") or field(
        body, "output_format", dict[str, Any], {}
    )
    if not wanted or wanted.get("type") == "text":
        return None
    schema = wanted.get("schema")
    if wanted.get("type") != "json_schema" or not isinstance(schema, dict):
        raise invalid(name, "expected type json_schema with its schema, an object")
    return {
        "type": "json_schema",
        "json_schema": {"name": "answer", "schema": without_nulls(schema), "strict": True},
    }


def _sampling(body: dict[str, Any]) -> Sampling:
    # More than fits ends with the context; less than one would be no answer.
    least = None if body.get("max_tokens") is None else 1
    return Sampling(
        temperature=number_of(body, "temperature", most=2.0),
        top_p=number_of(body, "top_p", most=1.0),
        top_k=top_k_of(body),
        max_tokens=count_of(body, "max_tokens") or least,
        stop=stops_of(body, "stop_sequences"),
        template_kwargs=_thinking(body),
        reasoning_tokens=count_of(_wish(body), "budget_tokens", at="thinking"),
    )


_CHARACTERS_PER_TOKEN = 4
_TOKENS_PER_PICTURE = 1_000


async def _post_messages(request: web.Request) -> web.StreamResponse:
    """Answer POST /v1/messages."""
    body = await read_object(request)
    stream = field(body, "stream", bool, default=False)
    asked = with_header_options(request_of(body), request, body)
    dialect = MessagesAnswer(
        shows_thoughts=shows_thoughts(body),
        shows_events=wants_events(request),
        estimate=_estimate(asked),
    )
    generation = await request.app[GATEWAY].generations.open(asked, caller_of(request))
    return await answer(request, generation, dialect, stream=stream)


async def _post_count_tokens(request: web.Request) -> web.Response:
    """Answer POST /v1/messages/count_tokens."""
    body = await read_object(request)
    asked = with_header_options(request_of(body), request, body)
    tokens = await request.app[GATEWAY].generations.count(asked, caller_of(request))
    return web.json_response({"input_tokens": tokens})


def _estimate(request: model_api.ModelRequest) -> int:
    """Return about how many tokens a prompt has; for servers that count only at the end."""
    texts = tuple(map(without_pictures, request.messages))
    size = len(msgspec.json.encode((request.system, texts, request.tools)))
    seen = sum(len(message.pictures) for message in request.messages)
    return max(1, size // _CHARACTERS_PER_TOKEN) + seen * _TOKENS_PER_PICTURE


ROUTES = [
    web.post("/v1/messages", _post_messages),
    web.post("/v1/messages/count_tokens", _post_count_tokens),
]
