"""A body of /v1/messages as a request of ours. Pure.

    {"model": "…", "max_tokens": 1024, "system": "…" | [{"type": "text", "text": "…"}],
     "messages": [{"role": "user", "content": "…" | [blocks]}],
     "tools": [{"name": "…", "description": "…", "input_schema": {…}}]}

What a model here has no use for is passed over: cache marks, thoughts of earlier answers, metadata,
tools that the vendor's own servers run. What would be lost without a word is refused.
"""

from typing import Any

from clawd.channels.http.anthropic.blocks import Turns, text_of
from clawd.channels.http.body import field, invalid
from clawd.channels.http.exchange import ModelRequest
from clawd.channels.http.numbers import count_of, number_of, stops_of
from clawd.channels.http.schemas import without_nulls
from clawd.errors import InvalidRequestError
from clawd.providers.base import Message, Sampling, ToolSpec

_OWN_TOOLS = ("", "custom")
_PRIVATE = "x-anthropic-"
_NOTHING_SAID = (Message(role="user", content=""),)
_NO_PARAMETERS = {"type": "object", "properties": {}}


def request_of(body: dict[str, Any]) -> ModelRequest:
    """Return the request.

    Raises:
        InvalidRequestError: the body cannot be meant; says which field.
    """
    if body.get("messages") is None:
        raise invalid("messages", "expected a list of messages")
    _no_thread(body)
    turns = Turns()
    for number, message in enumerate(field(body, "messages", list[Any], [])):
        turns.add(f"messages[{number}]", message)
    tools = _tools(field(body, "tools", list[Any], []))
    choice, parallel = _choice(body, tools)
    messages = turns.messages()
    return ModelRequest(
        messages=messages or _NOTHING_SAID,
        system=_system(body.get("system"), turns.system),
        tools=tools,
        tool_choice=choice,
        parallel_calls=parallel,
        response_format=_format(body),
        sampling=_sampling(body),
        model=field(body, "model", str, ""),
        is_plain=not messages,
    )


def _no_thread(body: dict[str, Any]) -> None:
    """Refuse a conversation that the server is to keep: clients then send all of it themselves.

    The first turn alone could be answered, but the next one would bring nothing but what is new.
    """
    if body.get("thread") is not None:
        raise InvalidRequestError(
            "thread: conversations are not kept here; send all messages each time",
            data={
                "param": "thread",
                "details": {"error_code": "thread_unsupported_request", "unsupported": ["thread"]},
            },
        )


def shows_thoughts(body: dict[str, Any]) -> bool:
    """Say whether the client wants to see what the model thinks.

    Raises:
        InvalidRequestError: it says so in no way there is.
    """
    thinking = field(body, "thinking", dict[str, Any], {})
    kind = field(thinking, "type", str, "", at="thinking")
    if kind not in {"", "enabled", "adaptive", "disabled"}:
        raise invalid("thinking.type", f"{kind!r} is none of enabled, adaptive, disabled")
    return kind != "disabled" and thinking.get("display") != "omitted"


def _system(given: Any, told: list[str]) -> str | None:
    """Join what the client says as system; its notes to the vendor's servers are left out."""
    texts: list[str] = []
    if isinstance(given, str):
        texts.append(given)
    elif isinstance(given, list):
        texts += [text_of(f"system[{number}]", block) for number, block in enumerate(given)]
    elif given is not None:
        raise invalid("system", "expected a text or a list of text blocks")
    # The notes may change with every request, and no prompt would begin like the one before it.
    kept = [text for text in (*texts, *told) if text and not text.startswith(_PRIVATE)]
    return "\n\n".join(kept) if kept else None


def _tools(given: list[Any]) -> tuple[ToolSpec, ...]:
    tools: list[ToolSpec] = []
    for number, tool in enumerate(given):
        where = f"tools[{number}]"
        if not isinstance(tool, dict):
            raise invalid(where, "expected an object")
        if (tool.get("type") or "") not in _OWN_TOOLS:
            continue
        name = field(tool, "name", str, "", at=where)
        if not name:
            raise invalid(f"{where}.name", "a tool needs a name")
        schema = without_nulls(field(tool, "input_schema", dict[str, Any], {}, at=where))
        described = field(tool, "description", str, "", at=where)
        tools.append(
            ToolSpec(name=name, description=described, parameters=schema or _NO_PARAMETERS)
        )
    return tuple(tools)


def _choice(body: dict[str, Any], tools: tuple[ToolSpec, ...]) -> tuple[str, bool | None]:
    """Return the choice in our words, and whether several calls are welcome."""
    choice = field(body, "tool_choice", dict[str, Any], {})
    is_single = field(choice, "disable_parallel_tool_use", bool, default=False, at="tool_choice")
    parallel = False if is_single else None
    kind = field(choice, "type", str, "auto", at="tool_choice")
    if kind in {"auto", "none"}:
        return kind, parallel
    if kind not in {"any", "tool"}:
        raise invalid("tool_choice.type", f"{kind!r} is none of auto, any, tool, none")
    if not tools:
        raise invalid("tool_choice", f"{kind!r} needs tools, and none are offered")
    if kind == "any":
        return "required", parallel
    name = field(choice, "name", str, "", at="tool_choice")
    if name not in {tool.name for tool in tools}:
        raise invalid("tool_choice.name", f"no tool named {name!r} is offered")
    return name, parallel


def _format(body: dict[str, Any]) -> dict[str, Any] | None:
    config = field(body, "output_config", dict[str, Any], {})
    name = "output_config.format" if config.get("format") is not None else "output_format"
    wanted = field(config, "format", dict[str, Any], {}, at="output_config") or field(
        body, "output_format", dict[str, Any], {}
    )
    if not wanted or wanted.get("type") == "text":
        return None
    schema = wanted.get("schema")
    if wanted.get("type") != "json_schema" or not isinstance(schema, dict):
        raise invalid(name, "expected type json_schema with its schema, an object")
    return {
        "type": "json_schema",
        "json_schema": {"name": "answer", "schema": without_nulls(schema), "strict": True},
    }


def _sampling(body: dict[str, Any]) -> Sampling:
    # More than fits ends with the context; less than one would be no answer.
    least = None if body.get("max_tokens") is None else 1
    return Sampling(
        temperature=number_of(body, "temperature", most=2.0),
        top_p=number_of(body, "top_p", most=1.0),
        top_k=count_of(body, "top_k"),
        max_tokens=count_of(body, "max_tokens") or least,
        stop=stops_of(body, "stop_sequences"),
    )
