"""The tools that a client brings, and which of them it wants called."""

import hashlib
from typing import Any

import msgspec

from clawd.channels.http.body import field, invalid
from clawd.channels.http.schemas import without_nulls
from clawd.providers.base import ToolSpec

_NO_PARAMETERS: dict[str, Any] = {"type": "object", "properties": {}}
_JOINT, _MAX_NAME, _MARK = "__", 64, 8
_WORDS = {"auto": "auto", "none": "none", "required": "required", "any": "required"}


def read_tools(body: dict[str, Any], *, is_flat: bool = False) -> tuple[ToolSpec, ...]:
    """Return the functions among the tools; tools of another type are passed over.

    Args:
        body: the request's.
        is_flat: name and parameters stand in the tool itself, as /v1/responses has it.

    Raises:
        InvalidRequestError: a function has no name, or no object of parameters.
    """
    tools: list[ToolSpec] = []
    for number, tool in enumerate(field(body, "tools", list[Any], [])):
        place = f"tools[{number}]"
        if not isinstance(tool, dict):
            raise invalid(place, "expected an object")
        if tool.get("type", "function") == "function":
            flat = is_flat and "function" not in tool
            inner, inner_place = (
                (tool, place) if flat else (tool.get("function"), f"{place}.function")
            )
            tools.append(_function(inner, inner_place))
    return tuple(tools)


def read_namespaces(
    body: dict[str, Any], tools: tuple[ToolSpec, ...]
) -> tuple[tuple[ToolSpec, ...], dict[str, tuple[str, str]]]:
    """Return the functions that stand in namespaces, as Codex brings those of its MCP servers.

    {"type": "namespace", "name": "mcp__files", "tools": [{"type": "function", "name": "read", …}]}
    is offered as `mcp__files__read`.

    Args:
        body: the request's.
        tools: functions that it brings outside of namespaces; theirs are the names.

    Returns:
        The functions by names of their own; for each such name the namespace and the name in it.

    Raises:
        InvalidRequestError: a function has no name, or no object of parameters.
    """
    taken = {tool.name for tool in tools}
    specs: list[ToolSpec] = []
    places: dict[str, tuple[str, str]] = {}
    for number, tool in enumerate(field(body, "tools", list[Any], [])):
        namespace, listed = tool.get("name"), tool.get("tools")
        if tool.get("type") != "namespace" or not isinstance(listed, list):
            continue
        if not isinstance(namespace, str) or not namespace:
            continue
        for inner_number, inner in enumerate(listed):
            if isinstance(inner, dict) and inner.get("type") != "function":
                continue
            spec = _function(inner, f"tools[{number}].tools[{inner_number}]")
            name = flat_name(namespace, spec.name)
            if name not in taken and name not in places:
                places[name] = (namespace, spec.name)
                specs.append(msgspec.structs.replace(spec, name=name))
    return tuple(specs), places


def flat_name(namespace: str, name: str) -> str:
    """Return the one name that a model knows a function of a namespace by; the same every time."""
    whole = f"{namespace}{_JOINT}{name}"
    if len(whole) <= _MAX_NAME:
        return whole
    mark = hashlib.sha256(whole.encode()).hexdigest()[:_MARK]
    return f"{whole[: _MAX_NAME - _MARK - 1]}_{mark}"


def read_choice(
    body: dict[str, Any], tools: tuple[ToolSpec, ...]
) -> tuple[str, tuple[ToolSpec, ...]]:
    """Return which tool is to be called, and the tools that may be.

    Returns:
        auto, none, required or a tool's name; the tools, fewer where the choice names some.

    Raises:
        InvalidRequestError: the choice has another form, or asks for a tool that is not there.
    """
    given = body.get("tool_choice")
    if given is None:
        return "auto", tools
    if isinstance(given, str) and given in _WORDS:
        choice = _WORDS[given]
    elif isinstance(given, dict) and given.get("type") == "allowed_tools":
        choice, tools = _allowed(given, tools)
    elif isinstance(given, dict) and given.get("type") in (*_WORDS, "function"):
        choice = _WORDS.get(given["type"]) or _name_of(given)
    else:
        raise invalid("tool_choice", "expected auto, none, required or a function")
    if choice in {"auto", "none"}:
        return choice, tools
    if not tools:
        raise invalid("tool_choice", f"is {choice!r}, but the request brings no function")
    if choice != "required" and choice not in {tool.name for tool in tools}:
        raise invalid("tool_choice", f"names {choice!r}, which is none of the request's tools")
    return choice, tools


def _function(function: object, place: str) -> ToolSpec:
    if not isinstance(function, dict):
        raise invalid(place, "expected an object")
    name = function.get("name")
    if not isinstance(name, str) or not name:
        raise invalid(f"{place}.name", "expected a name")
    parameters = function.get("parameters")
    if parameters is None:
        parameters = _NO_PARAMETERS
    if not isinstance(parameters, dict):
        raise invalid(f"{place}.parameters", "expected a JSON Schema object")
    description = function.get("description")
    if description is not None and not isinstance(description, str):
        raise invalid(f"{place}.description", "expected text")
    return ToolSpec(name=name, description=description or "", parameters=without_nulls(parameters))


def _name_of(choice: dict[str, Any]) -> str:
    """Return the name of a chosen function: flat, or in `function`."""
    inner = choice.get("function")
    name = inner.get("name") if isinstance(inner, dict) else choice.get("name")
    if not isinstance(name, str) or not name:
        raise invalid("tool_choice", "names no function")
    return name


def _allowed(
    choice: dict[str, Any], tools: tuple[ToolSpec, ...]
) -> tuple[str, tuple[ToolSpec, ...]]:
    inner = choice.get("allowed_tools")
    inner = inner if isinstance(inner, dict) else choice
    listed = inner.get("tools")
    if not isinstance(listed, list):
        raise invalid("tool_choice", "allowed_tools has no list of tools")
    names = {_name_of(tool) for tool in listed if isinstance(tool, dict)}
    mode = inner.get("mode", "auto")
    if mode not in ("auto", "required"):
        raise invalid("tool_choice", "the mode of allowed_tools is auto or required")
    return mode, tuple(tool for tool in tools if tool.name in names)
