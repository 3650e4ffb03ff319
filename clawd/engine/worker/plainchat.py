"""Conversations rewritten for templates that are strict or know no tools, and ChatML."""

import hashlib
import json
import re
from collections.abc import Sequence
from typing import Any

import msgspec

from clawd.engine.protocol import ChatCall, ChatMessage

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
            content = "" if number else message.content
            parted.append(msgspec.structs.replace(message, content=content, tool_calls=(call,)))
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
    described = "\n".join(json.dumps(tool, ensure_ascii=False) for tool in tools)
    description = f"{_HOW_TO_CALL}<tools>\n{described}\n</tools>"
    if plain and plain[0].role == "system":
        return [_with_content(plain[0], _joined(plain[0].content, description)), *plain[1:]]
    return [ChatMessage(role="system", content=description), *plain]


def _without_calls(message: ChatMessage) -> ChatMessage:
    if message.role == "tool":
        content = f"<tool_response>\n{message.content}\n</tool_response>"
        return ChatMessage(role="user", content=content)
    if not message.tool_calls:
        return message
    calls = "\n".join(_call_as_text(call) for call in message.tool_calls)
    content = f"{message.content}\n{calls}" if message.content else calls
    return ChatMessage(role=message.role, content=content)


def _call_as_text(call: ChatCall) -> str:
    name = json.dumps(call.name, ensure_ascii=False)
    return f'<tool_call>\n{{"name": {name}, "arguments": {call.arguments or "{}"}}}\n</tool_call>'


def _with_content(message: ChatMessage, content: str) -> ChatMessage:
    return msgspec.structs.replace(message, content=content)


def _joined(first: str, second: str) -> str:
    return f"{first}\n\n{second}" if first and second else first or second
