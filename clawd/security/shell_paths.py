"""Which paths a command line names, and whether the policy lets it. By name only, no disk.

This catches what is written out; links and computed names are the sandbox's business.
"""

import os
import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path, PurePath
from posixpath import normpath

import msgspec

from clawd.security.shell_script import ShellScript, SimpleCommand, parse
from clawd.security.shell_words import Word

# First components that make an absolute word a path; `/api/v1` and the regex `/foo/` are not.
_TOP_LEVEL = frozenset({
    "bin", "boot", "dev", "etc", "home", "lib", "lib32", "lib64", "libx32", "lost+found", "media",
    "mnt", "nix", "opt", "proc", "root", "run", "sbin", "snap", "srv", "sys", "tmp", "usr", "var",
})  # fmt: skip
_HARMLESS = re.compile(
    r"/dev/(?:null|zero|full|random|urandom|std(?:in|out|err)|tty|fd/[0-9]+)|/proc/self/fd/[0-9]+"
)
_PROGRAM_FOLDERS = frozenset(
    {"/bin", "/usr/bin", "/sbin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin"}
)
_TEXT_ONLY = frozenset(
    {"echo", "printf", "tr", "date", "expr", "seq", "test", "[", "true", "false"}
)
_PATTERN_FIRST = frozenset(
    {"grep", "egrep", "fgrep", "rg", "sed", "awk", "gawk", "mawk", "perl", "jq"}
)
_NOT_PATHS = {
    "cut": ("-d", "-f", "-c", "-b", "--delimiter", "--output-delimiter"),
    "sort": ("-t", "-k", "--field-separator", "--key"),
    "grep": ("-e", "--regexp", "-m", "-A", "-B", "-C"),
    "rg": ("-e", "--regexp", "-g", "--glob", "-t", "-T", "-A", "-B", "-C", "-m", "-r"),
    "find": (
        "-name", "-iname", "-path", "-ipath", "-wholename", "-iwholename", "-regex", "-iregex",
        "-lname", "-ilname", "-printf", "-perm", "-size",
    ),
    "tree": ("-I", "-P", "-L"),
    "git": ("-S", "-G", "--grep", "--author", "--format", "--pretty", "-m"),
    "xargs": ("-d", "-I", "-E"),
}  # fmt: skip


class PolicyPaths(msgspec.Struct, frozen=True, kw_only=True):
    """What the policy says of the file system, all absolute.

    Attributes:
        forbidden: nothing at or under these may be touched.
        forbids_inside: whether a forbidden path lies in the workspace itself.
        own: folders of the sandbox's own, which a command may read and write.
        shown: what a sandbox shows read-only of the system.
    """

    workspace: str
    forbidden: tuple[str, ...]
    forbids_inside: bool
    own: tuple[str, ...] = ()
    shown: tuple[str, ...] = ()


class PathProblem(msgspec.Struct, frozen=True, kw_only=True):
    """A path that is not simply inside the workspace."""

    path: str
    is_forbidden: bool


def places(
    workspace: PurePath,
    home: PurePath,
    forbidden_paths: tuple[str, ...],
    *,
    own: tuple[str, ...] = (),
    shown: tuple[str, ...] = (),
) -> PolicyPaths:
    """Return the places; `~` and relative forbidden paths are in the home."""
    forbidden = tuple(
        normpath(f"{home}/{path[1:]}" if path == "~" or path.startswith("~/") else f"{home / path}")
        for path in forbidden_paths
        if path
    )
    inside = normpath(str(workspace))
    return PolicyPaths(
        workspace=inside,
        forbidden=forbidden,
        forbids_inside=any(_is_under(path, inside, has_glob=False) for path in forbidden),
        own=own,
        shown=shown,
    )


def place_of(text: str, folder: str) -> str:
    """Return the absolute path that a word names."""
    return normpath(f"{folder}/{text}" if not text.startswith("/") else "/" + text.lstrip("/"))


def is_own(path: str, allowed: PolicyPaths) -> bool:
    """Return whether a path lies in a folder of the sandbox's own, which ends with the command."""
    return any(_is_under(path, each, has_glob=False) for each in allowed.own) and not _is_under(
        path, allowed.workspace, has_glob=False
    )


def problem_of_word(
    word: Word, folder: str, allowed: PolicyPaths, *, writes: bool = False
) -> PathProblem | None:
    """Judge one word that is a path for certain (a redirection's target).

    Args:
        word: the path, relative to `folder`; of a dynamic word its known beginning counts.
        folder: the absolute folder the command would stand in.
        allowed: what the policy says.
        writes: whether it is to be written.
    """
    text = word.text if word.is_static else word.text.rpartition("/")[0]
    if not text or _HARMLESS.fullmatch(text):
        return None
    path = place_of(text, folder)
    if any(_is_under(path, each, has_glob=word.has_glob) for each in allowed.forbidden):
        return PathProblem(path=path, is_forbidden=True)
    # What leaves the workspace by `..` is meant to be outside, wherever the workspace lies.
    leaves = not text.startswith("/") and _is_under(folder, allowed.workspace, has_glob=False)
    beside = () if leaves else (*allowed.own, *(() if writes else allowed.shown))
    inside = (allowed.workspace, *beside)
    if any(_is_under(path, each, has_glob=False) for each in inside):
        return None
    return PathProblem(path=path, is_forbidden=False)


def problems_of_command(
    name: str, words: tuple[Word, ...], folder: str, allowed: PolicyPaths
) -> Iterator[PathProblem]:
    """Yield what is wrong with the paths among a command's words (its own name included)."""
    own = words[0].text
    if own.startswith("/") and own.rpartition("/")[0] not in _PROGRAM_FOLDERS:
        problem = problem_of_word(words[0], folder, allowed)
        if problem is not None and problem.is_forbidden:
            yield problem
    if name in _TEXT_ONLY:
        return
    for word in _arguments_that_may_be_paths(name, words[1:]):
        for text in _candidates(word.text):
            if _looks_like_a_path(text, allowed):
                candidate = msgspec.structs.replace(word, text=text)
                problem = problem_of_word(candidate, folder, allowed)
                if problem is not None:
                    yield problem


def _arguments_that_may_be_paths(name: str, arguments: tuple[Word, ...]) -> Iterator[Word]:
    not_paths = _NOT_PATHS.get(name, ())
    has_pattern = name not in _PATTERN_FIRST or any(
        word.text.startswith(("-e", "-f", "--regexp", "--file")) for word in arguments
    )
    skip = False
    for word in arguments:
        if skip:
            skip = False
        elif word.text in not_paths:
            skip = True
        elif word.text.startswith("-") or has_pattern:
            yield word
        else:
            has_pattern = True


def _candidates(text: str) -> Iterator[str]:
    """Yield what in a word may be a path: `x`, `--o=x`, `-Ix`, `of=x`, `@x`, `file://x`."""
    if text.startswith("file://"):
        yield text.removeprefix("file://").removeprefix("localhost")
        return
    if "://" in text:
        return
    _name, equals, value = text.partition("=")
    if equals and value:
        yield value
    if not text.startswith("-"):
        yield text.lstrip("@")
    elif not text.startswith("--") and len(text) > 3:
        yield text[2:]


def _looks_like_a_path(text: str, allowed: PolicyPaths) -> bool:
    if not text.startswith("/"):
        return ".." in text.split("/") or allowed.forbids_inside
    first = text.lstrip("/").partition("/")[0]
    roots = {allowed.workspace, *allowed.forbidden}
    known = _TOP_LEVEL | {root.lstrip("/").partition("/")[0] for root in roots}
    return first in known or not first or any(sign in first for sign in "*?[")


def _is_under(path: str, root: str, *, has_glob: bool) -> bool:
    parts, root_parts = path.split("/"), root.rstrip("/").split("/")
    if len(parts) < len(root_parts):
        return False
    pairs = zip(root_parts, parts, strict=False)
    return all(own == part or (has_glob and fnmatchcase(own, part)) for own, part in pairs)


# Which files a shell command reads, where that can be told; for following untrusted text.
#
# Only lines of the plain kind are told, and only commands that read nothing but what they name.
# A caller that gets no answer must assume that the command reads all it can see.

# What reads nothing but the files it names; the letters are options with which it reads more.
_READERS = {
    "cat": "", "head": "", "tail": "", "wc": "", "sort": "", "uniq": "", "cut": "", "tr": "",
    "stat": "", "date": "f", "echo": "", "pwd": "", "true": "", "false": "", "diff": "",
    "grep": "rRdf", "file": "f",
}  # fmt: skip
_FOLLOWS_LISTS = ("--files0-from", "--files-from", "--recursive", "--directories")
_MAX_NAMED = 1_000


def files_read(command: str, workspace: Path) -> tuple[Path, ...] | None:
    """Return what a command that starts in the workspace reads; None when it cannot be told.

    Folders and things that are not there may be among them; a folder stands for all in it.
    """
    variables = {"HOME": "/", "PWD": str(workspace)}
    script = parse(command.encode("utf-8", "replace"), variables)
    if script.oddities or script.is_too_big or script.inputs:
        return None
    words = _words(script)
    if words is None or len(words) > _MAX_NAMED:
        return None
    found = {workspace / text for word in words for text in _read_candidates(word.text) if text}
    return tuple(sorted(path for path in found if os.path.lexists(path)))


def _words(script: ShellScript) -> list[Word] | None:
    words = [redirect.target for redirect in script.redirects]
    for command in script.commands:
        if not _is_told(command):
            return None
        words += command.words[1:]
    is_plain = all(word.is_static and not word.has_glob and "\0" not in word.text for word in words)
    return words if is_plain else None


def _is_told(command: SimpleCommand) -> bool:
    first = command.words[0]
    letters = _READERS.get(first.text)
    if letters is None or command.assignments or not first.is_static or first.has_glob:
        return False
    return not any(_reads_more(word.text, letters) for word in command.words[1:])


def _reads_more(text: str, letters: str) -> bool:
    """Whether an option, perhaps abbreviated, makes a command read more than it names."""
    if text.startswith("--"):
        name = text.partition("=")[0]
        return len(name) > 2 and any(each.startswith(name) for each in _FOLLOWS_LISTS)
    return text.startswith("-") and any(letter in text for letter in letters)


def _read_candidates(text: str) -> Iterator[str]:
    """Yield what in a word may be a path: `x`, `--o=x`, `-Ix`."""
    yield text
    yield text.partition("=")[2]
    if text.startswith("-"):
        yield text[2:]
