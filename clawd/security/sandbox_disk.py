"""How much one command writes to the folders that it may change: asked while it runs, cheaply.

A limit on one file does not bound many. So the free space is compared with that at the start, and
only when it has gone down or up by half the limit are they walked, in a thread, for what
has changed since: other programs fill disks too, and free them. Files that have no name any more
are found by the descriptors of the command's processes. How much can be written beyond the limit is
what fits between two looks and into the time of a walk; at twice the limit nobody waits for the
walk.
"""

import asyncio
import os
import stat
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

_BLOCK_BYTES = 512
_CLOCK_SLACK_NS = 50_000_000
_PROC = Path("/proc")
_OWN = ("/tmp", "/dev/shm")  # noqa: S108 - the sandbox's


class DiskUse(msgspec.Struct, frozen=True, kw_only=True):
    """So many bytes and files."""

    written_bytes: int
    files: int

    def without(self, other: "DiskUse") -> "DiskUse":
        """Return what is left of it without another."""
        return DiskUse(
            written_bytes=self.written_bytes - other.written_bytes, files=self.files - other.files
        )

    def is_over(self, limit: "DiskUse", *, part: float = 1) -> bool:
        """Whether it reaches this part of a limit in either."""
        return self.written_bytes >= limit.written_bytes * part or self.files >= limit.files * part


class DiskWatch:
    """Watches one command. Call from the event loop only.

    Args:
        folders: its workspace and its caches, absolute and resolved.
        limit: what the command may use.
        has_mounts: whether its /tmp and /dev/shm are its own; else they are the host's.
    """

    def __init__(self, folders: Sequence[Path], limit: DiskUse, *, has_mounts: bool = True) -> None:
        self._has_mounts = has_mounts
        self._folders = tuple(folders)
        self._limit = limit
        self._since_ns = time.time_ns() - _CLOCK_SLACK_NS
        self._before = _taken_by(self._folders)
        self._walk: asyncio.Future[DiskUse | None] | None = None
        self._at_walk = self._before

    def is_over(self, init: int) -> bool:
        """Whether it has used more than it may; never blocks. `init`: its namespace's, or 0."""
        now = _taken_by(self._folders)
        grown = now.without(self._before)
        if self._walk is not None and self._walk.done():
            used = self._walk.result()
            self._walk = None
            # None: something is hidden, so all that the disk lost is its.
            if (used or grown).is_over(self._limit):
                return True
            if used is not None:
                self._before = self._at_walk.without(used)  # what others wrote is forgotten
                return False
        if init and self._has_mounts and _fills_its_own(init, self._limit.files):
            return True
        # What others have removed meanwhile would hide as much of what the command writes.
        freed = self._before.without(now)
        if not (grown.is_over(self._limit, part=0.5) or freed.is_over(self._limit, part=0.5)):
            return False
        if self._walk is None:
            loop = asyncio.get_running_loop()
            self._at_walk = now
            self._walk = loop.run_in_executor(
                None, changed_since, self._folders, self._since_ns, init
            )
        return False


def changed_since(folders: Sequence[Path], since_ns: int, init: int) -> DiskUse | None:
    """Return what was changed in folders, and is held open without a name, since a time.

    None when a process of the command hides what it holds.
    """
    written, files = 0, 0
    named: set[tuple[int, int]] = set()
    for about in (about for folder in folders for about in _walked(str(folder))):
        if about.st_nlink > 1 and not stat.S_ISDIR(about.st_mode):
            if (about.st_dev, about.st_ino) in named:
                continue  # the same file by another name
            named.add((about.st_dev, about.st_ino))
        if about.st_ctime_ns >= since_ns:
            written += about.st_blocks * _BLOCK_BYTES
            files += 1
    devices = {folder.stat().st_dev for folder in folders}
    seen: set[tuple[int, int]] = set()
    try:
        for pid in _descendants(init) if init else ():
            for about in _nameless(pid):
                if about.st_dev in devices and (about.st_dev, about.st_ino) not in seen:
                    seen.add((about.st_dev, about.st_ino))
                    written += about.st_blocks * _BLOCK_BYTES
                    files += 1
    except PermissionError:
        return None
    return DiskUse(written_bytes=written, files=files)


def _taken_by(folders: Sequence[Path]) -> DiskUse:
    """Return what is taken of the file systems of some folders."""
    of_each = {folder.stat().st_dev: _taken(folder) for folder in folders}.values()
    return DiskUse(
        written_bytes=sum(each.written_bytes for each in of_each),
        files=sum(each.files for each in of_each),
    )


def _taken(folder: Path | str) -> DiskUse:
    """Return what of a file system is taken."""
    about = os.statvfs(folder)
    return DiskUse(
        written_bytes=(about.f_blocks - about.f_bfree) * about.f_frsize,
        files=about.f_files - about.f_ffree,
    )


def _fills_its_own(init: int, files: int) -> bool:
    """Whether the sandbox's own file systems, whose size is bounded, hold too many files."""
    for folder in _OWN:
        inside = f"{_PROC}/{init}/root{folder}"
        # Until the sandbox is set up its root is the host's, and so is how full that is.
        if _device(inside) not in {-1, _device(folder)}:
            try:
                if _taken(inside).files > files:
                    return True
            except OSError:
                return False  # it is ending
    return False


def _device(folder: str) -> int:
    """Return which file system a folder lies on; -1 where there is no such folder."""
    try:
        return os.stat(folder).st_dev  # noqa: PTH116 - a Path would be made four times a second
    except OSError:
        return -1


def _walked(folder: str) -> Iterator[os.stat_result]:
    waiting = [folder]
    while waiting:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    try:
                        about = entry.stat(follow_symlinks=False)
                    except FileNotFoundError:
                        continue  # gone meanwhile; the others in the folder are not
                    yield about
                    if stat.S_ISDIR(about.st_mode):
                        waiting.append(entry.path)
        except OSError:
            continue  # gone meanwhile, or not ours to read


def _descendants(init: int) -> Iterator[int]:
    waiting = [init]
    while waiting:
        pid = waiting.pop()
        yield pid
        try:
            for task in (_PROC / str(pid) / "task").iterdir():
                waiting += map(int, (task / "children").read_bytes().split())
        except (FileNotFoundError, ProcessLookupError):
            continue


def _nameless(pid: int) -> Iterator[os.stat_result]:
    try:
        for held in (_PROC / str(pid) / "fd").iterdir():
            try:
                about = held.stat()
            except FileNotFoundError:
                continue  # closed meanwhile; the others are not
            if stat.S_ISREG(about.st_mode) and about.st_nlink == 0:
                yield about
    except (FileNotFoundError, ProcessLookupError):
        return
    except PermissionError:
        if not is_dead(pid):
            raise


def is_dead(pid: int) -> bool:
    """Whether a process has ended and only waits for its parent; then it holds nothing."""
    try:
        facts = (_PROC / str(pid) / "stat").read_bytes().rpartition(b")")[2]
    except OSError:
        return True
    return facts.split()[0] in {b"Z", b"X"}
