r"""What a word of a shell command says once bash has taken its quotes off, where that is static.

`r''m`, `\rm`, `$'\x72m'` and `"r"m` all say `rm`; `$x`, `$(y)` and a process substitution cannot
be told and make a word dynamic. Tilde, `$HOME` and `$PWD` are known. Braces are expanded,
globs only noticed.
"""

import itertools
import re
from collections.abc import Mapping

import msgspec

MAX_EXPANSIONS = 64

_ANSI_C = re.compile(
    r"\\(?:x([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{1,4})|U([0-9a-fA-F]{1,8})|([0-7]{1,3})|c(.)|(.))",
    re.DOTALL,
)
_SIMPLE_ESCAPES = {
    "a": "\a", "b": "\b", "e": "\x1b", "E": "\x1b", "f": "\f", "n": "\n", "r": "\r", "t": "\t",
    "v": "\v", "\\": "\\", "'": "'", '"': '"', "?": "?",
}  # fmt: skip
_VARIABLE = re.compile(r"\$(?:\{([A-Za-z_][A-Za-z0-9_]*)\}|([A-Za-z_][A-Za-z0-9_]*))")
_EXPANDS = re.compile(r"\$[A-Za-z_0-9{(@*#?!$\-\[]")
_PIPE = "/dev/fd/63"
_NOT_IN_A_WORD = frozenset(" \t\n;&|()<>")
_GLOBS = frozenset("*?[")

_Char = tuple[str, bool]
"""A character and whether it stands bare, so that braces, globs and commas mean something."""


class Word(msgspec.Struct, frozen=True, kw_only=True):
    """One word.

    Attributes:
        text: what it says; for a dynamic word, what is known of its beginning.
        is_static: whether `text` is all of it.
        has_glob: whether a bare `*`, `?` or `[` stands in it.
    """

    text: str
    is_static: bool = True
    has_glob: bool = False


def expand(raw: str, variables: Mapping[str, str]) -> list[Word]:
    """Return the words that one word of source becomes: several where it holds braces.

    Args:
        raw: the source text of the word, quotes and all.
        variables: values that are known for certain (`HOME`, `PWD`).
    """
    if raw.startswith("<("):
        return [Word(text=_PIPE)]  # bash gives the name of a pipe, which is never an option
    characters, is_static = _Reader(raw, variables).read()
    if not is_static:
        return [_word(characters, is_static=False)]
    alternatives = _braces_expanded(characters)
    if alternatives is None:
        return [Word(text="", is_static=False)]
    return [_word(each, is_static=True) for each in alternatives]


def _word(characters: list[_Char], *, is_static: bool) -> Word:
    return Word(
        text="".join(character for character, _ in characters),
        is_static=is_static,
        has_glob=any(bare and character in _GLOBS for character, bare in characters),
    )


class _Dynamic(Exception):  # noqa: N818 - a signal inside this module, not an error
    """The rest of the word cannot be told."""


class _Reader:
    """Reads one word from the left until its end or the first thing that cannot be told."""

    def __init__(self, raw: str, variables: Mapping[str, str]) -> None:
        self._raw = raw
        self._variables = variables
        self._at = 0
        self._out: list[_Char] = []

    def read(self) -> tuple[list[_Char], bool]:
        try:
            self._tilde()
            while self._at < len(self._raw):
                self._next()
        except _Dynamic:
            return self._out, False
        return self._out, True

    def _tilde(self) -> None:
        if not self._raw.startswith("~"):
            return
        if self._raw != "~" and not self._raw.startswith("~/"):
            raise _Dynamic
        self._literal(self._variables["HOME"])
        self._at = 1

    def _next(self) -> None:
        character = self._raw[self._at]
        if character == "\\":
            self._escaped(self._raw[self._at + 1 : self._at + 2])
        elif character == "'":
            self._literal(self._until_quote(self._at + 1))
        elif character == '"':
            self._double_quoted(self._at + 1)
        elif character in "$`":
            self._dollar(in_quotes=False)
        elif character in _NOT_IN_A_WORD:
            raise _Dynamic
        else:
            self._out.append((character, True))
            self._at += 1

    def _escaped(self, character: str) -> None:
        if character != "\n":
            self._literal(character)
        self._at += 2

    def _until_quote(self, start: int) -> str:
        end = self._raw.find("'", start)
        if end < 0:
            raise _Dynamic
        self._at = end + 1
        return self._raw[start:end]

    def _double_quoted(self, start: int) -> None:
        self._at = start
        while self._at < len(self._raw):
            character = self._raw[self._at]
            if character == '"':
                self._at += 1
                return
            if character == "\\" and self._raw[self._at + 1 : self._at + 2] in '$`"\\\n':
                self._escaped(self._raw[self._at + 1 : self._at + 2])
            elif character in "$`":
                self._dollar(in_quotes=True)
            else:
                self._literal(character)
                self._at += 1
        raise _Dynamic

    def _dollar(self, *, in_quotes: bool) -> None:
        rest = self._raw[self._at :]
        if not in_quotes and rest.startswith("$'"):
            self._ansi_c()
            return
        if not in_quotes and rest.startswith('$"'):
            self._double_quoted(self._at + 2)
            return
        known = _VARIABLE.match(rest)
        name = (known.group(1) or known.group(2)) if known else ""
        if known and name in self._variables:
            self._literal(self._variables[name])
            self._at += known.end()
            return
        if rest.startswith("`") or _EXPANDS.match(rest):
            raise _Dynamic
        self._literal("$")
        self._at += 1

    def _ansi_c(self) -> None:
        start = position = self._at + 2
        while position < len(self._raw) and self._raw[position] != "'":
            position += 2 if self._raw[position] == "\\" else 1
        if position >= len(self._raw):
            raise _Dynamic
        self._literal(_ANSI_C.sub(_decoded_escape, self._raw[start:position]))
        self._at = position + 1

    def _literal(self, text: str) -> None:
        self._out.extend((character, False) for character in text)


def _decoded_escape(match: re.Match[str]) -> str:
    hexadecimal, short, long, octal, control, simple = match.groups()
    if simple is not None:
        return _SIMPLE_ESCAPES.get(simple, "\\" + simple)
    if control is not None:
        code = ord(control.upper()) ^ 0x40
    elif octal is not None:
        code = int(octal, 8)
    else:
        code = int(hexadecimal or short or long, 16)
    is_byte = octal is not None or hexadecimal is not None
    if code == 0 or code > 0x10FFFF or 0xD800 <= code < 0xE000 or (is_byte and code >= 0x80):
        raise _Dynamic
    return chr(code)


def _braces_expanded(characters: list[_Char]) -> list[list[_Char]] | None:
    """Return the words after brace expansion; None for sequences and for too many."""
    if characters.count(("{", True)) > MAX_EXPANSIONS:
        return None
    done: list[list[_Char]] = []
    waiting = [characters]
    while waiting:
        word = waiting.pop(0)
        found = _first_brace(word)
        if found is None:
            done.append(word)
        else:
            start, end, parts = found
            if not parts:
                return None
            waiting[:0] = [word[:start] + part + word[end + 1 :] for part in parts]
        if len(done) + len(waiting) > MAX_EXPANSIONS:
            return None
    return done


def _first_brace(word: list[_Char]) -> tuple[int, int, list[list[_Char]]] | None:
    """Return start, end and parts of the first brace group; no parts for a `{a..b}`."""
    for start, character in enumerate(word):
        if character != ("{", True):
            continue
        depth, cuts = 0, [start]
        for end in range(start, len(word)):
            if word[end] == ("{", True):
                depth += 1
            elif word[end] == ("}", True):
                depth -= 1
            elif word[end] == (",", True) and depth == 1:
                cuts.append(end)
            if depth == 0:
                if len(cuts) > 1:
                    edges = [*cuts, end]
                    pairs = itertools.pairwise(edges)
                    return start, end, [word[left + 1 : right] for left, right in pairs]
                inner = "".join(text for text, _ in word[start + 1 : end])
                if ".." in inner:
                    return start, end, []
                break
    return None


# Which options make an allow-listed command execute or write: the tables, and how to read them.
#
# An option that is not in a command's table is harmless as far as its manual says (GNU coreutils
# 9, findutils 4.9, ripgrep 14, git 2.39, tree 2.1, file 5.44, diffutils 3.8).


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """How a command's options are read and which of them make it high.

    Attributes:
        letters: short options that execute or write.
        with_value: short options that take a value, so that `-to` is -t with the value `o`.
        names: long options that execute or write.
        names_with_value: long options that may take the next word.
        max_operands: more operands than that make it write; None for no limit.
        operand_prefix: what every operand must begin with; empty for anything.
    """

    letters: str = ""
    with_value: str = ""
    names: tuple[str, ...] = ()
    names_with_value: tuple[str, ...] = ()
    max_operands: int | None = None
    operand_prefix: str = ""


FIND_ACTIONS = frozenset({
    "-exec", "-execdir", "-ok", "-okdir", "-delete", "-fprint", "-fprint0", "-fprintf", "-fls",
})  # fmt: skip
FD_RUNS = frozenset({"-x", "-X", "--exec", "--exec-batch"})
_FD = Options(letters="xX", with_value="tEedjSocC", names=("--exec", "--exec-batch"))
RISKY_OPTIONS: dict[str, Options] = {
    "sort": Options(
        letters="oT",
        with_value="ktSTo",
        names=("--output", "--compress-program", "--temporary-directory"),
    ),
    "uniq": Options(
        with_value="fsw",
        names_with_value=("--skip-fields", "--skip-chars", "--check-chars"),
        max_operands=1,
    ),
    "date": Options(
        letters="s",
        with_value="dfrs",
        names=("--set",),
        names_with_value=("--date", "--file", "--reference"),
        operand_prefix="+",
    ),
    "rg": Options(
        letters="z",
        with_value="ABCMTefgjmrtEd",
        names=("--pre", "--hostname-bin", "--search-zip"),
    ),
    "tree": Options(letters="oR", with_value="oLPIHT", names=("--output",)),
    "file": Options(
        letters="CzZ",
        with_value="eFfmP",
        names=("--compile", "--uncompress", "--uncompress-noreport"),
    ),
    "shuf": Options(letters="o", with_value="ino", names=("--output",)),
    "ss": Options(letters="KD", with_value="fAFN", names=("--kill", "--diag")),
    "yq": Options(letters="is", names=("--inplace", "--in-place", "--split-exp")),
    "fd": _FD,
    "fdfind": _FD,
    "diff": Options(letters="l", with_value="CUIxXDWFS", names=("--paginate",)),
}  # fmt: skip

_GIT_BEFORE_SUBCOMMAND = frozenset(
    {"--no-pager", "--no-optional-locks", "--no-replace-objects", "--literal-pathspecs"}
)
_GIT_RISKY = ("--output", "--ext-diff", "--textconv", "--show-signature", "--open-files-in-pager")
_GIT_BRANCH_LISTS = frozenset({
    "--all", "--remotes", "--verbose", "--list", "--show-current", "--color", "--no-color",
    "--column", "--no-column", "--ignore-case", "--abbrev", "--no-abbrev", "--sort", "--format",
})  # fmt: skip
_GIT_BRANCH_FILTERS = frozenset(
    {"-l", "--list", "--contains", "--no-contains", "--merged", "--no-merged", "--points-at"}
)


def risky_option(name: str, arguments: tuple[Word, ...], *, only_known: bool = False) -> str:
    """Return what makes this command execute or write, or "" when nothing does.

    A dynamic word could be any option, and a leading glob could expand to one: both count, unless
    only what is known shall.
    """
    uncertain = "" if only_known else _uncertain(arguments)
    if uncertain and (name in RISKY_OPTIONS or name in {"git", "find"}):
        return uncertain
    if name == "git":
        return _risky_git(arguments)
    if name == "find":
        return next((word.text for word in arguments if word.text in FIND_ACTIONS), "")
    options = RISKY_OPTIONS.get(name)
    if options is None:
        return ""
    return _risky_word(options, [word.text for word in arguments if word.is_static])


def _uncertain(arguments: tuple[Word, ...]) -> str:
    for word in arguments:
        if not word.is_static:
            return "an argument that cannot be told"
        if word.has_glob and word.text[:1] in {"*", "?", "[", "-"}:
            return f"{word.text}, which may match a name that is an option"
    return ""


def _risky_word(options: Options, arguments: list[str]) -> str:
    operands: list[str] = []
    position = 0
    while position < len(arguments):
        text = arguments[position]
        position += 1
        if text == "--":
            operands += arguments[position:]
            break
        if text in options.names or is_abbreviated(text, options.names):
            return text
        if text.startswith("--"):
            position += text in options.names_with_value
            continue
        if text == "-" or not text.startswith("-"):
            operands.append(text)
            continue
        found, takes_next = _in_cluster(options, text)
        if found:
            return found
        position += takes_next
    if options.max_operands is not None and len(operands) > options.max_operands:
        return f"{operands[options.max_operands]} (it is written)"
    for operand in operands:
        if not operand.startswith(options.operand_prefix):
            return operand
    return ""


def _in_cluster(options: Options, text: str) -> tuple[str, bool]:
    """Look through `-abc`; returns the risky option, and whether the next word is a value."""
    for index, letter in enumerate(text[1:], start=1):
        if letter in options.letters:
            return f"-{letter}", False
        if letter in options.with_value:
            return "", index == len(text) - 1
    return "", False


def is_abbreviated(text: str, names: tuple[str, ...]) -> bool:
    """Return whether `--outp=x` may mean one of the names; GNU takes unique abbreviations."""
    option = text.partition("=")[0]
    return len(option) > 2 and option.startswith("--") and any(n.startswith(option) for n in names)


def _risky_git(arguments: tuple[Word, ...]) -> str:
    texts = [word.text for word in arguments]
    position = 0
    while position < len(texts) and texts[position].startswith("-"):
        if texts[position] == "-C":
            position += 2
        elif texts[position] in _GIT_BEFORE_SUBCOMMAND:
            position += 1
        else:
            return texts[position]
    subcommand, rest = texts[position : position + 1], texts[position + 1 :]
    for text in rest:
        if text == "--":
            break
        if is_abbreviated(text, _GIT_RISKY) or "%G" in text:
            return text
    return _risky_git_branch(rest) if subcommand == ["branch"] else ""


def _risky_git_branch(rest: list[str]) -> str:
    filters = False
    for text in rest:
        option = text.partition("=")[0]
        if option in _GIT_BRANCH_FILTERS:
            filters = True
        elif re.fullmatch("-[arvqi]+", option):
            continue
        elif text.startswith("-") and option not in _GIT_BRANCH_LISTS:
            return text
    operands = [text for text in rest if not text.startswith("-")]
    return "" if filters or not operands else f"{operands[0]} (it makes a branch)"


def takes_any_arguments(name: str) -> bool:
    """Return whether no argument can make this command execute or write."""
    return name not in RISKY_OPTIONS and name not in {"git", "find"}


def git_subcommand(arguments: tuple[Word, ...]) -> tuple[Word, ...]:
    """Return git's arguments from the subcommand on."""
    position = 0
    while position < len(arguments) and arguments[position].text.startswith("-"):
        position += 2 if arguments[position].text in {"-C", "-c"} else 1
    return arguments[position:]
