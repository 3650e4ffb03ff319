"""What no autonomy runs: commands that destroy a system, stop it, or run what they download."""

import re
from collections.abc import Callable
from pathlib import PurePath
from posixpath import normpath

import msgspec

from clawd.security.shell_script import ShellScript
from clawd.security.shell_words import Word
from clawd.security.shell_wrappers import SHELLS, basename, is_interpreter

MAX_DOWNLOADS = 50

_STOPPERS = frozenset({"shutdown", "reboot", "halt", "poweroff", "telinit"})
_MAKERS = frozenset({"mke2fs", "mkswap", "mkdosfs", "mkntfs", "wipefs", "blkdiscard"})
_STOP_VERBS = frozenset(
    {"poweroff", "reboot", "halt", "kexec", "soft-reboot", "rescue", "emergency"}
)
_DOWNLOADERS = frozenset(
    {"curl", "wget", "fetch", "aria2c", "lynx", "links", "w3m", "http", "https", "xh", "axel"}
)
_STDIN_NAMES = frozenset({"-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"})
_READERS_OF_SOURCE = frozenset({"source", ".", "eval"})
_SAVES = re.compile(r"-[A-Za-z]*[oO]|--output(?:-document)?")
_PROTECTED = re.compile(r"main|master|trunk|develop|production|prod|stable|release(?:[/-].+)?")
_INLINE = frozenset({"-c", "-e", "-E", "-m", "-r", "-p", "--eval", "--print", "-n"})


class Invocation(msgspec.Struct, frozen=True, kw_only=True):
    """A command that would run, with where in the source it stands and what it was started by.

    Attributes:
        words: the name first; never empty.
        added_words: whether its starter appends words that nobody can tell.
    """

    words: tuple[Word, ...]
    start: int
    end: int
    starter: str = ""
    added_words: bool = False

    @property
    def name(self) -> str:
        """The basename it is judged by."""
        return basename(self.words[0])

    @property
    def arguments(self) -> tuple[Word, ...]:
        """All words but the name."""
        return self.words[1:]

    @property
    def options(self) -> tuple[str, ...]:
        """The texts of arguments that begin with a dash."""
        return tuple(w.text for w in self.arguments if w.text.startswith("-") and w.text != "-")

    @property
    def operands(self) -> tuple[Word, ...]:
        """The arguments that do not begin with a dash."""
        return tuple(w for w in self.arguments if not w.text.startswith("-") or w.text == "-")


def destruction(invocation: Invocation, *, workspace: PurePath, home: PurePath) -> str:
    """Return what this command destroys or stops, or ""."""
    check = _CHECKS.get(invocation.name)
    if check is not None:
        return check(invocation, (workspace, home))
    if invocation.name in _STOPPERS:
        return f"{invocation.name} stops the machine"
    if invocation.name in _MAKERS or invocation.name.partition(".")[0] == "mkfs":
        return f"{invocation.name} overwrites a file system"
    return ""


def download_that_runs(invocations: list[Invocation], script: ShellScript) -> str:
    """Return how something downloaded is run (`curl … | sh`), or "".

    That both stand in one line decides, not the exact plumbing: `curl … | tee x | sh`,
    `sh < <(curl …)` and `curl … > x; sh x` are the same thing.
    """
    written = {basename(r.target) for r in script.redirects if r.operator.startswith((">", "&>"))}
    downloads = [each for each in invocations if each.name in _DOWNLOADERS]
    if len(downloads) > MAX_DOWNLOADS:
        return f"it downloads more than {MAX_DOWNLOADS} things, too many to be judged"
    for download in downloads:
        saved = (written | _saved_names(download)) - {"", "-", "null"}
        for each in invocations:
            runs = is_interpreter(each.name) or each.name in _READERS_OF_SOURCE
            is_inside = each.start <= download.start < each.end
            if runs and (is_inside or _reads_program_from_stdin(each)):
                return f"{each.name} would run what {download.name} downloads"
            ran = {each.name} | {basename(word) for word in each.operands[:1] if runs}
            if each.start > download.start and saved & ran:
                return f"it would run what {download.name} downloads"
    return ""


def forced_push(invocation: Invocation) -> str:
    """Return the protected branch that a push would overwrite or remove, or ""."""
    words = [word.text for word in invocation.arguments]
    if invocation.name != "git" or "push" not in words:
        return ""
    rest = words[words.index("push") + 1 :]
    options = [text for text in rest if text.startswith("-")]
    forces = any(
        re.fullmatch(r"-[a-zA-Z]*[fd][a-zA-Z]*|--forc.*|--del.*|--mir.*|--pru.*", text)
        for text in options
    )
    if any(re.fullmatch(r"--mir.*", text) for text in options):
        return "git push --mirror overwrites every branch"
    for text in rest:
        target = text.removeprefix("+").rpartition(":")[2].removeprefix("refs/heads/")
        is_forced = forces or text.startswith(("+", ":"))
        if is_forced and not text.startswith("-") and _PROTECTED.fullmatch(target):
            return f"git push would overwrite {target} by force"
    return ""


def fork_bomb(script: ShellScript) -> str:
    """Return the name of a function that starts itself over and over, or ""."""
    called = {basename(command.words[0]) for command in script.commands}
    bombs = [name for name in script.bombs if name in called]
    return f"{bombs[0]} is a fork bomb" if bombs else ""


def _removes(invocation: Invocation, places: tuple[PurePath, ...]) -> str:
    if not _has_letter(invocation, "rR", "--recursive"):
        return ""
    if "--no-preserve-root" in invocation.options:
        return "rm would remove everything"
    for word in invocation.operands:
        if _is_everything(word, places):
            return f"rm would remove all of {word.text}"
    return ""


def _changes_mode(invocation: Invocation, places: tuple[PurePath, ...]) -> str:
    if not _has_letter(invocation, "R", "--recursive"):
        return ""
    for word in invocation.operands:
        if word.text.startswith("/") and _is_everything(word, places[:0]):
            return f"chmod would change all of {word.text}"
    return ""


def _changes_owner(invocation: Invocation, _places: tuple[PurePath, ...]) -> str:
    if _has_letter(invocation, "R", "--recursive"):
        return f"{invocation.name} -R changes the owner of whole trees"
    return ""


def _copies_blocks(invocation: Invocation, _places: tuple[PurePath, ...]) -> str:
    for word in invocation.operands:
        if word.text.startswith("if=") or word.text.startswith("of=/dev/"):
            return f"dd {word.text} copies raw data"
    return ""


def _controls_services(invocation: Invocation, _places: tuple[PurePath, ...]) -> str:
    verbs = [word.text for word in invocation.operands if word.text in _STOP_VERBS]
    return f"systemctl {verbs[0]} stops the machine" if verbs else ""


def _changes_runlevel(invocation: Invocation, _places: tuple[PurePath, ...]) -> str:
    levels = [word.text for word in invocation.operands if word.text in {"0", "1", "6", "s", "S"}]
    return f"init {levels[0]} stops the machine" if levels else ""


_CHECKS: dict[str, Callable[[Invocation, tuple[PurePath, ...]], str]] = {
    "rm": _removes,
    "chmod": _changes_mode,
    "chown": _changes_owner,
    "chgrp": _changes_owner,
    "dd": _copies_blocks,
    "systemctl": _controls_services,
    "init": _changes_runlevel,
}


def _has_letter(invocation: Invocation, letters: str, name: str) -> bool:
    for option in invocation.options:
        if option.startswith("--"):
            if len(option) > 2 and name.startswith(option):
                return True
        elif any(letter in option for letter in letters):
            return True
    return False


def _is_everything(word: Word, places: tuple[PurePath, ...]) -> bool:
    """Return whether a path is a whole root, home or workspace: `/`, `/*`, `*`, `.`, `~`, `..`."""
    text = word.text.rstrip("/") or ("/" if word.text else "")
    if not word.is_static:
        # `rm -rf /$x` and `rm -rf "$x"/` remove everything where $x is empty.
        return text in {"", "/", "/*"}
    is_all = word.has_glob and PurePath(text).name in {"*", ".*", "**", "?*", "*?", "[!.]*"}
    folder = (
        normpath(text.rpartition("/")[0] or ("/" if text.startswith("/") else "."))
        if (is_all)
        else normpath(text)
    )
    if folder.lstrip("/") in {"", "."} or set(folder.split("/")) == {".."}:
        return True
    return any(place == PurePath(folder) or PurePath(folder) in place.parents for place in places)


def _reads_program_from_stdin(invocation: Invocation) -> bool:
    """Return whether an interpreter takes its program from standard input."""
    if invocation.name in _READERS_OF_SOURCE:
        return any(word.text in _STDIN_NAMES for word in invocation.arguments)
    if invocation.added_words:
        return True
    options, operands = invocation.options, invocation.operands
    if operands and operands[0].text in _STDIN_NAMES:
        return True
    if invocation.name in SHELLS:
        if any(_ends_with_c(option) for option in options):
            return False
        return not operands or any("s" in o for o in options if not o.startswith("--"))
    return not operands and not any(option[:2] in _INLINE for option in options)


def _ends_with_c(option: str) -> bool:
    return not option.startswith("--") and "c" in option


def _saved_names(download: Invocation) -> set[str]:
    names: set[str] = set()
    words = download.arguments
    for index, word in enumerate(words):
        option, _, value = word.text.partition("=")
        if _SAVES.fullmatch(word.text):
            names |= {basename(following) for following in words[index + 1 : index + 2]}
        elif value and option in {"--output", "--output-document"}:
            names.add(value.rsplit("/", 1)[-1])
        elif "://" in word.text:
            names.add(word.text.rsplit("/", 1)[-1])
    return names
