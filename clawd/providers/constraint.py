"""From a request's tool choice and response format to what the engine holds the answer to. Pure."""

from typing import Any

from clawd.engine.protocol import Grammar
from clawd.errors import InvalidRequestError
from clawd.providers.base import ChatRequest, ToolSpec
from clawd.providers.toolcalls.detect import Habits

_FREE_CHOICES = frozenset({"auto", "none"})


def offered_tools(request: ChatRequest) -> tuple[ToolSpec, ...]:
    """Return the tools that the model is told of; a named choice offers that one only.

    Raises:
        InvalidRequestError: a tool is required that is not among them.
    """
    choice = request.tool_choice
    if choice == "none":
        return ()
    if choice in {"auto", "required"}:
        return request.tools
    named = tuple(tool for tool in request.tools if tool.name == choice)
    if not named:
        names = ", ".join(tool.name for tool in request.tools) or "none"
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
    tools = {tool.name: tool.parameters for tool in offered_tools(request)}
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
