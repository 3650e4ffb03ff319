"""Which files hold text that nobody vouches for: named by the owner, or written under taint.

A mark says that whatever lies at or under a path and was changed between two moments is
untrusted. A file that a tool wrote is marked for good; a command could change any file of its
workspace, so what it changed is looked for afterwards, by the time of change that the kernel keeps
and no program can set. Marks are kept, so that they hold for later conversations too.
"""

import asyncio
import bisect
import functools
import os
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Protocol

import msgspec
import re2

from clawd.security.copies import Copies
from clawd.wire.safe_text import visible_line

FOREVER_NS = 2**63 - 1
_NAME_NS = 1  # no file was changed then


class TaintMark(msgspec.Struct, frozen=True, kw_only=True):
    """Something untrusted.

    Attributes:
        path: a file, or a folder with all that is below it; absolute and resolved.
        sources: where its text came from.
        began_at_ns: what was changed before is not meant.
        ended_at_ns: what was changed after is not meant.
    """

    path: str
    sources: tuple[str, ...]
    began_at_ns: int = 0
    ended_at_ns: int = FOREVER_NS

    @property
    def is_open(self) -> bool:
        """Whether it is of a command that has not ended."""
        return self.began_at_ns > 0 and self.ended_at_ns == FOREVER_NS

    @property
    def is_of_name(self) -> bool:
        """Whether the name alone is meant, and not what lies below it."""
        return self.began_at_ns == self.ended_at_ns == _NAME_NS


def name_mark(folder: str, sources: tuple[str, ...]) -> TaintMark:
    """Return a mark of a folder's name: who lists it reads it, who reads a file in it does not."""
    return TaintMark(path=folder, sources=sources, began_at_ns=_NAME_NS, ended_at_ns=_NAME_NS)


class MarkIndex:
    """Marks, one for each path and begin."""

    def __init__(self, marks: Iterable[TaintMark] = ()) -> None:
        self._by_path: dict[str, dict[int, TaintMark]] = {}
        self.count = 0
        for mark in marks:
            held = self._by_path.setdefault(mark.path, {})
            self.count += mark.began_at_ns not in held
            held[mark.began_at_ns] = mark
        self._paths = sorted(self._by_path)

    def __iter__(self) -> Iterator[TaintMark]:
        return (mark for held in self._by_path.values() for mark in held.values())

    def __contains__(self, mark: TaintMark) -> bool:
        return self._by_path.get(mark.path, {}).get(mark.began_at_ns) == mark

    def add(self, mark: TaintMark) -> None:
        """Take a mark in the place of one of the same path and begin."""
        held = self._by_path.get(mark.path)
        if held is None:
            held = self._by_path[mark.path] = {}
            bisect.insort(self._paths, mark.path)
        self.count += mark.began_at_ns not in held
        held[mark.began_at_ns] = mark

    def remove(self, mark: TaintMark) -> None:
        """Drop the mark of this path and begin, if there is one."""
        held = self._by_path.get(mark.path, {})
        if held.pop(mark.began_at_ns, None) is None:
            return
        self.count -= 1
        if not held:
            del self._by_path[mark.path]
            del self._paths[bisect.bisect_left(self._paths, mark.path)]

    def over(self, path: str) -> list[TaintMark]:
        """Return the marks of a path (absolute) and of the folders that it lies in."""
        found: list[TaintMark] = []
        while True:
            found += self._by_path.get(path, {}).values()
            if path in ("", "/"):
                return found
            path = path.rpartition("/")[0] or "/"

    def below(self, folder: str) -> list[TaintMark]:
        """Return the marks of what lies in a folder, at any depth."""
        stem = folder.rstrip("/")
        first = bisect.bisect_left(self._paths, f"{stem}/")
        end = bisect.bisect_left(self._paths, f"{stem}0")  # "0" is next to "/"
        return [
            mark
            for path in self._paths[first:end]
            if path != folder
            for mark in self._by_path[path].values()
        ]


MAX_WALKED = 100_000
MAX_CHANGED = 1_000

Folders = dict[tuple[int, int], str]


class RunningCommand(msgspec.Struct, frozen=True, kw_only=True):
    """A command that runs: its mark, and the folders when it began; None for too many.

    Attributes:
        is_late: it had begun already; then a folder that was changed may be a new one.
    """

    mark: TaintMark
    before: Folders | None
    is_late: bool = False


class FolderWalk(msgspec.Struct, kw_only=True):
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


def walk(mark: TaintMark) -> FolderWalk | None:
    """Look at everything in the folder of a mark; None when it is too much."""
    found = FolderWalk(folders={}, changed=[], closed=[], changed_folders=[])
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


def _look(entry: os.DirEntry[str], mark: TaintMark, found: FolderWalk, waiting: list[str]) -> None:
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


def marks_of(span: RunningCommand, ended_at_ns: int) -> tuple[TaintMark, ...]:
    """Return what to mark when a command has ended.

    What lies in a folder that was moved has not changed and stands at another path, and what lies
    in one that cannot be read may be read later: such folders are marked for good. So is the whole
    folder where there is too much in it to tell. Of a new folder the name is marked, which may say
    anything. Too many files and names leave the mark.
    """
    closed = msgspec.structs.replace(span.mark, ended_at_ns=ended_at_ns)
    before, after = span.before, walk(closed)
    everything = TaintMark(path=closed.path, sources=closed.sources)
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
    marks = tuple(TaintMark(path=path, sources=closed.sources) for path in paths)
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


# The owner's patterns for untrusted paths: `downloads`, `*.eml`, `~/Downloads`, `/srv/*/inbox`.
#
# A pattern with a leading `/` or `~` is of the whole path, any other of a part of it at any depth;
# what lies under a match is meant too. `*` and `?` stay within a name, `**` crosses folders.

_TOKENS = re.compile(r"\*\*/?|\*|\?|[^*?]+")


class PathPatterns:
    """Patterns, ready to match.

    Attributes:
        are_there: there is one at least.
    """

    def __init__(self, patterns: tuple[str, ...]) -> None:
        expressions = [_expression(each) for each in patterns if each.strip("/ ")]
        self._compiled = re2.compile("(?s)" + "|".join(expressions)) if expressions else None
        self.are_there = self._compiled is not None

    def match(self, path: str) -> bool:
        """Return whether an absolute path is meant."""
        return self._compiled is not None and self._compiled.search(_valid(path)) is not None

    def first_below(self, folder: Path, *, limit: int) -> str | None:
        """Return a path in the folder that is meant, or None.

        The folder itself where it is meant, or where it holds more than `limit` things.
        """
        if self.match(str(folder)):
            return str(folder)
        waiting, walked = [str(folder)], 0
        while waiting:
            try:
                entries = list(os.scandir(waiting.pop()))
            except OSError:
                continue
            walked += len(entries)
            if walked > limit:
                return str(folder)
            for entry in entries:
                if self.match(entry.path):
                    return entry.path
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
        return None


def _expression(pattern: str) -> str:
    text = _valid(pattern.strip().rstrip("/"))
    if text.startswith("~"):
        text = os.path.expanduser(text)  # noqa: PTH111 - Path would fail for an unknown user
    start = "^" if text.startswith("/") else "(?:^|/)"
    return start + "".join(map(_translated, _TOKENS.findall(text))) + "(?:/|$)"


def _translated(token: str) -> str:
    known = {"**/": "(?:[^/]+/)*", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    return known.get(token) or re2.escape(token)


def _valid(path: str) -> str:
    """Return a path as RE2 takes it: what is no UTF-8 as U+FFFD."""
    return path.encode("utf-8", "surrogatepass").decode("utf-8", "replace")


MAX_MARKS = 50_000
MAX_SEARCHED = 20_000
MAX_TOLD = 50
CLOCK_STEP_NS = 50_000_000  # the kernel's clock for files lags behind by a tick
UNKNOWN = "unknown sources"

_NAME_LIMIT = 200
_PRUNE_STEP = 1_000


class OriginStore(Protocol):
    """Keeps marks; every method raises StorageError when the disk fails."""

    async def load(self) -> tuple[TaintMark, ...]:
        """Return what is kept."""
        ...

    async def keep(
        self, marks: tuple[TaintMark, ...], *, dropped: tuple[TaintMark, ...] = ()
    ) -> None:
        """Keep marks in place of those dropped; durable when it returns."""
        ...


_patterns_of = functools.lru_cache(maxsize=8)(PathPatterns)


class FileOrigins:
    """The untrusted files.

    Args:
        store: keeps the marks; None keeps them for as long as this lives.
        patterns: returns the paths that the owner calls untrusted.
        copies: what lies in a copy is as untrusted as what it stands for; None for none.
        clock: returns the time in nanoseconds since 1970.
    """

    def __init__(
        self,
        store: OriginStore | None = None,
        *,
        patterns: Callable[[], tuple[str, ...]] = tuple,
        copies: Copies | None = None,
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        self._store = store
        self._copies = copies
        self._patterns = patterns
        self._clock = clock
        self._marks = MarkIndex()
        self._prune_at = MAX_MARKS
        self._held: Counter[str] = Counter()

    async def load(self) -> None:
        """Take what was kept; a command that a crash broke off has ended by now.

        Raises:
            StorageError: it cannot be read.
        """
        if self._store is None:
            return
        now = self._clock()
        kept = await self._store.load()
        closed = tuple(
            msgspec.structs.replace(mark, ended_at_ns=now) for mark in kept if mark.is_open
        )
        if closed:
            await self._store.keep(closed)
        self._marks = MarkIndex((*kept, *closed))

    async def sources(
        self, paths: tuple[Path, ...], *, known: tuple[str, ...] = ()
    ) -> tuple[str, ...]:
        """Return what stands at or under these paths and is untrusted, and where it came from.

        A file is named for what it brings: not where all its sources are known, or were named with
        another file. It stops at `MAX_TOLD` marks for each path.
        """
        patterns = _patterns_of(self._patterns())
        if not paths or not (self._marks.count or patterns.are_there):
            return ()
        if self._marks.count >= MAX_MARKS:
            return (UNKNOWN,)
        if self._copies is not None and self._copies.originals:
            paths = tuple(dict.fromkeys((*paths, *map(self._copies.meant, paths))))
        places = await asyncio.to_thread(lambda: [_place(path) for path in paths])
        looks = [
            (place, self._marks.over(place.path), self._marks.below(place.path)) for place in places
        ]
        found = await asyncio.to_thread(
            lambda: [each for look in looks for each in _sources(*look, patterns, set(known))]
        )
        return tuple(dict.fromkeys(found))

    async def mark(self, path: Path, sources: tuple[str, ...]) -> None:
        """Mark a file, given by its resolved path, for good; `release` when it is written.

        The name of the folder that is made for it is marked as well: it stays without the file.

        Raises:
            StorageError: it cannot be kept; the file must not be written.
        """
        self._held[str(path)] += 1
        made = await asyncio.to_thread(_first_missing, path)
        names = () if made is None else (name_mark(made, sources),)
        await self._keep(TaintMark(path=str(path), sources=sources), *names)

    def release(self, path: Path) -> None:
        """Say that a file which was marked is written, or will not be."""
        self._held -= Counter([str(path)])

    async def begin_span(self, folder: Path, sources: tuple[str, ...]) -> RunningCommand:
        """Mark what changes in a folder (resolved) from now on, until `end_span`.

        Raises:
            StorageError: it cannot be kept; the command must not run.
        """
        began = self._clock() - CLOCK_STEP_NS
        mark = TaintMark(path=str(folder), sources=sources, began_at_ns=began)
        await self._keep(mark)
        seen = await asyncio.to_thread(walk, mark)
        return RunningCommand(mark=mark, before=None if seen is None else seen.folders)

    async def end_span(self, span: RunningCommand) -> None:
        """Mark what was changed, and more than that where it cannot be told.

        Raises:
            StorageError: it cannot be kept; the span stays open.
        """
        marks = await asyncio.to_thread(marks_of, span, self._clock())
        begun = span.mark.path, span.mark.began_at_ns
        is_replaced = any((mark.path, mark.began_at_ns) == begun for mark in marks)
        await self._keep(*marks, dropped=() if is_replaced else (span.mark,))

    async def mark_since(self, folder: Path, sources: tuple[str, ...], began_at_ns: int) -> None:
        """Mark what changed in a folder (resolved) from a moment until now.

        Raises:
            StorageError: it cannot be kept.
        """
        began = began_at_ns - CLOCK_STEP_NS
        mark = TaintMark(path=str(folder), sources=sources, began_at_ns=began)
        await self._keep(mark)
        # Folders that moved need no mark: nothing in here was untrusted when it began.
        await self.end_span(RunningCommand(mark=mark, before={}, is_late=True))

    async def _keep(self, *marks: TaintMark, dropped: tuple[TaintMark, ...] = ()) -> None:
        news = tuple(mark for mark in marks if mark not in self._marks)
        is_full = self._marks.count + len(news) >= self._prune_at
        gone = await self._gone() if is_full else []
        for mark in gone:  # at once: who marks one of them meanwhile has it stored anew
            self._marks.remove(mark)
        try:
            if self._store is not None and (news or dropped or gone):
                await self._store.keep(news, dropped=(*dropped, *gone))
        except BaseException:
            for mark in gone:
                self._marks.add(mark)
            raise
        for mark in dropped:
            self._marks.remove(mark)
        for mark in news:
            self._marks.add(mark)
        if is_full:
            count = self._marks.count
            self._prune_at = MAX_MARKS if count < MAX_MARKS else count + _PRUNE_STEP

    async def _gone(self) -> list[TaintMark]:
        """Return the marks of files that are gone, except of those that are being written."""
        whole = [mark for mark in self._marks if not mark.began_at_ns or mark.is_of_name]
        gone = await asyncio.to_thread(
            lambda: [mark for mark in whole if not os.path.lexists(mark.path)]
        )
        return [mark for mark in gone if not self._held[mark.path]]


class _Place(msgspec.Struct, frozen=True, kw_only=True):
    """What is read; `folders` are those that it lies in, with when each was changed."""

    path: str
    is_folder: bool
    changed_at_ns: int
    folders: tuple[tuple[str, int], ...] = ()


def _place(path: Path) -> _Place:
    """Resolve a path; for a missing file take its folder, for it is answered with its names."""
    real = Path(os.path.realpath(path))
    try:
        changed_at_ns = real.stat().st_ctime_ns
    except OSError:
        real, changed_at_ns = real.parent, 0
    is_folder = os.path.isdir(real)  # noqa: PTH112 - unlike Path, it has no errors
    folders = tuple((str(folder), _changed_at_ns(folder)) for folder in real.parents)
    return _Place(path=str(real), is_folder=is_folder, changed_at_ns=changed_at_ns, folders=folders)


def _changed_at_ns(folder: Path) -> int:
    try:
        return folder.stat().st_ctime_ns
    except OSError:
        return 0


def _first_missing(path: Path) -> str | None:
    """Return the outermost folder over a path that is not there yet; None when all are."""
    missing = None
    for folder in path.parents:
        if os.path.lexists(folder):
            break
        missing = str(folder)
    return missing


def _sources(
    place: _Place,
    over: list[TaintMark],
    below: list[TaintMark],
    patterns: PathPatterns,
    known: set[str],
) -> Iterator[str]:
    """Yield the sources of a file, or of anything in a folder; what is known grows by them."""
    if place.is_folder:
        named = None
        if patterns.are_there:
            named = patterns.first_below(Path(place.path), limit=MAX_SEARCHED)
        found = (mark for mark in (*over, *below) if _may_be_there(mark))
    else:
        named = place.path if patterns.match(place.path) else None
        at = place.changed_at_ns
        found = (
            mark
            for mark in over
            if mark.began_at_ns <= at <= mark.ended_at_ns or _may_have_moved(place, mark)
        )
    news = (mark for mark in found if not (mark.sources and known.issuperset(mark.sources)))
    for mark in islice(news, MAX_TOLD):
        known.update(mark.sources)
        yield f"the {'name' if mark.is_of_name else 'file'} {_shown(mark.path)}"
        yield from mark.sources
    if named is not None:
        yield f"the untrusted path {_shown(named)}"


def _may_have_moved(place: _Place, mark: TaintMark) -> bool:
    """Return whether a command that still runs may have moved a folder with this file in it.

    The file is as it was then, and the folder has changed. Where it has ended, that is looked for.
    """
    return mark.is_open and any(
        changed >= mark.began_at_ns and len(folder) > len(mark.path)
        for folder, changed in place.folders
    )


def _may_be_there(mark: TaintMark) -> bool:
    if mark.began_at_ns and not mark.is_of_name:
        return True
    return os.path.lexists(mark.path)


def _shown(path: str) -> str:
    text = visible_line(path)
    return text if len(text) <= _NAME_LIMIT else f"…{text[-_NAME_LIMIT:]}"


# Which untrusted sources have spoken in a conversation. Pure bookkeeping, no disk.

MAX_CONVERSATIONS = 10_000
MAX_SOURCES = 50
_OVERFLOW = "more sources"


class TaintBook:
    """The untrusted sources (`web_fetch example.org`, `mcp files`) by conversation.

    Taint is only ever added while a conversation lives; `forget` is for conversations that were
    deleted. A restart restores it with `mark` from what memory kept. Beyond `max_conversations`
    nothing is forgotten either: a conversation that finds no room counts as tainted.

    Args:
        files: the files that carry untrusted text from one conversation to another.
        max_conversations: how many are told apart.

    Attributes:
        files: the same.
    """

    def __init__(
        self, files: FileOrigins | None = None, *, max_conversations: int = MAX_CONVERSATIONS
    ) -> None:
        self.files = files or FileOrigins()
        self._max = max_conversations
        self._sources: dict[str, tuple[str, ...]] = {}
        self._is_full = False

    def mark(self, conversation_id: str, source: str) -> bool:
        """Add a source; returns whether it was news."""
        known = self._sources.get(conversation_id, ())
        if source in known:
            return False
        if not known and len(self._sources) >= self._max:
            self._is_full = True
            return True
        if len(known) >= MAX_SOURCES:
            source = _OVERFLOW
            if source in known:
                return False
        self._sources[conversation_id] = (*known, source)
        return True

    def sources(self, conversation_id: str) -> tuple[str, ...]:
        """Return the sources in the order they came; empty for an untainted conversation."""
        known = self._sources.get(conversation_id, ())
        if not known and self._is_full:
            return (UNKNOWN,)
        return known

    def is_tainted(self, conversation_id: str) -> bool:
        """Return whether untrusted text has entered the conversation."""
        return bool(self.sources(conversation_id))

    def copy(self, from_id: str, to_id: str) -> None:
        """Give a fork the taint of what it was forked from."""
        for source in self.sources(from_id):
            self.mark(to_id, source)

    def forget(self, conversation_id: str) -> None:
        """Drop what is known about a deleted conversation."""
        self._sources.pop(conversation_id, None)
