"""Turns calls that are written as literals into JSON: Python's, and those of Gemma.

    [file_list(path="src", depth=2), time()]
    call:file_list{path:<|"|>src<|"|>,depth:2}

Forward only and without recursion: tokens become JSON text, which a real decoder then judges.
"""

import re
from collections.abc import Callable

import msgspec

from clawd.engine.call_frame import ParameterForm
from clawd.providers.toolcalls.bare_values import accepted_by, encode, literal
from clawd.providers.toolcalls.base import ParserOptions
from clawd.providers.toolcalls.call_objects import Call

KEYWORDS = ParameterForm(key="%key%=", separator=", ")
"""Arguments of a Python call; their values are held as JSON, which is read as well."""

_MAX_DEPTH = 64
_CLOSERS = {"(": ")", "[": "]", "{": "}"}
_JSON_OF = {"(": "[", ")": "]"}

_PYTHON_TOKEN = re.compile(
    r"""\s*+(?:
        (?P<string>"(?:[^"\\]|\\.)*+"|'(?:[^'\\]|\\.)*+')
      | (?P<bare>-?[\w.][\w.]*+(?:[+\-]\w++)*+)
      | (?P<mark>[\[\](){},:=;])
    )""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(
    r"\\(?:x(?P<x>[0-9a-fA-F]{2})|u(?P<u>[0-9a-fA-F]{4})|U(?P<U>[0-9a-fA-F]{8})|(?P<one>.))",
    re.DOTALL,
)
_ESCAPES = {
    "\n": "", "\\": "\\", "'": "'", '"': '"', "a": "\a", "b": "\b", "f": "\f", "n": "\n",
    "r": "\r", "t": "\t", "v": "\v", "0": "\0",
}  # fmt: skip
_NAME = re.compile(r"[^\W\d][\w.\-]*")

_Token = tuple[str, str]


class _Writer:
    """Writes one call's arguments as JSON; `is_good` turns False where they cannot be ones."""

    def __init__(self, name: str, options: ParserOptions) -> None:
        self.name = name
        self.is_good = True
        self._options = options
        self._parts = ["{"]
        self._closers = ["}"]
        self._key = ""
        self._strings: list[str] = []

    @property
    def depth(self) -> int:
        return len(self._closers)

    @property
    def in_object(self) -> bool:
        return self._closers[-1] == "}"

    def key(self, name: str) -> None:
        if self.depth == 1:
            self._key = name
        self._write(encode(name) + ": ")

    def string(self, text: str) -> None:
        """Take a string; strings in a row are one, as in Python."""
        self._strings.append(text)

    def bare(self, text: str) -> None:
        parameters = self._options.schemas.get(self.name) if self.depth == 1 else None
        found = literal(text, accepted_by(parameters, self._key))
        self.is_good = self.is_good and found is not None
        self._write(found or "")

    def mark(self, char: str) -> None:
        """Take a bracket, a comma or a colon."""
        if char in _CLOSERS:
            self._closers.append(_CLOSERS[char])
            self.is_good = self.is_good and self.depth <= _MAX_DEPTH
            self._write(_JSON_OF.get(char, char))
        elif char in ")]}":
            self._close(char)
        else:
            self._write(char + " ")

    def call(self) -> Call | None:
        text = "".join(self._parts)
        try:
            msgspec.json.decode(text, type=dict[str, msgspec.Raw])
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            return None
        return Call(self.name, text) if self.name and self.is_good else None

    def _close(self, char: str) -> None:
        self._end_string()
        if self.depth > 1:
            self.is_good = self.is_good and char == self._closers[-1]
            self._closers.pop()
        else:
            self._closers.clear()
            char = "}"
        if self._parts[-1] == ", " and self._parts[-2] not in {"{", "["}:
            self._parts.pop()
        self._write(_JSON_OF.get(char, char))

    def _write(self, part: str) -> None:
        self._end_string()
        self._parts.append(part)

    def _end_string(self) -> None:
        if self._strings:
            self._parts.append(encode("".join(self._strings)))
            self._strings.clear()


def python_calls(text: str, options: ParserOptions) -> list[Call] | None:
    """Return the calls of a list or a row of Python calls, their arguments named.

    None when anything else is in it. Arguments without a name are refused: which parameter they
    mean is a guess.
    """
    tokens = _tokens(_PYTHON_TOKEN, text)
    if tokens is None:
        return None
    if tokens[:1] == [("mark", "[")] and tokens[-1:] == [("mark", "]")]:
        tokens = tokens[1:-1]
    calls: list[Call] = []
    at = 0
    while at < len(tokens):
        if calls and tokens[at] in {("mark", ","), ("mark", ";")}:
            at += 1
            continue
        call, at = _python_call(tokens, at, options)
        if call is None:
            return None
        calls.append(call)
    return calls or None


def gemma_calls(quote: str) -> Callable[[str, ParserOptions], list[Call] | None]:
    """Return what decodes `NAME{key:value,…}` with strings between two of these quotes."""
    mark = re.escape(quote)
    token = re.compile(
        rf"""\s*+(?:
            {mark}(?P<raw>.*?){mark}
          | (?P<string>"(?:[^"\\]|\\.)*+")
          | (?P<bare>[^\[\]{{}},:<"\s][^\[\]{{}},:<"]*+)
          | (?P<mark>[\[\]{{}},:])
        )""",
        re.VERBOSE | re.DOTALL,
    )

    def decode(text: str, options: ParserOptions) -> list[Call] | None:
        name, _, body = text.strip().partition("{")
        tokens = _tokens(token, body)
        return _gemma_call(name, tokens, options) if tokens else None

    return decode


def _tokens(pattern: re.Pattern[str], text: str) -> list[_Token] | None:
    """Return kind and text of each token; None when the text has anything else."""
    tokens: list[_Token] = []
    text = text.rstrip()
    at = 0
    while at < len(text):
        found = pattern.match(text, at)
        if found is None:
            return None
        kind = found.lastgroup or ""
        tokens.append((kind, found[kind]))
        at = found.end()
    return tokens


def _python_call(tokens: list[_Token], at: int, options: ParserOptions) -> tuple[Call | None, int]:
    """Return the call that begins at a token, and the place after it."""
    kind, name = tokens[at]
    if kind != "bare" or not _NAME.fullmatch(name) or tokens[at + 1 : at + 2] != [("mark", "(")]:
        return None, at
    writer = _Writer(name, options)
    at += 2
    while at < len(tokens) and writer.is_good:
        kind, text = tokens[at]
        following = tokens[at + 1] if at + 1 < len(tokens) else ("", "")
        at += 1
        if kind == "string":
            writer.string(_unescape(text[1:-1]))
        elif kind == "bare" and writer.depth == 1 and following == ("mark", "="):
            writer.key(text)
            at += 1
        elif kind == "bare":
            writer.bare(text)
        elif text in "=;":
            return None, at
        elif text == ")" and writer.depth == 1:
            writer.mark(text)
            return writer.call(), at
        elif text in "]}" and writer.depth == 1:
            return None, at
        else:
            writer.mark(text)
    return None, at


def _gemma_call(name: str, tokens: list[_Token], options: ParserOptions) -> list[Call] | None:
    writer = _Writer(name, options)
    for at, (kind, text) in enumerate(tokens):
        following = tokens[at + 1] if at + 1 < len(tokens) else ("", "")
        is_key = writer.in_object and following == ("mark", ":")
        if kind == "mark" and text == "]" and writer.depth == 1:
            return None
        if kind == "mark":
            if text != ":" or not writer.in_object:
                writer.mark(text)
        elif is_key:
            writer.key(_text_of(kind, text))
        elif kind == "bare":
            writer.bare(text.rstrip())
        else:
            writer.string(_text_of(kind, text))
        if not writer.depth or not writer.is_good:
            is_end = at == len(tokens) - 1
            call = writer.call() if is_end else None
            return [call] if call else None
    return None


def _text_of(kind: str, text: str) -> str:
    return _unescape(text[1:-1]) if kind == "string" else text.rstrip() if kind == "bare" else text


def _unescape(text: str) -> str:
    """Return the text of a Python string; an escape that is none stays as it is."""
    return _ESCAPE.sub(_escaped, text) if "\\" in text else text


def _escaped(found: re.Match[str]) -> str:
    code = found["x"] or found["u"] or found["U"]
    if code:
        number = int(code, 16)
        return chr(number) if number <= 0x10FFFF else "\ufffd"
    return _ESCAPES.get(found["one"], found[0])
