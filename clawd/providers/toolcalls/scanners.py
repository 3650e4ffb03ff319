"""Find where a call's body ends in text that comes in pieces: forward only, no recursion.

What a body means is for the decoders to judge; here only brackets, strings and names count: where
an object ends, and a call while it is written.
"""

import re
from abc import ABC, abstractmethod
from functools import lru_cache
from typing import Protocol

from typing_extensions import override

from clawd.providers.toolcalls.base import split_at_marker

GOES_ON = -1
_MAX_NAME = 128
_NO_NAME = re.compile(r"[^\w.\-]")
_NO_WORD = re.compile(r"\W")
_INTERESTING = re.compile(r'["{}\[\]]')
_IN_STRING = re.compile(r'["\\]')
# What stands before the arguments where the keys come in the usual order.
_HEAD_CHARS = 1_000
_BESIDE = r'(?:"(?:type|id)"\s*:\s*"[^"\\]*"\s*,\s*)*'
_HEAD = re.compile(
    rf'\s*\[?\s*\{{\s*{_BESIDE}"name"\s*:\s*"(?P<name>[^"\\]+)"\s*,\s*'
    rf'{_BESIDE}"(?:arguments|parameters)"\s*:\s*(?=\{{)'
)


class BodyScanner(Protocol):
    """Watches one body.

    `scan` takes the next text and returns how many characters of it belong to the body, or
    `GOES_ON`. With `is_rejected` set the body cannot be one, and what `scan` returned is the place
    of the first character that does not fit.
    """

    is_rejected: bool

    def scan(self, text: str) -> int:
        """Take the next text."""
        ...


class JsonBody:
    """A JSON object or list, after any blanks."""

    def __init__(self, first: str = "[{") -> None:
        self.is_rejected = False
        self._first = first
        self._has_begun = False
        self._scanner = ObjectScanner()

    def scan(self, text: str) -> int:
        """Take the next text."""
        skipped = 0
        if not self._has_begun:
            body = text.lstrip()
            skipped = len(text) - len(body)
            if not body:
                return GOES_ON
            if body[0] not in self._first:
                self.is_rejected = True
                return skipped
            self._has_begun = True
            text = body
        end = self._scanner.scan(text)
        return end if end < 0 else skipped + end


class NamedJson:
    """A name, the character that ends it, and a JSON object: `name>{…}`, or over two lines.

    The name `alone`, where one is given, is a body of its own, without an object.
    """

    def __init__(self, end: str, alone: str = "") -> None:
        self.is_rejected = False
        self._end = end
        self._alone = alone
        self._name = ""
        self._is_named = False
        self._json = JsonBody("{")

    def scan(self, text: str) -> int:
        """Take the next text."""
        at = 0
        if not self._is_named:
            found = _NO_NAME.search(text)
            at = found.end() if found else len(text)
            self._name += text[: found.start() if found else at][: _MAX_NAME + 1]
            if found is None and len(self._name) <= _MAX_NAME:
                return GOES_ON
            if found is None or found[0] != self._end or not self._is_good_name():
                self.is_rejected = True
                return found.start() if found else at
            self._is_named = True
            if self._name == self._alone:
                return at
        end = self._json.scan(text[at:])
        self.is_rejected = self._json.is_rejected
        return end if end < 0 else at + end

    def _is_good_name(self) -> bool:
        return 0 < len(self._name) <= _MAX_NAME


class FencedJson:
    """JSON that may stand in a Markdown fence, the closing one not included."""

    def __init__(self) -> None:
        self.is_rejected = False
        self._ticks = 0
        self._is_open = False
        self._json = JsonBody()

    def scan(self, text: str) -> int:
        """Take the next text."""
        at = 0
        while at < len(text) and not self._is_open:
            if text[at] == "`" and self._ticks < 3:
                self._ticks += 1
            elif self._ticks in {1, 2}:
                self.is_rejected = True
                return at
            elif _NO_WORD.match(text[at]) if self._ticks else not text[at].isspace():
                self._is_open = True
                break
            at += 1
        if not self._is_open:
            return GOES_ON
        end = self._json.scan(text[at:])
        self.is_rejected = self._json.is_rejected
        return end if end < 0 else at + end


class MarkerScanner(ABC):
    """A body whose end is told by markers, of which some may be cut by the end of a piece."""

    def __init__(self) -> None:
        self.is_rejected = False
        self._held = ""

    def scan(self, text: str) -> int:
        """Take the next text."""
        before = len(self._held)
        text = self._held + text
        at = 0
        while found := _pattern(self._markers()).search(text, at):
            at = found.end()
            if self._ends_with(found[0]):
                return at - before
            if self.is_rejected:
                return max(found.start() - before, 0)
        self._held = split_at_marker(text[at:], self._markers())[2]
        return GOES_ON

    @abstractmethod
    def _markers(self) -> tuple[str, ...]:
        """Return what is looked for now; none begins another."""

    @abstractmethod
    def _ends_with(self, marker: str) -> bool:
        """Take a marker; return whether the body ends with it."""


class PythonBody(MarkerScanner):
    """A Python list of calls, or with `fence` whatever stands before the end of a fence."""

    _OUTSIDE = ('"', "'", "(", "[", "{", ")", "]", "}")

    def __init__(self, fence: str = "") -> None:
        super().__init__()
        self._fence = fence
        self._quote = ""
        self._depth = 0
        self._has_begun = bool(fence)

    @override
    def scan(self, text: str) -> int:
        """Take the next text; the list begins after any blanks."""
        if not self._has_begun:
            body = text.lstrip()
            if body and body[0] not in "[{":
                self.is_rejected = True
                return len(text) - len(body)
            self._has_begun = bool(body)
        return super().scan(text)

    @override
    def _markers(self) -> tuple[str, ...]:
        if self._quote:
            return (self._quote, "\\\\", "\\" + self._quote)
        return (*self._OUTSIDE, self._fence) if self._fence else self._OUTSIDE

    @override
    def _ends_with(self, marker: str) -> bool:
        if self._quote:
            if marker == self._quote:
                self._quote = ""
        elif marker in {'"', "'"}:
            self._quote = marker
        elif marker == self._fence:
            return True
        else:
            self._depth += 1 if marker in "([{" else -1
            return self._depth <= 0 and not self._fence
        return False


class QuotedBody(MarkerScanner):
    """A name and a braced object whose strings stand between two quote markers."""

    def __init__(self, quote: str) -> None:
        super().__init__()
        self._quote = quote
        self._in_string = False
        self._depth = 0
        self._is_named = False

    @override
    def scan(self, text: str) -> int:
        """Take the next text; only a name may stand before the first brace."""
        if not self._is_named and (found := _NO_NAME.search(text)):
            if found[0] != "{":
                self.is_rejected = True
                return found.start()
            self._is_named = True
        return super().scan(text)

    @override
    def _markers(self) -> tuple[str, ...]:
        return (self._quote,) if self._in_string else (self._quote, "{", "[", "}", "]")

    @override
    def _ends_with(self, marker: str) -> bool:
        if marker == self._quote:
            self._in_string = not self._in_string
        else:
            self._depth += 1 if marker in "{[" else -1
            return self._depth <= 0
        return False


class XmlBody(MarkerScanner):
    """Everything up to a closing tag that stands in no CDATA section."""

    def __init__(self, close: str) -> None:
        super().__init__()
        self._close = close
        self._in_data = False

    @override
    def _markers(self) -> tuple[str, ...]:
        return ("]]>",) if self._in_data else ("<![CDATA[", self._close)

    @override
    def _ends_with(self, marker: str) -> bool:
        self._in_data = marker == "<![CDATA["
        return marker == self._close


@lru_cache(maxsize=64)
def _pattern(markers: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("|".join(re.escape(marker) for marker in markers))


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
        """Take a character that matters; return whether the object ends with it."""
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
