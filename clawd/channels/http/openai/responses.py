"""POST /v1/responses, and how many tokens its prompt would have.

Writes answers as /v1/responses does: a whole one, or a numbered stream of named events.

    event: response.created
    data: {"type":"response.created","sequence_number":0,"response":{…"status":"in_progress"}}
    …
    event: response.completed
    data: {"type":"response.completed","sequence_number":9,"response":{…"output":[…],"usage":{…}}}

A whole answer is what the stream of it would have ended with. What clawd does beside the answer
comes as events named clawd.…, and only to who asked.
"""

import time
from collections.abc import Iterable
from typing import Any, Protocol

import msgspec
from aiohttp import web

from clawd.channels.http.answering import answer
from clawd.channels.http.app import GATEWAY, caller_of
from clawd.channels.http.body import check_items, field, invalid, read_object
from clawd.channels.http.errors import message_of
from clawd.channels.http.header_options import shown, wants_events, with_header_options
from clawd.channels.http.model_api import Answered, GatewayEvent, Generation, ModelRequest
from clawd.channels.http.openai import messages, wording
from clawd.channels.http.openai.fields import (
    MAX_TOP_LOGPROBS,
    flag,
    flags_of,
    flat_name,
    read_choice,
    read_namespaces,
    read_request,
    read_sampling,
    read_text_format,
    read_tools,
    refuse,
)
from clawd.channels.http.pictures import SentPicture
from clawd.engine.protocol import TokenLogprob
from clawd.errors import InvalidRequestError
from clawd.providers.base import CallDelta, Failed, Finished, Sampling, ToolCall
from clawd.wire.events import HopUsage, PromptEvaluated, PromptProgress, ReasoningDelta, TextDelta

# The body of /v1/responses as clawd's own request. Nothing is kept between requests here.
#
# `input` is a text, or items: messages, calls, results of calls, reasoning. Items that a model is
# not shown (calls of tools that ran elsewhere, reasoning without its text) are passed over.

_STATELESS = "Nothing is stored between requests: send the whole conversation as input."
_LOGPROBS = "message.output_text.logprobs"
_ECHOED = ("instructions", "max_output_tokens", "temperature", "top_p", "tool_choice")


class ResponseAsked(msgspec.Struct, frozen=True, kw_only=True):
    """A request, and how to tell its answer.

    Attributes:
        stream: piece by piece.
        events: also what clawd does beside the answer.
        progress: also the evaluation of the prompt.
        summarises: reasoning is told as a summary, because the client asked for one.
        echoed: fields of the body that an answer repeats.
        places: namespace and name of the functions that stand in one, by what they are offered as.
    """

    request: ModelRequest
    stream: bool = False
    events: bool = False
    progress: bool = False
    summarises: bool = False
    echoed: dict[str, Any] = {}
    places: dict[str, tuple[str, str]] = {}


def read_response(body: dict[str, Any], request: web.Request) -> ResponseAsked:
    """Return what a body asks for.

    Raises:
        InvalidRequestError: a field cannot be meant; the error names it.
    """
    _refuse_unsupported(body)
    history = _read_input(body)
    functions = read_tools(body, is_flat=True)
    inner, places = read_namespaces(body, functions)
    choice, tools = read_choice(body, functions + inner)
    sampling = _with_logprobs(body, read_sampling(body, limits=("max_output_tokens",)))
    answer_format = read_text_format(flags_of(body, "text"))
    options = flags_of(body, "stream_options")
    events = flag(options, "clawd_events", default=wants_events(request))
    progress = flag(options, "clawd_prompt_progress", default=events)
    asked = msgspec.structs.replace(
        read_request(body, history, tools=tools, choice=choice, sampling=sampling),
        response_format=answer_format,
        wants_progress=progress,
    )
    return ResponseAsked(
        request=with_header_options(asked, request, body),
        stream=flag(body, "stream"),
        events=events,
        progress=progress,
        summarises=_wants_summary(body),
        echoed=_echoed(body),
        places=places,
    )


def _read_input(body: dict[str, Any]) -> messages.History:
    """Return the conversation of a body: its instructions, then its input.

    Raises:
        InvalidRequestError: it is no conversation; the error names the place.
    """
    history = messages.History()
    history.add_system(field(body, "instructions", str, ""))
    items = body.get("input")
    check_items("input", items)
    if isinstance(items, str):
        history.add_user(items)
    elif isinstance(items, list):
        for number, item in enumerate(items):
            if not isinstance(item, dict):
                raise invalid(f"input[{number}]", "expected an object")
            _read_item(item, f"input[{number}]", history)
    else:
        raise invalid("input", "expected text or a list of items")
    history.checked("input")
    return history


def _read_item(item: dict[str, Any], place: str, history: messages.History) -> None:
    kind = item.get("type", "message")
    match kind:
        case "message":
            _read_message(item, place, history)
        case "function_call":
            name = item.get("name")
            if not isinstance(name, str) or not name:
                raise invalid(f"{place}.name", "expected a name")
            namespace = item.get("namespace")
            if isinstance(namespace, str) and namespace:
                name = flat_name(namespace, name)
            arguments = messages.read_arguments(item.get("arguments"), f"{place}.arguments")
            call_id = _call_id(item, place)
            history.add_call(ToolCall(id=call_id, name=name, arguments=arguments))
        case "function_call_output":
            seen: list[SentPicture] = []
            output = messages.read_content(item.get("output"), f"{place}.output", seen=seen)
            history.add_result(_call_id(item, place), output, seen)
        case "reasoning":
            held = [item.get("content"), item.get("summary")]
            texts = [messages.reasoning_parts(parts) for parts in held if isinstance(parts, list)]
            history.think(next(filter(None, texts), ""))
        case "item_reference":
            raise InvalidRequestError(
                f"{place}: items of earlier answers are not kept",
                hint=_STATELESS,
                data={"param": place},
            )
        case _:
            if not isinstance(kind, str):
                raise invalid(f"{place}.type", "expected a name")


def _read_message(item: dict[str, Any], place: str, history: messages.History) -> None:
    role, content = item.get("role"), item.get("content")
    between = "" if role == "assistant" else "\n"
    seen: list[SentPicture] | None = [] if role == "user" else None
    text = messages.read_content(content, f"{place}.content", between=between, seen=seen)
    match role:
        case "system" | "developer":
            history.add_system(text)
        case "user":
            if content is None:
                raise invalid(f"{place}.content", "expected what the user says")
            history.add_user(text, seen or ())
        case "assistant":
            history.go_on(text)
        case _:
            raise invalid(f"{place}.role", "expected one of system, developer, user, assistant")


def _call_id(item: dict[str, Any], place: str) -> str:
    call_id = item.get("call_id")
    if not isinstance(call_id, str) or not call_id:
        raise invalid(f"{place}.call_id", "expected the id of a call")
    return call_id


def _refuse_unsupported(body: dict[str, Any]) -> None:
    refuse(body, "previous_response_id", "is not supported", _STATELESS)
    refuse(body, "conversation", "is not supported", _STATELESS)
    refuse(body, "prompt", "is not supported: no prompts are stored here", "Use instructions.")
    refuse(body, "background", "is not supported", "Leave it out, and use stream.")


def _with_logprobs(body: dict[str, Any], sampling: Sampling) -> Sampling:
    top = field(body, "top_logprobs", int, 0)
    if not 0 <= top <= MAX_TOP_LOGPROBS:
        raise invalid("top_logprobs", f"is {top}, expected 0 to {MAX_TOP_LOGPROBS}")
    if _LOGPROBS not in field(body, "include", list[Any], []):
        return sampling
    return msgspec.structs.replace(sampling, logprobs=True, top_logprobs=top)


def _wants_summary(body: dict[str, Any]) -> bool:
    reasoning = body.get("reasoning")
    if not isinstance(reasoning, dict):
        return False
    wanted = reasoning.get("summary", reasoning.get("generate_summary"))
    return isinstance(wanted, str) and wanted != "none"


def _echoed(body: dict[str, Any]) -> dict[str, Any]:
    told = {name: body[name] for name in _ECHOED if body.get(name) is not None}
    text = body.get("text")
    if isinstance(text, dict) and isinstance(text.get("format"), dict):
        told["text"] = {"format": text["format"]}
    metadata = body.get("metadata")
    if isinstance(metadata, dict):
        told["metadata"] = metadata
    if isinstance(body.get("parallel_tool_calls"), bool):
        told["parallel_tool_calls"] = body["parallel_tool_calls"]
    return told


# The items of an answer of /v1/responses as they grow, and the events that tell it.
#
#     reasoning      output_item.added, reasoning_text.delta …, reasoning_text.done,
# output_item.done     message        output_item.added, content_part.added, output_text.delta …,
# output_text.done,                    content_part.done, output_item.done     function_call
# output_item.added, function_call_arguments.delta …, .done, output_item.done
#
# An event is a name and the fields beside its type and number.

_Told = tuple[str, dict[str, Any]]


class _Item(Protocol):
    """An item on its way; `index` is its place in the output, `status` how it stands."""

    index: int
    status: str

    def open(self) -> list[_Told]:
        """Return the events that begin it."""
        ...

    def close(self, status: str = "completed") -> list[_Told]:
        """Return the events that end it; one that was cut off is `incomplete`."""
        ...

    def value(self) -> dict[str, Any]:
        """Return it as it is now."""
        ...


class _Base:
    """What all items share."""

    def __init__(self, index: int, prefix: str) -> None:
        self.index = index
        self.id = wording.new_id(prefix)
        self.status = "in_progress"

    def at(self, **fields: Any) -> dict[str, Any]:
        """Return the fields of an event of this item."""
        return {"item_id": self.id, "output_index": self.index, **fields}


class _MessageItem(_Base):
    """What the model says."""

    def __init__(self, index: int) -> None:
        super().__init__(index, "msg_")
        self._text: list[str] = []
        self._logprobs: list[dict[str, Any]] = []

    def open(self) -> list[_Told]:
        """Return the events that begin it."""
        item = {**self.value(), "content": []}
        part = self._part("", [])
        return [
            ("response.output_item.added", {"output_index": self.index, "item": item}),
            ("response.content_part.added", self.at(content_index=0, part=part)),
        ]

    def add(self, text: str, logprobs: tuple[TokenLogprob, ...] = ()) -> list[_Told]:
        """Take a piece of text and return its event."""
        told = [wording.logprob_value(token) for token in logprobs]
        self._text.append(text)
        self._logprobs += told
        fields = self.at(content_index=0, delta=text, logprobs=told)
        return [("response.output_text.delta", fields)]

    @property
    def text(self) -> str:
        """What was said so far."""
        return "".join(self._text)

    def has_logprobs(self) -> bool:
        """Return whether tokens came with the text."""
        return bool(self._logprobs)

    def close(self, status: str = "completed") -> list[_Told]:
        """Return the events that end it."""
        self.status = status
        part = self._part(self.text, self._logprobs)
        done = self.at(content_index=0, text=self.text, logprobs=self._logprobs)
        item = self.value()
        return [
            ("response.output_text.done", done),
            ("response.content_part.done", self.at(content_index=0, part=part)),
            ("response.output_item.done", {"output_index": self.index, "item": item}),
        ]

    def value(self) -> dict[str, Any]:
        """Return it as it is now."""
        return {
            "id": self.id,
            "type": "message",
            "status": self.status,
            "role": "assistant",
            "content": [self._part(self.text, self._logprobs)],
        }

    @staticmethod
    def _part(text: str, logprobs: list[dict[str, Any]]) -> dict[str, Any]:
        return {"type": "output_text", "text": text, "annotations": [], "logprobs": logprobs}


class _ReasoningItem(_Base):
    """What the model thinks: as a summary for who asked for one, else as content."""

    def __init__(self, index: int, *, is_summary: bool) -> None:
        super().__init__(index, "rs_")
        self._is_summary = is_summary
        self._text: list[str] = []

    def open(self) -> list[_Told]:
        """Return the events that begin it."""
        item = {**self.value(), "summary": [], "content": []}
        opened: list[_Told] = [
            ("response.output_item.added", {"output_index": self.index, "item": item})
        ]
        if self._is_summary:
            part = self.at(summary_index=0, part={"type": "summary_text", "text": ""})
            opened.append(("response.reasoning_summary_part.added", part))
        return opened

    def add(self, text: str) -> list[_Told]:
        """Take a piece of text and return its event."""
        self._text.append(text)
        if self._is_summary:
            fields = self.at(summary_index=0, delta=text)
            return [("response.reasoning_summary_text.delta", fields)]
        return [("response.reasoning_text.delta", self.at(content_index=0, delta=text))]

    def close(self, status: str = "completed") -> list[_Told]:
        """Return the events that end it."""
        self.status = status
        text, item = "".join(self._text), self.value()
        done: _Told = ("response.output_item.done", {"output_index": self.index, "item": item})
        if not self._is_summary:
            return [("response.reasoning_text.done", self.at(content_index=0, text=text)), done]
        part = {"type": "summary_text", "text": text}
        return [
            ("response.reasoning_summary_text.done", self.at(summary_index=0, text=text)),
            ("response.reasoning_summary_part.done", self.at(summary_index=0, part=part)),
            done,
        ]

    def value(self) -> dict[str, Any]:
        """Return it as it is now."""
        text = "".join(self._text)
        summary = [{"type": "summary_text", "text": text}] if self._is_summary else []
        content = [] if self._is_summary else [{"type": "reasoning_text", "text": text}]
        return {
            "id": self.id,
            "type": "reasoning",
            "status": self.status,
            "summary": summary,
            "content": content,
        }


class _CallItem(_Base):
    """A call of a function that the client brought, in a namespace or in none."""

    def __init__(self, index: int, *, call_id: str, name: str, namespace: str = "") -> None:
        super().__init__(index, "fc_")
        self._call_id = call_id
        self._name = name
        self._namespace = namespace
        self._arguments: list[str] = []

    def open(self) -> list[_Told]:
        """Return the events that begin it."""
        item = {**self.value(), "arguments": ""}
        return [("response.output_item.added", {"output_index": self.index, "item": item})]

    def add(self, arguments: str) -> list[_Told]:
        """Take a piece of the arguments and return its event."""
        self._arguments.append(arguments)
        return [("response.function_call_arguments.delta", self.at(delta=arguments))]

    def close(self, status: str = "completed") -> list[_Told]:
        """Return the events that end it."""
        self.status = status
        events: list[_Told] = [] if self._arguments else self.add("{}")
        arguments, item = "".join(self._arguments), self.value()
        done = self.at(name=self._name, arguments=arguments)
        return [
            *events,
            ("response.function_call_arguments.done", done),
            ("response.output_item.done", {"output_index": self.index, "item": item}),
        ]

    def value(self) -> dict[str, Any]:
        """Return it as it is now."""
        return {
            "id": self.id,
            "type": "function_call",
            "status": self.status,
            "call_id": self._call_id,
            "name": self._name,
            "arguments": "".join(self._arguments),
        } | ({"namespace": self._namespace} if self._namespace else {})


class _Waiting(msgspec.Struct):
    """A call whose name is not known yet."""

    id: str = ""
    name: str = ""
    arguments: str = ""


class ResponseAnswer:
    """One answer of /v1/responses."""

    content_type = wording.STREAM_TYPE
    ping = wording.PING

    def __init__(self, asked: ResponseAsked) -> None:
        self._asked = asked
        self._id = wording.new_id("resp_")
        self._created = int(time.time())
        self._model = ""
        self._number = 0
        self._items: list[_Item] = []
        self._said: _MessageItem | None = None
        self._thought: _ReasoningItem | None = None
        self._calls: dict[int, _CallItem] = {}
        self._waiting: dict[int, _Waiting] = {}
        self._progress = wording.ProgressTold()

    def begin(self, generation: Generation) -> Iterable[bytes]:
        """Return the events that say that it has begun."""
        self._model = generation.model
        response = self._response("in_progress")
        yield self._event("response.created", {"response": response})
        yield self._event("response.in_progress", {"response": response})

    def take(self, event: GatewayEvent) -> Iterable[bytes]:
        """Return the events that tell one of clawd's."""
        match event:
            case TextDelta() | ReasoningDelta() | CallDelta():
                return self._written(self._content(event))
            case Finished():
                return self._finish(event)
            case Failed():
                return ()
            case PromptProgress() | PromptEvaluated():
                return self._prompt(event) if self._asked.progress else ()
            case _:
                return self._beside(event) if self._asked.events else ()

    def broken(self, error: Exception) -> Iterable[bytes]:
        """Return what clients raise as an error, and the response that failed."""
        told = wording.error_value(error)
        inner = told["error"]
        flat = {name: inner[name] for name in ("code", "message", "param")}
        failed = self._response("failed") | {
            "error": {"code": inner["code"], "message": message_of(error)}
        }
        yield self._event("error", told | flat)
        yield self._event("response.failed", {"response": failed})

    def whole(self, generation: Generation, answered: Answered) -> Any:
        """Return a whole response."""
        self._model = generation.model
        if answered.reasoning:
            self._content(ReasoningDelta(text=answered.reasoning))
        if answered.text:
            tokens = wording.of_content(answered.logprobs, answered.text)
            self._say(answered.text, tokens)
        for index, call in enumerate(answered.calls):
            delta = CallDelta(index=index, id=call.id, name=call.name, arguments=call.arguments)
            self._content(delta)
        self._close_all(answered.finished)
        told = wording.beside(generation.conversation_id, answered)
        response = self._ended(answered.finished)
        return response | ({"clawd": told} if told is not None else {})

    def _content(self, event: TextDelta | ReasoningDelta | CallDelta) -> list[_Told]:
        match event:
            case TextDelta():
                return self._say(event.text, wording.logprobs_of(event))
            case ReasoningDelta():
                return self._think(event.text)
            case CallDelta():
                return self._call(event)

    def _say(self, text: str, logprobs: tuple[TokenLogprob, ...]) -> list[_Told]:
        told: list[_Told] = []
        if self._said is None:
            told += self._close_thought()
            self._said = _MessageItem(len(self._items))
            self._items.append(self._said)
            told += self._said.open()
        return told + self._said.add(text, logprobs)

    def _think(self, text: str) -> list[_Told]:
        told: list[_Told] = []
        if self._thought is None:
            told += self._close_said()
            self._thought = _ReasoningItem(len(self._items), is_summary=self._asked.summarises)
            self._items.append(self._thought)
            told += self._thought.open()
        return told + self._thought.add(text)

    def _call(self, delta: CallDelta) -> list[_Told]:
        call = self._calls.get(delta.index)
        if call is not None:
            return call.add(delta.arguments) if delta.arguments else []
        waiting = self._waiting.setdefault(delta.index, _Waiting())
        waiting.id = waiting.id or delta.id
        waiting.name = waiting.name or delta.name
        waiting.arguments += delta.arguments
        told: list[_Told] = []
        # Items stand in the order of the calls, which need not be the order they begin in.
        while (index := len(self._calls)) in self._waiting and self._waiting[index].name:
            told += self._open_call(index)
        return told

    def _open_call(self, index: int) -> list[_Told]:
        waiting = self._waiting.pop(index)
        told = self._close_thought() + self._close_said()
        namespace, name = self._asked.places.get(waiting.name, ("", waiting.name))
        call_id = waiting.id or f"call_{index}"
        call = _CallItem(len(self._items), call_id=call_id, name=name, namespace=namespace)
        self._calls[index] = call
        self._items.append(call)
        told += call.open()
        return told + (call.add(waiting.arguments) if waiting.arguments else [])

    def _close_thought(self) -> list[_Told]:
        thought, self._thought = self._thought, None
        return thought.close() if thought is not None else []

    def _close_said(self, status: str = "completed") -> list[_Told]:
        said, self._said = self._said, None
        return said.close(status) if said is not None else []

    def _close_all(self, finished: Finished) -> list[_Told]:
        status = _status(finished)
        told: list[_Told] = []
        for index in sorted(self._waiting):
            told += self._open_call(index)
        told += self._close_thought()
        if not any(not isinstance(item, _ReasoningItem) for item in self._items):
            told += self._say("", ())
        told += self._close_said(status)
        calls = list(self._calls.values())
        for call in calls:
            told += call.close(status if call is calls[-1] else "completed")
        return told

    def _finish(self, finished: Finished) -> Iterable[bytes]:
        said = self._said
        if said is not None and finished.logprobs and not said.has_logprobs():
            tokens = wording.of_content(finished.logprobs, said.text)
            yield from self._written(said.add("", tokens) if tokens else [])
        yield from self._written(self._close_all(finished))
        response = self._ended(finished)
        yield self._event(f"response.{response['status']}", {"response": response})

    def _prompt(self, event: PromptProgress | PromptEvaluated) -> Iterable[bytes]:
        told = self._progress
        steps = told.finish(event) if isinstance(event, PromptEvaluated) else told.take(event)
        for step in steps:
            yield from self._beside(step)
        if isinstance(event, PromptEvaluated):
            yield from self._beside(event)

    def _beside(self, event: GatewayEvent) -> Iterable[bytes]:
        told = shown(event)
        return (self._event(*told),) if told is not None else ()

    def _written(self, told: list[_Told]) -> list[bytes]:
        return [self._event(name, fields) for name, fields in told]

    def _event(self, name: str, fields: dict[str, Any]) -> bytes:
        value = {"type": name, "sequence_number": self._number} | fields
        self._number += 1
        return wording.sse(value, name)

    def _ended(self, finished: Finished) -> dict[str, Any]:
        ended = self._response(_status(finished))
        ended["output"] = [item.value() for item in self._items]
        ended["usage"] = _usage(finished.usage)
        if finished.reason == "length":
            ended["incomplete_details"] = {"reason": "max_output_tokens"}
        return ended

    def _response(self, status: str) -> dict[str, Any]:
        return {
            "id": self._id,
            "object": "response",
            "created_at": self._created,
            "status": status,
            "background": False,
            "error": None,
            "incomplete_details": None,
            "instructions": None,
            "max_output_tokens": None,
            "metadata": {},
            "model": self._model,
            "output": [],
            "parallel_tool_calls": True,
            "previous_response_id": None,
            "store": False,
            "temperature": None,
            "text": {"format": {"type": "text"}},
            "tool_choice": "auto",
            "tools": [],
            "top_p": None,
            "truncation": "disabled",
            "usage": None,
        } | self._asked.echoed


def _status(finished: Finished) -> str:
    return "incomplete" if finished.reason == "length" else "completed"


def _usage(usage: HopUsage) -> dict[str, Any]:
    return {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens},
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
    }


async def _post_responses(request: web.Request) -> web.StreamResponse:
    """Answer POST /v1/responses."""
    asked = read_response(await read_object(request), request)
    generations = request.app[GATEWAY].generations
    generation = await generations.open(asked.request, caller_of(request))
    return await answer(request, generation, ResponseAnswer(asked), stream=asked.stream)


async def _post_input_tokens(request: web.Request) -> web.Response:
    """Answer POST /v1/responses/input_tokens."""
    asked = read_response(await read_object(request), request)
    count = await request.app[GATEWAY].generations.count(asked.request, caller_of(request))
    return web.json_response({"object": "response.input_tokens", "input_tokens": count})


ROUTES = [
    web.post("/v1/responses", _post_responses),
    web.post("/responses", _post_responses),
    web.post("/v1/responses/input_tokens", _post_input_tokens),
    web.post("/responses/input_tokens", _post_input_tokens),
]
