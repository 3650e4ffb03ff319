"""The content blocks of Anthropic's messages as messages of ours. Pure.

user       tool_result blocks first, as messages of role tool; then what the user says
assistant  text and tool_use; thoughts stay out, no template shows old ones
"""

from typing import Any

import msgspec

from clawd.channels.http.body import field, invalid
from clawd.errors import InvalidRequestError
from clawd.providers.base import Message, Role, ToolCall

_BETWEEN = "\n\n"
_FAILED = "error: "
_FAILURES = (_FAILED, "denied: ")
_NO_VISION = "the model sees no images and no files, only text"


class Turns:
    """Collects the messages; `system` holds what stands among them as system."""

    def __init__(self) -> None:
        self.system: list[str] = []
        self._out: list[Message] = []
        self._names: dict[str, str] = {}

    def add(self, where: str, message: Any) -> None:
        """Take one message.

        Raises:
            InvalidRequestError: it cannot be meant; says where.
        """
        if not isinstance(message, dict):
            raise invalid(where, "expected an object")
        content = f"{where}.content"
        blocks = _blocks(content, message.get("content"))
        match message.get("role"):
            case "user":
                self._user(content, blocks)
            case "assistant":
                self._assistant(content, blocks)
            case "system":
                self.system += [text_of(content, block) for block in blocks]
            case role:
                raise invalid(f"{where}.role", f"{role!r} is neither user nor assistant")

    def messages(self) -> tuple[Message, ...]:
        """Return the messages; neighbours of one role are one turn."""
        return tuple(self._out)

    def _user(self, where: str, blocks: list[dict[str, Any]]) -> None:
        said: list[str] = []
        for number, block in enumerate(blocks):
            here = f"{where}[{number}]"
            if block.get("type") == "tool_result":
                self._out.append(self._result(here, block))
            else:
                said.append(text_of(here, block))
        if said or not blocks:
            self._say("user", _BETWEEN.join(said))

    def _result(self, where: str, block: dict[str, Any]) -> Message:
        call_id = field(block, "tool_use_id", str, "", at=where)
        if not call_id:
            raise invalid(f"{where}.tool_use_id", "a result needs the id of its call")
        inner = f"{where}.content"
        parts = _blocks(inner, block.get("content"))
        text = "\n".join(text_of(f"{inner}[{number}]", part) for number, part in enumerate(parts))
        if field(block, "is_error", bool, default=False, at=where) and not text.startswith(
            _FAILURES
        ):
            text = _FAILED + text
        name = self._names.get(call_id, "")
        return Message(role="tool", content=text, tool_call_id=call_id, name=name)

    def _assistant(self, where: str, blocks: list[dict[str, Any]]) -> None:
        said: list[str] = []
        calls: list[ToolCall] = []
        for number, block in enumerate(blocks):
            match block.get("type"):
                case "text":
                    said.append(text_of(f"{where}[{number}]", block))
                case "tool_use":
                    calls.append(self._call(f"{where}[{number}]", block))
                case _:
                    # Thoughts, and what the vendor's servers did.
                    continue
        self._say("assistant", "".join(said), tuple(calls))

    def _call(self, where: str, block: dict[str, Any]) -> ToolCall:
        call_id, name = (field(block, key, str, "", at=where) for key in ("id", "name"))
        if not call_id or not name:
            raise invalid(where, "a tool_use needs an id and a name")
        self._names[call_id] = name
        given = field(block, "input", dict[str, Any], {}, at=where)
        return ToolCall(id=call_id, name=name, arguments=msgspec.json.encode(given).decode())

    def _say(self, role: Role, text: str, calls: tuple[ToolCall, ...] = ()) -> None:
        last = self._out[-1] if self._out else None
        if last is None or last.role != role:
            self._out.append(Message(role=role, content=text, tool_calls=calls))
            return
        between = _BETWEEN if last.content and text else ""
        self._out[-1] = Message(
            role=role,
            content=f"{last.content or ''}{between}{text}",
            tool_calls=(*last.tool_calls, *calls),
        )


def text_of(where: str, block: Any) -> str:
    """Return the text of a block.

    Raises:
        InvalidRequestError: there is none; says where.
    """
    if not isinstance(block, dict):
        raise invalid(where, "expected an object with a type")
    match block.get("type"):
        case "text" if block.get("text") is not None:
            return field(block, "text", str, "", at=where)
        case "text":
            raise invalid(f"{where}.text", "expected text")
        case "document":
            return _document(where, block)
        case "search_result":
            parts = _blocks(f"{where}.content", block.get("content"))
            heads = [field(block, key, str, "", at=where) for key in ("title", "source")]
            return "\n".join([*filter(None, heads), *(text_of(where, part) for part in parts)])
        case "tool_reference":
            return field(block, "tool_name", str, "", at=where)
        case "image":
            raise _unseen(where, "image")
        case kind:
            raise invalid(f"{where}.type", f"{kind!r} is no block that is understood here")


def _document(where: str, block: dict[str, Any]) -> str:
    source = field(block, "source", dict[str, Any], {}, at=where)
    match source.get("type"):
        case "text":
            return field(source, "data", str, "", at=f"{where}.source")
        case "content":
            parts = _blocks(f"{where}.source.content", source.get("content"))
            return "\n".join(text_of(where, part) for part in parts)
        case _:
            raise _unseen(where, "document")


def _unseen(where: str, kind: str) -> InvalidRequestError:
    return invalid(where, f"a block of type {kind} cannot be read: {_NO_VISION}")


def _blocks(where: str, content: Any) -> list[dict[str, Any]]:
    """Return content as blocks: a text is one block, null and "" are none."""
    if content is None or content == "":
        return []
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    if not isinstance(content, list):
        raise invalid(where, "expected a text or a list of blocks")
    for number, block in enumerate(content):
        if not isinstance(block, dict):
            raise invalid(f"{where}[{number}]", "expected an object with a type")
    return content
