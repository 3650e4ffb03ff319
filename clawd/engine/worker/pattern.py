r"""Regular expressions of JSON Schema (ECMA-262, the part without state) as GBNF.

    ^[a-z]+-\d{2}$      →      [a-z]+ "-" [0-9]{2}

What is matched is the string's value; what the grammar describes is the string as JSON writes it,
so a quote in the value becomes `\"`. Look-around, back-references and word borders are refused.
"""

from typing import NoReturn

from clawd.engine.worker.gbnf import PLAIN_RANGES, Rules, SchemaError, character_class, quote

MAX_PATTERN = 2000
MAX_DEPTH = 32

_Ranges = list[tuple[int, int]]
_ALL = 0x10FFFF
_DIGITS: _Ranges = [(0x30, 0x39)]
_WORD: _Ranges = [(0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A)]
_BLANKS: _Ranges = [(0x09, 0x0D), (0x20, 0x20), (0xA0, 0xA0)]
_LINE_ENDS: _Ranges = [(0x0A, 0x0A), (0x0D, 0x0D), (0x2028, 0x2029)]
_CONTROLS = {"n": 0x0A, "r": 0x0D, "t": 0x09, "f": 0x0C, "v": 0x0B, "0": 0x00}
_JSON_ESCAPES = {0x22: '\\"', 0x5C: "\\\\", 0x0A: "\\n", 0x0D: "\\r", 0x09: "\\t"}
_QUANTIFIERS = {"*": (0, None), "+": (1, None), "?": (0, 1)}


def pattern_rule(rules: Rules, pattern: str) -> str:
    """Return a rule for a JSON string in which the pattern is found.

    Raises:
        SchemaError: the pattern is malformed, or beyond what a grammar can say.
    """
    return _Pattern(rules, pattern).rule()


class _Pattern:
    """Reads a pattern from left to right, one function per level."""

    def __init__(self, rules: Rules, pattern: str) -> None:
        self._rules = rules
        self._pattern = pattern
        self._at = 0
        if len(pattern) > MAX_PATTERN:
            self._refuse(f"it is longer than {MAX_PATTERN} characters")

    def rule(self) -> str:
        begins = self._take("^")
        ends = self._pattern.endswith("$") and not self._pattern.endswith("\\$")
        self._end = len(self._pattern) - (1 if ends and self._at < len(self._pattern) else 0)
        body = self._alternatives(0)
        if self._at < self._end:
            self._refuse("a ) without a (")
        if (begins or ends) and self._has_bare_choice:
            self._refuse("^ or $ beside a choice that is in no group")
        before, after = ("" if begins else "char* "), ("" if ends else " char*")
        return self._rules.add(f'"\\"" {before}{self._rules.add(body)}{after} "\\""')

    def _alternatives(self, depth: int) -> str:
        if depth > MAX_DEPTH:
            self._refuse(f"groups are nested deeper than {MAX_DEPTH}")
        found = [self._sequence(depth)]
        while self._take("|"):
            found.append(self._sequence(depth))
        self._has_bare_choice = len(found) > 1
        return " | ".join(found)

    def _sequence(self, depth: int) -> str:
        parts = []
        while self._at < self._end and self._pattern[self._at] not in "|)":
            parts.append(self._quantified(self._atom(depth)))
        return " ".join(parts) or '""'

    def _quantified(self, atom: str) -> str:
        low, high = 1, 1
        bounds: tuple[int, int | None] | None = None
        next_one = self._peek()
        if next_one in _QUANTIFIERS:
            self._at += 1
            bounds = _QUANTIFIERS[next_one]
        elif next_one == "{":
            bounds = self._counted()
        if bounds is None:
            return atom
        self._take("?")
        low, high_or_none = bounds
        if high_or_none is None:
            return f"{atom}+" if low == 1 else self._rules.repeat(atom, low, None)
        high = high_or_none
        if self._peek() in {"*", "+", "{"}:
            self._refuse("a quantifier behind a quantifier")
        return self._rules.repeat(atom, low, high) if high else '""'

    def _counted(self) -> tuple[int, int | None]:
        close = self._pattern.find("}", self._at)
        inside = self._pattern[self._at + 1 : close] if close > 0 else ""
        low, comma, high = inside.partition(",")
        if not low.isdecimal() or (high and not high.isdecimal()) or len(inside) > 12:
            self._refuse("a { that is no count")
        self._at = close + 1
        if not comma:
            return int(low), int(low)
        return int(low), int(high) if high else None

    def _atom(self, depth: int) -> str:
        character = self._pattern[self._at]
        self._at += 1
        return self._group(depth) if character == "(" else self._in_json(self._set(character))

    def _set(self, character: str) -> _Ranges:
        """Return the characters that a character of the pattern stands for."""
        if character in "^$*+?{":
            self._refuse(f"a {character} where it means nothing")
        if character == "[":
            return self._class()
        if character == "\\":
            return self._escape()
        return _complement(_LINE_ENDS) if character == "." else [(ord(character), ord(character))]

    def _group(self, depth: int) -> str:
        if self._take("?") and not self._take(":"):
            self._refuse("(? other than (?:")
        body = self._alternatives(depth + 1)
        if not self._take(")"):
            self._refuse("a ( without a )")
        return self._rules.add(body)

    def _class(self) -> _Ranges:
        negated = self._take("^")
        ranges: _Ranges = []
        while self._at < self._end and not self._take("]"):
            low = self._member()
            is_range = self._peek() == "-" and self._pattern[self._at + 1 : self._at + 2] != "]"
            if not is_range:
                ranges += low
                continue
            self._at += 1
            high = self._member()
            if low[0][0] != low[-1][1] or high[0][0] != high[-1][1] or high[0][0] < low[0][0]:
                self._refuse("a range that is none")
            ranges.append((low[0][0], high[0][0]))
        if self._pattern[self._at - 1] != "]":
            self._refuse("a [ without a ]")
        return _complement(ranges) if negated else _joined(ranges)

    def _member(self) -> _Ranges:
        if self._at >= self._end:
            self._refuse("a [ without a ]")
        character = self._pattern[self._at]
        self._at += 1
        if character == "\\":
            return self._escape()
        return [(ord(character), ord(character))]

    def _escape(self) -> _Ranges:
        character = self._peek()
        self._at += 1
        sets = {"d": _DIGITS, "w": _WORD, "s": _BLANKS}
        if character in sets:
            return sets[character]
        if character.lower() in sets:
            return _complement(sets[character.lower()])
        if character in {"x", "u"}:
            return self._hexadecimal(2 if character == "x" else 4)
        if character in _CONTROLS:
            return [(_CONTROLS[character], _CONTROLS[character])]
        if not character or character.isalnum():
            self._refuse(f"\\{character} is not known")
        return [(ord(character), ord(character))]

    def _hexadecimal(self, size: int) -> _Ranges:
        digits = self._pattern[self._at : self._at + size]
        self._at += size
        try:
            code = int(digits, 16)
        except ValueError:
            self._refuse(f"{digits!r} is no hexadecimal number")
        return [(code, code)]

    def _in_json(self, ranges: _Ranges) -> str:
        """Return how JSON writes a character of these: as it is, or escaped."""
        plain = _intersection(ranges, PLAIN_RANGES)
        found = [character_class(plain)] if plain else []
        found += [
            quote(text)
            for code, text in _JSON_ESCAPES.items()
            if any(low <= code <= high for low, high in ranges)
        ]
        if not found:
            self._refuse("characters that a JSON string can only hold as numbers")
        return found[0] if len(found) == 1 else self._rules.add(" | ".join(found))

    def _peek(self) -> str:
        return self._pattern[self._at] if self._at < self._end else ""

    def _take(self, character: str) -> bool:
        if self._pattern[self._at : self._at + 1] != character:
            return False
        self._at += 1
        return True

    def _refuse(self, reason: str) -> NoReturn:
        shown = self._pattern if len(self._pattern) <= 80 else f"{self._pattern[:80]}…"
        raise SchemaError(f"pattern {shown!r}: {reason}")


def _joined(ranges: _Ranges) -> _Ranges:
    joined: _Ranges = []
    for low, high in sorted(ranges):
        if joined and low <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(high, joined[-1][1]))
        else:
            joined.append((low, high))
    return joined


def _complement(ranges: _Ranges) -> _Ranges:
    rest: _Ranges = []
    start = 0
    for low, high in _joined(ranges):
        if low > start:
            rest.append((start, low - 1))
        start = high + 1
    if start <= _ALL:
        rest.append((start, _ALL))
    return rest


def _intersection(ranges: _Ranges, others: tuple[tuple[int, int], ...]) -> _Ranges:
    pairs = [
        (max(low, other_low), min(high, other_high))
        for low, high in ranges
        for other_low, other_high in others
    ]
    return [(low, high) for low, high in pairs if low <= high]
