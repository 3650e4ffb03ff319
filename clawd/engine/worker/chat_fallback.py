"""Conversations rewritten for templates that are strict or know no tools, and ChatML."""

import hashlib
import json
import re
from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec

from clawd.engine.protocol import CallFrame, ChatCall, ChatMessage, ParameterForm

CHATML = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
_HOW_TO_CALL = (
    "You can call these functions. To call one, answer with\n"
    '<tool_call>\n{"name": "its name", "arguments": {its arguments as JSON}}\n</tool_call>\n'
    "and wait for the result.\n"
)


_SHORT_ID = re.compile(r"[A-Za-z0-9]{9}")
_HOLE = re.compile(r"%([^%]+)%")


def shorten_ids(messages: Sequence[ChatMessage]) -> list[ChatMessage]:
    """Return the messages with ids of calls of nine letters and digits, always the same ones."""
    return [
        msgspec.structs.replace(
            message,
            tool_call_id=_short(message.tool_call_id),
            tool_calls=tuple(
                msgspec.structs.replace(call, id=_short(call.id)) for call in message.tool_calls
            ),
        )
        if message.tool_calls or message.tool_call_id
        else message
        for message in messages
    ]


def name_ids(messages: Sequence[ChatMessage]) -> list[ChatMessage]:
    """Return the messages with ids of calls that name the tool and count: `functions.look:0`."""
    known: dict[str, str] = {}
    named: list[ChatMessage] = []
    count = 0
    for message in messages:
        calls: list[ChatCall] = []
        for call in message.tool_calls:
            known[call.id] = f"functions.{call.name}:{count}"
            calls.append(msgspec.structs.replace(call, id=known[call.id]))
            count += 1
        answered = known.get(message.tool_call_id, message.tool_call_id)
        named.append(
            msgspec.structs.replace(message, tool_calls=tuple(calls), tool_call_id=answered)
        )
    return named


def part_remarks(messages: Sequence[ChatMessage]) -> list[ChatMessage]:
    """Return the messages with the text beside calls in a message before them."""
    parted: list[ChatMessage] = []
    for message in messages:
        if message.tool_calls and message.content:
            parted.append(msgspec.structs.replace(message, tool_calls=()))
            message = msgspec.structs.replace(message, content="", reasoning="")
        parted.append(message)
    return parted


def calls_as_text(
    messages: Sequence[ChatMessage], frames: tuple[CallFrame, ...]
) -> list[ChatMessage]:
    """Return the messages with calls written out in the model's own form, in tags without one."""
    frame = frames[0] if frames else None
    return [
        msgspec.structs.replace(
            message,
            content=_joined(message.content, calls_in_frame(message.tool_calls, frame), "\n"),
            tool_calls=(),
        )
        if message.tool_calls
        else message
        for message in messages
    ]


def calls_in_frame(calls: Sequence[ChatCall], frame: CallFrame | None) -> str:
    """Return calls as a model that is held to a frame may write them; in tags without one."""
    if frame is None or (frame.marker == "<tool_call>" and frame.parameters is None):
        return "\n".join(map(_call_as_text, calls))
    written: list[str] = []
    for number, call in enumerate(calls):
        holes: dict[str, str] = {
            "name": call.name,
            '"name"': json.dumps(call.name, ensure_ascii=False),
            "arguments": _arguments_in_form(call.arguments, frame.parameters),
            "digits": str(number),
            "id": _short(call.id),
        }
        text = frame.call.replace(":%ws%", ": ").replace(",%ws%", ", ")
        written.append(_HOLE.sub(partial(_filled, holes), text))
    parts = (frame.opening, (frame.separator or "").replace(",%ws%", ", "), frame.closing)
    opening, separator, closing = (_HOLE.sub("", part) for part in parts)
    return f"{opening}{separator.join(written)}{closing}"


def _filled(holes: dict[str, str], found: re.Match[str]) -> str:
    name = found[1]
    return name[1:] if name.startswith("?") else holes.get(name, "")


def _arguments_in_form(arguments: str, form: ParameterForm | None) -> str:
    if form is None:
        return arguments or "{}"
    try:
        values = json.loads(arguments or "{}")
    except (ValueError, RecursionError):
        return arguments
    written = []
    for key, value in values.items() if isinstance(values, dict) else ():
        if isinstance(value, str) and form.strings:
            string = form.strings[0]
            text = f"{string.key.replace('%key%', key)}{value}{string.stop}{string.end}"
        else:
            value = json.dumps(value, ensure_ascii=False)
            text = f"{form.key.replace('%key%', key)}{value}{form.end}"
        written.append(text)
    return form.separator.join(written).replace("%ws%", "")


def part_calls(messages: Sequence[ChatMessage]) -> list[ChatMessage]:
    """Return the messages with one call each, and the result of each call behind it."""
    parted: list[ChatMessage] = []
    at = 0
    while at < len(messages):
        message = messages[at]
        at += 1
        if len(message.tool_calls) < 2:
            parted.append(message)
            continue
        results: list[ChatMessage] = []
        while at < len(messages) and messages[at].role == "tool":
            results.append(messages[at])
            at += 1
        for number, call in enumerate(message.tool_calls):
            said = msgspec.structs.replace(message, content="", reasoning="") if number else message
            parted.append(msgspec.structs.replace(said, tool_calls=(call,)))
            parted += [each for each in results if each.tool_call_id == call.id]
        known = {call.id for call in message.tool_calls}
        parted += [each for each in results if each.tool_call_id not in known]
    return parted


def _short(call_id: str) -> str:
    if not call_id or _SHORT_ID.fullmatch(call_id):
        return call_id
    return hashlib.sha256(call_id.encode()).hexdigest()[:9]


def merge_system(messages: Sequence[ChatMessage]) -> list[ChatMessage]:
    """Return the messages with all system text at the head of the first user message."""
    system = "\n\n".join(
        message.content for message in messages if message.role == "system" and message.content
    )
    others = [message for message in messages if message.role != "system"]
    if not system:
        return others
    for index, message in enumerate(others):
        if message.role == "user":
            others[index] = _with_content(message, _joined(system, message.content))
            return others
    return [ChatMessage(role="user", content=system), *others]


def merge_neighbours(messages: Sequence[ChatMessage]) -> list[ChatMessage]:
    """Return the messages with neighbours of the same role joined (no calls among them)."""
    merged: list[ChatMessage] = []
    for message in messages:
        if merged and merged[-1].role == message.role:
            merged[-1] = _with_content(merged[-1], _joined(merged[-1].content, message.content))
        else:
            merged.append(message)
    return merged


def tools_as_text(
    messages: Sequence[ChatMessage], tools: Sequence[dict[str, Any]]
) -> list[ChatMessage]:
    """Return the messages with tools described in the system message, calls and results as text."""
    plain = [_without_calls(message) for message in messages]
    if not tools:
        return plain
    described = "\n".join(map(_function_as_text, tools))
    description = f"{_HOW_TO_CALL}<tools>\n{described}\n</tools>"
    if plain and plain[0].role == "system":
        return [_with_content(plain[0], _joined(plain[0].content, description)), *plain[1:]]
    return [ChatMessage(role="system", content=description), *plain]


def _function_as_text(tool: dict[str, Any]) -> str:
    """Return a tool as JSON, without what all of them have in common."""
    return json.dumps(tool.get("function", tool), ensure_ascii=False, separators=(",", ":"))


def _without_calls(message: ChatMessage) -> ChatMessage:
    if message.role == "tool":
        content = f"<tool_response>\n{message.content}\n</tool_response>"
        return ChatMessage(role="user", content=content)
    if not message.tool_calls:
        return message
    calls = "\n".join(_call_as_text(call) for call in message.tool_calls)
    content = f"{message.content}\n{calls}" if message.content else calls
    return ChatMessage(role=message.role, content=content, reasoning=message.reasoning)


def _call_as_text(call: ChatCall) -> str:
    name = json.dumps(call.name, ensure_ascii=False)
    return f'<tool_call>\n{{"name": {name}, "arguments": {call.arguments or "{}"}}}\n</tool_call>'


def _with_content(message: ChatMessage, content: str) -> ChatMessage:
    return msgspec.structs.replace(message, content=content)


def _joined(first: str, second: str, between: str = "\n\n") -> str:
    return f"{first}{between}{second}" if first and second else first or second
