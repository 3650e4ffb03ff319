"""A request as the JSON body of OpenAI's /chat/completions or /completions. Pure."""

from typing import Any

from clawd.providers.base import ChatRequest, Message, Sampling, ToolCall, ToolSpec
from clawd.providers.presets import with_preset
from clawd.providers.tool_text import without_tool_role

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
# Of a preset, what every server knows: an unknown field may be refused.
_OF_PRESETS = ("temperature", "top_p")
_CHOICES = frozenset({"none", "required"})


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
    messages = [_message(message) for message in history]
    if request.system:
        messages.insert(0, {"role": "system", "content": request.system})
    body: dict[str, Any] = {"model": model, "messages": messages} | streaming
    body |= _sampling(request, max_tokens_field)
    if request.tools:
        body["tools"] = [_tool(tool) for tool in request.tools]
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
    given = prompt if isinstance(prompt, str) else list(prompt or ())
    body = {"model": model, "prompt": given} | _sampling(request, max_tokens_field)
    if request.response_format is not None:
        body["response_format"] = request.response_format
    return body


def _message(message: Message) -> dict[str, Any]:
    content = message.content or ""
    if message.role == "tool":
        return {"role": "tool", "tool_call_id": message.tool_call_id, "content": content}
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
    fields: dict[str, Any] = {name: getattr(preset, name) for name in _OF_PRESETS}
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
