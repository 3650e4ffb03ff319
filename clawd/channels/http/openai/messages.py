"""The `messages` of a chat body, in every form that clients send."""

from typing import Any

import msgspec

from clawd.channels.http.body import check_items, invalid
from clawd.channels.http.openai.history import History
from clawd.errors import InvalidRequestError
from clawd.providers.base import ToolCall

# Tuples, not sets: what is looked up in them may be a list of the client's.
_TEXTS = ("text", "input_text", "output_text")
_SILENT = ("thinking", "redacted_thinking", "reasoning", "reasoning_text")
_ROLES = ("system", "developer", "user", "assistant", "tool")


def read_messages(body: dict[str, Any]) -> History:
    """Return the conversation of a chat body.

    Raises:
        InvalidRequestError: it is no conversation; the error names the place.
    """
    given = body.get("messages")
    check_items("messages", given)
    if not isinstance(given, list):
        raise invalid("messages", "expected a list of messages")
    history = History()
    for number, message in enumerate(given):
        place = f"messages[{number}]"
        if not isinstance(message, dict):
            raise invalid(place, "expected an object")
        _read(message, place, history)
    history.checked()
    return history


def read_content(content: object, place: str, *, between: str = "\n") -> str:
    """Return content as text: a text, a list of parts, or null.

    Args:
        content: as the client sent it.
        place: where it stands, for errors.
        between: what joins parts.

    Raises:
        InvalidRequestError: it is something else, or a part is no text.
    """
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise invalid(place, "expected text or a list of parts")
    texts = [_part(part, f"{place}[{number}]") for number, part in enumerate(content)]
    return between.join(text for text in texts if text is not None)


def read_call(call: object, place: str, history: History) -> ToolCall:
    """Return a call of an earlier answer.

    Raises:
        InvalidRequestError: it names no function, or its arguments are no text.
    """
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(call, dict) or not isinstance(function, dict):
        raise invalid(place, "expected an object with a function")
    name = function.get("name")
    if not isinstance(name, str) or not name:
        raise invalid(f"{place}.function.name", "expected a name")
    call_id = call.get("id")
    return ToolCall(
        id=call_id if isinstance(call_id, str) and call_id else history.made_id(),
        name=name,
        arguments=read_arguments(function.get("arguments"), f"{place}.function.arguments"),
    )


def read_arguments(arguments: object, place: str) -> str:
    """Return the arguments of a call as JSON text; clients send objects too.

    Raises:
        InvalidRequestError: they are neither.
    """
    if arguments is None or arguments == "":
        return "{}"
    if isinstance(arguments, str):
        return arguments
    if isinstance(arguments, dict):
        return msgspec.json.encode(arguments).decode()
    raise invalid(place, "expected JSON text")


def _read(message: dict[str, Any], place: str, history: History) -> None:
    role = message.get("role")
    content = message.get("content")
    if role not in _ROLES:
        raise invalid(f"{place}.role", f"expected one of {', '.join(_ROLES)}")
    between = "" if role == "assistant" else "\n"
    text = read_content(content, f"{place}.content", between=between)
    match role:
        case "system" | "developer":
            history.add_system(text)
        case "user":
            if content is None:
                raise invalid(f"{place}.content", "expected what the user says")
            history.add_user(text)
        case "assistant":
            history.add_assistant(text, _calls(message, place, history))
        case _:
            call_id = message.get("tool_call_id")
            history.add_result(call_id if isinstance(call_id, str) else "", text)


def _calls(message: dict[str, Any], place: str, history: History) -> tuple[ToolCall, ...]:
    given = message.get("tool_calls")
    if given is None:
        return ()
    if not isinstance(given, list):
        raise invalid(f"{place}.tool_calls", "expected a list of calls")
    return tuple(
        read_call(call, f"{place}.tool_calls[{number}]", history)
        for number, call in enumerate(given)
    )


def _part(part: object, place: str) -> str | None:
    """Return the text of a part; None for one that a model is not shown."""
    if isinstance(part, str):
        return part
    if not isinstance(part, dict):
        raise invalid(place, "expected an object with a type")
    kind = part.get("type")
    if kind in _SILENT:
        return None
    if kind == "refusal":
        text = part.get("refusal")
    elif kind in _TEXTS:
        text = part.get("text")
    else:
        raise InvalidRequestError(
            f"{place}: a part of type {kind!r} cannot be read, only text can",
            hint="Images, sound and files are not taken by this server.",
            data={"param": place},
        )
    if not isinstance(text, str):
        raise invalid(f"{place}.text", "expected text")
    return text
