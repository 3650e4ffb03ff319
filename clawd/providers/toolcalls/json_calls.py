"""Calls and arguments written as JSON: what of them is whole and well formed."""

import re
from typing import Any

import msgspec

from clawd.providers.toolcalls.pull import Markers, Reading, Source

_NAME = re.compile(r"\w[\w.:/-]*")
_BRACE = Markers("{")


class JsonCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call written as an object; unknown keys are passed over."""

    name: str
    arguments: msgspec.Raw = msgspec.Raw()
    parameters: msgspec.Raw = msgspec.Raw()
    id: str | int | None = None

    def argument_text(self) -> str:
        """Return the arguments as the model wrote them, "" when they are no object."""
        return object_text(bytes(self.arguments or self.parameters).decode("utf-8") or "{}")


def decode_calls(text: str) -> list[JsonCall]:
    """Decode an object or an array of objects; empty when any of them is no call."""
    try:
        if text.startswith("["):
            calls = msgspec.json.decode(text, type=list[JsonCall])
        else:
            calls = [msgspec.json.decode(text, type=JsonCall)]
        is_whole = all(call.name and call.argument_text() for call in calls)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return []
    return calls if is_whole else []


def object_text(text: str) -> str:
    """Return the text of a JSON object; one inside a string is unpacked, null is an empty one."""
    value = decode(text)
    if isinstance(value, str):
        text, value = value, decode(value)
    if value is None:
        return "{}" if text == "null" else ""
    return text if isinstance(value, dict) else ""


def decode(text: str) -> Any:
    """Decode JSON; None when it is not well formed (and for null)."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None


def is_name(text: str) -> bool:
    """Say whether this can be the name of a tool."""
    return _NAME.fullmatch(text) is not None


def read_object(source: Source) -> Reading[str]:
    """Read an object after blanks; "" when none comes, or one that is not well formed."""
    yield from source.blanks()
    begun = yield from source.one_of(_BRACE)
    if not begun:
        return ""
    return object_text((yield from source.json(begun)))
