"""Folders in which a finished file begins a job: what was written and closed, or moved in.

Inotify says when and which. Over a restart, and where it lost count, the folder is listed, and the
moment of the last change of a file (ctime) counts, which only grows: the newest one that was
reported to a job is its mark, and every file that is newer is reported. A name is untrusted text.
"""

import asyncio
import contextlib
import fnmatch
import logging
import os
import struct
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from clawd.errors import InvalidRequestError
from clawd.security.estop import IN_CLOSE_WRITE, IN_MOVED_TO, watch_directory
from clawd.wire.safe_text import visible_line

MAX_REPORTED = 100  # names of one run; the others are counted
MAX_NAME = 200
MAX_KNOWN = 10_000  # files of a job
_EVENT = struct.Struct("iIII")
_OVERFLOW = 0x4000
_GONE = 0x8000  # the folder was removed, or what it lies on unmounted
_READ_BYTES = 65_536

_log = logging.getLogger(__name__)


class Drop(NamedTuple):
    """Files that came into a folder: what is reported of them to a job, its new mark, their names.

    The mark is that of no drop before.
    """

    text: str
    mark_ns: int
    names: set[str]


class _Watch(NamedTuple):
    descriptor: int
    folder: Path


class DropFolders:
    """Watches the folders of jobs. One of a daemon; every method is called on the loop's thread.

    Args:
        wake: called when a file has come.
    """

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._watches: dict[str, _Watch] = {}
        self._came: dict[str, set[str] | None] = {}  # None: whatever is in the folder
        # By job the ctimes of what was reported: a file may be closed again and be no other one.
        self._known: dict[str, dict[str, int]] = {}
        self._lacking: set[str] = set()

    def adopt(self, folders: Mapping[str, Path]) -> None:
        """Watch these folders, by job, and no others."""
        for job in [job for job, each in self._watches.items() if folders.get(job) != each.folder]:
            self._forget(job)
        for job, folder in folders.items():
            if job not in self._watches:
                try:
                    descriptor = watch_directory(folder, IN_CLOSE_WRITE | IN_MOVED_TO)
                except OSError as error:
                    if job not in self._lacking:
                        _log.warning("the folder of %s cannot be watched: %s", job, error.strerror)
                        self._lacking.add(job)
                    continue
                self._lacking.discard(job)
                self._watches[job] = _Watch(descriptor, folder)
                self._came[job] = None
                asyncio.get_running_loop().add_reader(descriptor, self._read, job)

    def take(self, job: str, pattern: str, *, since_ns: int, mark_ns: int) -> Drop | None:
        """Return what came for a job since it was made; None for nothing. It is reported once.

        A file may be closed long after its last change, so the mark says nothing of those that
        inotify named.
        """
        came = self._came.pop(job, set())
        watch = self._watches.get(job)
        if watch is None or (came is not None and not came):
            return None
        names = _listed(watch.folder) if came is None else came
        since_ns = max(since_ns, mark_ns) if came is None else since_ns
        known = self._known.setdefault(job, {})
        if len(known) > MAX_KNOWN:
            known.clear()  # at worst one is reported again
        finished = _finished(watch.folder, names, pattern, since_ns)
        found = sorted(each for each in finished if known.get(each[1]) != each[0])
        if not found:
            return None
        known |= {name: ctime_ns for ctime_ns, name in found}
        lines = [visible_line(name, MAX_NAME) for _, name in found[:MAX_REPORTED]]
        more = [f"and {len(found) - MAX_REPORTED} more"] if len(found) > MAX_REPORTED else []
        text = "\n".join([f"Files that came into {watch.folder.name}:", *lines, *more])
        return Drop(text, max(found[-1][0], mark_ns + 1), {name for _, name in found})

    def give_back(self, job: str, drop: Drop) -> None:
        """Take back what could not begin the job; it is tried again at the next look."""
        for name in drop.names:
            self._known.get(job, {}).pop(name, None)
        if (came := self._came.setdefault(job, set())) is not None:
            came |= drop.names

    def close(self) -> None:
        """Watch nothing any more. Idempotent."""
        for job in tuple(self._watches):
            self._forget(job)

    def _forget(self, job: str) -> None:
        watch = self._watches.pop(job)
        self._came.pop(job, None)
        self._known.pop(job, None)
        asyncio.get_running_loop().remove_reader(watch.descriptor)
        os.close(watch.descriptor)

    def _read(self, job: str) -> None:
        with contextlib.suppress(BlockingIOError):
            data = os.read(self._watches[job].descriptor, _READ_BYTES)
            names, masks = _names(data)
            came = self._came.setdefault(job, set())
            if came is None or masks & _OVERFLOW or len(came) > 10 * MAX_REPORTED:
                self._came[job] = None
            else:
                came |= names
            if masks & _GONE:
                self._forget(job)  # watched again at the next look, if it is there again
            self._wake()


def check_drop(folder: str, workspace: Path) -> str:
    """Return the folder to watch, absolute; a relative one is of the workspace.

    Raises:
        InvalidRequestError: it is none, or lies outside of the workspace.
    """
    found = Path("/") if "\0" in folder else (workspace / folder).resolve()
    if not found.is_relative_to(workspace) or not found.is_dir():
        raise InvalidRequestError(
            f"{visible_line(folder, 80)!r} is no folder of the workspace {workspace}"
        )
    return str(found)


def _names(data: bytes) -> tuple[set[str], int]:
    """Return the names that events tell, and what kinds of events there were."""
    names, offset, masks = set[str](), 0, 0
    while offset + _EVENT.size <= len(data):
        _watch, mask, _cookie, length = _EVENT.unpack_from(data, offset)
        offset += _EVENT.size
        name = os.fsdecode(data[offset : offset + length].rstrip(b"\0"))
        offset += length
        masks |= mask
        if name and mask & (IN_CLOSE_WRITE | IN_MOVED_TO):
            names.add(name)
    return names, masks


def _listed(folder: Path) -> list[str]:
    try:
        return [each.name for each in folder.iterdir()]
    except OSError:
        return []


def _finished(
    folder: Path, names: Iterable[str], pattern: str, since_ns: int
) -> Iterable[tuple[int, str]]:
    """Yield the last change and name of regular files that match and are newer."""
    for name in names:
        if name.startswith(".") or not fnmatch.fnmatchcase(name, pattern):
            continue
        with contextlib.suppress(OSError):
            facts = os.lstat(folder / name)
            if (facts.st_mode & 0o170000) == 0o100000 and facts.st_ctime_ns > since_ns:
                yield facts.st_ctime_ns, name
