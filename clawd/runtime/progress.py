"""When a turn goes in circles: the same call again and again, or rounds that bring nothing new."""

import hashlib
from collections.abc import Sequence

import msgspec

from clawd.providers.base import ToolCall

SAME_CALL_LIMIT = 3
STALE_ROUND_LIMIT = 6


class LoopGuard:
    """Watches the rounds of one turn."""

    def __init__(self) -> None:
        self._last: tuple[str, bytes] = ("", b"")
        self._repeats = 0
        self._seen: set[bytes] = set()
        self._stale_rounds = 0

    def note(self, calls: Sequence[ToolCall], results: Sequence[str]) -> str:
        """Take a finished round; return why the turn should stop, or ""."""
        for call in calls:
            this = (call.name, _canonical(call.arguments))
            self._repeats = self._repeats + 1 if this == self._last else 1
            self._last = this
            if self._repeats >= SAME_CALL_LIMIT:
                return f"the same {call.name} call was made {self._repeats} times in a row"
        marks = {hashlib.sha256(text.encode(errors="replace")).digest() for text in results}
        self._stale_rounds = self._stale_rounds + 1 if marks <= self._seen else 0
        self._seen |= marks
        if self._stale_rounds >= STALE_ROUND_LIMIT:
            return f"{self._stale_rounds} rounds in a row brought nothing new"
        return ""


def _canonical(arguments: str) -> bytes:
    """Return JSON arguments without what makes no difference: blanks and the order of keys.

    Blanks around a value count as none, as they do where paths and commands are read.
    """
    try:
        value = msgspec.json.decode(arguments)
        if isinstance(value, dict):
            value = {key: _trimmed(item) for key, item in value.items()}
        return msgspec.json.encode(value, order="sorted")
    except (msgspec.DecodeError, UnicodeError, RecursionError, TypeError):
        return arguments.encode(errors="replace")


def _trimmed(value: object) -> object:
    return value.strip() if isinstance(value, str) else value
