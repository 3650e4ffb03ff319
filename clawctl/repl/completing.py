"""What the Tab key offers: commands, their arguments with live values, paths, and `@file`."""

import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import msgspec
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from typing_extensions import override

from clawctl.repl.files import FileIndex
from clawd.wire.safe_text import has_invisible, visible_line

MENTION = re.compile(r'(?<![\w@/.])@("?)([^\s"]*)$')
PATHS_SHOWN = 200
ABOUT_COLUMNS = 60
FIRST_WALK_S = 0.5


class Value(msgspec.Struct, frozen=True, kw_only=True):
    """Something that can stand behind a command, and what it is."""

    text: str
    about: str = ""


class Known(msgspec.Struct, frozen=True, kw_only=True):
    """What a completer may offer.

    Attributes:
        commands: names and what they do.
        values: returns what may follow the words of a command; the last one is being typed.
        files: returns the files of the workspace.
    """

    commands: Sequence[Value]
    values: Callable[[Sequence[str]], Iterable[Value]]
    files: Callable[[], FileIndex]


def is_naming(document: Document) -> bool:
    """Tell whether a command or a file is being named: then the menu opens by itself."""
    before = document.text_before_cursor
    return bool(re.match(r"/[a-z]*$", before)) or MENTION.search(before) is not None


class LineCompleter(Completer):
    """Completes a message; it may ask the daemon, so it runs beside the editor."""

    def __init__(self, known: Known) -> None:
        self._known = known

    @override
    def get_completions(
        self, document: Document, complete_event: CompleteEvent
    ) -> Iterable[Completion]:
        before = document.text_before_cursor
        mention = MENTION.search(before)
        if mention is not None:
            return self._files(mention.group(2))
        if re.match(r"/[a-z]*$", before):
            return _offered(self._known.commands, before)
        if re.match(r"/[a-z]+ ", before) and "\n" not in before:
            words = before.split(" ")
            return _offered(self._known.values(words), words[-1])
        word = re.search(r"\S*$", before)
        if word is not None and "/" in word.group():
            return _paths(word.group(), self._known.files().folder)
        return []

    def _files(self, letters: str) -> Iterable[Completion]:
        index = self._known.files()
        if not index.paths():
            index.wait(FIRST_WALK_S)
        for path in index.find(letters):
            if has_invisible(path) or '"' in path:
                continue
            text = f'@"{path}"' if " " in path else f"@{path}"
            yield Completion(text, start_position=-1 - len(letters), display=path)


def _offered(values: Iterable[Value], typed: str) -> Iterable[Completion]:
    for value in values:
        if value.text.startswith(typed) and not has_invisible(value.text):
            yield Completion(
                value.text,
                start_position=-len(typed),
                display_meta=visible_line(value.about, ABOUT_COLUMNS),
            )


def _paths(word: str, folder: Path) -> Iterable[Completion]:
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
            yield Completion(f"{entry.name}{end}", start_position=-len(name))
