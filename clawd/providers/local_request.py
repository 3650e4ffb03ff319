"""A chat request as the engine takes it: messages, tools, sampling, constraint. Pure."""

from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from clawd.engine.protocol import ChatMessage, Generate, Grammar, Sampling
from clawd.errors import InvalidRequestError
from clawd.providers.base import (
    ChatRequest,
    Infill,
    Message,
    RawPrompt,
    ToolSpec,
    calls_kept,
    without_tool_role,
)
from clawd.providers.presets import with_preset
from clawd.providers.toolcalls.base import ParsedDelta, ParserOptions, ToolCallParser
from clawd.providers.toolcalls.detect import (
    Habits,
    habits_after,
    habits_behind,
    out_of_reasoning,
    parser_of,
)
from clawd.wire.codec import mirror
from clawd.wire.events import TextDelta

_MAX_TOKEN = 2**31 - 1
_PENALTIES = (
    "repeat_penalty", "frequency_penalty", "presence_penalty", "dry_multiplier", "dry_base",
    "dry_allowed_length", "dry_last_n", "dry_breakers",
)  # fmt: skip
_SHAPERS = (
    "temperature", "top_p", "top_k", "min_p", "typical_p", "xtc_probability", "xtc_threshold",
    "seed", "max_tokens", "stop", "logit_bias", "logprobs", "top_logprobs",
)  # fmt: skip
_FREE_CHOICES = frozenset({"auto", "none"})


class PlainText:
    """The parser of an answer in which nothing has a meaning of its own."""

    def feed(self, text: str) -> list[ParsedDelta]:
        """Take the next text of the model."""
        return [TextDelta(text=text)] if text else []

    def finish(self, *, is_cut: bool = False) -> list[ParsedDelta]:
        """Take the end."""
        del is_cut
        return []


class Fitted(NamedTuple):
    """The engine's request, the parser of its answer, and what makes one for a prompt's end."""

    generate: Generate
    parser: ToolCallParser
    parser_after: Callable[[str], ToolCallParser] | None = None


class LocalOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What the operator says of a model beside how it is loaded and sampled.

    Attributes:
        allow_request_penalties: requests may set penalties.
        use_tool_role: False shows results as text of the next user turn; calls stay calls.
        tools: False for a model that can call none: none are offered to it.
    """

    allow_request_penalties: bool = False
    use_tool_role: bool = True
    tools: bool = True


def generate_for(request: ChatRequest, defaults: Sampling, options: LocalOptions) -> Generate:
    """Return the engine's request.

    Raises:
        InvalidRequestError: the request names a preset that is not there, or its prompt or
            messages cannot be meant.
    """
    sampling = resolve_sampling(defaults, request, allow_penalties=options.allow_request_penalties)
    if request.prompt is not None:
        return Generate(id=0, prompt=_raw(request), sampling=sampling)
    if [message.role for message in request.messages[-2:]] == ["assistant", "assistant"]:
        raise InvalidRequestError(
            "the conversation ends with two messages of the assistant; expected one at most, "
            "which is gone on with",
            hint="Join them, or end with a message of the user.",
        )
    return Generate(
        id=0,
        messages=_chat_messages(request, options),
        tools=_functions(offered_tools(request)),
        sampling=sampling,
        template_kwargs=(request.sampling.template_kwargs if request.sampling else None) or {},
    )


def fitted(generate: Generate, request: ChatRequest, template: str) -> Fitted:
    """Return the request held to what it asks for, and the parser of its answer.

    Args:
        generate: as `generate_for` returned it.
        request: the request.
        template: of the model that answers.

    Raises:
        InvalidRequestError: the request asks for what cannot be.
    """
    if generate.prompt is not None:
        plain = msgspec.structs.replace(request, tools=(), tool_choice="auto")
        grammar = grammar_for(plain, Habits((), (), False))  # noqa: FBT003 - of a named tuple
        return Fitted(msgspec.structs.replace(generate, grammar=grammar), PlainText())
    begun = _begun(generate)
    habits = habits_after(template, begun)
    # Whether a whole prompt ends within reasoning is seen where it is rendered.
    held = habits if begun else habits._replace(starts_in_reasoning=False)
    grammar = grammar_for(request, held)
    if begun:
        *before, last = generate.messages
        opened = msgspec.structs.replace(last, content=out_of_reasoning(template, begun))
        generate = msgspec.structs.replace(generate, messages=(*before, opened))
    options = ParserOptions(
        calls=bool(generate.tools) and request.tool_choice != "none",
        streams=request.streams_calls,
        drafts=not request.streams_calls,
        schemas={tool.name: tool.held_to for tool in callable_tools(request)},
    )
    generate = msgspec.structs.replace(generate, grammar=grammar)
    if begun:
        begun_options = msgspec.structs.replace(options, has_begun=True)
        return Fitted(generate, parser_of(template, begun_options, habits))

    def parser_after(end: str) -> ToolCallParser:
        return parser_of(template, options, habits_behind(template, end))

    return Fitted(generate, parser_of(template, options, habits), parser_after)


def _begun(generate: Generate) -> str:
    """Return the text of the assistant at the conversation's end, which is gone on with."""
    last = generate.messages[-1] if generate.messages else None
    return last.content if last and last.role == "assistant" and not last.tool_calls else ""


def _raw(request: ChatRequest) -> RawPrompt | Infill:
    if request.messages or request.system:
        raise InvalidRequestError(
            "the request has a raw prompt and messages; expected one of the two",
            hint="Leave the messages and the system prompt out.",
        )
    prompt = request.prompt if request.prompt is not None else ""
    if isinstance(prompt, tuple) and not all(0 <= token <= _MAX_TOKEN for token in prompt):
        raise InvalidRequestError(
            f"the prompt holds a number that is no token: {min(prompt)} to {max(prompt)}",
            hint="Cut the text into tokens with this model's own tokenizer.",
        )
    return prompt


def resolve_sampling(
    defaults: Sampling, request: ChatRequest, *, allow_penalties: bool = False
) -> Sampling:
    """Lay a request's wishes over the operator's values.

    Penalties count where they are allowed, or the operator asks for them.

    Raises:
        InvalidRequestError: the request names a preset that is not there.
    """
    wishes = with_preset(request.sampling or Sampling())
    names = _SHAPERS + (_PENALTIES if allow_penalties or wishes.by_operator else ())
    values = {name: getattr(wishes, name) for name in names}
    given = {name: value for name, value in values.items() if value is not None and value != ()}
    if request.temperature is not None:
        given["temperature"] = request.temperature
    return msgspec.structs.replace(defaults, **given)


def _chat_messages(request: ChatRequest, options: LocalOptions) -> tuple[ChatMessage, ...]:
    history = request.messages
    if not options.use_tool_role:
        history = without_tool_role(history, calls=calls_kept)
    messages = tuple(_chat_message(message) for message in history)
    if request.system:
        return (ChatMessage(role="system", content=request.system), *messages)
    return messages


def _chat_message(message: Message) -> ChatMessage:
    return mirror(ChatMessage, message, content=message.content or "")


def _functions(tools: tuple[ToolSpec, ...]) -> tuple[dict[str, Any], ...]:
    """Return the offered tools as a template wants them."""
    return tuple(
        {
            "type": "function",
            "function": {
                "name": tool.name,
                "description": tool.description,
                "parameters": tool.parameters,
            },
        }
        for tool in tools
    )


def offered_tools(request: ChatRequest) -> tuple[ToolSpec, ...]:
    """Return the tools that the model is told of: none where none may be called, else all.

    A named choice is told the others, too, and held to the one: with another list at its beginning
    no prompt goes on where the one before it ended. One that `keeps_tools` is told them for that.
    """
    is_told = request.tool_choice != "none" or request.keeps_tools
    return request.tools if is_told else ()


def callable_tools(request: ChatRequest) -> tuple[ToolSpec, ...]:
    """Return the tools that an answer may call, those included that the prompt does not list.

    Raises:
        InvalidRequestError: a tool is required that is not among them.
    """
    told, choice = offered_tools(request), request.tool_choice
    if choice in {"auto", "required"}:
        return (*told, *request.found, *request.unlisted) if told else ()
    if choice == "none":
        return ()
    named = tuple(tool for tool in told if tool.name == choice)
    if not named:
        names = ", ".join(tool.name for tool in told) or "none"
        raise InvalidRequestError(
            f"tool_choice names {choice!r}; the request's tools are: {names}",
            hint="Name one of them, or use auto, none or required.",
        )
    return named


def grammar_for(request: ChatRequest, habits: Habits) -> Grammar:
    """Return what the answer is held to.

    Args:
        request: the request.
        habits: how the model writes calls and reasoning.

    Raises:
        InvalidRequestError: the request asks for what cannot be.
    """
    tools = {tool.name: tool.held_to for tool in callable_tools(request)}
    schema = _response_schema(request.response_format)
    is_required = bool(tools) and request.tool_choice not in _FREE_CHOICES
    if schema is None and not tools:
        return Grammar()
    return Grammar(
        kind="tool_call" if is_required or schema is None else "json_schema",
        schema=True if is_required or schema is None else schema,
        tools=tools,
        lazy=schema is None and not is_required,
        loose=_is_loose(request.response_format),
        single=request.parallel_calls is False,
        parallel=request.parallel_calls is True,
        frames=habits.frames,
        thoughts=habits.thoughts,
        in_reasoning=habits.starts_in_reasoning and bool(habits.thoughts),
    )


def _is_loose(wanted: dict[str, Any] | None) -> bool:
    """Return whether a response format says that its schema need not be held to the letter."""
    inner = (wanted or {}).get("json_schema")
    return isinstance(inner, dict) and inner.get("strict") is False


def _response_schema(wanted: dict[str, Any] | None) -> Any:
    """Return the schema that a response format asks for, None for text."""
    kind = (wanted or {}).get("type", "text")
    match kind:
        case "text":
            return None
        case "json_object":
            return {"type": "object"}
        case "json_schema":
            inner = (wanted or {}).get("json_schema")
            if isinstance(inner, dict) and isinstance(inner.get("schema"), dict):
                return inner["schema"]
            raise InvalidRequestError(
                "response_format json_schema has no json_schema.schema object",
                hint='Send {"type": "json_schema", "json_schema": {"name": …, "schema": {…}}}.',
            )
        case _:
            raise InvalidRequestError(
                f"response_format {kind!r} is none of text, json_object, json_schema",
                hint="Use one of them, or leave response_format out.",
            )
