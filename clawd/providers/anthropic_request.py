"""A chat request as the JSON body of Anthropic's /v1/messages. Pure.

    system, tools        blocks of their own, before the messages
    user, tool           one user message: results first, then what the user said
    assistant            [thinking] text, tool_use

User and assistant take turns strictly, no text is blank, every `tool_use` has its `tool_result` in
the next message. What is stable is marked for the server's prompt cache: the tools, the system
prompt and the last two user messages, so that the next request begins where this one ends.
"""

import json
import re
from collections.abc import Callable
from typing import Any, Literal

import msgspec

from clawd.errors import InvalidRequestError
from clawd.providers.base import ChatRequest, Message, Sampling, ToolCall
from clawd.providers.presets import with_preset
from clawd.providers.tool_text import without_tool_role

Block = dict[str, Any]
Kept = Callable[[Message], list[Block] | None]
"""Returns the blocks that an assistant's message was made of, where they are known."""

Thinking = Literal["", "adaptive", "enabled", "disabled"]

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


class Dialect(msgspec.Struct, frozen=True, kw_only=True):
    """How the server is asked.

    Attributes:
        max_tokens: of an answer that asks for no number of its own; the API wants one.
        thinking: "" leaves it to the model; enabled gives it half of max_tokens.
        use_tool_role: False shows calls and results as text.
    """

    max_tokens: int = 16_384
    stream: bool = True
    thinking: Thinking = ""
    use_tool_role: bool = True


def build_body(request: ChatRequest, *, model: str, dialect: Dialect, kept: Kept) -> dict[str, Any]:
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
    max_tokens = wishes.max_tokens or dialect.max_tokens
    body: dict[str, Any] = {"model": model, "max_tokens": max_tokens, "stream": dialect.stream}
    if request.system.strip():
        body["system"] = [{"type": "text", "text": request.system, "cache_control": _CACHED}]
    if request.tools:
        body |= _tools(request)
    messages = _messages(request, dialect, kept)
    body["messages"] = messages
    thinking = _thinking(request, dialect, max_tokens, messages)
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
        for tool in request.tools
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
    request: ChatRequest, dialect: Dialect, max_tokens: int, messages: list[Block]
) -> dict[str, Any] | None:
    """Return how the model is to think; where it was to and the thoughts are lost, it may not."""
    if not dialect.thinking:
        return None
    is_forced = bool(request.tools) and request.tool_choice not in {"auto", "none"}
    if dialect.thinking == "disabled" or is_forced:
        return {"type": "disabled"}
    if dialect.thinking == "adaptive":
        return {"type": "adaptive"}
    budget = max_tokens // 2
    if budget < MIN_THINKING_TOKENS or not _has_thoughts_of_turn(messages):
        return {"type": "disabled"}
    return {"type": "enabled", "budget_tokens": budget}


def _has_thoughts_of_turn(messages: list[Block]) -> bool:
    """Say whether the first answer since the user spoke holds the thoughts it began with."""
    first: list[Block] = []
    for message in reversed(messages):
        if message["role"] == "assistant":
            first = message["content"]
        elif message["content"][0]["type"] != "tool_result":
            break
    return not first or any("thinking" in block["type"] for block in first)


def _messages(request: ChatRequest, dialect: Dialect, kept: Kept) -> list[Block]:
    history = request.messages
    # The API wants the tools beside any call of theirs.
    if not (dialect.use_tool_role and request.tools):
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
                self._append("user", [self._result(message)])
            case "user" | "system":
                self._append("user", _text(message.content))

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
        if message.tool_call_id not in self._open:
            return {"type": "text", "text": f"[tool: {message.name}]\n{content}"}
        self._open.discard(message.tool_call_id)
        block: Block = {"type": "tool_result", "tool_use_id": self._id(message.tool_call_id)}
        if content.strip():
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
