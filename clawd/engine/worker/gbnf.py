"""Rules of a GBNF grammar: names, literals, repetition, and the JSON values every schema may use.

GBNF is llama.cpp's notation (grammars/README.md there). Rules are kept small and free of ambiguity
where it can be had: llama.cpp carries every open alternative along as a stack of its own, and looks
at each of them for every token.
"""

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

MAX_RULES = 20_000
MAX_BYTES = 2 * 1024 * 1024
MAX_REPETITIONS = 100_000
MAX_VALUES_SIZE = 256 * 1024
_MAX_AT_ONCE = 256
_BLOCK = 64

# What JSON lets stand in a string as it is. Written as what is allowed: characters that UTF-8
# cannot carry (surrogates) are not among them.
PLAIN_RANGES = (
    (0x20, 0x21),
    (0x23, 0x5B),
    (0x5D, 0x7E),
    (0xA0, 0xD7FF),
    (0xE000, 0xFFFD),
    (0x10000, 0x10FFFF),
)

# What stands in text that is no JSON.
TEXT_RANGES = ((0x09, 0x0A), (0x20, 0x7E), *PLAIN_RANGES[3:])
LETTER_RANGES = ((0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A))
NAME_RANGES = ((0x2D, 0x2E), (0x30, 0x39), *LETTER_RANGES)

_SHARED = {
    "ws": r'(" " | "\n" [ \t]{0,20})?',
    "hex": "[0-9a-fA-F]",
    # A half of a surrogate pair is no character: the halves come together or not at all.
    "unicode": (
        r"[0-9a-cA-CefEF] hex{3} | [dD] [0-7] hex{2} "
        r'| [dD] [89abAB] hex{2} "\\u" [dD] [c-fC-F] hex{2}'
    ),
    "string": r'"\"" char* "\""',
    "integer": '"-"? ("0" | [1-9] [0-9]{0,15})',
    "number": 'integer ("." [0-9]{1,15})? ([eE] [-+]? [0-9]{1,2})?',
    "boolean": '"true" | "false"',
    "null": '"null"',
    "value": "object | array | string | number | boolean | null",
    "object": '"{" ws (member ("," ws member)* ws)? "}"',
    "member": 'string ":" ws value',
    "array": '"[" ws (value ("," ws value)* ws)? "]"',
}


class SchemaError(Exception):
    """A schema that no grammar can be made of; the message says why."""


class _Alphabet(NamedTuple):
    """What a word is made of.

    The ranges of its first character and of others, an expression for escapes, a rule for any
    further characters, and what ends it.
    """

    first: Sequence[tuple[int, int]]
    ranges: Sequence[tuple[int, int]]
    escape: str
    tail: str
    end: str


class Rules:
    """The rules of one grammar; equal bodies share a rule."""

    def __init__(self) -> None:
        plain = character_class(PLAIN_RANGES)
        self._rules = {"char": rf'{plain} | "\\" (["\\/bfnrt] | "u" unicode)', **_SHARED}
        self._names = {body: name for name, body in self._rules.items()}
        self._until: dict[str, str] = {}
        self._size = 0

    def add(self, body: str) -> str:
        """Return the name of a rule with this body.

        Raises:
            SchemaError: the grammar becomes too large.
        """
        name = self._names.get(body)
        if name is None:
            name = self.reserve()
            self._names[body] = name
            self.define(name, body)
        return name

    def reserve(self) -> str:
        """Return the name of a rule that is defined later."""
        name = f"r{len(self._rules)}"
        self._rules[name] = ""
        return name

    def define(self, name: str, body: str) -> None:
        """Give a reserved rule its body.

        Raises:
            SchemaError: the grammar becomes too large.
        """
        self._rules[name] = body
        self._size += len(body)
        if len(self._rules) > MAX_RULES or self._size > MAX_BYTES:
            raise SchemaError(
                f"the schema needs more than {MAX_RULES} rules or {MAX_BYTES >> 20} MiB of grammar"
            )

    def choice(self, alternatives: Sequence[str]) -> str:
        """Return a rule that is one of several rules."""
        distinct = list(dict.fromkeys(alternatives))
        return distinct[0] if len(distinct) == 1 else self.add(" | ".join(distinct))

    def one_of(self, values: Sequence[Any]) -> str:
        """Return a rule for one of several JSON values, common beginnings written once."""
        return self.one_of_texts([as_json(value) for value in values])

    def one_of_texts(self, values: Sequence[str]) -> str:
        """Return a rule for one of several texts, common beginnings written once."""
        texts = sorted(set(values))
        if sum(map(len, texts)) > MAX_VALUES_SIZE:
            raise SchemaError(f"its values are longer than {MAX_VALUES_SIZE} characters together")
        return self._branch(texts)

    def other_than(self, texts: Sequence[str]) -> str:
        """Return a rule for every JSON string but the empty one and these."""
        known = sorted({as_json(text)[1:-1] for text in texts} | {""})
        escape = r'"\\" (["\\/bfnrt] | "u" unicode)'
        string = _Alphabet(PLAIN_RANGES, PLAIN_RANGES, escape, self.add('char* "\\""'), '"\\""')
        return self.add(f'"\\"" {self._unlike(known, string)}')

    def other_name_than(self, names: Sequence[str]) -> str:
        """Return a rule for every name but these: a letter, then letters, digits and `_.-`."""
        tail = self.add(f"{character_class(NAME_RANGES)}*")
        name = _Alphabet(LETTER_RANGES, NAME_RANGES, "", tail, '""')
        return self._unlike(sorted({*names, ""}), name)

    def until(self, stop: str) -> str:
        """Return a rule for any text without `stop` in it, and `stop` behind it.

        A rule for each length of what is there of `stop` already (Knuth, Morris and Pratt).
        """
        if stop not in self._until:
            states = [self.reserve() for _ in stop]
            for at, name in enumerate(states):
                self.define(name, _state(states, stop, at))
            self._until[stop] = states[0]
        return self._until[stop]

    def text(self, root: str) -> str:
        """Return the grammar, beginning with the rule `root`."""
        lines = [f"root ::= {root}"]
        lines += [f"{name} ::= {body}" for name, body in self._rules.items()]
        return "\n".join(lines)

    def repeat(self, item: str, low: int, high: int | None) -> str:
        """Return an expression for `low` to `high` items (None: any number).

        Raises:
            SchemaError: more than llama.cpp can count.
        """
        if max(low, high or 0) > MAX_REPETITIONS:
            raise SchemaError(f"{max(low, high or 0)} repetitions are over {MAX_REPETITIONS}")
        if high is not None and high < low:
            raise SchemaError(f"at least {low} and at most {high} contradict each other")
        parts = [self._exactly(item, low)] if low else []
        if high is None:
            parts.append(f"{item}*")
        elif high > low:
            parts.append(self._up_to(item, high - low))
        return " ".join(parts)

    def _exactly(self, item: str, count: int) -> str:
        if count <= _MAX_AT_ONCE:
            return f"{item}{{{count}}}"
        block = self.add(f"{item}{{{_BLOCK}}}")
        rest = count % _BLOCK
        return f"{block}{{{count // _BLOCK}}}" + (f" {item}{{{rest}}}" if rest else "")

    def _up_to(self, item: str, count: int) -> str:
        if count <= _MAX_AT_ONCE:
            return f"{item}{{0,{count}}}"
        block = self.add(f"{item}{{{_BLOCK}}}")
        blocks, rest = divmod(count, _BLOCK)
        return f"{block}{{0,{blocks - 1}}} {item}{{0,{_BLOCK + rest}}}"

    def _unlike(self, known: list[str], alphabet: _Alphabet) -> str:
        """Return a rule for the rest of a word, its end included, that is none of the known ones.

        A known one that goes on with a backslash shuts out all that do.
        """
        following: dict[str, list[str]] = {}
        for text in known:
            if text:
                following.setdefault(text[0], []).append(text[1:])
        plain = character_class(without(alphabet.first, sorted(map(ord, following))))
        within = alphabet._replace(first=alphabet.ranges)
        found = [
            f"{quote(first)} {self._unlike(rest, within)}" for first, rest in following.items()
        ]
        found.append(f"{plain} {alphabet.tail}")
        if alphabet.escape and "\\" not in following:
            found.append(f"{alphabet.escape} {alphabet.tail}")
        if "" not in known:
            found.append(alphabet.end)
        return self.choice(found)

    def _branch(self, texts: list[str]) -> str:
        """Return a rule for one of the sorted, distinct texts: a tree, so that few are open."""
        alternatives = []
        start = 0
        while start < len(texts):
            first = texts[start]
            end = start + 1
            while end < len(texts) and first and texts[end][:1] == first[0]:
                end += 1
            alternatives.append(self._shared(texts[start:end]))
            start = end
        return self.choice(alternatives)

    def _shared(self, texts: list[str]) -> str:
        """Return a rule for texts with a common first character."""
        if len(texts) == 1:
            return self.add(quote(texts[0]))
        first, last = texts[0], texts[-1]
        length = 0
        while length < len(first) and first[length] == last[length]:
            length += 1
        rest = self._branch([text[length:] for text in texts])
        return self.add(f"{quote(first[:length])} {rest}")


def as_json(value: Any) -> str:
    """Return a value as JSON on one line."""
    return json.dumps(value, ensure_ascii=False)


def quote(text: str) -> str:
    """Return text as a GBNF literal."""
    return '"' + "".join(_escaped(character) for character in text) + '"'


def character_class(ranges: Sequence[tuple[int, int]]) -> str:
    """Return a GBNF class of code point ranges."""
    return "[" + "".join(f"{_code(low)}-{_code(high)}" for low, high in ranges) + "]"


def _state(states: Sequence[str], stop: str, at: int) -> str:
    """Return what follows once the first `at` characters of `stop` are there."""
    last = at == len(stop) - 1
    groups: dict[int, list[tuple[int, int]]] = {}
    for char in sorted(set(stop) - {stop[at]}):
        begun = stop[:at] + char
        length = next(n for n in range(at, -1, -1) if begun.endswith(stop[:n]))
        groups.setdefault(length, []).append((ord(char), ord(char)))
    others = without(TEXT_RANGES, sorted(map(ord, set(stop))))
    groups[0] = [*groups.get(0, []), *others]
    found = [quote(stop[at]) if last else f"{quote(stop[at])} {states[at + 1]}"]
    found += [f"{character_class(group)} {states[length]}" for length, group in groups.items()]
    return " | ".join(found)


def without(ranges: Sequence[tuple[int, int]], codes: Sequence[int]) -> list[tuple[int, int]]:
    """Return ranges with single code points, in order, cut out."""
    left = list(ranges)
    for code in codes:
        for at, (low, high) in enumerate(left):
            if low <= code <= high:
                parts = ((low, code - 1), (code + 1, high))
                left[at : at + 1] = [part for part in parts if part[0] <= part[1]]
                break
    return left


def _escaped(character: str) -> str:
    if character in '"\\':
        return f"\\{character}"
    return character if " " <= character != "\x7f" else f"\\x{ord(character):02X}"


def _code(code: int) -> str:
    return f"\\U{code:08X}"
