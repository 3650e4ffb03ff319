r"""Reading JSON as models write it: forgiving where the meaning is plain, and nowhere else.

Forgiven are text around the value, code fences, single quotes, names without quotes, trailing
commas, True, False and None, raw line breaks in strings, a regular expression's `\\d` in a string,
and a call in the manner of Python, `path="a.txt", max_lines=3`. What breaks off is never completed:
half a content must not be written. What goes on after the first value, with another object or more
names, is refused too: nobody can tell which part was meant.
"""

import json
import re
from typing import Any

MAX_DEPTH = 32

_FENCE = re.compile(r"^\s*```[a-zA-Z]*\s*")
_AFTERWARDS = re.compile(r"^(?:\s|```|</?\w+>|<\|[\w/]+\|>|[\]})])*")
_MORE = re.compile(r"""[{\[]|["']\s*:|^\s*[,:]|^\s*["']""")
_BEFORE = re.compile(r"[^{}\[\]\"'=()]{1,200}(?=[{])")
_CALL = re.compile(r"[A-Za-z_][\w.-]*\s*\((?=\s*[A-Za-z_]\w*\s*=)")
_NAME = re.compile(r"[A-Za-z_$][\w$-]*")
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?(?![\w.])")
_BLANKS = re.compile(r"\s*")
_WORDS = {"true": True, "false": False, "null": None, "True": True, "False": False, "None": None}
_ESCAPES = {
    '"': '"', "'": "'", "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"
}  # fmt: skip
# Written in a pattern with one backslash too few; the backslash belongs to it.
_OF_PATTERNS = frozenset("dDwWsSBpPAzZ.*+?()[]{}|^$-")


def parse(text: str) -> Any:
    """Return the value that the text holds; an empty text is an empty object.

    Raises:
        ValueError: there is none, it breaks off, or more than one follows.
        RecursionError: it is nested too deeply.
    """
    body = _FENCE.sub("", text).strip()
    if not body:
        return {}
    before = _BEFORE.match(body)
    if before and body[0] not in "-0123456789":
        body = body[before.end() :]
    try:
        value, end = _strict.raw_decode(body)
    except ValueError as error:
        try:
            value, end = _loosely(body)
        except _LooseError as loose:
            raise ValueError(str(loose) if loose.tells_more else str(error)) from error
    rest = body[end:]
    if afterwards := _AFTERWARDS.match(rest):
        rest = rest[afterwards.end() :]
    if _MORE.search(rest):
        raise ValueError(f"it goes on after its end: {rest[:40]!r}")
    return value


class _LooseError(ValueError):
    """The text is not even loosely JSON."""

    def __init__(self, text: str, *, tells_more: bool = False) -> None:
        super().__init__(text)
        self.tells_more = tells_more


def _end_of(pattern: re.Pattern[str], text: str) -> int:
    found = pattern.match(text)
    return found.end() if found else 0


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def _one_of_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object; one name with two values is none that could be meant."""
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found and found[name] != value:
            raise ValueError(f"it gives two values for {name[:40]!r}")
        found[name] = value
    return found


_strict = json.JSONDecoder(
    strict=False, parse_constant=_no_constant, object_pairs_hook=_one_of_each
)


def _loosely(body: str) -> tuple[Any, int]:
    """Return a value written another way, and where it ends."""
    reader = _Reader(body)
    call = _CALL.match(body)
    if call or re.match(r"[A-Za-z_]\w*\s*=\s*[^=\s]", body):
        reader.at = call.end() if call else 0
        value: Any = reader.named(until=")" if call else "")
    elif body[0] in "{[":
        value = reader.value(0)
    else:
        raise _LooseError("it is no object")
    return value, reader.at


class _Reader:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    def value(self, depth: int) -> Any:
        if depth > MAX_DEPTH:
            raise _LooseError(f"it is nested more than {MAX_DEPTH} deep", tells_more=True)
        sign = self._peek()
        if sign == "{":
            return self._object(depth)
        if sign == "[":
            return self._list(depth)
        if sign in {'"', "'"}:
            return self._string()
        if number := _NUMBER.match(self.text, self.at):
            self.at = number.end()
            text = number.group()
            is_whole = re.fullmatch(r"[+-]?\d+", text) is not None
            return int(text) if is_whole else float(text)
        if (word := _NAME.match(self.text, self.at)) and word.group() in _WORDS:
            self.at = word.end()
            return _WORDS[word.group()]
        raise _LooseError(f"there is no value at character {self.at}")

    def named(self, *, until: str) -> dict[str, Any]:
        """Read `name=value, …` up to a sign, or to the end of the text."""
        pairs: list[tuple[str, Any]] = []
        while self._peek(may_end=True) != until:
            name = _NAME.match(self.text, self.at)
            if name is None:
                raise _LooseError(f"there is no name at character {self.at}")
            self.at = name.end()
            self._take("=")
            pairs.append((name.group(), self.value(1)))
            if not self._took_comma(until):
                break
        self.at += len(until)
        return self._whole(pairs)

    def _object(self, depth: int) -> dict[str, Any]:
        self._take("{")
        pairs: list[tuple[str, Any]] = []
        while self._peek() != "}":
            name = self._name()
            self._take(":")
            pairs.append((name, self.value(depth + 1)))
            if not self._took_comma("}"):
                break
        self._take("}")
        return self._whole(pairs)

    def _list(self, depth: int) -> list[Any]:
        self._take("[")
        items: list[Any] = []
        while self._peek() != "]":
            items.append(self.value(depth + 1))
            if not self._took_comma("]"):
                break
        self._take("]")
        return items

    def _name(self) -> str:
        if self._peek() in {'"', "'"}:
            return self._string()
        name = _NAME.match(self.text, self.at)
        if name is None:
            raise _LooseError(f"there is no name at character {self.at}")
        self.at = name.end()
        return name.group()

    def _string(self) -> str:
        quote = self.text[self.at]
        triple = quote * 3
        if self.text.startswith(triple, self.at):
            quote = triple
        self.at += len(quote)
        parts: list[str] = []
        plain = re.compile(rf"[^\\{quote[0]}]+")
        while not self.text.startswith(quote, self.at):
            if self.at >= len(self.text):
                raise _LooseError("it breaks off in the middle of a text", tells_more=True)
            if run := plain.match(self.text, self.at):
                parts.append(run.group())
                self.at = run.end()
            elif self.text[self.at] == "\\":
                parts.append(self._escape())
            else:  # a quote inside of three
                parts.append(quote[0])
                self.at += 1
        self.at += len(quote)
        return "".join(parts)

    def _escape(self) -> str:
        sign = self.text[self.at + 1 : self.at + 2]
        if sign in {"u", "x"}:
            length = 4 if sign == "u" else 2
            digits = self.text[self.at + 2 : self.at + 2 + length]
            if not re.fullmatch(rf"[0-9a-fA-F]{{{length}}}", digits):
                raise _LooseError(f"\\{sign} at character {self.at} is no character")
            self.at += 2 + length
            return chr(int(digits, 16))
        self.at += 2
        if sign in _ESCAPES and sign:
            return _ESCAPES[sign]
        if sign in _OF_PATTERNS and sign:
            return "\\" + sign
        raise _LooseError(f"\\{sign} at character {self.at - 2} means nothing in JSON")

    def _whole(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        try:
            return _one_of_each(pairs)
        except ValueError as error:
            raise _LooseError(str(error), tells_more=True) from error

    def _took_comma(self, end: str) -> bool:
        """Read a comma; a comma before the end is forgiven."""
        sign = self._peek(may_end=not end)
        if sign == ",":
            self.at += 1
            return True
        if sign != end:
            raise _LooseError(f"there is no comma at character {self.at}")
        return False

    def _take(self, sign: str) -> None:
        if self._peek() != sign:
            raise _LooseError(f"there is no {sign} at character {self.at}")
        self.at += len(sign)

    def _peek(self, *, may_end: bool = False) -> str:
        self.at = _BLANKS.match(self.text, self.at).end()  # type: ignore[union-attr]
        if self.at < len(self.text):
            return self.text[self.at]
        if may_end:
            return ""
        raise _LooseError("it breaks off", tells_more=True)
