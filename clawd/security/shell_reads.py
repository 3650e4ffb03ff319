"""Which files a shell command reads, where that can be told; for following untrusted text.

Only lines of the plain kind are told, and only commands that read nothing but what they name.
Whoever gets no answer must take it that the command reads everything it can see.
"""

import os
from collections.abc import Iterator
from pathlib import Path

from clawd.security.shell_script import Script, SimpleCommand, parse
from clawd.security.shell_words import Word

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
    found = {workspace / text for word in words for text in _candidates(word.text) if text}
    return tuple(sorted(path for path in found if os.path.lexists(path)))


def _words(script: Script) -> list[Word] | None:
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


def _candidates(text: str) -> Iterator[str]:
    """Yield what in a word may be a path: `x`, `--o=x`, `-Ix`."""
    yield text
    yield text.partition("=")[2]
    if text.startswith("-"):
        yield text[2:]
