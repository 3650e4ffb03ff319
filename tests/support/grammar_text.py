"""Reads GBNF as llama.cpp does: which texts it describes. Recursion goes a few rules deep."""

import re

_TOKEN = re.compile(
    r'\s*("(?:[^"\\]|\\.)*"|\[(?:[^\]\\]|\\.)*\]|[()|*+?]|\{\d+(?:,\d*)?\}|[A-Za-z][A-Za-z0-9-]*)',
    re.DOTALL,
)
_ESCAPE = re.compile(r"\\(x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8}|.)", re.DOTALL)
_NEVER = "(?!)"


class GrammarText:
    """One grammar as a regular expression, each rule expanded where it stands."""

    def __init__(self, gbnf: str, *, max_depth: int = 24) -> None:
        rules = (line.partition(" ::= ") for line in gbnf.splitlines())
        self._rules = {name: body for name, _, body in rules}
        self._known: dict[tuple[str, int], str] = {}
        self._pattern = re.compile(self._rule("root", max_depth), re.DOTALL)

    def describes(self, text: str) -> bool:
        """Say whether the whole text is described."""
        return self._pattern.fullmatch(text) is not None

    def _rule(self, name: str, depth: int) -> str:
        if depth == 0:
            return _NEVER
        key = (name, depth)
        if key not in self._known:
            self._known[key] = f"(?:{self._body(self._rules[name], depth)})"
        return self._known[key]

    def _body(self, body: str, depth: int) -> str:
        parts = []
        at = 0
        while at < len(body.rstrip()):
            found = _TOKEN.match(body, at)
            assert found, f"not GBNF: {body[at:]!r}"
            at = found.end()
            parts.append(self._part(found[1], depth))
        return "".join(parts)

    def _part(self, token: str, depth: int) -> str:
        if token[0] == '"':
            return f"(?:{re.escape(_plain(token[1:-1]))})"
        if token[0] == "[":
            return f"[{''.join(map(_member, _split(token[1:-1])))}]"
        if token == "(":
            return "(?:"
        return self._rule(token, depth - 1) if token[0].isalpha() else token


def _plain(text: str) -> str:
    return _ESCAPE.sub(lambda found: _character(found[1]), text)


def _character(escape: str) -> str:
    if escape[0] in "xuU" and len(escape) > 1:
        return chr(int(escape[1:], 16))
    return {"n": "\n", "t": "\t", "r": "\r"}.get(escape, escape)


def _split(inside: str) -> list[str]:
    return re.findall(r"\\U[0-9A-F]{8}|\\x[0-9A-F]{2}|\\.|.", inside, re.DOTALL)


def _member(text: str) -> str:
    return "-" if text == "-" else re.escape(_plain(text))
