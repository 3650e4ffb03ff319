"""A chat request as the engine takes it: messages, tools, and the sampling in force. Pure."""

from typing import Any

import msgspec

from clawd.engine.protocol import ChatCall, ChatMessage, Generate, SamplingConfig
from clawd.providers.base import ChatRequest, Message, Sampling, ToolSpec
from clawd.providers.constraint import offered_tools
from clawd.providers.presets import with_preset
from clawd.providers.tool_text import calls_kept, without_tool_role

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
        InvalidRequestError: the request names a preset that is not there.
    """
    return Generate(
        id=0,
        messages=_chat_messages(request, options),
        tools=_functions(offered_tools(request)),
        sampling=resolve_sampling(
            defaults, request, allow_penalties=options.allow_request_penalties
        ),
    )


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
