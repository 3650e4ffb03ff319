"""What a command changed in a folder: files by their time of change, and folders that moved."""

import os
from collections.abc import Iterable
from pathlib import Path

import msgspec

from clawd.security.origin_marks import Mark, name_mark

MAX_WALKED = 100_000
MAX_CHANGED = 1_000

Folders = dict[tuple[int, int], str]


class Span(msgspec.Struct, frozen=True, kw_only=True):
    """A command that runs: its mark, and the folders when it began; None for too many.

    Attributes:
        is_late: it had begun already; then a folder that was changed may be a new one.
    """

    mark: Mark
    before: Folders | None
    is_late: bool = False


class Walk(msgspec.Struct, kw_only=True):
    """What stands in a folder.

    Attributes:
        folders: other folders, by what they are.
        changed: files that were changed; likewise `changed_folders`.
        closed: folders that cannot be read.
    """

    folders: Folders
    changed: list[str]
    closed: list[str]
    changed_folders: list[str]


def walk(mark: Mark) -> Walk | None:
    """Look at everything in the folder of a mark; None when it is too much."""
    found = Walk(folders={}, changed=[], closed=[], changed_folders=[])
    waiting, walked = [os.path.realpath(mark.path)], 0
    while waiting:
        folder = waiting.pop()
        try:
            entries = list(os.scandir(folder))
        except FileNotFoundError:
            continue
        except OSError:
            found.closed.append(folder)
            continue
        walked += len(entries)
        if walked > MAX_WALKED:
            return None
        for entry in entries:
            _look(entry, mark, found, waiting)
    return found


def _look(entry: os.DirEntry[str], mark: Mark, found: Walk, waiting: list[str]) -> None:
    try:
        facts = entry.stat(follow_symlinks=False)
        is_changed = mark.began_at_ns <= facts.st_ctime_ns <= mark.ended_at_ns
        if entry.is_dir(follow_symlinks=False):
            found.folders[facts.st_dev, facts.st_ino] = entry.path
            waiting.append(entry.path)
            if is_changed:
                found.changed_folders.append(entry.path)
        elif is_changed:
            found.changed.append(entry.path)
    except OSError:
        found.changed.append(entry.path)


def marks_of(span: Span, ended_at_ns: int) -> tuple[Mark, ...]:
    """Return what to mark when a command has ended.

    What lies in a folder that was moved has not changed and stands at another path, and what lies
    in one that cannot be read may be read later: such folders are marked for good. So is the whole
    folder where there is too much in it to tell. Of a new folder the name is marked, which may say
    anything. Too many files and names leave the mark.
    """
    closed = msgspec.structs.replace(span.mark, ended_at_ns=ended_at_ns)
    before, after = span.before, walk(closed)
    everything = Mark(path=closed.path, sources=closed.sources)
    if before is None or after is None:
        return (everything,)
    moved = _outermost(path for key, path in after.folders.items() if before.get(key, path) != path)
    held = {*moved, *after.closed}
    if len(held) > MAX_CHANGED:
        return (everything,)
    new = _outermost(
        after.changed_folders
        if span.is_late
        else (path for key, path in after.folders.items() if key not in before)
    )
    is_told = len(after.changed) + len(new) <= MAX_CHANGED
    paths = (*sorted(held), *(after.changed if is_told else ()))
    marks = tuple(Mark(path=path, sources=closed.sources) for path in paths)
    if not is_told:
        return (closed, *marks)
    return (*marks, *(name_mark(path, closed.sources) for path in new))


def _outermost(paths: Iterable[str]) -> list[str]:
    """Return the folders that lie in none of the others."""
    found: dict[str, None] = {}
    for path in sorted(paths, key=len):
        if not any(str(parent) in found for parent in Path(path).parents):
            found[path] = None
    return list(found)
