"""Decodes calls that are written as JSON: one object, or a list of them.

    {"name": "file_list", "arguments": {"path": "src"}}

Families differ in the keys only, so all of them are known here.
"""

from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from clawd.providers.toolcalls.base import ParserOptions


class Call(NamedTuple):
    """A tool's name and its arguments, as JSON text."""

    name: str
    arguments: str


class _Function(msgspec.Struct, frozen=True, kw_only=True):
    name: str = ""
    arguments: msgspec.Raw = msgspec.Raw()
    parameters: msgspec.Raw = msgspec.Raw()


class _Call(_Function, frozen=True, kw_only=True):
    tool_name: str = ""
    function: msgspec.Raw = msgspec.Raw()


_ERRORS = (msgspec.DecodeError, UnicodeError, RecursionError)
_DIRECT_ANSWERS = frozenset({"directly-answer", "directly_answer"})


def json_calls(text: str, options: ParserOptions) -> list[Call] | None:
    """Return the calls of an object or a list; None when one of them is no call."""
    del options
    calls = [_call(raw) for raw in _items(text)]
    return _all(calls)


def answer_calls(text: str, options: ParserOptions) -> list[Call] | None:
    """Return the calls of JSON that might be an answer as well.

    It is one of calls when it has arguments and, where the offered tools are known, names them.
    """
    found: list[_Call] = []
    for raw in _items(text):
        try:
            found.append(msgspec.json.decode(raw, type=_Call))
        except _ERRORS:
            return None
    if not all(_has_arguments(one) for one in found):
        return None
    calls = json_calls(text, options)
    if calls and options.schemas and not all(call.name in options.schemas for call in calls):
        return None
    return calls


def action_calls(text: str, options: ParserOptions) -> list[Call] | None:
    """Return a list of Command's actions; one that says to answer without a tool is no call."""
    calls = json_calls(text, options)
    if calls is None:
        return None
    return [call for call in calls if call.name not in _DIRECT_ANSWERS]


def keyed_calls(text: str, options: ParserOptions) -> list[Call] | None:
    """Return calls whose name is the key: `[{"file_list": {"path": "src"}}]`."""
    del options
    calls: list[Call | None] = []
    for raw in _items(text):
        try:
            call = msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
        except _ERRORS:
            return None
        calls += [_named(name, arguments) for name, arguments in call.items()]
    return _all(calls)


def object_arguments(raw: bytes) -> str | None:
    """Return arguments as the model wrote them; nothing and null are an empty object."""
    try:
        text = raw.decode("utf-8").strip()
        if text.startswith('"'):
            text = msgspec.json.decode(text, type=str).strip()
        if text in {"", "null"}:
            return "{}"
        msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    except _ERRORS:
        return None
    return text


def _has_arguments(call: _Call) -> bool:
    return bool(call.arguments or call.parameters) or bytes(call.function).startswith(b"{")


def _items(text: str) -> list[bytes]:
    """Return the objects of a list, or the one object; nothing when it is neither."""
    data = text.strip().encode("utf-8", "surrogatepass")
    if not data.startswith(b"["):
        return [data]
    try:
        return [bytes(raw) for raw in msgspec.json.decode(data, type=list[msgspec.Raw])]
    except _ERRORS:
        return []


def _call(raw: bytes) -> Call | None:
    try:
        call = msgspec.json.decode(raw, type=_Call)
        function = bytes(call.function)
        if function.startswith(b"{"):
            inner = msgspec.json.decode(function, type=_Function)
            return _named(inner.name, inner.arguments or inner.parameters)
        name = call.name or call.tool_name
        if function.startswith(b'"') and not name:
            name = msgspec.json.decode(function, type=str)
    except _ERRORS:
        return None
    return _named(name, call.arguments or call.parameters)


def _named(name: str, raw: msgspec.Raw) -> Call | None:
    arguments = object_arguments(bytes(raw))
    return Call(name, arguments) if name and arguments is not None else None


def _all(calls: Iterable[Call | None]) -> list[Call] | None:
    """Return the calls when there are any and each is one: nothing is half executed."""
    whole = list(calls)
    good = [call for call in whole if call is not None]
    return good if good and len(good) == len(whole) else None
