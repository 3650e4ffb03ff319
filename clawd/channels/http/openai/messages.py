"""The `messages` of a chat body, in every form that clients send."""

from collections.abc import Sequence
from typing import Any

import msgspec

from clawd.channels.http.body import check_items, invalid
from clawd.channels.http.pictures import SentPicture, picture_at
from clawd.errors import InvalidRequestError
from clawd.providers.base import Message, ToolCall

# A conversation as a client tells it, gathered message by message into clawd's own form.


class History:
    """Gathers messages; a result learns of which tool it is."""

    def __init__(self) -> None:
        self._system: list[str] = []
        self._messages: list[Message] = []
        self._names: dict[str, str] = {}
        self._thoughts: list[str] = []
        self._made = 0

    @property
    def system(self) -> str | None:
        """The system messages as one text, wherever they stood; None where there were none."""
        return "\n\n".join(self._system) or None

    @property
    def messages(self) -> tuple[Message, ...]:
        """The others, oldest first; what nobody said where there is a system message alone."""
        return tuple(self._messages) or (Message(role="user", content=""),)

    @property
    def is_one_pass(self) -> bool:
        """Whether nobody says anything: it ends with the beginning of an answer, or is empty."""
        last = self._messages[-1] if self._messages else None
        return last is None or (last.role == "assistant" and not last.tool_calls)

    def add_system(self, text: str) -> None:
        """Take a message of role system or developer."""
        if text:
            self._system.append(text)

    def add_user(self, text: str, pictures: Sequence[SentPicture] = ()) -> None:
        """Take what the user said and showed."""
        self._thoughts.clear()
        self._messages.append(Message(role="user", content=text, pictures=tuple(pictures)))

    def add_assistant(
        self, text: str, calls: tuple[ToolCall, ...] = (), reasoning: str = ""
    ) -> None:
        """Take what the model said, the calls it made, and what it thought before."""
        for call in calls:
            self._names[call.id] = call.name
        self._messages.append(
            Message(role="assistant", content=text or None, tool_calls=calls, reasoning=reasoning)
        )

    def think(self, reasoning: str) -> None:
        """Take what the model thought before what it says or calls next."""
        self._thoughts.append(reasoning)

    def _spoken(self) -> Message | None:
        """Return the message of the model that is gone on with, if one is."""
        last = self._messages[-1] if self._messages else None
        if last is None or last.role != "assistant":
            return None
        return msgspec.structs.replace(last, reasoning=self._thought(last.reasoning))

    def _thought(self, before: str = "") -> str:
        thoughts = "\n\n".join(filter(None, (before, *self._thoughts)))
        self._thoughts.clear()
        return thoughts

    def go_on(self, text: str) -> None:
        """Take more of what the model said; it joins what it said and called just before."""
        last = self._spoken()
        if last is None:
            self.add_assistant(text, reasoning=self._thought())
            return
        said = (last.content or "") + text
        self._messages[-1] = msgspec.structs.replace(last, content=said or None)

    def add_call(self, call: ToolCall) -> None:
        """Take one call; it joins what the model said just before."""
        last = self._spoken()
        if last is None:
            self.add_assistant("", (call,), self._thought())
            return
        self._names[call.id] = call.name
        self._messages[-1] = msgspec.structs.replace(last, tool_calls=(*last.tool_calls, call))

    def add_result(self, call_id: str, text: str, pictures: Sequence[SentPicture] = ()) -> None:
        """Take the result of a call; one without an id is that of the next call without one."""
        call_id = call_id or self._next_unanswered()
        name = self._names.get(call_id, "")
        said = Message(role="tool", content=text, tool_call_id=call_id, name=name)
        self._messages.append(msgspec.structs.replace(said, pictures=tuple(pictures)))

    def made_id(self) -> str:
        """Return an id for a call that came without one."""
        self._made += 1
        return f"call_unnamed_{self._made}"

    def checked(self, name: str = "messages") -> None:
        """Refuse what no model can answer; `name` is the field it came in.

        Raises:
            InvalidRequestError: nothing was said, or two assistant messages stand at the end.
        """
        if not self._messages and not self._system:
            raise invalid(name, "expected at least one message")
        if len(self._messages) > 1 and all(
            message.role == "assistant" for message in self._messages[-2:]
        ):
            raise InvalidRequestError(
                f"{name}: two assistant messages stand at the end",
                hint="One, the beginning of the answer, is gone on with.",
                data={"param": name},
            )

    def _next_unanswered(self) -> str:
        answered = {message.tool_call_id for message in self._messages}
        return next((call_id for call_id in self._names if call_id not in answered), "")


# Tuples, not sets: what is looked up in them may be a list of the client's.
_TEXTS = ("text", "input_text", "output_text")
_PICTURES = ("image_url", "input_image")
_SILENT = ("thinking", "redacted_thinking", "reasoning", "reasoning_text")
_REASONING = ("reasoning_content", "reasoning", "thinking")
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


def read_content(
    content: object,
    place: str,
    *,
    between: str = "\n",
    seen: list[SentPicture] | None = None,
) -> str:
    """Return content as text: a text, a list of parts, or null.

    Args:
        content: as the client sent it.
        place: where it stands, for errors.
        between: what joins parts.
        seen: takes the pictures; None refuses them.

    Raises:
        InvalidRequestError: it is something else, or a part is no text.
    """
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise invalid(place, "expected text or a list of parts")
    texts: list[str | None] = []
    for number, part in enumerate(content):
        here = f"{place}[{number}]"
        if seen is not None and isinstance(part, dict) and part.get("type") in _PICTURES:
            seen.append(_picture(part, here))
        else:
            texts.append(_part(part, here))
    return between.join(text for text in texts if text is not None)


def _picture(part: dict[str, Any], place: str) -> SentPicture:
    """Return the picture of a part: `{"url": …}` in Chat Completions, a text in Responses.

    Raises:
        InvalidRequestError: it has none, or only the id of a file.
    """
    given = part.get("image_url")
    if given is None and part.get("file_id") is not None:
        raise invalid(f"{place}.file_id", "no files are kept here; send the picture itself")
    return picture_at(given.get("url") if isinstance(given, dict) else given, f"{place}.image_url")


def _read_call(call: object, place: str, history: History) -> ToolCall:
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
    seen: list[SentPicture] | None = [] if role in {"user", "tool"} else None
    text = read_content(content, f"{place}.content", between=between, seen=seen)
    match role:
        case "system" | "developer":
            history.add_system(text)
        case "user":
            if content is None:
                raise invalid(f"{place}.content", "expected what the user says")
            history.add_user(text, seen or ())
        case "assistant":
            history.add_assistant(text, _calls(message, place, history), _read_reasoning(message))
        case _:
            call_id = message.get("tool_call_id")
            history.add_result(call_id if isinstance(call_id, str) else "", text, seen or ())


def _read_reasoning(message: dict[str, Any]) -> str:
    """Return what the model thought before an answer of its own, in whichever field it came back.

    Clients that know no such field send none, so one of another form is passed over.
    """
    for name in _REASONING:
        if isinstance(found := message.get(name), str) and found:
            return found
    content = message.get("content")
    return reasoning_parts(content) if isinstance(content, list) else ""


def reasoning_parts(parts: list[Any]) -> str:
    """Return the text of those parts that hold reasoning; parts of it may be parts again."""
    texts: list[str] = []
    for part in parts:
        if isinstance(part, dict) and part.get("type") in (*_SILENT, "summary_text"):
            held = part.get("thinking", part.get("text"))
            if isinstance(held, list):
                texts += (str(one.get("text", "")) for one in held if isinstance(one, dict))
            elif isinstance(held, str):
                texts.append(held)
    return "\n\n".join(filter(None, texts))


def _calls(message: dict[str, Any], place: str, history: History) -> tuple[ToolCall, ...]:
    given = message.get("tool_calls")
    if given is None:
        return ()
    if not isinstance(given, list):
        raise invalid(f"{place}.tool_calls", "expected a list of calls")
    return tuple(
        _read_call(call, f"{place}.tool_calls[{number}]", history)
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
            f"{place}: a part of type {kind!r} cannot be read here",
            hint="Text can, and pictures can in messages of the user and of tools; sound and files "
            "are not taken by this server.",
            data={"param": place},
        )
    if not isinstance(text, str):
        raise invalid(f"{place}.text", "expected text")
    return text
