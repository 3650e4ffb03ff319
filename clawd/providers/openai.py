"""The `openai-compatible` provider: any server that speaks /chat/completions, streaming or not.

Requests as the JSON body of /chat/completions, /completions or /embeddings; chunks, or one whole
completion, to deltas, tolerant of what servers do.
"""

import logging
import secrets
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any, Literal

import msgspec
import numpy as np

from clawd.errors import InvalidRequestError, ProviderError
from clawd.providers.abilities import Vectors, Vision, sees_by_name
from clawd.providers.base import (
    CallDelta,
    Capabilities,
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
    without_tool_role,
)
from clawd.providers.http import (
    Connections,
    HttpServer,
    HttpSettings,
    check_address,
    check_key,
    with_counts,
)
from clawd.providers.presets import SHARED, with_preset
from clawd.providers.reliable import RetrySettings
from clawd.wire.events import HopUsage, ReasoningDelta, TextDelta

_FIELDS = (
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "typical_p",
    "repeat_penalty",
    "frequency_penalty",
    "presence_penalty",
    "seed",
    "dry_multiplier",
    "dry_base",
    "dry_allowed_length",
    "xtc_probability",
    "xtc_threshold",
)
_CHOICES = frozenset({"none", "required"})
DONE = "[DONE]"
_SHOWN_CHARS = 400
_log = logging.getLogger(__name__)


class OpenAISettings(msgspec.Struct, frozen=True, kw_only=True):
    """One server. The key is not in here, so that it is in no dump of the settings.

    Attributes:
        base_url: up to and without `/chat/completions`, usually ending with `/v1`.
        use_tool_role: False turns tool turns into text of the next user turn.
        tools: False for a model that can call none: none are offered to it.
        vision: whether its models see pictures; `auto` is by their names.
        first_byte_timeout_s: from the request to the first byte of a stream's body.
        read_timeout_s: between bytes; without streaming also to the first byte.
    """

    name: str
    base_url: str
    model: str
    stream: bool = True
    use_tool_role: bool = True
    tools: bool = True
    vision: Vision = "auto"
    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    context_size: int = 0
    connect_timeout_s: float = 10.0
    first_byte_timeout_s: float = 120.0
    read_timeout_s: float = 1800.0
    retry: RetrySettings = RetrySettings()


class OpenAICompatibleProvider:
    """Answers with a server that speaks OpenAI's chat completions."""

    def __init__(self, settings: OpenAISettings, *, api_key: str = "") -> None:
        check_address(settings.name, settings.base_url)
        check_key(settings.name, api_key)
        self._settings = settings
        self._key = api_key
        self._url = settings.base_url.rstrip("/")
        headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._connections = Connections(headers, settings.connect_timeout_s)
        self._server = self._server_of(self._connections)

    def name(self) -> str:
        """Return the name under which the config knows it."""
        return self._settings.name

    def capabilities(self) -> Capabilities:
        """Return what it can do."""
        settings = self._settings
        return Capabilities(
            streaming=settings.stream, tools=settings.tools, context_size=settings.context_size
        )

    def sees(self, model: str) -> bool:
        """Return whether a model sees pictures."""
        return sees_by_name(self._settings.vision, model or self._settings.model)

    def without_retries(self) -> "OpenAICompatibleProvider":
        """Return one that shares the connections and never tries again; for chains."""
        once = msgspec.structs.replace(self._settings, retry=RetrySettings(extra_attempts=0))
        other = OpenAICompatibleProvider(once, api_key=self._key)
        other._connections = self._connections
        other._server = other._server_of(self._connections)
        return other

    async def chat(self, request: ChatRequest) -> AsyncGenerator[Delta, None]:
        """Answer one request; tried again only before the first byte."""
        settings = self._settings
        model = request.model or settings.model
        answer = OpenAIAnswer(settings.name, model)
        try:
            body = build_body(
                request if settings.tools else msgspec.structs.replace(request, tools=()),
                model=model,
                stream=settings.stream,
                use_tool_role=settings.use_tool_role and settings.tools,
                max_tokens_field=settings.max_tokens_field,
            )
        except InvalidRequestError as error:
            yield Failed(error=error)
            return
        try:
            path = "/chat/completions" if request.prompt is None else "/completions"
            async with aclosing(self._server.chat(path, body, answer)) as deltas:
                async for delta in deltas:
                    yield delta
        except ProviderError as error:
            yield Failed(error=with_counts(error), partial=answer.has_content)

    async def embed(self, model: str, inputs: Sequence[RawPrompt]) -> Vectors:
        """Return a vector of each input, in their order.

        Raises:
            ProviderError: the server cannot be reached, refuses, or answers something else.
            ContextFullError: an input is too long.
        """
        name = model or self._settings.model
        if not inputs:
            return Vectors(vectors=(), tokens=0, model=name)
        try:
            data = await self._server.post("/embeddings", _embedding_body(name, inputs))
        except ProviderError as error:
            raise with_counts(error) from error
        return vectors_of(data, len(inputs), name)

    async def check(self) -> str:
        """Ask for the list of models.

        Raises:
            ProviderError: the server cannot be reached or refuses.
        """
        return await self._server.listed("/models", model=self._settings.model)

    async def close(self) -> None:
        """Close the connections."""
        await self._connections.close()

    def _server_of(self, connections: Connections) -> HttpServer:
        settings = self._settings
        http = HttpSettings(
            name=settings.name,
            url=self._url,
            streams=settings.stream,
            connect_timeout_s=settings.connect_timeout_s,
            first_byte_timeout_s=settings.first_byte_timeout_s,
            read_timeout_s=settings.read_timeout_s,
            retry=settings.retry,
        )
        return HttpServer(http, connections, self._key)


def build_body(
    request: ChatRequest,
    *,
    model: str,
    stream: bool,
    use_tool_role: bool = True,
    max_tokens_field: str = "max_tokens",
) -> dict[str, Any]:
    """Return the body; a field that was not asked for is left to the server."""
    streaming: dict[str, Any] = {"stream": stream}
    if stream:
        streaming["stream_options"] = {"include_usage": True}
    if request.prompt is not None:
        return _raw_body(request, model, max_tokens_field) | streaming
    history = request.messages if use_tool_role else without_tool_role(request.messages)
    messages = _messages(history)
    if request.system:
        messages.insert(0, {"role": "system", "content": request.system})
    body: dict[str, Any] = {"model": model, "messages": messages} | streaming
    body |= _sampling(request, max_tokens_field)
    if request.tools:
        body["tools"] = [_tool(tool) for tool in (*request.tools, *request.found)]
        if request.tool_choice != "auto":
            body["tool_choice"] = _choice(request.tool_choice)
        if request.parallel_calls is not None:
            body["parallel_tool_calls"] = request.parallel_calls
    if request.response_format is not None:
        body["response_format"] = request.response_format
    return body


def _raw_body(request: ChatRequest, model: str, max_tokens_field: str) -> dict[str, Any]:
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
    body = {"model": model} | given | _sampling(request, max_tokens_field)
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


def _sampling(request: ChatRequest, max_tokens_field: str) -> dict[str, Any]:
    wishes = request.sampling or Sampling()
    preset = with_preset(wishes)
    fields: dict[str, Any] = {name: getattr(preset, name) for name in SHARED}
    fields |= {name: getattr(wishes, name) for name in _FIELDS if name not in fields}
    fields = {name: value for name, value in fields.items() if value is not None}
    if request.temperature is not None:
        fields["temperature"] = request.temperature
    if wishes.max_tokens is not None:
        fields[max_tokens_field] = wishes.max_tokens
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


class OpenAIAnswer:
    """One answer on its way.

    `has_content` says whether text, reasoning or a call came, `has_reason` whether the server said
    why it ended, `is_done` whether it said that nothing follows.
    """

    def __init__(self, provider: str, model: str) -> None:
        self.has_content = False
        self.has_reason = False
        self.is_done = False
        self.missed_index = False
        self._provider = provider
        self._model = model
        self._calls: dict[int, _OpenCall] = {}
        self._unindexed = 0
        self._reason = ""
        self._usage = HopUsage()
        self._last = ""
        self._first_at = 0.0

    def take(self, data: str) -> list[Delta]:
        """Take the data of one event, or a whole completion.

        Raises:
            ProviderError: it is not JSON of this kind, or reports an error.
        """
        if data.strip() == DONE:
            self.is_done = True
            return []
        chunk = self._decode(data)
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
        if deltas and not self.has_content:
            self.has_content = True
            self._first_at = time.monotonic()
        return deltas

    def finish(self) -> list[Delta]:
        """Take the end of the answer.

        Raises:
            ProviderError: the server ended it without saying that it is complete.
        """
        if not (self.has_reason or self.is_done):
            raise ProviderError(
                "the connection ended before the answer was complete", kind="network"
            )
        deltas: list[Delta] = []
        for index, call in self._calls.items():
            deltas += self._open(index, call, is_last=True)
        elapsed_s = time.monotonic() - self._first_at if self.has_content else 0.0
        speed = self._usage.completion_tokens / elapsed_s if elapsed_s > 0 else 0.0
        finished = Finished(
            reason=self._stop_reason(),
            usage=msgspec.structs.replace(self._usage, tokens_per_s=speed),
            provider=self._provider,
            model=self._model,
            raw=msgspec.json.decode(self._last) if self._last else None,
        )
        return [*deltas, finished]

    def _decode(self, data: str) -> _Chunk:
        try:
            return _decoder.decode(data)
        except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
            raise ProviderError(
                f"the server sent what is no chat completion ({error}): {data[:_SHOWN_CHARS]}",
                kind="invalid",
                hint="Check base_url: it usually ends with /v1.",
            ) from error

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
        if not self.missed_index:
            self.missed_index = True
            _log.info("provider %s sends tool calls without index", self._provider)
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
        f"the server reported: {message[:_SHOWN_CHARS]}",
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
