"""Finds the end of a JSON object in text that comes in pieces: forward only, no recursion."""

import re

_INTERESTING = re.compile(r'["{}\[\]]')
_IN_STRING = re.compile(r'["\\]')


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
