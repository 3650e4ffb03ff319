"""Reads JSON that comes in pieces: where an object ends, and a call while it is written.

Forward only, no recursion.
"""

import re

_INTERESTING = re.compile(r'["{}\[\]]')
_IN_STRING = re.compile(r'["\\]')

# What stands before the arguments where the keys come in the usual order.
_HEAD_CHARS = 1_000
_BESIDE = r'(?:"(?:type|id)"\s*:\s*"[^"\\]*"\s*,\s*)*'
_HEAD = re.compile(
    rf'\s*\[?\s*\{{\s*{_BESIDE}"name"\s*:\s*"(?P<name>[^"\\]+)"\s*,\s*'
    rf'{_BESIDE}"(?:arguments|parameters)"\s*:\s*(?=\{{)'
)


class ObjectScanner:
    """Watches brackets and strings; what is between them is for a real decoder to judge."""

    def __init__(self) -> None:
        self._depth = 0
        self._in_string = False
        self._is_escaped = False

    def scan(self, text: str) -> int:
        """Take the next text, the first of which begins with a bracket.

        Returns:
            How many characters of it belong to the object; -1 when the object goes on.
        """
        at = 0
        while at < len(text):
            if self._is_escaped:
                self._is_escaped = False
                at += 1
                continue
            found = (_IN_STRING if self._in_string else _INTERESTING).search(text, at)
            if found is None:
                return -1
            at = found.end()
            if self._take(found[0]):
                return at
        return -1

    def _take(self, char: str) -> bool:
        """Take a character that matters; say whether the object ends with it."""
        match char:
            case "\\":
                self._is_escaped = True
            case '"':
                self._in_string = not self._in_string
            case "{" | "[":
                self._depth += 1
            case _:
                self._depth -= 1
                return self._depth <= 0
        return False


class CallWatch:
    """Tells the name and the arguments of a call while its JSON is being written.

    Only what is one already is told: the name before the arguments, and these as an object. Of a
    list it is the first call.

    Args:
        name: of a call whose JSON is its arguments alone.
    """

    def __init__(self, name: str = "") -> None:
        self.name = name
        self._head = ""
        self._scanner = ObjectScanner() if name else None
        self._is_over = False

    def feed(self, text: str) -> str:
        """Take the next text; return what of it are arguments."""
        if self._is_over:
            return ""
        if self._scanner is None:
            self._head += text
            found = _HEAD.match(self._head)
            if found is None:
                self._is_over = len(self._head) > _HEAD_CHARS
                return ""
            self.name, text = found["name"], self._head[found.end() :]
            self._scanner = ObjectScanner()
        end = self._scanner.scan(text) if text else -1
        self._is_over = end >= 0
        return text[:end] if self._is_over else text
