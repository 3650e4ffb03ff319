"""The `openai-compatible` provider: any server that speaks /chat/completions, streaming or not.

Requests as the JSON body of /chat/completions, /completions or /embeddings; chunks, or one whole
completion, to deltas, tolerant of what servers do.
"""

import secrets
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any

import msgspec
import numpy as np
from typing_extensions import override

from clawd.errors import InvalidRequestError, ProviderError
from clawd.providers.base import (
    CallDelta,
    ChatRequest,
    Delta,
    Failed,
    Finished,
    Infill,
    Message,
    RawPrompt,
    Sampling,
    StopReason,
    ToolCall,
    ToolSpec,
    Vectors,
    without_tool_role,
)
from clawd.providers.http import (
    SHOWN_CHARS,
    AnswerReader,
    HttpProvider,
    decoded,
    with_counts,
)
from clawd.providers.presets import SHARED, with_preset
from clawd.wire.events import HopUsage, ReasoningDelta, TextDelta

_FIELDS = (
    "temperature", "top_p", "top_k", "min_p", "typical_p", "repeat_penalty", "frequency_penalty",
    "presence_penalty", "seed", "dry_multiplier", "dry_base", "dry_allowed_length",
    "xtc_probability", "xtc_threshold",
)  # fmt: skip
_CHOICES = frozenset({"none", "required"})
DONE = "[DONE]"


class OpenAICompatibleProvider(HttpProvider):
    """Answers with a server that speaks OpenAI's chat completions."""

    @override
    def _headers(self, key: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {key}"} if key else {}

    @override
    async def chat(self, request: ChatRequest) -> AsyncGenerator[Delta, None]:
        section = self._section
        model = request.model or section.model
        answer = OpenAIAnswer(self._name, model)
        try:
            body = build_body(
                request if section.tools else msgspec.structs.replace(request, tools=()),
                model=model,
                stream=section.stream,
                use_tool_role=section.use_tool_role and section.tools,
            )
            path = "/chat/completions" if request.prompt is None else "/completions"
            async with aclosing(self._ask(path, body, answer)) as deltas:
                async for delta in deltas:
                    yield delta
        except (ProviderError, InvalidRequestError) as error:
            yield Failed(error=with_counts(error), partial=answer.has_content)

    async def embed(self, model: str, inputs: Sequence[RawPrompt]) -> Vectors:
        """Return a vector of each input, in their order.

        Raises:
            ProviderError: the server cannot be reached, refuses, or answers something else.
            ContextFullError: an input is too long.
        """
        name = model or self._section.model
        if not inputs:
            return Vectors(vectors=(), tokens=0, model=name)
        try:
            data = await self._post("/embeddings", _embedding_body(name, inputs))
        except ProviderError as error:
            raise with_counts(error) from error
        return vectors_of(data, len(inputs), name)


def build_body(
    request: ChatRequest,
    *,
    model: str,
    stream: bool,
    use_tool_role: bool = True,
) -> dict[str, Any]:
    """Return the body; a field that was not asked for is left to the server."""
    streaming: dict[str, Any] = {"stream": stream}
    if stream:
        streaming["stream_options"] = {"include_usage": True}
    if request.prompt is not None:
        return _raw_body(request, model) | streaming
    history = request.messages if use_tool_role else without_tool_role(request.messages)
    messages = _messages(history)
    if request.system:
        messages.insert(0, {"role": "system", "content": request.system})
    body: dict[str, Any] = {"model": model, "messages": messages} | streaming
    body |= _sampling(request)
    if request.tools:
        body["tools"] = [_tool(tool) for tool in (*request.tools, *request.found)]
        if request.tool_choice != "auto":
            body["tool_choice"] = _choice(request.tool_choice)
        if request.parallel_calls is not None:
            body["parallel_tool_calls"] = request.parallel_calls
    if request.response_format is not None:
        body["response_format"] = request.response_format
    return body


def _raw_body(request: ChatRequest, model: str) -> dict[str, Any]:
    """Return the body of /completions, without what is about streams."""
    prompt = request.prompt
    if isinstance(prompt, Infill):
        if prompt.files or prompt.begun:
            raise InvalidRequestError(
                "a gap with other files or a beginning can be filled in by a model of this machine",
                hint="Send what stands before and behind the gap alone.",
            )
        given: dict[str, Any] = {"prompt": prompt.prefix, "suffix": prompt.suffix}
    else:
        given = {"prompt": prompt if isinstance(prompt, str) else list(prompt or ())}
    body = {"model": model} | given | _sampling(request)
    if request.response_format is not None:
        body["response_format"] = request.response_format
    return body


def _messages(history: Sequence[Message]) -> list[dict[str, Any]]:
    """Return the messages; a result is text alone, so its pictures follow as what a user says."""
    messages: list[dict[str, Any]] = []
    waiting: list[dict[str, Any]] = []
    for message in history:
        if message.role != "tool" and waiting:
            messages.append({"role": "user", "content": waiting})
            waiting = []
        messages.append(_message(message))
        if message.role == "tool" and message.pictures:
            waiting += [_said(f"[pictures of tool: {message.name}]"), *_seen(message)]
    return [*messages, {"role": "user", "content": waiting}] if waiting else messages


def _seen(message: Message) -> list[dict[str, Any]]:
    return [
        {"type": "image_url", "image_url": {"url": picture.data_url}}
        for picture in message.pictures
    ]


def _said(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _message(message: Message) -> dict[str, Any]:
    content = message.content or ""
    if message.role == "tool":
        return {"role": "tool", "tool_call_id": message.tool_call_id, "content": content}
    if message.pictures:
        said = [_said(content)] if content else []
        return {"role": message.role, "content": [*_seen(message), *said]}
    if not message.tool_calls:
        return {"role": message.role, "content": content}
    calls = [_call(call) for call in message.tool_calls]
    return {"role": message.role, "content": content or None, "tool_calls": calls}


def _call(call: ToolCall) -> dict[str, Any]:
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": call.id, "type": "function", "function": function}


def _tool(tool: ToolSpec) -> dict[str, Any]:
    function = {
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.parameters,
    }
    return {"type": "function", "function": function}


def _choice(choice: str) -> str | dict[str, Any]:
    if choice in _CHOICES:
        return choice
    return {"type": "function", "function": {"name": choice}}


def _sampling(request: ChatRequest) -> dict[str, Any]:
    wishes = request.sampling or Sampling()
    preset = with_preset(wishes)
    fields: dict[str, Any] = {name: getattr(preset, name) for name in SHARED}
    fields |= {name: getattr(wishes, name) for name in _FIELDS if name not in fields}
    fields = {name: value for name, value in fields.items() if value is not None}
    if request.temperature is not None:
        fields["temperature"] = request.temperature
    if wishes.max_tokens is not None:
        fields["max_tokens"] = wishes.max_tokens
    if wishes.logit_bias:
        fields["logit_bias"] = {str(token): bias for token, bias in wishes.logit_bias.items()}
    if wishes.stop:
        fields["stop"] = list(wishes.stop)
    return fields


class _Function(msgspec.Struct, frozen=True, kw_only=True):
    name: str | None = None
    arguments: str | dict[str, Any] | None = None


class _CallPiece(msgspec.Struct, frozen=True, kw_only=True):
    index: int | None = None
    id: str | None = None
    function: _Function | None = None


class _Message(msgspec.Struct, frozen=True, kw_only=True):
    content: str | list[dict[str, Any]] | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[_CallPiece] | None = None


class _Choice(msgspec.Struct, frozen=True, kw_only=True):
    delta: _Message | None = None
    message: _Message | None = None
    text: str | None = None
    finish_reason: str | None = None


class _Chunk(msgspec.Struct, frozen=True, kw_only=True):
    choices: list[_Choice] | None = None
    usage: dict[str, Any] | None = None
    model: str | None = None
    error: Any = None


_decoder = msgspec.json.Decoder(_Chunk)


class _OpenCall:
    """A call whose pieces come in; it is opened for the reader once its name is known."""

    def __init__(self) -> None:
        self.id = ""
        self.name = ""
        self.waiting: list[str] = []
        self.is_open = False


class OpenAIAnswer(AnswerReader):
    """One answer on its way, which ends with a chunk or with `[DONE]`."""

    def __init__(self, provider: str, model: str) -> None:
        super().__init__(provider, model)
        self._calls: dict[int, _OpenCall] = {}
        self._unindexed = 0
        self._reason = ""
        self._usage = HopUsage()
        self._last = ""

    @override
    def _read(self, data: str) -> list[Delta]:
        if data.strip() == DONE:
            self.is_done = True
            return []
        chunk = decoded(
            _decoder, data, what="chat completion", hint="Check base_url: it usually ends with /v1."
        )
        if chunk.error is not None:
            raise _reported(chunk.error)
        self._last = data
        self._model = chunk.model or self._model
        self._usage = _usage(chunk.usage) if chunk.usage else self._usage
        deltas: list[Delta] = []
        for choice in (chunk.choices or [])[:1]:
            if message := choice.delta or choice.message:
                deltas += self._take_message(message)
            elif choice.text:
                deltas.append(TextDelta(text=choice.text))  # of a raw prompt
            if choice.finish_reason:
                self.has_reason = True
                self._reason = choice.finish_reason
        return deltas

    @override
    def _end(self) -> list[Delta]:
        deltas: list[Delta] = []
        for index, call in self._calls.items():
            deltas += self._open(index, call, is_last=True)
        finished = Finished(
            reason=self._stop_reason(),
            usage=self._timed(self._usage),
            provider=self._provider,
            model=self._model,
            raw=msgspec.json.decode(self._last) if self._last else None,
        )
        return [*deltas, finished]

    def _take_message(self, message: _Message) -> list[Delta]:
        deltas: list[Delta] = []
        if reasoning := message.reasoning_content or message.reasoning:
            deltas.append(ReasoningDelta(text=reasoning))
        if text := _text(message.content):
            deltas.append(TextDelta(text=text))
        for piece in message.tool_calls or []:
            deltas += self._take_piece(piece)
        return deltas

    def _take_piece(self, piece: _CallPiece) -> list[Delta]:
        index = self._index(piece)
        call = self._calls.setdefault(index, _OpenCall())
        function = piece.function or _Function()
        call.id = call.id or piece.id or ""
        call.name = call.name or function.name or ""
        arguments = function.arguments
        if isinstance(arguments, dict):
            arguments = msgspec.json.encode(arguments).decode("utf-8")
        if arguments:
            call.waiting.append(arguments)
        return self._open(index, call) if call.name else []

    def _index(self, piece: _CallPiece) -> int:
        """Return the call's index; a missing one is 0, or the next for another whole call."""
        if piece.index is not None:
            return piece.index
        self._miss_index("tool calls")
        known = self._calls.get(self._unindexed)
        if known is not None and piece.id and known.id and piece.id != known.id:
            self._unindexed = max(self._calls) + 1
        return self._unindexed

    def _open(self, index: int, call: _OpenCall, *, is_last: bool = False) -> list[Delta]:
        """Emit what waits of a call; id and name once."""
        arguments = "".join(call.waiting)
        call.waiting.clear()
        if call.is_open:
            return [CallDelta(index=index, arguments=arguments)] if arguments else []
        call.is_open = bool(call.name) or is_last
        call.id = call.id or f"call_{secrets.token_hex(6)}"
        return [CallDelta(index=index, id=call.id, name=call.name, arguments=arguments)]

    def _stop_reason(self) -> StopReason:
        if self._reason == "length":
            return "length"
        return "tool_calls" if self._calls else "stop"


def _text(content: str | list[dict[str, Any]] | None) -> str:
    if isinstance(content, list):
        texts = [part.get("text") for part in content if part.get("type") == "text"]
        return "".join(text for text in texts if isinstance(text, str))
    return content or ""


def _usage(usage: dict[str, Any]) -> HopUsage:
    details = usage.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, dict) else None
    return HopUsage(
        prompt_tokens=_count(usage.get("prompt_tokens")),
        cached_tokens=_count(cached),
        completion_tokens=_count(usage.get("completion_tokens")),
    )


def _count(value: object) -> int:
    return int(value) if isinstance(value, int | float) and value > 0 else 0


def _reported(error: object) -> ProviderError:
    """Make an error of `{"error": …}`, which comes with status 200 once a stream has begun."""
    message, code = str(error), None
    if isinstance(error, dict):
        message, code = str(error.get("message") or error), error.get("code")
    return ProviderError(
        f"the server reported: {message[:SHOWN_CHARS]}",
        kind="http",
        status=code if isinstance(code, int) else 0,
    )


class _Vector(msgspec.Struct, frozen=True, kw_only=True):
    embedding: list[float]
    index: int | None = None


class _Usage(msgspec.Struct, frozen=True, kw_only=True):
    prompt_tokens: int = 0


class _Answer(msgspec.Struct, frozen=True, kw_only=True):
    data: list[_Vector]
    model: str | None = None
    usage: _Usage | None = None


def _embedding_body(model: str, inputs: Sequence[RawPrompt]) -> dict[str, Any]:
    """Return the body; numbers as text, which every server writes."""
    given = [each if isinstance(each, str) else list(each) for each in inputs]
    return {"model": model, "input": given, "encoding_format": "float"}


def vectors_of(data: bytes, count: int, model: str) -> Vectors:
    """Return the vectors of an answer in the order of the inputs, of length 1.

    Raises:
        ProviderError: it is no such answer, or not of so many inputs.
    """
    try:
        answer = msgspec.json.decode(data, type=_Answer)
    except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
        raise ProviderError(
            f"the server sent what are no embeddings: {error}",
            kind="invalid",
            hint="Does this server have /embeddings, and the model make them?",
        ) from error
    given = [
        (each.index if each.index is not None else place, each)
        for place, each in enumerate(answer.data)
    ]
    found = {index: each.embedding for index, each in given}
    if len(given) != count or sorted(found) != list(range(count)):
        raise ProviderError(
            f"the server sent {len(given)} embeddings for {count} inputs", kind="invalid"
        )
    usage = answer.usage or _Usage()
    vectors = tuple(_normalised(found[index]) for index in range(count))
    return Vectors(vectors=vectors, tokens=max(usage.prompt_tokens, 0), model=answer.model or model)


def _normalised(numbers: list[float]) -> bytes:
    values = np.array(numbers, dtype=np.float64)
    length = float(np.linalg.norm(values))
    return (values / (length or 1.0)).astype("<f4").tobytes()
