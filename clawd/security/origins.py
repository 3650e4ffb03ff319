"""Which files hold text that nobody vouches for: named by the owner, or written under taint.

A mark says that whatever lies at or under a path and was changed between two moments is
untrusted. A file that a tool wrote is marked for good; a command could change any file of its
workspace, so what it changed is looked for afterwards, by the time of change that the kernel keeps
and no program can set. Marks are kept, so that they hold for later conversations too.
"""

import asyncio
import contextlib
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

import msgspec

from clawd.security.origin_patterns import PathPatterns
from clawd.security.paths import is_under
from clawd.wire.safe_text import visible_line

MAX_MARKS = 50_000
MAX_WALKED = 20_000
MAX_CHANGED = 1_000
FOREVER_NS = 2**63 - 1
CLOCK_STEP_NS = 50_000_000  # the kernel's clock for files lags behind by a tick
UNKNOWN = "unknown sources"

_NAME_LIMIT = 200


class Mark(msgspec.Struct, frozen=True, kw_only=True):
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


class OriginStore(Protocol):
    """Keeps marks; every method raises StorageError when the disk fails."""

    async def load(self) -> tuple[Mark, ...]:
        """Return what is kept."""
        ...

    async def keep(self, marks: tuple[Mark, ...], *, dropped: tuple[Mark, ...] = ()) -> None:
        """Keep marks in place of those dropped; durable when it returns."""
        ...


class FileOrigins:
    """The untrusted files.

    Args:
        store: keeps the marks; None keeps them for as long as this lives.
        patterns: returns the paths that the owner calls untrusted.
        clock: returns the time in nanoseconds since 1970.
    """

    def __init__(
        self,
        store: OriginStore | None = None,
        *,
        patterns: Callable[[], tuple[str, ...]] = tuple,
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        self._store = store
        self._patterns = patterns
        self._clock = clock
        self._marks: dict[tuple[str, int], Mark] = {}
        self._folders: dict[tuple[str, int], dict[tuple[int, int], str]] = {}

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
            msgspec.structs.replace(mark, ended_at_ns=now) for mark in kept if _is_open(mark)
        )
        if closed:
            await self._store.keep(closed)
        self._marks = {_key(mark): mark for mark in (*kept, *closed)}

    async def sources(self, paths: tuple[Path, ...]) -> tuple[str, ...]:
        """Return what stands at or under these paths and is untrusted, and where it came from."""
        patterns = PathPatterns(self._patterns())
        if not paths or not (self._marks or patterns):
            return ()
        if len(self._marks) >= MAX_MARKS:
            return (UNKNOWN,)
        marks = tuple(self._marks.values())
        found = await asyncio.to_thread(
            lambda: [each for path in paths for each in _sources(path, marks, patterns)]
        )
        return tuple(dict.fromkeys(found))

    async def mark(self, path: Path, sources: tuple[str, ...]) -> None:
        """Mark a file, given by its resolved path, for good.

        Raises:
            StorageError: it cannot be kept; the file must not be written.
        """
        await self._keep(Mark(path=str(path), sources=sources))

    async def begin_span(
        self, folder: Path, sources: tuple[str, ...], *, began_at_ns: int = 0
    ) -> Mark:
        """Mark what changes in a folder (resolved) from now on, until `end_span`.

        Raises:
            StorageError: it cannot be kept; the command must not run.
        """
        began = (began_at_ns or self._clock()) - CLOCK_STEP_NS
        span = Mark(path=str(folder), sources=sources, began_at_ns=began)
        await self._keep(span)
        self._folders[_key(span)] = await asyncio.to_thread(_folders, str(folder))
        return span

    async def end_span(self, span: Mark) -> None:
        """Mark the files that were changed, or the span as a whole where they are too many.

        Raises:
            StorageError: it cannot be kept; the span stays open.
        """
        closed = msgspec.structs.replace(span, ended_at_ns=self._clock())
        before = self._folders.pop(_key(span), {})
        after = await asyncio.to_thread(_folders, span.path)
        # What lies in a folder that was moved has not changed, and stands at another path.
        moved = [path for key, path in after.items() if before.get(key, path) != path]
        changed = await asyncio.to_thread(_changed, closed)
        marks = tuple(Mark(path=path, sources=span.sources) for path in (*moved, *(changed or ())))
        if changed is None:
            await self._keep(closed, *marks)
        else:
            await self._keep(*marks, dropped=(span,))

    async def _keep(self, *marks: Mark, dropped: tuple[Mark, ...] = ()) -> None:
        news = tuple(mark for mark in marks if self._marks.get(_key(mark)) != mark)
        if self._store is not None and (news or dropped):
            await self._store.keep(news, dropped=dropped)
        for mark in dropped:
            self._marks.pop(_key(mark), None)
        self._marks |= {_key(mark): mark for mark in news}


def _key(mark: Mark) -> tuple[str, int]:
    return mark.path, mark.began_at_ns


def _is_open(mark: Mark) -> bool:
    return mark.began_at_ns > 0 and mark.ended_at_ns == FOREVER_NS


def _sources(path: Path, marks: tuple[Mark, ...], patterns: PathPatterns) -> Iterator[str]:
    """Yield the sources of a file, or of anything in a folder; of a missing file its folder's.

    A file that is missing is answered with the names beside it.
    """
    real = Path(os.path.realpath(path))
    try:
        changed_at_ns = real.stat().st_ctime_ns
    except OSError:
        real, changed_at_ns = real.parent, 0
    if os.path.isdir(real):  # noqa: PTH112 - unlike Path, it has no errors
        found = [mark for mark in marks if _touches_folder(mark, real)]
        named = patterns.first_below(real, limit=MAX_WALKED) if patterns else None
    else:
        found = [mark for mark in marks if _holds(mark, real, changed_at_ns)]
        named = str(real) if patterns.match(str(real)) else None
    for mark in found:
        yield f"the file {_shown(mark.path)}"
        yield from mark.sources
    if named is not None:
        yield f"the untrusted path {_shown(named)}"


def _holds(mark: Mark, real: Path, changed_at_ns: int) -> bool:
    is_in_time = mark.began_at_ns <= changed_at_ns <= mark.ended_at_ns
    return is_in_time and is_under(real, Path(mark.path))


def _touches_folder(mark: Mark, folder: Path) -> bool:
    """Tell whether a mark is about something in a folder that may still be there."""
    path = Path(mark.path)
    if mark.began_at_ns:
        return is_under(path, folder) or is_under(folder, path)
    return is_under(path, folder) and os.path.lexists(path)


def _changed(span: Mark) -> list[str] | None:
    """Return the files that a span covers; None when they are too many to list."""
    found: list[str] = []
    waiting, walked = [span.path], 0
    while waiting:
        try:
            entries = list(os.scandir(waiting.pop()))
        except FileNotFoundError:
            continue
        except OSError:
            return None  # what is in there may be opened again later
        walked += len(entries)
        if walked > MAX_WALKED:
            return None
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                waiting.append(entry.path)
            elif _is_changed_in(entry, span):
                found.append(os.path.realpath(entry.path))
    return found if len(found) <= MAX_CHANGED else None


def _folders(root: str) -> dict[tuple[int, int], str]:
    """Return the folders below a folder by what they are, whatever they are called."""
    found: dict[tuple[int, int], str] = {}
    for folder, _fd_dirs, _files in os.walk(root):
        with contextlib.suppress(OSError):
            facts = os.lstat(folder)
            found[facts.st_dev, facts.st_ino] = os.path.realpath(folder)
    return found


def _is_changed_in(entry: os.DirEntry[str], span: Mark) -> bool:
    try:
        changed_at_ns = entry.stat(follow_symlinks=False).st_ctime_ns
    except OSError:
        return True
    return span.began_at_ns <= changed_at_ns <= span.ended_at_ns


def _shown(path: str) -> str:
    text = visible_line(path)
    return text if len(text) <= _NAME_LIMIT else f"…{text[-_NAME_LIMIT:]}"
