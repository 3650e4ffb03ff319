"""A chat request as the engine takes it: messages, tools, and the sampling in force. Pure."""

from typing import Any, NamedTuple

import msgspec

from clawd.engine.protocol import ChatCall, ChatMessage, Generate, SamplingConfig
from clawd.errors import InvalidRequestError
from clawd.providers.base import ChatRequest, Message, RawPrompt, Sampling, Text, ToolSpec
from clawd.providers.constraint import grammar_for, offered_tools
from clawd.providers.presets import with_preset
from clawd.providers.tool_text import calls_kept, without_tool_role
from clawd.providers.toolcalls.base import ParsedDelta, ParserOptions, ToolCallParser
from clawd.providers.toolcalls.detect import Habits, habits_after, out_of_reasoning, parser_of

_MAX_TOKEN = 2**31 - 1

_PENALTIES = (
    "repeat_penalty",
    "frequency_penalty",
    "presence_penalty",
    "dry_multiplier",
    "dry_base",
    "dry_allowed_length",
    "dry_last_n",
    "dry_breakers",
)
_SHAPERS = (
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "typical_p",
    "xtc_probability",
    "xtc_threshold",
    "seed",
    "max_tokens",
    "stop",
    "logprobs",
    "top_logprobs",
)


class PlainText:
    """The parser of an answer in which nothing has a meaning of its own."""

    def feed(self, text: str) -> list[ParsedDelta]:
        """Take the next text of the model."""
        return [Text(text=text)] if text else []

    def finish(self, *, is_cut: bool = False) -> list[ParsedDelta]:
        """Take the end."""
        del is_cut
        return []


class Fitted(NamedTuple):
    """The engine's request, and the parser of its answer."""

    generate: Generate
    parser: ToolCallParser


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


def generate_for(request: ChatRequest, defaults: SamplingConfig, options: LocalOptions) -> Generate:
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
    grammar = grammar_for(request, habits)
    if begun:
        *before, last = generate.messages
        opened = msgspec.structs.replace(last, content=out_of_reasoning(template, begun))
        generate = msgspec.structs.replace(generate, messages=(*before, opened))
    options = ParserOptions(
        calls=bool(generate.tools),
        streams=request.streams_calls,
        schemas={tool.name: tool.parameters for tool in request.tools},
    )
    parser = parser_of(template, options, habits)
    return Fitted(msgspec.structs.replace(generate, grammar=grammar), parser)


def _begun(generate: Generate) -> str:
    """Return the text of the assistant at the conversation's end, which is gone on with."""
    last = generate.messages[-1] if generate.messages else None
    return last.content if last and last.role == "assistant" and not last.tool_calls else ""


def _raw(request: ChatRequest) -> RawPrompt:
    if request.messages or request.system:
        raise InvalidRequestError(
            "the request has a raw prompt and messages; expected one of the two",
            hint="Leave the messages and the system prompt out.",
        )
    prompt = request.prompt if request.prompt is not None else ""
    if not isinstance(prompt, str) and not all(0 <= token <= _MAX_TOKEN for token in prompt):
        raise InvalidRequestError(
            f"the prompt holds a number that is no token: {min(prompt)} to {max(prompt)}",
            hint="Cut the text into tokens with this model's own tokenizer.",
        )
    return prompt


def resolve_sampling(
    defaults: SamplingConfig, request: ChatRequest, *, allow_penalties: bool = False
) -> SamplingConfig:
    """Lay a request's wishes over the operator's values; penalties only where they are allowed.

    Raises:
        InvalidRequestError: the request names a preset that is not there.
    """
    wishes = with_preset(request.sampling or Sampling())
    names = _SHAPERS + (_PENALTIES if allow_penalties else ())
    given = {name: value for name in names if (value := getattr(wishes, name)) not in {None, ()}}
    if request.temperature is not None:
        given["temperature"] = request.temperature
    if wishes.logit_bias is not None:
        given["logit_bias"] = tuple(wishes.logit_bias.items())
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
    return ChatMessage(
        role=message.role,
        content=message.content or "",
        tool_calls=tuple(
            ChatCall(id=call.id, name=call.name, arguments=call.arguments)
            for call in message.tool_calls
        ),
        tool_call_id=message.tool_call_id,
        name=message.name,
    )


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
