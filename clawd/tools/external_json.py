r"""JSON that remembers on which line each of its values stands, so that a complaint can say where.

    document = parse('{"version": 1,\n "tools": []}')
    document.line_of(("tools",))  # 2

Stricter than JSON where a file for people gains by it: no name twice in an object, no NaN.
"""

import json
import re
from typing import Any

import msgspec

MAX_DEPTH = 16

_NO_TEXT = re.compile("[\0\ud800-\udfff]")
_BLANKS = re.compile(r"[ \t\r\n]*")

Place = tuple[str | int, ...]


class JsonFileError(Exception):
    """A text is not the JSON that is wanted.

    Attributes:
        line: where, counted from 1.
        reason: what is wrong there.
    """

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(f"line {line}: {reason}")
        self.line = line
        self.reason = reason


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """A parsed text.

    Attributes:
        value: what it holds.
        lines: the line of each value, by the names and numbers that lead to it.
    """

    value: Any
    lines: dict[Place, int]

    def line_of(self, place: Place) -> int:
        """Return the line of a value; of what holds it, where there is no such value."""
        while place and place not in self.lines:
            place = place[:-1]
        return self.lines.get(place, 1)


def parse(text: str) -> Document:
    """Parse a whole text.

    Raises:
        JsonFileError: it is no JSON, names something twice or nests too deeply.
    """
    reader = _Reader(text)
    value, end = reader.value(reader.skip(0), ())
    if reader.skip(end) != len(text):
        raise reader.error(reader.skip(end), "there is more text after the end of the JSON")
    return Document(value=value, lines=reader.lines)


class _Reader:
    """Walks objects and lists itself and leaves all else to the standard library."""

    def __init__(self, text: str) -> None:
        self.lines: dict[Place, int] = {}
        self._text = text
        self._counted = (0, 1)
        self._plain = json.JSONDecoder(parse_constant=_no_constant)

    def skip(self, at: int) -> int:
        found = _BLANKS.match(self._text, at)
        return found.end() if found else at

    def error(self, at: int, reason: str) -> JsonFileError:
        return JsonFileError(self._text.count("\n", 0, at) + 1, reason)

    def value(self, at: int, place: Place) -> tuple[Any, int]:
        self.lines[place] = self._line(at)
        if len(place) > MAX_DEPTH:
            raise self.error(at, f"it is nested more than {MAX_DEPTH} deep")
        if self._text.startswith("{", at):
            return self._object(at, place)
        if self._text.startswith("[", at):
            return self._list(at, place)
        return self._scalar(at)

    def _object(self, at: int, place: Place) -> tuple[dict[str, Any], int]:
        found: dict[str, Any] = {}
        at = self.skip(at + 1)
        while not self._text.startswith("}", at):
            if found:
                at = self._after(",", at)
            name, end = self._scalar(at)
            if not isinstance(name, str):
                raise self.error(at, "a name in double quotes is expected")
            if name in found:
                raise self.error(at, f"`{name}` is named twice")
            found[name], end = self.value(self._after(":", self.skip(end)), (*place, name))
            at = self.skip(end)
        return found, at + 1

    def _list(self, at: int, place: Place) -> tuple[list[Any], int]:
        found: list[Any] = []
        at = self.skip(at + 1)
        while not self._text.startswith("]", at):
            if found:
                at = self._after(",", at)
            item, end = self.value(at, (*place, len(found)))
            found.append(item)
            at = self.skip(end)
        return found, at + 1

    def _after(self, mark: str, at: int) -> int:
        if not self._text.startswith(mark, at):
            raise self.error(at, f"`{mark}` is expected")
        return self.skip(at + 1)

    def _scalar(self, at: int) -> tuple[Any, int]:
        if self._text[at : at + 1] in {"{", "["}:
            raise self.error(at, "a name in double quotes is expected")
        try:
            value, end = self._plain.raw_decode(self._text, at)
        except json.JSONDecodeError as error:
            raise self.error(error.pos, f"this is no JSON: {error.msg}") from error
        except ValueError as error:
            raise self.error(at, f"this is no JSON: {error}") from error
        if isinstance(value, str) and _NO_TEXT.search(value):
            raise self.error(at, "a text holds a NUL or half of a surrogate pair")
        return value, end

    def _line(self, at: int) -> int:
        """Return the line of a place that is not before the one asked for last."""
        before, line = self._counted
        line += self._text.count("\n", before, at)
        self._counted = (at, line)
        return line


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no number of JSON")
