"""Writes texts that a GBNF grammar describes, by chance, and says whether it describes one."""

import random
import re
from typing import Any

_TOKEN = re.compile(
    r'\s*("(?:[^"\\]|\\.)*"|\[(?:[^\]\\]|\\.)*\]|[()|*+?]|\{\d+(?:,\d*)?\}|[A-Za-z][A-Za-z0-9-]*)',
    re.DOTALL,
)
_ESCAPE = re.compile(r"\\(x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8}|.)", re.DOTALL)
_CHARACTER = re.compile(r"\\U[0-9A-F]{8}|\\x[0-9A-F]{2}|\\.|.", re.DOTALL)
_NAMED = {"n": "\n", "t": "\t", "r": "\r"}
_STEPS = 250

# ("text", str) | ("class", ranges) | ("rule", name) | ("row", nodes) | ("choice", nodes)
# | ("repeat", node, low, high)
Node = tuple[Any, ...]


class GrammarSampler:
    """One grammar, parsed once."""

    def __init__(self, gbnf: str) -> None:
        rules = (line.partition(" ::= ") for line in gbnf.splitlines())
        self._rules = {name: _Reader(body).choice() for name, _, body in rules}
        self._costs = dict.fromkeys(self._rules, 1e9)
        changed = True
        while changed:
            found = {name: self._cost(node) + 1 for name, node in self._rules.items()}
            changed = found != self._costs
            self._costs = found

    def sample(self, seed: int) -> str:
        """Return one text; the same for the same seed."""
        chance = random.Random(seed)
        out: list[str] = []
        left = _STEPS
        waiting: list[Node] = [("rule", "root")]
        while waiting:
            node = waiting.pop()
            left -= 1
            match node[0]:
                case "text":
                    out.append(node[1])
                case "class":
                    out.append(chr(chance.randint(*chance.choice(node[1]))))
                case "rule":
                    waiting.append(self._rules[node[1]])
                case "row":
                    waiting += reversed(node[1])
                case "choice" if left > 0:
                    waiting.append(chance.choice(node[1]))
                case "choice":
                    waiting.append(min(node[1], key=self._cost))
                case _:
                    waiting += [node[1]] * _times(node[2], node[3], chance if left > 0 else None)
        return "".join(out)

    def describes(self, text: str) -> bool:
        """Say whether the whole text is described; any depth of it."""
        return len(text) in self._ends(("rule", "root"), 0, text, {})

    def _ends(
        self, node: Node, at: int, text: str, known: dict[tuple[str, int], set[int]]
    ) -> set[int]:
        """Return where a node that begins at a place may end."""
        match node[0]:
            case "text":
                return {at + len(node[1])} if text.startswith(node[1], at) else set()
            case "class":
                code = ord(text[at]) if at < len(text) else -1
                return {at + 1} if any(low <= code <= high for low, high in node[1]) else set()
            case "rule":
                key = (node[1], at)
                if key not in known:
                    known[key] = self._ends(self._rules[node[1]], at, text, known)
                return known[key]
            case "row":
                ends = {at}
                for one in node[1]:
                    ends = {end for start in ends for end in self._ends(one, start, text, known)}
                return ends
            case "choice":
                return {end for one in node[1] for end in self._ends(one, at, text, known)}
            case _:
                return self._repeated_ends(node, at, text, known)

    def _repeated_ends(
        self, node: Node, at: int, text: str, known: dict[tuple[str, int], set[int]]
    ) -> set[int]:
        _, one, low, high = node
        ends = set() if low else {at}
        last = {at}
        for count in range(1, (len(text) + low if high is None else high) + 1):
            last = {end for start in last for end in self._ends(one, start, text, known)}
            if not last or (count > low and last <= ends):
                break
            ends |= last if count >= low else set()
        return ends

    def _cost(self, node: Node) -> float:
        match node[0]:
            case "text" | "class":
                return 0
            case "rule":
                return self._costs[node[1]]
            case "row":
                return float(sum(map(self._cost, node[1])))
            case "choice":
                return min(map(self._cost, node[1]))
            case _:
                return float(node[2] * self._cost(node[1]))


def _times(low: int, high: int | None, chance: random.Random | None) -> int:
    most = low + 3 if high is None else min(high, low + 3)
    return chance.randint(low, most) if chance else low


class _Reader:
    def __init__(self, body: str) -> None:
        self._tokens = _TOKEN.findall(body)
        self._at = 0

    def choice(self) -> Node:
        found = [self._row()]
        while self._next() == "|":
            self._at += 1
            found.append(self._row())
        return found[0] if len(found) == 1 else ("choice", found)

    def _row(self) -> Node:
        found: list[Node] = []
        while self._next() not in {"", "|", ")"}:
            found.append(self._repeated(self._one()))
        return ("row", found)

    def _one(self) -> Node:
        token = self._next()
        self._at += 1
        if token == "(":
            inner = self.choice()
            self._at += 1
            return inner
        if token[0] == '"':
            return ("text", _plain(token[1:-1]))
        return ("class", _ranges(token[1:-1])) if token[0] == "[" else ("rule", token)

    def _repeated(self, node: Node) -> Node:
        token = self._next()
        counts = {"*": (0, None), "+": (1, None), "?": (0, 1)}
        if token in counts:
            low, high = counts[token]
        elif token.startswith("{"):
            first, comma, last = token[1:-1].partition(",")
            low = int(first)
            high = (int(last) if last else None) if comma else low
        else:
            return node
        self._at += 1
        return ("repeat", node, low, high)

    def _next(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""


def _plain(text: str) -> str:
    return _ESCAPE.sub(lambda found: _character(found[1]), text)


def _character(escape: str) -> str:
    if escape[0] in "xuU" and len(escape) > 1:
        return chr(int(escape[1:], 16))
    return _NAMED.get(escape, escape)


def _ranges(inside: str) -> list[tuple[int, int]]:
    """Return the code points of a class that excludes none."""
    characters = _CHARACTER.findall(inside)
    codes = [ord(_plain(one)) for one in characters]
    found: list[tuple[int, int]] = []
    at = 0
    while at < len(codes):
        is_range = at + 2 < len(codes) and characters[at + 1] == "-"
        found.append((codes[at], codes[at + 2] if is_range else codes[at]))
        at += 3 if is_range else 1
    return found
