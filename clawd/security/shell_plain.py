"""A second reading of plain command lines, by hand and after bash's manual alone.

A grammar made for editors is lenient: it joins lines that bash does not join and reads words as
assignments that bash runs. So a line is only taken for plain when this reader, which knows much
less and gives up early, finds the same commands with the same words.

Two kinds are read: plain lines of commands, and those with loops, conditions, groups, tests,
here-documents and variables, which are judged where the full sandbox holds what runs.
"""

import re
from itertools import dropwhile

from typing_extensions import override

_META = frozenset(" \t\n;&|()<>")
_RESERVED = frozenset({
    "{", "}", "if", "then", "elif", "else", "fi", "for", "while", "until", "do", "done", "case",
    "esac", "in", "function", "select", "coproc", "[[", "]]",
})  # fmt: skip
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
_VARIABLE = re.compile(r"\$(?:\{[A-Za-z0-9_]+\}|[A-Za-z_][A-Za-z0-9_]*|[0-9@*#?$!_-])?")
_OPERATOR = re.compile(r"&&|\|\||\|&|[;&|\n]")
_REDIRECT = re.compile(r"(?:&>>|&>|[0-9]*(?:>>|>\||>&|<&|>|<))(?![<>(&|])")
_HERE = re.compile(
    r"(?P<dash><<-?)[ \t]*(?P<quote>['\"]?)(?P<word>[A-Za-z_]\w*)(?P=quote)(?=[\s;|&>)]|$)"
)
_TESTED = re.compile(r"[ \t\n]+|&&|\|\|?|[()<>]|!(?=[ \t])")
_PARAMETER = re.compile(
    r"\$\{(?:#?[A-Za-z_]\w*|[A-Za-z_]\w*(?:##?|%%?|:[-+?]|[-+?]|//?|\^\^?|,,?|:)"
    r"[\w.,:/*?@%+= \[\]-]*)\}"
)
_ARITHMETIC = re.compile(r"\$\(\([\w\s+*/%<>=!&|?:$^~,-]*(?:\([\w\s+*/%$-]*\)[\w\s+*/%$-]*)*\)\)")
_NAME = re.compile(r"[A-Za-z_]\w*")
MAX_NESTING = 20


class NotPlainError(Exception):
    """The line holds something that this reader does not know."""


def plain_commands(source: str, *, compound: bool = False) -> list[list[str]]:
    """Return the raw words of every command, in the order of their first words.

    Names set before a command and redirections are left out; so are tests in brackets.

    Args:
        source: the line.
        compound: whether loops and the like are read as well.

    Raises:
        NotPlainError: the line is not of the kind.
    """
    reader = _Compound(source) if compound else _Reader(source)
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
            if is_group or (character in "<>" and not self._is_substitution()):
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
            self._keep_bare()
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

    def _is_substitution(self) -> bool:
        """Return whether a word that stands for the output of commands begins: `<(ls)`."""
        return False

    def _keep_bare(self) -> None:
        """Take a line that only sets variables for what follows."""
        raise NotPlainError

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
        inner = type(self)(inside)
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


class _Compound(_Reader):
    """Reads what is built of commands as well: `for`, `while`, `if`, `{`, `[[`, `<<E`, `x=1`."""

    def __init__(self, source: str) -> None:
        super().__init__(source)
        self._here: list[tuple[str, bool, bool]] = []

    @override
    def read_list(self, *, closing: str, depth: int) -> None:
        if depth > MAX_NESTING:
            raise NotPlainError
        while True:
            self._skip_empty()
            if self._peek() == closing:
                if self._here:
                    raise NotPlainError
                self._at += len(closing)
                return
            self._read_command(depth)
            rest = self._peek()
            if rest == closing:
                continue
            self._operator()

    def _until(self, closers: tuple[str, ...], depth: int) -> str:
        """Read commands until one of these reserved words, which is taken and returned."""
        if depth > MAX_NESTING:
            raise NotPlainError
        while True:
            self._skip_empty()
            for word in closers:
                if self._reserved() == word:
                    self._at += len(word)
                    return word
            if not self._peek():
                raise NotPlainError
            self._read_command(depth)
            self._operator()

    def _operator(self) -> None:
        operator = _OPERATOR.match(self._source, self._at)
        if operator is None:
            raise NotPlainError
        self._at = operator.end()
        if operator.group() == "\n":
            self._bodies()

    def _skip_empty(self) -> None:
        self._skip_blanks()
        while self._peek() == "\n":
            self._at += 1
            self._bodies()
            self._skip_blanks()

    def _reserved(self) -> str:
        """Return the bare word that stands here, "" for none."""
        end = self._at
        while end < len(self._source) and self._source[end] not in _META:
            end += 1
        return self._source[self._at : end]

    @override
    def _read_command(self, depth: int) -> None:
        self._skip_blanks()
        word = self._reserved()
        if word == "!":
            self._at += 1
            self._skip_blanks()
            word = self._reserved()
        match word:
            case "for":
                self._for(depth)
            case "while" | "until":
                self._at += len(word)
                self._until(("do",), depth + 1)
                self._until(("done",), depth + 1)
            case "if":
                self._if(depth)
            case "{":
                self._at += 1
                self._until(("}",), depth + 1)
            case "[[":
                self._test(depth)
            case "[":
                self._bracket(depth)
            case _:
                super()._read_command(depth)
                return
        self._after_compound(depth)

    def _after_compound(self, depth: int) -> None:
        self._skip_blanks()
        while self._take_redirect(depth):
            self._skip_blanks()
        if self._peek() and self._peek() not in ";&|\n)":
            raise NotPlainError

    def _for(self, depth: int) -> None:
        self._at += len("for")
        self._skip_blanks()
        name = _NAME.match(self._source, self._at)
        if name is None:
            raise NotPlainError
        self._at = name.end()
        self._skip_empty()
        if self._reserved() == "in":
            self._at += len("in")
            self._skip_blanks()
            while self._peek() and self._peek() not in ";\n":
                if not self._read_word(depth):
                    raise NotPlainError
                self._skip_blanks()
        if self._peek() == ";":
            self._at += 1
        self._skip_empty()
        if self._reserved() != "do":
            raise NotPlainError
        self._at += len("do")
        self._until(("done",), depth + 1)

    def _if(self, depth: int) -> None:
        self._at += len("if")
        self._until(("then",), depth + 1)
        while True:
            word = self._until(("elif", "else", "fi"), depth + 1)
            if word == "fi":
                return
            if word == "else":
                self._until(("fi",), depth + 1)
                return
            self._until(("then",), depth + 1)

    def _test(self, depth: int) -> None:
        self._at += len("[[")
        while True:
            between = _TESTED.match(self._source, self._at)
            if between is not None:
                self._at = between.end()
            elif (word := self._read_word(depth)) == "]]":
                return
            elif not word:
                raise NotPlainError

    def _bracket(self, depth: int) -> None:
        """Read `[ -f a ]`; with a redirection among its words it would write."""
        self._at += len("[")
        while True:
            self._skip_blanks()
            word = self._read_word(depth)
            if word == "]":
                return
            if not word:
                raise NotPlainError

    @override
    def _keep(self, words: list[tuple[int, str]]) -> None:
        if words and words[0][1] == "export":
            if not all(_ASSIGNMENT.match(text) for _, text in words[1:]):
                raise NotPlainError
            return
        super()._keep(words)

    @override
    def _keep_bare(self) -> None:
        return

    @override
    def _is_substitution(self) -> bool:
        return self._source.startswith("<(", self._at)

    @override
    def _read_word(self, depth: int) -> str:
        start = self._at
        if self._is_substitution():
            self._at += 2
            self.read_list(closing=")", depth=depth + 1)
        else:
            super()._read_word(depth)
        if self._is_substitution() or (
            self._source[start : start + 2] == "<(" and self._peek() not in _META | {""}
        ):
            raise NotPlainError  # bash joins it with what stands beside it
        return self._source[start : self._at]

    @override
    def _take_redirect(self, depth: int) -> bool:
        if self._source.startswith("<<<", self._at):
            self._at += 3
            self._skip_blanks()
            if not self._read_word(depth):
                raise NotPlainError
            return True
        here = _HERE.match(self._source, self._at)
        if here is None:
            return super()._take_redirect(depth)
        self._at = here.end()
        self._here.append((here["word"], here["dash"] == "<<-", bool(here["quote"])))
        return True

    def _bodies(self) -> None:
        """Go behind the here-documents that begin on the line that has just ended."""
        waiting, self._here = self._here, []
        for word, strips, is_literal in waiting:
            while True:
                end = self._source.find("\n", self._at)
                line = self._source[self._at : end if end >= 0 else len(self._source)]
                if (line.lstrip("\t") if strips else line) == word:
                    break
                # What is expanded in a body could run a command.
                expands = not is_literal and any(sign in line for sign in ("`", "\\", "$(", "${"))
                if end < 0 or expands:
                    raise NotPlainError
                self._at = end + 1
            self._at = len(self._source) if end < 0 else end + 1

    @override
    def _expansion(self, depth: int, *, in_quotes: bool) -> None:
        for form in (_ARITHMETIC, _PARAMETER):
            found = form.match(self._source, self._at)
            if found is not None:
                self._at = found.end()
                return
        super()._expansion(depth, in_quotes=in_quotes)
