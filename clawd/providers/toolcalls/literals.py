"""Values that are written without JSON: Python's and Gemma's literals, and bare text between tags.

    [file_list(path="src", depth=2), time()]
    call:file_list{path:<|"|>src<|"|>,depth:2}
    <parameter=count>5</parameter>      5 for an integer, "5" for a string

Literals become JSON forward only and without recursion: tokens become JSON text, which a real
decoder then judges. A bare value has the type that the tool's schema accepts; one of none of the
accepted types stays the string it is: the check of the arguments reports what was expected.
"""

import re
from collections.abc import Callable
from typing import Any

import msgspec

from clawd.engine.protocol import ParameterForm
from clawd.providers.toolcalls.base import ParsedCall, ParserOptions
from clawd.providers.toolcalls.pull_parser import decode

KEYWORDS = ParameterForm(key="%key%=", separator=", ")
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
_BLANKS = " \t\r\n"  # what JSON takes for blanks; str.strip takes more
_MAX_SCHEMA_NODES = 200
_LITERAL = re.compile(r"true|false|null|-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?")
_PYTHON_WORDS = {"True": "true", "False": "false", "None": "null"}
_TYPES: dict[type, str] = {
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    list: "array",
    dict: "object",
    type(None): "null",
}
"""Arguments of a Python call; their values are held as JSON, which is read as well."""


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
        self._write(_encode(name) + ": ")

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

    def call(self) -> ParsedCall | None:
        text = "".join(self._parts)
        try:
            msgspec.json.decode(text, type=dict[str, msgspec.Raw])
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            return None
        return ParsedCall(self.name, text) if self.name and self.is_good else None

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
            self._parts.append(_encode("".join(self._strings)))
            self._strings.clear()


def python_calls(text: str, options: ParserOptions) -> list[ParsedCall] | None:
    """Return the calls of a list or a row of Python calls, their arguments named.

    None when anything else is in it. Arguments without a name are refused: which parameter they
    mean is a guess.
    """
    tokens = _tokens(_PYTHON_TOKEN, text)
    if tokens is None:
        return None
    if tokens[:1] == [("mark", "[")] and tokens[-1:] == [("mark", "]")]:
        tokens = tokens[1:-1]
    calls: list[ParsedCall] = []
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


def gemma_calls(quote: str) -> Callable[[str, ParserOptions], list[ParsedCall] | None]:
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

    def decode(text: str, options: ParserOptions) -> list[ParsedCall] | None:
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


def _python_call(
    tokens: list[_Token], at: int, options: ParserOptions
) -> tuple[ParsedCall | None, int]:
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


def _gemma_call(name: str, tokens: list[_Token], options: ParserOptions) -> list[ParsedCall] | None:
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


class Arguments:
    """Gathers the arguments of one call, in order, and may tell them as they come.

    Args:
        parameters: the tool's schema, if known.
        tell: takes pieces of the JSON object while it is being written, all but its end.
    """

    def __init__(
        self, parameters: dict[str, Any] | None, tell: Callable[[str], None] | None = None
    ) -> None:
        self._parameters = parameters
        self._values: dict[str, str] = {}
        self._tell = tell
        self._told: list[str] = []
        self._say("{")

    def add(self, key: str, text: str) -> None:
        """Add a bare value."""
        self._put(key, typed(text, accepted_by(self._parameters, key)))

    def add_loosely(self, key: str, text: str) -> None:
        """Add a bare value that is of another type than accepted rather than a string."""
        bare = text.strip(_BLANKS)
        bare = _PYTHON_WORDS.get(bare, bare)
        value = decode(bare)
        is_other = bare == "null" or not (value is None or isinstance(value, str))
        if is_other and "string" not in accepted_by(self._parameters, key).types:
            self._put(key, bare)
        else:
            self.add(key, text)

    def add_string(self, key: str, text: str) -> None:
        """Add a value that the format itself calls a string."""
        self._put(key, _encode(text))

    def add_json(self, key: str, text: str) -> None:
        """Add a value that is well-formed JSON."""
        self._put(key, text)

    def tells_pieces(self, key: str) -> bool:
        """Return whether a bare value is to be told in pieces: it can be nothing but a string."""
        accepted = accepted_by(self._parameters, key)
        return self._tell is not None and accepted.types == {"string"} and not accepted.strings

    def begin_string(self, key: str) -> Callable[[str], None]:
        """Begin a string that is told in pieces; return what takes them, ended by `end_string`."""
        self._say(f'{self._key(key)}"')
        return lambda piece: self._say(_encode(piece)[1:-1])

    def end_string(self, key: str, text: str) -> None:
        """End a string of which all was told."""
        self._say('"')
        self._values[key] = _encode(text)

    def text(self, *, as_told: bool = False) -> str:
        """Return the JSON object; `as_told` with all that was told, a key that came twice too."""
        if as_told and self._tell is not None:
            return "".join(self._told) + "}"
        pairs = (f"{_encode(key)}: {value}" for key, value in self._values.items())
        return "{" + ", ".join(pairs) + "}"

    def _put(self, key: str, value: str) -> None:
        self._say(f"{self._key(key)}{value}")
        self._values[key] = value

    def _key(self, key: str) -> str:
        return f"{', ' if self._values else ''}{_encode(key)}: "

    def _say(self, piece: str) -> None:
        if self._tell is not None and piece:
            self._told.append(piece)
            self._tell(piece)


class Accepted(msgspec.Struct, frozen=True, kw_only=True):
    """What a schema accepts: names of JSON types, strings of an enum. No types: anything."""

    types: frozenset[str] = frozenset()
    strings: frozenset[str] = frozenset()


def typed(text: str, accepted: Accepted) -> str:
    """Return a bare value as JSON text."""
    bare = text.strip(_BLANKS)
    if text in accepted.strings or bare in accepted.strings:
        return _encode(text if text in accepted.strings else bare)
    if accepted.types == {"string"}:
        return _encode(text)
    return _literal(bare, accepted.types) or _encode(text)


def literal(text: str, accepted: Accepted) -> str | None:
    """Return the JSON of a value that stands bare where strings are quoted.

    None when it is neither a literal nor anything that is accepted as a string.
    """
    if accepted.types == {"string"}:
        return _encode(text)
    text = _PYTHON_WORDS.get(text, text)
    if _LITERAL.fullmatch(text):
        return text
    return _encode(text) if "string" in accepted.types else None


def _encode(text: str) -> str:
    """Return text as a JSON string; halves of a surrogate pair are joined, lone ones replaced."""
    whole = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return msgspec.json.encode(whole).decode("utf-8")


def _literal(bare: str, types: frozenset[str]) -> str:
    """Return as JSON what is of an accepted type other than string; "" when it is not."""
    word = _PYTHON_WORDS.get(bare)
    if word is not None and (_TYPES[type(decode(word))] in types):
        return word
    value = decode(bare)
    if isinstance(value, str) or (value is None and bare != "null"):
        return ""
    return bare if not types or _kinds(value) & types else ""


def _kinds(value: Any) -> set[str]:
    """Return the JSON types that a value is of: an integer is a number, and 5.0 an integer."""
    kind = _TYPES[type(value)]
    if kind == "integer" or (kind == "number" and value.is_integer()):
        return {"integer", "number"}
    return {kind}


def accepted_by(parameters: dict[str, Any] | None, key: str) -> Accepted:
    """Gather what a parameter's schema accepts over references, unions and enums."""
    if parameters is None:
        return Accepted()
    properties = parameters.get("properties")
    node = properties.get(key) if isinstance(properties, dict) else None
    waiting = [parameters.get("additionalProperties") if node is None else node]
    types: set[str] = set()
    strings: set[str] = set()
    for _ in range(_MAX_SCHEMA_NODES):
        if not waiting:
            return Accepted(types=frozenset(types), strings=frozenset(strings))
        node = waiting.pop()
        if not isinstance(node, dict):
            return Accepted()
        values = _values(node)
        types.update(_TYPES[type(value)] for value in values if type(value) in _TYPES)
        strings.update(value for value in values if isinstance(value, str))
        if not values:
            names = _type_names(node)
            parts = [] if names else _parts(node, parameters)
            if not names and not parts:
                return Accepted()
            types.update(names)
            waiting += parts
    return Accepted()


def _values(node: dict[str, Any]) -> list[Any]:
    """Return the values that an enum or a constant allows."""
    values = node.get("enum")
    if isinstance(values, list):
        return values
    return [node["const"]] if "const" in node else []


def _parts(node: dict[str, Any], root: dict[str, Any]) -> list[Any]:
    """Return the schemas that a schema refers to or is a union of."""
    reference = node.get("$ref")
    if isinstance(reference, str):
        target: Any = root
        for step in reference.removeprefix("#").split("/")[1:]:
            step = step.replace("~1", "/").replace("~0", "~")
            target = target.get(step) if isinstance(target, dict) else None
        return [target]
    return [
        part
        for word in ("anyOf", "oneOf", "allOf")
        if isinstance(parts := node.get(word), list)
        for part in parts
    ]


def _type_names(node: dict[str, Any]) -> list[str]:
    names = node.get("type")
    if isinstance(names, str):
        return [names]
    if isinstance(names, list):
        return [name for name in names if isinstance(name, str)]
    guesses = {"properties": "object", "items": "array", "pattern": "string"}
    return [name for word, name in guesses.items() if word in node]
