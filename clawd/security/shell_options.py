"""Which options make an allow-listed command execute or write: the tables, and how to read them.

An option that is not in a command's table is harmless as far as its manual says (GNU coreutils
9, findutils 4.9, ripgrep 14, git 2.39, tree 2.1, file 5.44, diffutils 3.8).
"""

import re

import msgspec

from clawd.security.shell_words import Word


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
    """Tell whether `--outp=x` may mean one of the names; GNU takes unique abbreviations."""
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
    """Tell whether no argument can make this command execute or write."""
    return name not in RISKY_OPTIONS and name not in {"git", "find"}


def git_subcommand(arguments: tuple[Word, ...]) -> tuple[Word, ...]:
    """Return git's arguments from the subcommand on."""
    position = 0
    while position < len(arguments) and arguments[position].text.startswith("-"):
        position += 2 if arguments[position].text in {"-C", "-c"} else 1
    return arguments[position:]
