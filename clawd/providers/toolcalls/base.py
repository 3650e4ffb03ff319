"""What a streaming tool-call parser takes and gives, and calls as JSON.

Families differ in the keys of an object only, so all of them are known here:

    {"name": "file_list", "arguments": {"path": "src"}}
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, Protocol

import msgspec

from clawd.engine.protocol import CallFrame
from clawd.providers.base import CallDelta
from clawd.wire.events import ReasoningDelta, TextDelta, ToolDraft

THINK = ("<think>", "</think>")
ParsedDelta = TextDelta | ReasoningDelta | CallDelta | ToolDraft
Frames = tuple[CallFrame, ...]


class ToolCallParser(Protocol):
    """Turns a model's text into deltas: forward only, linear, without recursion.

    In whatever pieces a text is fed, the deltas add up to the same text, reasoning and calls.
    Nothing raises: what is no call is text, verbatim. A call is delivered whole, so that nothing
    of one that turns out malformed is ever acted on; its `id` is left empty. Where the options ask
    for it, a call is told while it is written instead: its name, then its arguments in pieces. One
    that breaks off stays as far as it came, so its arguments are no JSON.
    """

    def feed(self, text: str) -> list[ParsedDelta]:
        """Take the next text of the model."""
        ...

    def finish(self, *, is_cut: bool = False) -> list[ParsedDelta]:
        """Take the end of the text; nothing is fed after it.

        Of a text that was cut (`is_cut`) the beginning of a call at its end is no text.
        """
        ...


class ParserOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a parser is made for.

    Attributes:
        calls: look for tool calls; False when no tool is offered.
        starts_in_reasoning: the prompt ends with the marker that opens reasoning.
        has_begun: the prompt ends with the beginning of the answer.
        streams: tell calls of offered tools while they are written, where the format allows it.
        drafts: without that, show what is being written of such a call as drafts; it comes whole.
        schemas: the offered tools' parameters by name, as JSON Schema; what a format's bare
            values are typed by.
    """

    calls: bool = True
    starts_in_reasoning: bool = False
    has_begun: bool = False
    streams: bool = False
    drafts: bool = False
    schemas: dict[str, dict[str, Any]] = {}


ParserFactory = Callable[[ParserOptions], ToolCallParser]


def split_at_marker(text: str, markers: Sequence[str]) -> tuple[str, str, str]:
    """Split at the earliest marker: what is before it, the marker, what is after it.

    Without a whole marker the second part is empty, and the third is the longest end of the text
    that may still become one.
    """
    found = [(at, marker) for marker in markers if (at := text.find(marker)) >= 0]
    if found:
        at, marker = min(found)
        return text[:at], marker, text[at + len(marker) :]
    held = max((_overlap(text, marker) for marker in markers), default=0)
    return text[: len(text) - held], "", text[len(text) - held :]


def _overlap(text: str, marker: str) -> int:
    """Return the length of the longest end of the text with which the marker begins."""
    for length in range(min(len(marker) - 1, len(text)), 0, -1):
        if text.endswith(marker[:length]):
            return length
    return 0


class ParsedCall(NamedTuple):
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


def json_calls(text: str, options: ParserOptions) -> list[ParsedCall] | None:
    """Return the calls of an object or a list; None when one of them is no call."""
    del options
    calls = [_call(raw) for raw in _items(text)]
    return _all(calls)


def answer_calls(text: str, options: ParserOptions) -> list[ParsedCall] | None:
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


def action_calls(text: str, options: ParserOptions) -> list[ParsedCall] | None:
    """Return a list of Command's actions; one that says to answer without a tool is no call."""
    calls = json_calls(text, options)
    if calls is None:
        return None
    return [call for call in calls if call.name not in _DIRECT_ANSWERS]


def keyed_calls(text: str, options: ParserOptions) -> list[ParsedCall] | None:
    """Return calls whose name is the key: `[{"file_list": {"path": "src"}}]`."""
    del options
    calls: list[ParsedCall | None] = []
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


def _call(raw: bytes) -> ParsedCall | None:
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


def _named(name: str, raw: msgspec.Raw) -> ParsedCall | None:
    arguments = object_arguments(bytes(raw))
    return ParsedCall(name, arguments) if name and arguments is not None else None


def _all(calls: Iterable[ParsedCall | None]) -> list[ParsedCall] | None:
    """Return the calls when there are any and each is one: nothing is half executed."""
    whole = list(calls)
    good = [call for call in whole if call is not None]
    return good if good and len(good) == len(whole) else None
