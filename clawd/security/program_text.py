"""Whether a sed script or an awk program only reads, judged from its text.

Both languages can write files and run programs. Only what is read with certainty counts as reading:
a script that these readers do not understand is one that may do anything.
"""

import re
from typing import Literal

from clawd.security.shell_words import Word

_AWK_REGEX_MAY_FOLLOW = frozenset("{(,!~&|;\n")
_AWK_RUNS = re.compile(r"system|getline|@|fflush|close|\|&|/inet|ENVIRON\s*\[[^\]]*\]\s*=")
# A print goes on behind a comma at the end of a line.
_AWK_PRINTS_TO = re.compile(r"\bprintf?\b[^;{}]*>")
# In brackets a slash does not end a regular expression; which brackets are open is hard to tell.
_OPEN_BRACKET = re.compile(r"\[\^?\]|\[[^\]]*$")
_AWK_KEYWORDS = frozenset({"print", "printf", "return", "in", "else", "do", "case", "exit"})

_SED_ADDRESS = re.compile(r"(?:\d+(?:~\d+)?|\$|[+~]\d+)")
_SED_PLAIN = frozenset("=dDgGhHnNpPxzF")
_SED_IN_PLACE = re.compile(r"-[nErsuz]*i.*|--in-place(?:=.*)?")
_SED_FLAGS = re.compile(r"[gpiImM\d]*")
_SED_SWITCHES = frozenset({
    "--quiet", "--silent", "--regexp-extended", "--separate", "--unbuffered", "--null-data",
    "--zero-terminated", "--posix", "--debug", "--follow-symlinks", "--sandbox",
})  # fmt: skip


def awk_program(arguments: tuple[Word, ...]) -> Literal["low"] | None:
    """Return "low" for a call of awk that only reads; None for every other."""
    rest = list(arguments)
    while rest and rest[0].text.startswith("-") and rest[0].text != "-":
        text = rest[0].text
        if not rest[0].is_static or not re.fullmatch(r"-(?:F|v).*|--", text, re.DOTALL):
            return None
        takes_next = text in {"-F", "-v"}
        if takes_next and (len(rest) < 2 or not rest[1].is_static):
            return None
        rest = rest[2 if takes_next else 1 :]
        if text == "--":
            break
    if not rest or not rest[0].is_static:
        return None
    return "low" if _awk_reads(rest[0].text) else None


def _awk_reads(program: str) -> bool:
    if _AWK_RUNS.search(program):
        return False
    code = _awk_code(program)
    return (
        code is not None and "|" not in code.replace("||", "") and not _AWK_PRINTS_TO.search(code)
    )


def _awk_code(program: str) -> str | None:
    """Return a program without its strings, regular expressions and comments; None if unclear."""
    code: list[str] = []
    position, before = 0, "\n"
    while position < len(program):
        character = program[position]
        if character == '"':
            end = _after(program, position + 1, '"')
        elif character == "/" and before in _AWK_REGEX_MAY_FOLLOW:
            end = _after(program, position + 1, "/")
            if _OPEN_BRACKET.search(program[position + 1 : end - 1]):
                return None
        elif character == "#":
            end = program.find("\n", position)
            end = len(program) if end < 0 else end
        else:
            if character == "/" and not _divides("".join(code)):
                return None
            code.append(character)
            before = before if character in " \t" else character
            position += 1
            continue
        if end < 0:
            return None
        if character != "#":
            code.append('""')
            before = '"'
        position = end
    return "".join(code)


def _divides(code: str) -> bool:
    """Return whether a slash after this code can only be a division."""
    found = re.search(r"([A-Za-z_]\w*|[\d.]+|[)\]$])[ \t]*$", code)
    return found is not None and found[1] not in _AWK_KEYWORDS and found[1] != "$"


def _after(text: str, start: int, mark: str) -> int:
    """Return the position behind the next mark that no backslash hides; -1 for none."""
    while start < len(text) and text[start] != "\n":
        if text[start] == mark:
            return start + 1
        start += 2 if text[start] == "\\" else 1
    return -1


def sed_script(arguments: tuple[Word, ...]) -> Literal["low", "medium"] | None:
    """Return "low" for a call of sed that only reads, "medium" for one that changes its files."""
    scripts: list[str] = []
    operands: list[str] = []
    in_place = False
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        text = word.text
        if text == "--" and word.is_static:
            operands += [_told(each) for each in rest]
            break
        if text == "-" or not text.startswith("-"):
            operands.append(_told(word))
        elif _SED_IN_PLACE.fullmatch(text):
            in_place = True
        elif (given := _sed_expression(text, rest)) is not None:
            scripts.append(given)
        elif not re.fullmatch(r"-[nErsuz]+|-l\d+", text) and text not in _SED_SWITCHES:
            return None
    if not scripts:
        scripts, operands = operands[:1], operands[1:]
    if not scripts or not all(_SedReader(script).is_reading() for script in scripts):
        return None
    return "medium" if in_place else "low"


def _sed_expression(option: str, rest: list[Word]) -> str | None:
    """Return the script that an option gives, which may take the next word; None for no such."""
    if option.startswith("--expression="):
        return option.partition("=")[2]
    if re.fullmatch(r"-[nErsuz]*e|--expression", option):
        return _told(rest.pop(0)) if rest else _UNKNOWN
    return None


_UNKNOWN = "\0"


def _told(word: Word) -> str:
    return word.text if word.is_static else _UNKNOWN


class _SedReader:
    """Reads a script from the left and gives up at the first thing that it does not know."""

    def __init__(self, script: str) -> None:
        self._text = script
        self._at = 0

    def is_reading(self) -> bool:
        """Return whether all of the script was understood and none of it writes or runs."""
        try:
            while self._at < len(self._text):
                if not self._command():
                    return False
        except IndexError:
            return False
        return True

    def _command(self) -> bool:
        self._skip(" \t\n;}")
        if self._at >= len(self._text):
            return True
        if not self._addresses():
            return False
        self._skip(" \t!")
        character = self._take()  # IndexError at the end
        if character in _SED_PLAIN:
            return self._ends()
        if character in "aicrR#:btTqQlL":
            return self._with_text(character)
        if character in "sy":
            return self._substitution(character)
        return character == "{"

    def _with_text(self, character: str) -> bool:
        """Take what goes on to the end of the line: text, a file that is read, a label."""
        if character in "btTqQlL":
            found = re.compile(r"[ \t]*[\w.-]*").match(self._text, self._at)
            self._at = found.end() if found else self._at
            return self._ends()
        while self._at < len(self._text) and self._text[self._at] != "\n":
            self._at += 2 if self._text[self._at] == "\\" else 1
        return True

    def _substitution(self, character: str) -> bool:
        mark = self._take()
        if mark in "\\\n" or not (self._delimited(mark) and self._delimited(mark)):
            return False
        flags = _SED_FLAGS.match(self._text, self._at) if character == "s" else None
        self._at = flags.end() if flags else self._at
        return self._ends()

    def _addresses(self) -> bool:
        while True:
            character = self._text[self._at : self._at + 1]
            if character == "/":
                self._at += 1
                if not self._delimited("/"):
                    return False
                self._skip("IM")
            elif character == "\\":
                self._at += 1
                if not self._delimited(self._take()):
                    return False
                self._skip("IM")
            elif found := _SED_ADDRESS.match(self._text, self._at):
                self._at = found.end()
            else:
                return True
            self._skip(" \t")
            if self._text[self._at : self._at + 1] != ",":
                return True
            self._at += 1
            self._skip(" \t")

    def _delimited(self, mark: str) -> bool:
        """Go behind the next mark; brackets hide it only in the eyes of some seds: not certain."""
        while self._at < len(self._text):
            character = self._text[self._at]
            if character == "[" and mark in self._text[self._at : self._text.find("]", self._at)]:
                return False
            if character == "\n":
                return False
            self._at += 2 if character == "\\" else 1
            if character == mark:
                return True
        return False

    def _ends(self) -> bool:
        self._skip(" \t")
        return self._text[self._at : self._at + 1] in {"", ";", "\n", "}", "#"}

    def _skip(self, characters: str) -> None:
        while self._at < len(self._text) and self._text[self._at] in characters:
            self._at += 1

    def _take(self) -> str:
        self._at += 1
        return self._text[self._at - 1]
