"""A second reading of plain command lines, by hand and after bash's manual alone.

A grammar made for editors is lenient: it joins lines that bash does not join and reads words as
assignments that bash runs. So a line is only taken for plain when this reader, which knows much
less and gives up early, finds the same commands with the same words.
"""

import re
from itertools import dropwhile

_META = frozenset(" \t\n;&|()<>")
_RESERVED = frozenset({
    "{", "}", "if", "then", "elif", "else", "fi", "for", "while", "until", "do", "done", "case",
    "esac", "in", "function", "select", "coproc", "[[", "]]",
})  # fmt: skip
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
_VARIABLE = re.compile(r"\$(?:\{[A-Za-z0-9_]+\}|[A-Za-z_][A-Za-z0-9_]*|[0-9@*#?$!_-])?")
_OPERATOR = re.compile(r"&&|\|\||\|&|[;&|\n]")
_REDIRECT = re.compile(r"(?:&>>|&>|[0-9]*(?:>>|>\||>&|<&|>|<))(?![<>(&|])")
MAX_NESTING = 20


class NotPlainError(Exception):
    """The line holds something that this reader does not know."""


def plain_commands(source: str) -> list[list[str]]:
    """Return the raw words of every command, in the order of their first words.

    Names set before a command and redirections are left out.

    Raises:
        NotPlainError: the line is not of the plain kind.
    """
    reader = _Reader(source)
    reader.read_list(closing="", depth=0)
    return [words for _, words in sorted(reader.commands, key=lambda each: each[0])]


class _Reader:
    """Reads from the left; `commands` holds where each command starts, and its words."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._at = 0
        self.commands: list[tuple[int, list[str]]] = []

    def read_list(self, *, closing: str, depth: int) -> None:
        """Read commands until the closing character, which is taken, or the end."""
        if depth > MAX_NESTING:
            raise NotPlainError
        while True:
            self._read_command(depth)
            rest = self._peek()
            if rest == closing:
                self._at += len(closing)
                return
            operator = _OPERATOR.match(self._source, self._at)
            if operator is None:
                raise NotPlainError
            self._at = operator.end()

    def _read_command(self, depth: int) -> None:
        """Read one command with its redirections, or a group in parentheses."""
        words: list[tuple[int, str]] = []
        is_group = False
        while True:
            self._skip_blanks()
            if self._take_redirect(depth):
                continue
            character = self._peek()
            if not character or character in ";&|\n)":
                break
            if is_group or character in "<>":
                raise NotPlainError
            if character == "(":
                if words:
                    raise NotPlainError
                self._at += 1
                self.read_list(closing=")", depth=depth + 1)
                is_group = True
            else:
                words.append((self._at, self._read_word(depth)))
        self._keep(words)

    def _keep(self, words: list[tuple[int, str]]) -> None:
        """Keep a command without `!` and without the names set before it."""
        if words and words[0][1] == "!":
            words = words[1:]
        command = list(dropwhile(lambda word: _ASSIGNMENT.match(word[1]), words))
        if words and not command:
            raise NotPlainError  # it sets variables for what follows
        if command and command[0][1] in _RESERVED:
            raise NotPlainError
        if command:
            self.commands.append((command[0][0], [text for _, text in command]))

    def _take_redirect(self, depth: int) -> bool:
        redirect = _REDIRECT.match(self._source, self._at)
        if redirect is None:
            return False
        self._at = redirect.end()
        self._skip_blanks()
        if not self._read_word(depth):
            raise NotPlainError
        return True

    def _skip_blanks(self) -> None:
        while True:
            if self._peek() in {" ", "\t"}:
                self._at += 1
            elif self._source.startswith("\\\n", self._at):
                self._at += 2
            elif self._peek() == "#":
                end = self._source.find("\n", self._at)
                self._at = len(self._source) if end < 0 else end
            else:
                return

    def _read_word(self, depth: int) -> str:
        start = self._at
        while self._at < len(self._source):
            character = self._source[self._at]
            if character in _META:
                break
            if character == "\\":
                self._at += 2
            elif character == "'":
                self._at = self._after("'", self._at + 1)
            elif character == '"':
                self._at += 1
                self._double_quoted(depth)
            elif character in "$`":
                self._expansion(depth, in_quotes=False)
            else:
                self._at += 1
        if self._at > len(self._source):
            raise NotPlainError
        return self._source[start : self._at]

    def _double_quoted(self, depth: int) -> None:
        while self._at < len(self._source):
            character = self._source[self._at]
            if character == '"':
                self._at += 1
                return
            if character == "\\":
                self._at += 2
            elif character in "$`":
                self._expansion(depth, in_quotes=True)
            else:
                self._at += 1
        raise NotPlainError

    def _expansion(self, depth: int, *, in_quotes: bool) -> None:
        if self._source.startswith("`", self._at):
            self._backticks(depth)
        elif self._source.startswith("$(", self._at):
            if self._source.startswith("$((", self._at):
                raise NotPlainError
            self._at += 2
            self.read_list(closing=")", depth=depth + 1)
        elif self._source.startswith("$'", self._at) and not in_quotes:
            self._at += 2
            while self._peek() not in {"'", ""}:
                self._at += 2 if self._peek() == "\\" else 1
            self._at = self._after("'", self._at)
        elif self._source.startswith(("${", "$["), self._at) or (
            self._source.startswith('$"', self._at) and not in_quotes
        ):
            simple = _VARIABLE.match(self._source, self._at)
            if simple is None or not simple.group().endswith("}"):
                raise NotPlainError
            self._at = simple.end()
        else:
            simple = _VARIABLE.match(self._source, self._at)
            self._at = self._at + 1 if simple is None else simple.end()

    def _backticks(self, depth: int) -> None:
        """Read `…`; with a backslash inside, its rules are too odd to be plain."""
        end = self._after("`", self._at + 1)
        inside = self._source[self._at + 1 : end - 1]
        if "\\" in inside:
            raise NotPlainError
        inner = _Reader(inside)
        inner.read_list(closing="", depth=depth + 1)
        self.commands += [(self._at + 1 + start, words) for start, words in inner.commands]
        self._at = end

    def _after(self, mark: str, start: int) -> int:
        end = self._source.find(mark, start)
        if end < 0:
            raise NotPlainError
        return end + 1

    def _peek(self) -> str:
        return self._source[self._at : self._at + 1]
