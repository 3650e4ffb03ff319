"""What stands in a folder, every file, link and mode of it, and bringing it back to that.

    with Tree(workspace, left_out=hidden) as tree:
        found = tree.scan(known)                  # a stat of everything, nothing is read
        node = tree.read(path, keep, most=…)      # the content of what the scan says is new
        tree.restore(steps, content)

Everything goes by descriptors from the folder's own, and no link is ever followed: what a command
swaps meanwhile leads nowhere. Paths are relative, with `os.fsdecode`'s escapes.
"""

import contextlib
import ctypes
import errno
import hashlib
import os
import re
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, Self

import msgspec

from clawd.errors import BusyError, ClawError, ForbiddenError, InvalidRequestError, StorageError
from clawd.security.file_content import (
    CHUNK_BYTES,
    Draft,
    FileChange,
    FileState,
    Kind,
    draft_name,
    remove_stale_drafts,
)
from clawd.security.paths import open_without_links, real_path
from clawd.wire.gitignore import Pattern, is_ignored, patterns_in

MAX_ENTRIES = 100_000
MAX_DEPTH = 200
# What is ignored is left out from there on: a folder of so much, a file of so many bytes.
IGNORED_ENTRIES = 1_000
IGNORED_BYTES = 16 << 20
IGNORED_FILE_BYTES = 1 << 20
# A file changed so recently may change again within one tick of the file system's clock.
_UNSETTLED_NS = 50_000_000
_MAX_IGNORE_BYTES = 256 << 10
# Left out when large, though no `.gitignore` may name them: programs make them anew.
MADE_ANEW = frozenset({
    "node_modules", "__pycache__", ".venv", "venv", ".tox", ".nox", ".mypy_cache", ".ruff_cache",
    ".pytest_cache", ".gradle", ".cache", "target", ".next", ".terraform",
})  # fmt: skip
# Git never changes a file in these, it only adds and removes some.
_OBJECTS = re.compile(r"(.*/)?\.git/(modules/.*/)?objects/([0-9a-f]{2}|pack)")
_GONE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP})
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK

Stamp = tuple[int, int, int, int, int]
"""Mode, size, time of modification, of change (0: look again next time), inode."""


class Node(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One thing in a folder.

    Attributes:
        stamp: what stat(2) says of it.
        sha256: of its content or of a link's target; empty where that was not read.
    """

    stamp: Stamp
    sha256: str = ""

    @property
    def state(self) -> FileState:
        """What it holds."""
        mode, size = self.stamp[0], self.stamp[1]
        kind = kind_of(mode)
        is_file = kind in {"file", "link"}
        return FileState(
            size=size if is_file else 0,
            sha256=self.sha256,
            mode=permissions(mode, kind),
            kind=kind,
        )


class Folder(msgspec.Struct, frozen=True, array_like=True):
    """What is right in a folder.

    Attributes:
        stamp: of the folder itself, without its size and time of modification.
        files: by name, what is no folder; the scan's caller puts in what it reads.
        folders: the names of the others.
    """

    stamp: Stamp
    files: dict[str, Node]
    folders: tuple[str, ...]

    @property
    def state(self) -> FileState:
        """What the folder is by itself."""
        return Node(self.stamp).state


class Scan(msgspec.Struct, frozen=True, kw_only=True):
    """What a folder holds.

    Attributes:
        folders: by path; the folder itself is "".
        unread: folder and name of what is new or was changed since the scan before.
        skipped: folders that were not entered: their inode, and why.
        ignored: folders that are ignored and small so far.
    """

    folders: dict[str, Folder] = {}
    unread: list[tuple[str, str]] = []
    skipped: dict[str, tuple[int, str]] = {}
    ignored: frozenset[str] = frozenset()


NOTHING = Scan()


class TreeStep(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is to become another: what it is now, what it shall be; None is nothing."""

    path: str
    now: FileState | None
    target: FileState | None


class FolderTooLargeError(InvalidRequestError):
    """A folder holds more than is looked at."""


class _TooMuchError(Exception):
    """An ignored folder holds more than is kept of one."""


def kind_of(mode: int) -> Kind:
    """Return what a mode is of."""
    kinds: dict[int, Kind] = {
        stat.S_IFREG: "file",
        stat.S_IFLNK: "link",
        stat.S_IFDIR: "folder",
        stat.S_IFIFO: "fifo",
    }
    return kinds.get(stat.S_IFMT(mode), "other")


def permissions(mode: int, kind: Kind) -> int:
    """Return the permission bits that count: a link has none, and nothing gets set-user-ID."""
    if kind == "link":
        return 0
    return stat.S_IMODE(mode) & (0o3777 if kind == "folder" else 0o777)


class Tree:
    """The files of one folder, for one look or one restoration: a context manager.

    Args:
        root: absolute and resolved.
        left_out: absolute paths that are neither looked at nor changed.
    """

    def __init__(self, root: Path, *, left_out: frozenset[str] = frozenset()) -> None:
        self._root = root
        # A workspace may lie in clawd's home, which is left out of any that holds it.
        self._left_out = frozenset(each for each in left_out if each.startswith(f"{root}/"))
        self._descriptor = -1
        self._seen: dict[str, Stamp | None] = {}

    def __enter__(self) -> Self:
        try:
            descriptor = os.open(self._root, _FOLDER)
        except OSError as error:
            raise StorageError(f"{self._root} cannot be opened: {error.strerror}") from error
        if real_path(descriptor) != self._root:
            os.close(descriptor)
            raise ForbiddenError(f"{self._root} is not the folder that it was")
        self._descriptor = descriptor
        return self

    def __exit__(self, *_exception: object) -> None:
        os.close(self._descriptor)

    # --- looking

    def scan(self, known: Scan = NOTHING) -> Scan:
        """Return what is there now; what has not changed since `known` is taken from that.

        Raises:
            TooLargeError: there is more than is looked at.
            StorageError: the folder itself cannot be read.
        """
        return _Scanner(str(self._root), self._descriptor, self._left_out, known).scan()

    def read(
        self, path: str, keep: Callable[[int, int], str], *, most: int, opens: bool = False
    ) -> Node | None:
        """Return what stands at a path now, with its content read; None where nothing does.

        Args:
            path: a file or link.
            keep: takes a descriptor and the size, keeps the content and returns its SHA-256.
            most: the content of larger files is not read.
            opens: a file of ours that is closed to us is opened for the moment.
        """
        try:
            handle = open_without_links(self._descriptor, path, os.O_PATH | os.O_NOFOLLOW)
        except OSError as error:
            if error.errno in _GONE:
                return None
            raise
        try:
            before = _stamp(os.fstat(handle))
            if stat.S_ISLNK(before[0]):
                target = os.readlink(b"", dir_fd=handle)
                data = os.memfd_create("link", os.MFD_CLOEXEC)
                try:
                    os.write(data, target)
                    return Node(settled(before), keep(data, len(target)))
                finally:
                    os.close(data)
            if not stat.S_ISREG(before[0]) or before[1] > most:
                return Node(before)
            file = _readable(handle, opens=opens)
            if file < 0:
                return Node(before)
        finally:
            os.close(handle)
        try:
            # Its mode may have been set back and forth: the times are those of now.
            before = _stamp(os.fstat(file))
            digest = keep(file, before[1])
            after = _stamp(os.fstat(file))
        finally:
            os.close(file)
        return Node(settled(before) if after == before else _unsettled(after), digest)

    def state(self, path: str, keep: Callable[[int, int], str] | None = None) -> FileState | None:
        """Return what stands at a path, None where nothing does; `restore` holds it to that.

        Raises:
            StorageError: it cannot be read.
            ForbiddenError: it is left out.
        """
        self._refuse_left_out(path)
        try:
            found = self.read(path, keep or digest_of, most=1 << 62, opens=True)
        except OSError as error:
            raise _unreadable(path, error) from error
        if found is None:
            self._seen[path] = None
            return None
        self._seen[path] = found.stamp
        state = found.state
        if state.kind in {"file", "link"} and not state.sha256:
            raise _unreadable(path, PermissionError(errno.EACCES, os.strerror(errno.EACCES)))
        return state

    def opened(self, path: str) -> BinaryIO:
        """Open a regular file to read.

        Raises:
            StorageError: it cannot be.
            ForbiddenError: it is left out.
        """
        self._refuse_left_out(path)
        try:
            handle = open_without_links(self._descriptor, path, os.O_PATH | os.O_NOFOLLOW)
            try:
                file = _readable(handle, opens=True) if _is_regular(handle) else -1
            finally:
                os.close(handle)
        except OSError as error:
            raise _unreadable(path, error) from error
        if file < 0:
            raise StorageError(f"{path} cannot be read")
        return os.fdopen(file, "rb")

    def names(self, path: str) -> list[str]:
        """Return the names of what is right in a folder.

        Raises:
            StorageError: it cannot be looked at.
        """
        try:
            folder = open_without_links(self._descriptor, path, _FOLDER)
            try:
                return sorted(os.listdir(folder))  # noqa: PTH208 - a descriptor, not a path
            finally:
                os.close(folder)
        except OSError as error:
            raise _unreadable(path, error) from error

    def tidy(self, paths: Iterable[str]) -> None:
        """Remove what a `restore` that was killed has left beside these paths."""
        for above in {path.rpartition("/")[0] or "." for path in paths}:
            with contextlib.suppress(OSError):
                folder = open_without_links(self._descriptor, above, _FOLDER)
                try:
                    remove_stale_drafts(folder, is_alone=True)
                finally:
                    os.close(folder)

    def link(self, path: str) -> bytes:
        """Return where a link leads.

        Raises:
            StorageError: there is none.
        """
        try:
            handle = open_without_links(self._descriptor, path, os.O_PATH | os.O_NOFOLLOW)
            try:
                return os.readlink(b"", dir_fd=handle)
            finally:
                os.close(handle)
        except OSError as error:
            raise _unreadable(path, error) from error

    # --- changing

    def restore(
        self, steps: Sequence[TreeStep], content: Callable[[TreeStep], BinaryIO]
    ) -> dict[str, str]:
        """Make everything what it shall be; return what is left as it was, and why.

        Each file and link is replaced at once and whole. `state` was asked for every path before.

        Args:
            steps: what to do, in any order.
            content: opens the bytes of a file, or the target of a link.
        """
        todo = [step for step in steps if step.now != step.target]
        inner_first = sorted(todo, key=_path_of, reverse=True)
        folders = [step for step in inner_first if _becomes(step, "folder")]
        problems: dict[str, str] = {}
        with self._opened_up(todo):
            self._each([step for step in inner_first if _goes(step)], self._remove, problems)
            self._each(folders[::-1], self._make_folder, problems)
            others = [
                step for step in todo if step.target is not None and step.target.kind != "folder"
            ]
            self._each(others, lambda s, f, n: self._make(s, f, n, content), problems)
            self._each(folders, _set_mode, problems)
        _sync(self._descriptor)
        return problems

    def _each(
        self,
        steps: Sequence[TreeStep],
        act: Callable[[TreeStep, int, str], None],
        problems: dict[str, str],
    ) -> None:
        """Do the same with every step that has met no problem yet."""
        for step in steps:
            if step.path in problems:
                continue
            try:
                with self._parent(step.path) as (folder, name):
                    self._check_seen(step.path, folder, name)
                    act(step, folder, name)
            except OSError as error:
                problems[step.path] = os.strerror(error.errno or errno.EIO)
            except ClawError as error:
                problems[step.path] = error.message

    @contextlib.contextmanager
    def _parent(self, path: str) -> Iterator[tuple[int, str]]:
        """Open the folder that holds a path."""
        above, _, name = path.rpartition("/")
        self._refuse_left_out(path)
        folder = open_without_links(self._descriptor, above or ".", _FOLDER)
        try:
            yield folder, name
        finally:
            os.close(folder)

    def _refuse_left_out(self, path: str) -> None:
        real = f"{self._root}/{path}"
        if any(real == each or real.startswith(f"{each}/") for each in self._left_out):
            raise ForbiddenError("it lies under a forbidden path")

    def _check_seen(self, path: str, folder: int, name: str) -> None:
        """Refuse what is not any more what `state` saw, or what was made of it since."""
        try:
            now: Stamp | None = _stamp(os.stat(name, dir_fd=folder, follow_symlinks=False))
        except FileNotFoundError:
            now = None
        seen = self._seen.get(path)
        if not _is_same(now, seen):
            raise BusyError("it was changed by somebody else at the same time", retry_after_s=0.1)

    def _remove(self, step: TreeStep, folder: int, name: str) -> None:
        assert step.now is not None
        if step.now.kind == "folder":
            try:
                os.rmdir(name, dir_fd=folder)
            except OSError as error:
                if error.errno not in {errno.ENOTEMPTY, errno.EEXIST}:
                    raise
                raise InvalidRequestError("the folder holds what did not come from there") from None
        else:
            os.unlink(name, dir_fd=folder)
        self._seen[step.path] = None

    def _make_folder(self, step: TreeStep, folder: int, name: str) -> None:
        if self._seen.get(step.path) is None:
            os.mkdir(name, 0o700, dir_fd=folder)
            self._seen[step.path] = _stamp(os.stat(name, dir_fd=folder, follow_symlinks=False))

    def _make(
        self, step: TreeStep, folder: int, name: str, content: Callable[[TreeStep], BinaryIO]
    ) -> None:
        now, target = step.now, step.target
        assert target is not None
        if now is not None and now.holds(target) and target.kind != "link":
            _set_mode(step, folder, name)
            return
        match target.kind:
            case "file":
                self._write(step, folder, name, content)
            case "link":
                with content(step) as file, _placed(folder, name) as draft:
                    os.symlink(file.read(), os.fsencode(draft), dir_fd=folder)
            case "fifo":
                with _placed(folder, name) as draft:
                    os.mkfifo(draft, 0o600, dir_fd=folder)
                _set_mode(step, folder, name)
            case _:
                raise InvalidRequestError("a device or socket cannot be made again")
        self._seen[step.path] = _stamp(os.stat(name, dir_fd=folder, follow_symlinks=False))

    def _write(
        self, step: TreeStep, folder: int, name: str, content: Callable[[TreeStep], BinaryIO]
    ) -> None:
        assert step.target is not None
        with content(step) as file, Draft(folder, is_one_of_many=True) as draft:
            after = draft.fill(iter(lambda: file.read(CHUNK_BYTES), b""), step.target.mode)
            if not after.holds(step.target):
                raise StorageError(f"what was kept of {step.path} is damaged")
            self._check_seen(step.path, folder, name)
            if self._seen.get(step.path) is None:
                draft.become(name)
            else:
                draft.replace(name)

    @contextlib.contextmanager
    def _opened_up(self, steps: Sequence[TreeStep]) -> Iterator[None]:
        """Let us change what is in the folders of the steps, while that is done."""
        folders = {above for step in steps for above in _above(step.path)}
        closed: list[tuple[str, int]] = []
        for path in sorted(folders):
            with contextlib.suppress(OSError):
                handle = open_without_links(self._descriptor, path, os.O_PATH | os.O_NOFOLLOW)
                try:
                    about = os.fstat(handle)
                    mode = stat.S_IMODE(about.st_mode)
                    is_closed = mode & 0o700 != 0o700 and about.st_uid == os.geteuid()
                    if stat.S_ISDIR(about.st_mode) and is_closed:
                        _chmod(handle, mode | 0o700)
                        closed.append((path, mode))
                finally:
                    os.close(handle)
        try:
            yield
        finally:
            wanted = {step.path for step in steps if step.target is not None}
            for path, mode in reversed(closed):
                if path in wanted:
                    continue
                with contextlib.suppress(OSError):
                    handle = open_without_links(self._descriptor, path, os.O_PATH | os.O_NOFOLLOW)
                    try:
                        _chmod(handle, mode)
                    finally:
                        os.close(handle)


class _Scanner:
    """One walk through a folder."""

    def __init__(self, root: str, descriptor: int, left_out: frozenset[str], known: Scan) -> None:
        self._top = descriptor
        beginning = f"{root}/"
        self._left_out = frozenset(
            each[len(beginning) :] for each in left_out if each.startswith(beginning)
        )
        self._device = os.fstat(descriptor).st_dev
        self._known = known
        self._folders: dict[str, Folder] = {}
        self._unread: list[tuple[str, str]] = []
        self._skipped: dict[str, tuple[int, str]] = {}
        self._ignored: set[str] = set()
        self._patterns: dict[str, list[Pattern]] = {}
        self._has_other_patterns = False
        self._count = 0
        # Of the ignored folder that is being walked: how many entries and bytes it may have.
        self._room: list[int] | None = None

    def scan(self) -> Scan:
        top = os.open(".", _FOLDER, dir_fd=self._top)
        self._walk(top, "", (), 0)
        return Scan(
            folders=self._folders,
            unread=self._unread,
            skipped=self._skipped,
            ignored=frozenset(self._ignored),
        )

    def _walk(self, folder: int, path: str, ignores: tuple[str, ...], depth: int) -> None:
        """Look at an open folder, which is closed, and at what is below it."""
        try:
            about = os.fstat(folder)
            stamp = (about.st_mode, 0, 0, about.st_ctime_ns, about.st_ino)
            known = self._known.folders.get(path)
            if known is None or known.stamp != stamp:
                found = self._listed(folder, path, stamp, known)
            elif _OBJECTS.fullmatch(path):
                found = known
            else:
                found = self._again(folder, path, known)
            self._folders[path] = found
            self._counted(len(found.files) + len(found.folders))
            if ".gitignore" in found.files:
                ignores = (*ignores, path)
            self._pass_over_large(path, found, ignores)
            beginning = f"{path}/" if path else ""
            for name in found.folders:
                self._enter(folder, beginning + name, ignores, depth)
        finally:
            os.close(folder)

    def _listed(self, folder: int, path: str, stamp: Stamp, known: Folder | None) -> Folder:
        """Read what is in a folder."""
        files: dict[str, Node] = {}
        folders: list[str] = []
        before = known.files if known is not None else {}
        beginning = f"{path}/" if path else ""
        with os.scandir(folder) as entries:
            for entry in entries:
                name = entry.name
                if beginning + name in self._left_out:
                    continue
                try:
                    about = _stamp(entry.stat(follow_symlinks=False))
                except FileNotFoundError:
                    continue
                if stat.S_ISDIR(about[0]):
                    folders.append(name)
                    continue
                old = before.get(name)
                if old is not None and old.stamp == about:
                    files[name] = old
                else:
                    files[name] = Node(about)
                    self._unread.append((path, name))
                    self._has_other_patterns |= name == ".gitignore"
        return Folder(settled(stamp), files, tuple(folders))

    def _again(self, folder: int, path: str, known: Folder) -> Folder:
        """Ask for what is in a folder to which no name came, and from which none went."""
        changed: dict[str, Node] = {}
        look = os.stat
        for name, node in known.files.items():
            try:
                about = look(name, dir_fd=folder, follow_symlinks=False)
            except FileNotFoundError:
                return self._listed(folder, path, _unsettled(known.stamp), known)
            # Nobody sets the time of change back.
            if about.st_ctime_ns != node.stamp[3] or about.st_ino != node.stamp[4]:
                changed[name] = Node(_stamp(about))
                self._unread.append((path, name))
                self._has_other_patterns |= name == ".gitignore"
        return Folder(known.stamp, known.files | changed, known.folders) if changed else known

    def _counted(self, entries: int) -> None:
        self._count += entries
        if self._count > MAX_ENTRIES:
            raise FolderTooLargeError(f"it holds more than {MAX_ENTRIES} files and folders")
        if self._room is not None:
            self._room[0] -= entries
            if self._room[0] < 0:
                raise _TooMuchError

    def _pass_over_large(self, path: str, found: Folder, ignores: tuple[str, ...]) -> None:
        """Leave files unread that are ignored and large, and count what ignored folders hold."""
        beginning = f"{path}/" if path else ""
        at = len(self._unread)
        while at and self._unread[at - 1][0] == path:
            at -= 1
            name = self._unread[at][1]
            size = found.files[name].stamp[1]
            if self._room is not None:
                self._room[1] -= size
                if self._room[1] < 0:
                    raise _TooMuchError
            if size > IGNORED_FILE_BYTES and self._is_ignored(beginning + name, ignores):
                del self._unread[at]

    def _enter(self, above: int, path: str, ignores: tuple[str, ...], depth: int) -> None:
        """Look at a folder by its path, which lies right in an open one."""
        name = path.rpartition("/")[2]
        skipped, known = self._known.skipped.get(path), self._known.folders.get(path)
        if path in self._left_out:
            return
        if skipped is not None and not self._has_other_patterns:
            with contextlib.suppress(FileNotFoundError):
                about = os.stat(name, dir_fd=above, follow_symlinks=False)
                if about.st_ino == skipped[0]:
                    self._skipped[path] = skipped
                    return
        try:
            folder, mode = self._entered(above, name, was_open=known is not None)
        except OSError:
            self._carry(path)
            return
        about = os.fstat(folder)
        if about.st_dev != self._device or depth >= MAX_DEPTH:
            os.close(folder)
            why = "too deep" if about.st_dev == self._device else "another file system"
            self._skipped[path] = (about.st_ino, why)
            return
        handle = os.dup(folder) if mode >= 0 else -1
        try:
            is_new = known is None or skipped is not None
            if self._may_be_left_out(path, name, ignores, is_new=is_new):
                self._try(folder, path, about, ignores, depth)
            else:
                self._walk(folder, path, ignores, depth + 1)
        finally:
            if handle >= 0:
                _chmod(handle, mode)
                os.close(handle)

    def _try(
        self,
        folder: int,
        path: str,
        about: os.stat_result,
        ignores: tuple[str, ...],
        depth: int,
    ) -> None:
        """Look at an ignored folder, as long as it is a small one."""
        count, unread = self._count, len(self._unread)
        self._room = [IGNORED_ENTRIES, IGNORED_BYTES]
        try:
            self._walk(folder, path, ignores, depth + 1)
            self._ignored.add(path)
        except _TooMuchError:
            below = f"{path}/"
            for each in [each for each in self._folders if f"{each}/".startswith(below)]:
                del self._folders[each]
            del self._unread[unread:]
            self._count = count
            self._skipped[path] = (about.st_ino, "ignored and large")
        finally:
            self._room = None

    def _entered(self, above: int, name: str, *, was_open: bool) -> tuple[int, int]:
        """Open a folder; where a command closed one of ours, with the mode to be set back."""
        try:
            return os.open(name, _FOLDER, dir_fd=above), -1
        except PermissionError:
            if not was_open:
                raise
        handle = os.open(name, _FOLDER | os.O_PATH, dir_fd=above)
        try:
            about = os.fstat(handle)
            if about.st_uid != os.geteuid():
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), name)
            mode = stat.S_IMODE(about.st_mode)
            _chmod(handle, mode | 0o700)
            return os.open(f"/proc/self/fd/{handle}", os.O_RDONLY | os.O_CLOEXEC), mode
        finally:
            os.close(handle)

    def _carry(self, path: str) -> None:
        """Go by what was known of a folder that is closed to us."""
        self._skipped[path] = (-1, "closed to clawd")
        for each, folder in self._known.folders.items():
            if each == path or each.startswith(f"{path}/"):
                self._folders[each] = folder

    def _may_be_left_out(
        self, path: str, name: str, ignores: tuple[str, ...], *, is_new: bool
    ) -> bool:
        """Return whether a folder is ignored; asked once of each, and in none that is."""
        if self._room is not None or name == ".git" or "/.git/" in f"/{path}/":
            return False
        if not is_new:
            return path in self._known.ignored
        return name in MADE_ANEW or self._is_ignored(path, ignores, is_folder=True)

    def _is_ignored(self, path: str, ignores: tuple[str, ...], *, is_folder: bool = False) -> bool:
        if "/.git/" in f"/{path}/":
            return False
        patterns = [each for folder in ignores for each in self._patterns_of(folder)]
        return is_ignored(path, patterns, is_folder=is_folder)

    def _patterns_of(self, folder: str) -> list[Pattern]:
        if folder not in self._patterns:
            data = b""
            with contextlib.suppress(OSError):
                flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
                name = f"{folder}/.gitignore" if folder else ".gitignore"
                file = open_without_links(self._top, name, flags)
                try:
                    if stat.S_ISREG(os.fstat(file).st_mode):
                        data = os.read(file, _MAX_IGNORE_BYTES)
                finally:
                    os.close(file)
            self._patterns[folder] = patterns_in(data, folder)
        return self._patterns[folder]


def differences(before: Scan, after: Scan) -> list[FileChange]:
    """Return what came, went and changed, by path."""
    found: dict[str, tuple[FileState | None, FileState | None]] = {}

    def note(path: str, was: FileState | None, now: FileState | None) -> None:
        # A folder may have gone where a file came, and the other way round.
        known = found.get(path, (None, None))
        found[path] = (known[0] or was, known[1] or now)

    for path in before.folders.keys() | after.folders.keys():
        one, other = before.folders.get(path), after.folders.get(path)
        if one is other:
            continue
        states = (one.state if one else None, other.state if other else None)
        if path and states[0] != states[1]:
            note(path, *states)
        old, new = (one.files if one else {}), (other.files if other else {})
        beginning = f"{path}/" if path else ""
        for name in old.keys() | new.keys():
            was, now = old.get(name), new.get(name)
            if was is now or (was is not None and now is not None and _is_equal(was, now)):
                continue
            note(beginning + name, was.state if was else None, now.state if now else None)
    return [FileChange.of(path, *found[path]) for path in sorted(found)]


def _is_equal(one: Node, other: Node) -> bool:
    """Whether two nodes are of the same; of what was not read the stamp tells."""
    if one.state != other.state:
        return False
    return bool(one.sha256) or one.state.kind != "file" or one.stamp[1:4] == other.stamp[1:4]


def digest_of(file: int, _size: int) -> str:
    """Return the SHA-256 of an open file."""
    digest, at = hashlib.sha256(), 0
    while chunk := os.pread(file, CHUNK_BYTES, at):
        digest.update(chunk)
        at += len(chunk)
    return digest.hexdigest()


def _path_of(step: TreeStep) -> str:
    return step.path


def _above(path: str) -> Iterator[str]:
    while "/" in path:
        path = path.rpartition("/")[0]
        yield path


def _becomes(step: TreeStep, kind: Kind) -> bool:
    return step.target is not None and step.target.kind == kind


def _goes(step: TreeStep) -> bool:
    """Whether something must go first: nothing comes, or a folder in place of a file, or so."""
    if step.now is None or step.target is None:
        return step.now is not None
    return (step.now.kind == "folder") != (step.target.kind == "folder")


def _is_same(one: Stamp | None, other: Stamp | None) -> bool:
    if one is None or other is None:
        return one is other
    if stat.S_ISDIR(one[0]):
        return stat.S_ISDIR(other[0]) and one[4] == other[4]
    # Not by the time of change, which a further name of the file moves as well.
    return (one[0], one[1], one[2], one[4]) == (other[0], other[1], other[2], other[4])


def _set_mode(step: TreeStep, folder: int, name: str) -> None:
    assert step.target is not None
    handle = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    try:
        if kind_of(os.fstat(handle).st_mode) != step.target.kind:
            raise BusyError("it was changed by somebody else at the same time", retry_after_s=0.1)
        _chmod(handle, step.target.mode)
    finally:
        os.close(handle)


@contextlib.contextmanager
def _placed(folder: int, name: str) -> Iterator[str]:
    """Give the name under which something is made before it is moved to its place."""
    draft = draft_name(folder, "link")
    yield draft
    try:
        os.rename(draft, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        os.unlink(draft, dir_fd=folder)
        raise


def _is_regular(handle: int) -> bool:
    return stat.S_ISREG(os.fstat(handle).st_mode)


def _readable(handle: int, *, opens: bool) -> int:
    """Open a file to read by its handle; -1 where it is closed to us."""
    path = f"/proc/self/fd/{handle}"
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except PermissionError:
        about = os.fstat(handle)
        if not opens or about.st_uid != os.geteuid():
            return -1
    mode = stat.S_IMODE(about.st_mode)
    _chmod(handle, mode | stat.S_IRUSR)
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    finally:
        _chmod(handle, mode)


def _chmod(handle: int, mode: int) -> None:
    os.chmod(f"/proc/self/fd/{handle}", mode)  # noqa: PTH101 - a handle, not a path


def _sync(folder: int) -> None:
    """Have the file system of a folder write what it holds back."""
    ctypes.CDLL(None).syncfs(folder)


def _stamp(about: os.stat_result) -> Stamp:
    return (about.st_mode, about.st_size, about.st_mtime_ns, about.st_ctime_ns, about.st_ino)


def settled(stamp: Stamp) -> Stamp:
    """Return a stamp by which a thing is known, unless it may change again unseen."""
    return stamp if time.time_ns() - stamp[3] > _UNSETTLED_NS else _unsettled(stamp)


def _unsettled(stamp: Stamp) -> Stamp:
    return (stamp[0], stamp[1], stamp[2], 0, stamp[4])


def _unreadable(path: str, error: OSError) -> StorageError:
    return StorageError(f"{path} cannot be read: {error.strerror}")
