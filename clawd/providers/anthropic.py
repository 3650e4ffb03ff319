"""The `anthropic` provider: any server that speaks Anthropic's /v1/messages, streaming or not.

A request is a JSON body:

    system, tools        blocks of their own, before the messages
    user, tool           one user message: results first, then what the user said
    assistant            [thinking] text, tool_use

User and assistant take turns strictly, no text is blank, every `tool_use` has its `tool_result` in
the next message. What is stable is marked for the server's prompt cache: the tools, the system
prompt and the last two user messages, so that the next request begins where this one ends.

Message events, or one whole message, become deltas, tolerant of what servers do:

    message_start       usage of the prompt
    content_block_start {"index": 0, "content_block": {"type": "tool_use", "id": …, "name": …}}
    content_block_delta {"index": 0, "delta": {"type": "input_json_delta", "partial_json": …}}
    content_block_stop
    message_delta       stop_reason, usage of the answer
    message_stop
"""

import json
import re
import secrets
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any

import msgspec
from typing_extensions import override

from clawd.config.schema import ProviderSection
from clawd.errors import InvalidRequestError, ProviderError, ProviderErrorKind
from clawd.providers.base import (
    CallDelta,
    ChatRequest,
    Delta,
    Failed,
    Finished,
    Message,
    Sampling,
    StopReason,
    ToolCall,
    without_tool_role,
)
from clawd.providers.http import (
    SHOWN_CHARS,
    AnswerReader,
    HttpProvider,
    SseParser,
    decoded,
    with_counts,
)
from clawd.providers.presets import with_preset
from clawd.providers.reliable import RetrySettings
from clawd.wire.events import HopUsage, ReasoningDelta, TextDelta

ADDRESS = "https://api.anthropic.com"
VERSION = "2023-06-01"
MAX_PAUSES = 4
MAX_KEPT_ANSWERS = 256
MAX_KEPT_BYTES = 8 * 1024 * 1024
Block = dict[str, Any]
Kept = Callable[[Message], list[Block] | None]
MIN_THINKING_TOKENS = 1024
_CACHED = {"type": "ephemeral"}
_CACHED_MESSAGES = 2
_CHOICES: dict[str, dict[str, Any]] = {
    "auto": {"type": "auto"},
    "none": {"type": "none"},
    "required": {"type": "any"},
}
_NO_NAME = re.compile(r"[^a-zA-Z0-9_-]")
_FAILURES = ("error: ", "denied: ")
_LOST = "error: there is no result of this call"
_REASONS: dict[str, StopReason] = {
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
}
_STATUSES = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "api_error": 500,
    "timeout_error": 504,
    "overloaded_error": 529,
}
_AUTH = frozenset({401, 403})
_INPUTS = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")


class KeptAnswers:
    """The blocks of answers that thought before they called tools, by the id of the first call.

    The API wants thoughts back, signed as they were, with the results of the calls they led to.
    They stay in this process and go back to the model that thought them; the oldest are dropped.
    """

    def __init__(self) -> None:
        self._answers: OrderedDict[str, tuple[str, list[Block], int]] = OrderedDict()
        self._bytes = 0

    def keep(self, model: str, blocks: list[Block]) -> None:
        """Remember an answer, if it has thoughts and calls."""
        calls = [block["id"] for block in blocks if block["type"] == "tool_use"]
        if not calls or not any("thinking" in block["type"] for block in blocks):
            return
        size = len(json.dumps(blocks))  # takes half of a surrogate pair, too
        self._drop(calls[0])
        self._answers[calls[0]] = (model, blocks, size)
        self._bytes += size
        while self._bytes > MAX_KEPT_BYTES or len(self._answers) > MAX_KEPT_ANSWERS:
            self._drop(next(iter(self._answers)))

    def blocks(self, model: str, message: Message) -> list[Block] | None:
        """Return the blocks of a message that the model said just so."""
        ids = [call.id for call in message.tool_calls]
        known, blocks, _ = self._answers.get(ids[0], ("", [], 0)) if ids else ("", [], 0)
        if known != model:
            return None
        said = "".join(block["text"] for block in blocks if block["type"] == "text")
        same_calls = ids == [block["id"] for block in blocks if block["type"] == "tool_use"]
        is_same = same_calls and said.strip() == (message.content or "").strip()
        return blocks if is_same else None

    def _drop(self, call_id: str) -> None:
        _, _, size = self._answers.pop(call_id, ("", [], 0))
        self._bytes -= size


class AnthropicProvider(HttpProvider):
    """Answers with a server that speaks Anthropic's messages.

    The address may end with `/v1` or not; an empty one is Anthropic's own.
    """

    models_path = "/models?limit=1000"

    def __init__(
        self,
        name: str,
        section: ProviderSection,
        *,
        key: str = "",
        retry: RetrySettings | None = None,
    ) -> None:
        super().__init__(name, section, key=key, retry=retry)
        self._kept = KeptAnswers()

    @override
    def _headers(self, key: str) -> dict[str, str]:
        return {"anthropic-version": VERSION} | ({"x-api-key": key} if key else {})

    @override
    def _url_of(self, base_url: str) -> str:
        return f"{(base_url or ADDRESS).rstrip('/').removesuffix('/v1')}/v1"

    @override
    async def chat(self, request: ChatRequest) -> AsyncGenerator[Delta, None]:
        model = request.model or self._section.model
        answer = AnthropicAnswer(self._name, model)
        try:
            body = self._body(request, model)
            asked = body["messages"]
            for _attempt in range(MAX_PAUSES + 1):
                async with aclosing(self._ask("/messages", body, answer)) as deltas:
                    async for delta in deltas:
                        yield delta
                if not answer.is_paused:
                    break
                paused = {"role": "assistant", "content": answer.blocks()}
                body = body | {"messages": [*asked, paused]}
                answer.go_on()
            else:
                yield answer.ending()
        except (ProviderError, InvalidRequestError) as error:
            yield Failed(error=with_counts(error), partial=answer.has_content)
            return
        finally:
            if answer.has_reason:
                self._kept.keep(model, answer.blocks())

    def _body(self, request: ChatRequest, model: str) -> dict[str, Any]:
        if not self._section.tools:
            request = msgspec.structs.replace(request, tools=(), tool_choice="auto")
        return build_body(
            request,
            model=model,
            section=self._section,
            kept=lambda message: self._kept.blocks(model, message),
        )

    @override
    def _refusal(self, first: bytes) -> ProviderError | None:
        """Return the error that a stream begins with, as when the server is overloaded."""
        if not first.startswith(b"event: error"):
            return None
        try:
            events = SseParser().feed(first)
            AnthropicAnswer("", "").take(events[0].data if events else "{}")
        except ProviderError as error:
            return error
        return None


def build_body(
    request: ChatRequest, *, model: str, section: ProviderSection, kept: Kept
) -> dict[str, Any]:
    """Return the body.

    Raises:
        InvalidRequestError: the request asks for what the API does not know.
    """
    if request.prompt is not None:
        raise InvalidRequestError(
            "this API takes messages, not a raw prompt",
            hint="Send the text as a message of the user, or use a local model.",
        )
    wishes = with_preset(request.sampling or Sampling())
    max_tokens = wishes.max_tokens or section.max_tokens
    body: dict[str, Any] = {"model": model, "max_tokens": max_tokens, "stream": section.stream}
    if request.system.strip():
        body["system"] = [{"type": "text", "text": request.system, "cache_control": _CACHED}]
    if request.tools:
        body |= _tools(request)
    messages = _messages(request, section, kept)
    body["messages"] = messages
    thinking = _thinking(request, section, max_tokens, messages)
    if thinking:
        body["thinking"] = thinking
    if not thinking or thinking["type"] == "disabled":
        body |= _shape(request, wishes)  # thinking takes no shape but its own
    if stops := [stop for stop in wishes.stop if stop.strip()]:
        body["stop_sequences"] = stops
    if request.response_format is not None:
        body["output_config"] = {"format": _format(request.response_format)}
    return body


def _tools(request: ChatRequest) -> dict[str, Any]:
    tools: list[Block] = [
        {"name": tool.name, "description": tool.description, "input_schema": tool.parameters}
        for tool in (*request.tools, *request.found)
    ]
    tools[-1]["cache_control"] = _CACHED
    named = {"type": "tool", "name": request.tool_choice}
    choice: dict[str, Any] = _CHOICES.get(request.tool_choice, named)
    if request.parallel_calls is False and choice["type"] != "none":
        choice = choice | {"disable_parallel_tool_use": True}
    return (
        {"tools": tools} if choice == _CHOICES["auto"] else {"tools": tools, "tool_choice": choice}
    )


def _shape(request: ChatRequest, wishes: Sampling) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "temperature": wishes.temperature if request.temperature is None else request.temperature,
        "top_p": wishes.top_p,
        "top_k": wishes.top_k,
    }
    if fields["temperature"] is not None:
        fields["temperature"] = min(fields["temperature"], 1.0)
        fields["top_p"] = None  # newer models take one of the two
    if not fields["top_k"]:
        fields["top_k"] = None
    return {name: value for name, value in fields.items() if value is not None}


def _format(response_format: dict[str, Any]) -> dict[str, Any]:
    given = response_format.get("json_schema")
    schema = given.get("schema") if isinstance(given, dict) else None
    if response_format.get("type") != "json_schema" or not isinstance(schema, dict):
        raise InvalidRequestError(
            "this API takes a response_format of type json_schema, with its schema, and no other",
            hint="Give a schema, or ask for JSON in the prompt.",
        )
    return {"type": "json_schema", "schema": schema}


def _thinking(
    request: ChatRequest, section: ProviderSection, max_tokens: int, messages: list[Block]
) -> dict[str, Any] | None:
    """Return how the model is to think; where it was to and the thoughts are lost, it may not."""
    if not section.thinking:
        return None
    is_forced = bool(request.tools) and request.tool_choice not in {"auto", "none"}
    if section.thinking == "disabled" or is_forced:
        return {"type": "disabled"}
    if section.thinking == "adaptive":
        return {"type": "adaptive"}
    budget = max_tokens // 2
    if budget < MIN_THINKING_TOKENS or not _has_thoughts_of_turn(messages):
        return {"type": "disabled"}
    return {"type": "enabled", "budget_tokens": budget}


def _has_thoughts_of_turn(messages: list[Block]) -> bool:
    """Return whether the first answer since the user spoke holds the thoughts it began with."""
    first: list[Block] = []
    for message in reversed(messages):
        if message["role"] == "assistant":
            first = message["content"]
        elif message["content"][0]["type"] != "tool_result":
            break
    return not first or any("thinking" in block["type"] for block in first)


def _messages(request: ChatRequest, section: ProviderSection, kept: Kept) -> list[Block]:
    history = request.messages
    # The API wants the tools beside any call of theirs.
    if not (section.use_tool_role and request.tools):
        history = without_tool_role(history)
    builder = _Builder(kept)
    for message in history:
        builder.add(message)
    return _cached(builder.messages())


def _cached(messages: list[Block]) -> list[Block]:
    """Mark the last two user messages: this request's end, and the one before it."""
    users = [message for message in messages if message["role"] == "user"]
    for message in users[-_CACHED_MESSAGES:]:
        message["content"][-1] = message["content"][-1] | {"cache_control": _CACHED}
    return messages


class _Builder:
    """Puts messages in the order that the API takes."""

    def __init__(self, kept: Kept) -> None:
        self._kept = kept
        self._out: list[Block] = []
        self._ids: dict[str, str] = {}
        self._open: set[str] = set()

    def add(self, message: Message) -> None:
        if message.role != "tool":
            self._close()
        match message.role:
            case "assistant":
                self._append("assistant", self._said(message))
            case "tool":
                if message.tool_call_id in self._open:
                    self._append("user", [self._result(message)])
                else:
                    told = f"[tool: {message.name}]\n{message.content or ''}"
                    self._append("user", [*_pictures(message), *_text(told)])
            case "user" | "system":
                self._append("user", [*_pictures(message), *_text(message.content)])

    def messages(self) -> list[Block]:
        self._close()
        for message in self._out:
            if message["role"] == "user":  # the API wants results before anything else
                message["content"].sort(key=lambda block: block["type"] != "tool_result")
        if not self._out or self._out[0]["role"] != "user":
            self._out.insert(0, {"role": "user", "content": _text("(the conversation goes on)")})
        last = self._out[-1]
        if last["role"] == "assistant" and last["content"][-1]["type"] == "text":
            # The model would go on with it: it takes no blanks at the end.
            block = last["content"][-1]
            last["content"][-1] = block | {"text": block["text"].rstrip()}
        return self._out

    def _close(self) -> None:
        """Give calls that nothing came of a result: the API takes none without."""
        for call_id in sorted(self._open):
            lost = Message(role="tool", content=_LOST, tool_call_id=call_id)
            self._append("user", [self._result(lost)])

    def _append(self, role: str, blocks: list[Block]) -> None:
        if not blocks:
            return
        if self._out and self._out[-1]["role"] == role:
            self._out[-1]["content"] += blocks
        else:
            self._out.append({"role": role, "content": list(blocks)})

    def _said(self, message: Message) -> list[Block]:
        self._open = {call.id for call in message.tool_calls}
        blocks = self._kept(message) if message.tool_calls else None
        if blocks is not None:
            self._ids |= {call.id: call.id for call in message.tool_calls}
            return blocks
        return [*_text(message.content), *(self._call(call) for call in message.tool_calls)]

    def _call(self, call: ToolCall) -> Block:
        return {
            "type": "tool_use",
            "id": self._id(call.id),
            "name": _NO_NAME.sub("_", call.name)[:128] or "unknown",
            "input": _input(call.arguments),
        }

    def _result(self, message: Message) -> Block:
        content = message.content or ""
        self._open.discard(message.tool_call_id)
        block: Block = {"type": "tool_result", "tool_use_id": self._id(message.tool_call_id)}
        if message.pictures:
            block["content"] = [*_pictures(message), *_text(content)]
        elif content.strip():
            block["content"] = content
        if content.startswith(_FAILURES):
            block["is_error"] = True
        return block

    def _id(self, call_id: str) -> str:
        """Return an id that the API takes, the same for a call and its result."""
        if call_id not in self._ids:
            wanted = _NO_NAME.sub("_", call_id) or "call"
            used, name, number = set(self._ids.values()), wanted, 2
            while name in used:
                name, number = f"{wanted}_{number}", number + 1
            self._ids[call_id] = name
        return self._ids[call_id]


def _pictures(message: Message) -> list[Block]:
    return [
        {
            "type": "image",
            "source": {
                "type": "base64",
                "media_type": picture.media_type,
                "data": picture.base64,
            },
        }
        for picture in message.pictures
    ]


def _text(content: str | None) -> list[Block]:
    text = content or ""
    return [{"type": "text", "text": text}] if text.strip() else []


def _input(arguments: str) -> dict[str, Any]:
    """Return the arguments as the object that the API wants, whatever the model wrote."""
    try:
        value = json.loads(arguments, parse_constant=lambda name: name)
    except (ValueError, RecursionError):
        return {"unreadable": arguments}
    return value if isinstance(value, dict) else {"unreadable": arguments}


class _Event(msgspec.Struct, frozen=True, kw_only=True):
    type: str = ""
    index: int | None = None
    content_block: dict[str, Any] | None = None
    delta: dict[str, Any] | None = None
    message: dict[str, Any] | None = None
    usage: dict[str, Any] | None = None
    error: Any = None
    # of a whole message
    content: list[dict[str, Any]] | None = None
    model: str | None = None
    stop_reason: str | None = None


_decoder = msgspec.json.Decoder(_Event)


class _Block:
    """One block of the answer as it comes in; `call` is its number among the calls."""

    def __init__(self, kind: str, start: dict[str, Any], call: int) -> None:
        self.kind = kind
        self.start = start
        self.call = call
        self.id = _string(start.get("id")) or f"toolu_{secrets.token_hex(12)}"
        self.pieces: list[str] = []
        self.signature = _string(start.get("signature"))

    def raw(self) -> dict[str, Any] | None:
        """Return it as it goes back to the server; None for what cannot."""
        text = "".join(self.pieces)
        match self.kind:
            case "text":
                return {"type": "text", "text": text} if text.strip() else None
            case "thinking":
                return {"type": "thinking", "thinking": text, "signature": self.signature}
            case "tool_use" | "server_tool_use":
                return self.start | {"id": self.id, "input": _object(text)}
            case _:
                return self.start if self.kind else None


class AnthropicAnswer(AnswerReader):
    """One answer on its way.

    Attributes:
        is_paused: the server wants to be asked to go on, with what it said so far.
    """

    def __init__(self, provider: str, model: str) -> None:
        super().__init__(provider, model)
        self.is_paused = False
        self._blocks: dict[int, _Block] = {}
        self._newest = -1
        self._calls = 0
        self._reason = ""
        self._counts: dict[str, int] = {}
        self._before: list[dict[str, Any]] = []
        self._spent = HopUsage()

    @override
    def _read(self, data: str) -> list[Delta]:
        hint = "Check base_url: it is the address before /v1/messages."
        event = decoded(_decoder, data, what="message event", hint=hint)
        if event.error is not None or event.type == "error":
            raise _reported(event.error)
        return self._take(event)

    @override
    def _end(self) -> list[Delta]:
        """Return the end, none where it is paused.

        Raises:
            ProviderError: the model refused.
        """
        if self._reason == "refusal":
            raise ProviderError(
                "the model refused to answer (stop reason refusal)",
                kind="invalid",
                hint="Ask in another way, or in a new conversation.",
            )
        self.is_paused = self._reason == "pause_turn"
        # A block that the server never ended may still hold the input of its call.
        late = [delta for index in sorted(self._blocks) for delta in self._stop(index)]
        return late if self.is_paused else [*late, self.ending()]

    def ending(self) -> Finished:
        """Return the end as it stands."""
        return Finished(
            reason=_REASONS.get(self._reason) or ("tool_calls" if self._calls else "stop"),
            usage=self._timed(self._usage()),
            provider=self._provider,
            model=self._model,
            raw={"stop_reason": self._reason, "model": self._model, "usage": dict(self._counts)},
        )

    def blocks(self) -> list[dict[str, Any]]:
        """Return the blocks of the answer, as they may go back to the server."""
        own = [self._blocks[index].raw() for index in sorted(self._blocks)]
        return [*self._before, *(block for block in own if block is not None)]

    def go_on(self) -> None:
        """Take what follows as the rest of the same answer."""
        self._before = self.blocks()
        self._spent, self._counts = self._usage(), {}
        self._blocks, self._newest, self._reason = {}, -1, ""
        self.has_reason = self.is_done = self.is_paused = False

    # --- events

    def _take(self, event: _Event) -> list[Delta]:
        match event.type:
            case "message_start":
                self._note(event.message or {})
            case "content_block_start":
                return self._start(self._index(event, is_new=True), event.content_block or {})
            case "content_block_delta":
                return self._piece(self._index(event, is_new=False), event.delta or {})
            case "content_block_stop":
                return self._stop(self._index(event, is_new=False))
            case "message_delta":
                self._note((event.delta or {}) | {"usage": event.usage})
            case "message_stop":
                self.is_done = True
            case "message":
                return self._whole(event)
            case _:  # ping, and what is newer
                pass
        return []

    def _whole(self, event: _Event) -> list[Delta]:
        deltas: list[Delta] = []
        for index, block in enumerate(event.content or []):
            deltas += [*self._start(index, block), *self._stop(index)]
        self._note({"model": event.model, "stop_reason": event.stop_reason, "usage": event.usage})
        return deltas

    def _index(self, event: _Event, *, is_new: bool) -> int:
        """Return the block's index; a missing one is the next, or the newest."""
        if event.index is None:
            self._miss_index("blocks")
            return self._newest + 1 if is_new else max(self._newest, 0)
        return event.index

    def _start(self, index: int, start: dict[str, Any]) -> list[Delta]:
        if index in self._blocks:
            return []
        kind = _string(start.get("type"))
        block = _Block(kind, start, self._calls)
        self._blocks[index] = block
        self._newest = index
        if kind == "tool_use":
            self._calls += 1
            name = _string(start.get("name"))
            return [CallDelta(index=block.call, id=block.id, name=name)]
        return self._add(block, _string(start.get("text")) or _string(start.get("thinking")))

    def _piece(self, index: int, delta: dict[str, Any]) -> list[Delta]:
        kind = _string(delta.get("type"))
        if index not in self._blocks:
            kinds = {"text_delta": "text", "thinking_delta": "thinking"}
            if kind not in kinds:
                return []  # arguments of a call that nobody named: there is none to make
            self._start(index, {"type": kinds[kind]})
        block = self._blocks[index]
        match kind:
            case "text_delta":
                return self._add(block, _string(delta.get("text")))
            case "thinking_delta":
                return self._add(block, _string(delta.get("thinking")))
            case "input_json_delta":
                return self._add(block, _string(delta.get("partial_json")))
            case "signature_delta":
                block.signature += _string(delta.get("signature"))
            case _:  # citations, and what is newer
                pass
        return []

    def _add(self, block: _Block, text: str) -> list[Delta]:
        if not text:
            return []
        block.pieces.append(text)
        match block.kind:
            case "text":
                return [TextDelta(text=text)]
            case "thinking":
                return [ReasoningDelta(text=text)]
            case "tool_use":
                return [CallDelta(index=block.call, arguments=text)]
            case _:
                return []

    def _stop(self, index: int) -> list[Delta]:
        """End a block; the input of a call may have come with its start."""
        block = self._blocks.get(index)
        if block is None or block.pieces or block.kind not in {"tool_use", "server_tool_use"}:
            return []
        given = block.start.get("input")
        return self._add(block, json.dumps(given, ensure_ascii=False)) if given else []

    def _note(self, facts: dict[str, Any]) -> None:
        self._model = _string(facts.get("model")) or self._model
        if reason := _string(facts.get("stop_reason")):
            self._reason, self.has_reason = reason, True
        usage = facts.get("usage")
        for name, value in (usage if isinstance(usage, dict) else {}).items():
            # Counts are sums so far; one side may say 0 for what the other counted.
            if type(value) is int and value > 0:
                self._counts[name] = max(value, self._counts.get(name, 0))

    def _usage(self) -> HopUsage:
        counts, before = self._counts, self._spent
        return HopUsage(
            prompt_tokens=before.prompt_tokens + sum(counts.get(name, 0) for name in _INPUTS),
            cached_tokens=before.cached_tokens + counts.get("cache_read_input_tokens", 0),
            completion_tokens=before.completion_tokens + counts.get("output_tokens", 0),
        )


def _string(value: object) -> str:
    return value if isinstance(value, str) else ""


def _object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return {"unreadable": text}
    return value if isinstance(value, dict) else {"unreadable": text}


def _reported(error: object) -> ProviderError:
    """Make an error of an `error` event, which comes with status 200 once a stream has begun."""
    message, kind = str(error), ""
    if isinstance(error, dict):
        message, kind = str(error.get("message") or error), _string(error.get("type"))
    status = _STATUSES.get(kind, 0)
    what: ProviderErrorKind = "auth" if status in _AUTH else "http"
    told = f"{kind}: {message}" if kind else message
    return ProviderError(f"the server reported: {told[:SHOWN_CHARS]}", kind=what, status=status)
