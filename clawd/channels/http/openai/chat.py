"""POST /v1/chat/completions, and how many tokens its prompt would have.

Writes answers as /v1/chat/completions does: a whole one, or chunks.

    data: {"id":"chatcmpl-…","object":"chat.completion.chunk","choices":[{"index":0,
           "delta":{"role":"assistant","content":""},"finish_reason":null}],…}
    data: {…"choices":[{"index":0,"delta":{"content":"Hello"},"finish_reason":null}]}
    data: {…"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}
    data: [DONE]

What clawd does beside an answer comes as chunks without choices, and only to who asked.
"""

import time
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from aiohttp import web

from clawd.channels.http.answering import answer_many, open_many
from clawd.channels.http.app import GATEWAY, caller_of
from clawd.channels.http.body import field, invalid, read_object
from clawd.channels.http.header_options import shown, wants_events, with_header_options
from clawd.channels.http.model_api import Answered, GatewayEvent, Generation, ModelRequest
from clawd.channels.http.openai import wording
from clawd.channels.http.openai.fields import (
    MAX_TOP_LOGPROBS,
    flag,
    flags_of,
    read_choice,
    read_choices,
    read_format,
    read_request,
    read_sampling,
    read_tools,
    refuse,
    with_token_ids,
)
from clawd.channels.http.openai.messages import read_messages
from clawd.engine.protocol import TokenLogprob
from clawd.providers.base import CallDelta, Failed, Finished, Sampling, StopReason
from clawd.wire.events import HopUsage, PromptEvaluated, PromptProgress, ReasoningDelta, TextDelta

# The body of /v1/chat/completions as clawd's own request, and how the client wants it told.

LIMITS = ("max_completion_tokens", "max_tokens", "n_predict")


class AnswerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a client wants an answer told.

    Attributes:
        stream: piece by piece.
        usage: tokens, in a chunk of their own at the end of a stream.
        events: what clawd does beside the answer.
        progress: events about the evaluation of the prompt.
        llama_progress: the same in llama.cpp's words.
        echo: the prompt's text before the answer's.
    """

    stream: bool = False
    usage: bool = False
    events: bool = False
    progress: bool = False
    llama_progress: bool = False
    echo: bool = False


class ChatAsked(msgspec.Struct, frozen=True, kw_only=True):
    """A request, how many answers are wanted, and how to tell them."""

    request: ModelRequest
    choices: int
    telling: AnswerOptions


def read_chat(body: dict[str, Any], request: web.Request) -> ChatAsked:
    """Return what a chat body asks for.

    Raises:
        InvalidRequestError: a field cannot be meant; the error names it.
    """
    _refuse_unsupported(body)
    history = read_messages(body)
    choice, tools = read_choice(body, read_tools(body))
    sampling = _with_logprobs(body, read_sampling(body, limits=LIMITS))
    answer_format = read_format(body)
    telling = read_telling(body, request)
    asked = msgspec.structs.replace(
        read_request(body, history, tools=tools, choice=choice, sampling=sampling),
        response_format=answer_format,
        wants_progress=telling.progress or telling.llama_progress,
    )
    return ChatAsked(
        request=with_header_options(asked, request, body),
        choices=read_choices(body),
        telling=telling,
    )


def repeated(request: ModelRequest, count: int) -> list[ModelRequest]:
    """Return a request so often; each has a seed of its own where the request has one."""
    if count == 1:
        return [request]
    sampling = request.sampling
    seeds = [None if sampling.seed is None else sampling.seed + number for number in range(count)]
    return [
        msgspec.structs.replace(
            request, is_plain=True, sampling=msgspec.structs.replace(sampling, seed=seed)
        )
        for seed in seeds
    ]


def read_telling(body: dict[str, Any], request: web.Request) -> AnswerOptions:
    """Return how an answer is to be told.

    Raises:
        InvalidRequestError: a field is of another type.
    """
    options = flags_of(body, "stream_options")
    events = flag(options, "clawd_events", default=wants_events(request), at="stream_options")
    return AnswerOptions(
        stream=flag(body, "stream"),
        usage=flag(options, "include_usage", at="stream_options"),
        events=events,
        progress=flag(options, "clawd_prompt_progress", default=events, at="stream_options"),
        llama_progress=flag(body, "return_progress"),
    )


def _with_logprobs(body: dict[str, Any], sampling: Sampling) -> Sampling:
    """Return the sampling with the log probabilities that a chat body asks for.

    Raises:
        InvalidRequestError: more than there can be, or the likeliest without any.
    """
    wanted = flag(body, "logprobs")
    top = field(body, "top_logprobs", int, 0)
    if not 0 <= top <= MAX_TOP_LOGPROBS:
        raise invalid("top_logprobs", f"is {top}, expected 0 to {MAX_TOP_LOGPROBS}")
    if top and not wanted:
        raise invalid("top_logprobs", "needs logprobs to be true")
    if not wanted:
        return sampling
    return msgspec.structs.replace(sampling, logprobs=True, top_logprobs=top)


def _refuse_unsupported(body: dict[str, Any]) -> None:
    refuse(body, "grammar", "is not supported", "Use response_format with a JSON Schema.")
    refuse(body, "functions", "is the old form", "Use tools.")
    modalities = field(body, "modalities", list[Any], [])
    if any(each != "text" for each in modalities):
        raise invalid("modalities", "only text can be answered")


class _Call(msgspec.Struct):
    """A call in a stream; its arguments wait until its name is known."""

    id: str = ""
    name: str = ""
    waiting: str = ""
    is_open: bool = False
    has_arguments: bool = False


class _Choice:
    """One choice of a stream."""

    def __init__(self) -> None:
        self.text: list[str] = []
        self.told_logprobs = 0
        self.calls: dict[int, _Call] = {}
        self.evaluated: PromptEvaluated | None = None

    def take_call(self, delta: CallDelta) -> list[dict[str, Any]]:
        """Return what of a call is to be told now: id and name once, then pieces."""
        call = self.calls.setdefault(delta.index, _Call())
        call.id = call.id or delta.id
        call.name = call.name or delta.name
        call.waiting += delta.arguments
        return self._pieces(delta.index, call) if call.name else []

    def close_calls(self) -> list[dict[str, Any]]:
        """Return what is left to tell of the calls; arguments are never nothing."""
        pieces: list[dict[str, Any]] = []
        for index, call in sorted(self.calls.items()):
            if not call.has_arguments and not call.waiting:
                call.waiting = "{}"
            pieces += self._pieces(index, call)
        return pieces

    @staticmethod
    def _pieces(index: int, call: _Call) -> list[dict[str, Any]]:
        pieces: list[dict[str, Any]] = []
        if not call.is_open:
            call.is_open = True
            opening = {"name": call.name, "arguments": ""}
            call_id = call.id or f"call_{index}"
            pieces.append({"index": index, "id": call_id, "type": "function", "function": opening})
        if call.waiting:
            pieces.append({"index": index, "function": {"arguments": call.waiting}})
            call.waiting, call.has_arguments = "", True
        return pieces


class ChatAnswer:
    """One answer of /v1/chat/completions."""

    content_type = wording.STREAM_TYPE
    ping = wording.PING

    def __init__(self, telling: AnswerOptions, *, choices: int = 1) -> None:
        self._telling = telling
        self._id = wording.new_id("chatcmpl-")
        self._created = int(time.time())
        self._model = ""
        self._choices = [_Choice() for _ in range(choices)]
        self._usages = [HopUsage()] * choices
        self._progress = wording.ProgressTold()

    def begin(self, generations: Sequence[Generation]) -> Iterable[bytes]:
        """Return the first chunk of every choice: its role."""
        self._model = generations[0].model
        for index in range(len(self._choices)):
            yield self._chunk(index, {"role": "assistant", "content": ""})

    def take(self, number: int, event: GatewayEvent) -> Iterable[bytes]:
        """Return the chunks of an event of a choice."""
        if isinstance(event, Finished):
            self._usages[number] = event.usage
            return self._finish(number, event)
        return self._told(number, event)

    def end(self) -> Iterable[bytes]:
        """Return what closes the stream."""
        if self._telling.usage:
            usage = wording.usage_value(self._usages, choices=len(self._choices))
            yield wording.sse(self._frame([]) | {"usage": usage})
        yield wording.DONE

    def broken(self, error: Exception) -> Iterable[bytes]:
        """Return what every client raises as an error."""
        return (wording.sse(wording.error_value(error)),)

    def whole(self, generations: Sequence[Generation], answers: Sequence[Answered]) -> Any:
        """Return a whole completion."""
        first = generations[0]
        told: dict[str, Any] = {
            "id": self._id,
            "object": "chat.completion",
            "created": self._created,
            "model": first.model,
            "system_fingerprint": wording.FINGERPRINT,
            "choices": [_choice(index, each) for index, each in enumerate(answers)],
            "usage": wording.usage_value([each.usage for each in answers], choices=len(answers)),
        }
        timings = wording.timings_value(answers[0].evaluated, answers[0].finished)
        extras = {"timings": timings, "clawd": wording.beside(first.conversation_id, answers[0])}
        return told | {name: value for name, value in extras.items() if value is not None}

    def _told(self, index: int, event: GatewayEvent) -> Iterable[bytes]:
        choice = self._choices[index]
        match event:
            case TextDelta():
                choice.text.append(event.text)
                tokens = wording.logprobs_of(event)
                choice.told_logprobs += len(tokens)
                yield self._chunk(index, {"content": event.text}, logprobs=tokens)
            case ReasoningDelta():
                yield self._chunk(index, {"reasoning_content": event.text})
            case CallDelta():
                for piece in choice.take_call(event):
                    yield self._chunk(index, {"tool_calls": [piece]})
            case Failed() | Finished():
                pass
            case PromptProgress() | PromptEvaluated():
                choice.evaluated = event if isinstance(event, PromptEvaluated) else choice.evaluated
                if index == 0:
                    yield from self._prompt(event)
            case _:
                if self._telling.events:
                    yield self._beside(event)

    def _prompt(self, event: PromptProgress | PromptEvaluated) -> Iterable[bytes]:
        told = self._progress
        steps = told.finish(event) if isinstance(event, PromptEvaluated) else told.take(event)
        for step in steps:
            if self._telling.llama_progress:
                yield wording.sse(self._frame([]) | {"prompt_progress": told.value(step)})
            if self._telling.progress:
                yield self._beside(step)
        if isinstance(event, PromptEvaluated) and self._telling.progress:
            yield self._beside(event)

    def _finish(self, index: int, finished: Finished) -> list[bytes]:
        choice = self._choices[index]
        chunks = [self._chunk(index, {"tool_calls": [piece]}) for piece in choice.close_calls()]
        if finished.logprobs and not choice.told_logprobs:
            tokens = wording.of_content(finished.logprobs, "".join(choice.text))
            if tokens:
                chunks.append(self._chunk(index, {"content": ""}, logprobs=tokens))
        reason = _stop_word(finished.reason, has_calls=bool(choice.calls))
        chunks.append(self._last(index, finished, reason))
        return chunks

    def _last(self, index: int, finished: Finished, reason: str) -> bytes:
        frame = self._frame(
            [{"index": index, "delta": {}, "logprobs": None, "finish_reason": reason}]
        )
        timings = wording.timings_value(self._choices[index].evaluated, finished)
        return wording.sse(frame | ({"timings": timings} if timings is not None else {}))

    def _chunk(
        self, index: int, delta: dict[str, Any], *, logprobs: tuple[TokenLogprob, ...] = ()
    ) -> bytes:
        told = (
            {"content": [wording.logprob_value(token) for token in logprobs]} if logprobs else None
        )
        choice = {"index": index, "delta": delta, "logprobs": told, "finish_reason": None}
        return wording.sse(self._frame([choice]))

    def _beside(self, event: GatewayEvent) -> bytes:
        name, fields = shown(event) or ("clawd.event", {})
        return wording.sse(self._frame([]) | {"clawd": {"event": name, **fields}})

    def _frame(self, choices: list[Any]) -> dict[str, Any]:
        return {
            "id": self._id,
            "object": "chat.completion.chunk",
            "created": self._created,
            "model": self._model,
            "system_fingerprint": wording.FINGERPRINT,
            "choices": choices,
        }


def _stop_word(reason: StopReason, *, has_calls: bool) -> str:
    """Return why an answer ended, in OpenAI's words."""
    if reason == "length":
        return "length"
    return "tool_calls" if has_calls else "stop"


def _choice(index: int, answered: Answered) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": answered.text}
    if answered.reasoning:
        message["reasoning_content"] = answered.reasoning
    if answered.calls:
        message["content"] = answered.text or None
        message["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for call in answered.calls
        ]
    tokens = wording.of_content(answered.logprobs, answered.text)
    told = {"content": [wording.logprob_value(token) for token in tokens]} if tokens else None
    reason = _stop_word(answered.finished.reason, has_calls=bool(answered.calls))
    return {"index": index, "message": message, "logprobs": told, "finish_reason": reason}


async def _post_chat(request: web.Request) -> web.StreamResponse:
    """Answer POST /v1/chat/completions."""
    gateway = request.app[GATEWAY]
    asked = read_chat(await with_token_ids(gateway, await read_object(request)), request)
    wanted = repeated(asked.request, asked.choices)
    opened = await open_many(gateway.generations, wanted, caller_of(request))
    dialect = ChatAnswer(asked.telling, choices=asked.choices)
    return await answer_many(request, opened, dialect, stream=asked.telling.stream)


async def _post_input_tokens(request: web.Request) -> web.Response:
    """Answer POST /v1/chat/completions/input_tokens."""
    asked = read_chat(await read_object(request), request)
    count = await request.app[GATEWAY].generations.count(asked.request, caller_of(request))
    return web.json_response({"object": "response.input_tokens", "input_tokens": count})


ROUTES = [
    web.post("/v1/chat/completions", _post_chat),
    web.post("/chat/completions", _post_chat),
    web.post("/v1/chat/completions/input_tokens", _post_input_tokens),
    web.post("/chat/completions/input_tokens", _post_input_tokens),
]
