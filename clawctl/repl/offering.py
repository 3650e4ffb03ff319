"""What can be completed in a message: commands and their arguments, paths, `@file`."""

import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import msgspec

from clawctl.repl.files import FileIndex
from clawd.wire.safe_text import has_invisible

MENTION = re.compile(r'(?<![\w@/.])@("?)([^\s"]*)$')
PATHS_SHOWN = 200
# A menu that is empty when it is wanted stays so until the next key.
FIRST_WALK_S = 5.0


class Value(msgspec.Struct, frozen=True, kw_only=True):
    """Something that can stand behind a command, and what it is."""

    text: str
    about: str = ""


class Known(msgspec.Struct, frozen=True, kw_only=True):
    """What may be offered.

    Attributes:
        commands: names and what they do.
        values: returns what may follow the words of a command; the last one is being typed.
        files: returns the files of the workspace.
    """

    commands: Sequence[Value]
    values: Callable[[Sequence[str]], Iterable[Value]]
    files: Callable[[], FileIndex]


class Offer(msgspec.Struct, frozen=True, kw_only=True):
    """One way to go on.

    Attributes:
        text: what takes the place of what was typed.
        typed: how many characters before the cursor that is.
        shown: what a menu shows, the text where it is empty.
    """

    text: str
    typed: int
    shown: str = ""
    about: str = ""


def offers(before: str, known: Known) -> Iterable[Offer]:
    """Return what may stand at the cursor; it may ask the daemon.

    Args:
        before: the message up to the cursor.
        known: what there is.
    """
    mention = MENTION.search(before)
    if mention is not None:
        return _files(mention.group(2), known.files())
    if re.match(r"/[a-z]*$", before):
        return _beginning(known.commands, before)
    if re.match(r"/[a-z]+ ", before) and "\n" not in before:
        words = before.split(" ")
        return _beginning(known.values(words), words[-1])
    word = re.search(r"\S*$", before)
    if word is not None and "/" in word.group():
        return _paths(word.group(), known.files().folder)
    return []


def _files(letters: str, index: FileIndex) -> Iterable[Offer]:
    if not index.paths():
        index.wait(FIRST_WALK_S)
    for path in index.find(letters):
        if has_invisible(path) or '"' in path:
            continue
        text = f'@"{path}"' if " " in path else f"@{path}"
        yield Offer(text=text, typed=1 + len(letters), shown=path)


def _beginning(values: Iterable[Value], typed: str) -> Iterable[Offer]:
    for value in values:
        if value.text.startswith(typed) and not has_invisible(value.text):
            yield Offer(text=value.text, typed=len(typed), about=value.about)


def _paths(word: str, folder: Path) -> Iterable[Offer]:
    head, _, name = word.rpartition("/")
    try:
        base = folder / Path(f"{head}/").expanduser()
        entries = sorted(base.iterdir())
    except (OSError, RuntimeError, ValueError):
        return
    fitting = [
        entry
        for entry in entries
        if entry.name.startswith(name) and (name or not entry.name.startswith("."))
    ]
    for entry in fitting[:PATHS_SHOWN]:
        if not has_invisible(entry.name):
            end = "/" if entry.is_dir() else ""
            yield Offer(text=f"{entry.name}{end}", typed=len(name))
