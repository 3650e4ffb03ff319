"""The files of a workspace, opened by descriptor so that they are really there.

Every open is checked on what was opened, whatever was swapped since the path was judged.
"""

import errno
import os
import posixpath
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Literal, Self

import msgspec

from clawd.errors import ClawError, ForbiddenError, InvalidRequestError, NotFoundError, StorageError
from clawd.security.open_beneath import open_anywhere, open_beneath
from clawd.security.paths import Location, PathRules, absolute, classify

_MAX_DEPTH = 64

Kind = Literal["file", "folder", "link", "other"]


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One thing in a folder; links are not followed."""

    name: str
    kind: Kind
    size: int
    modified_at: float


class Workspace:
    """The files of one workspace, for one call: a context manager that holds its folder open.

    Paths are as a model writes them: relative to the workspace, absolute or with `~`. All
    methods block and raise `ForbiddenError` for what leads elsewhere, `NotFoundError` for what
    is not there, `InvalidRequestError` for what is of the wrong kind and `StorageError` for what
    the system refuses.
    """

    def __init__(self, rules: PathRules) -> None:
        self.rules = rules
        self._root = -1

    def __enter__(self) -> Self:
        with _Told(str(self.rules.workspace)):
            self._root = os.open(self.rules.workspace, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        os.close(self._root)

    def open_read(self, path: str) -> BinaryIO:
        """Open a regular file; never blocks on and never touches a FIFO, device or socket."""
        with _Told(path):
            handle = self._open(path, os.O_PATH)
            try:
                mode = os.fstat(handle).st_mode
                if not stat.S_ISREG(mode):
                    raise _wrong_kind(path, mode)
                # The handle was checked; its own magic link opens just that file.
                descriptor = os.open(f"/proc/self/fd/{handle}", os.O_RDONLY | os.O_CLOEXEC)
            finally:
                os.close(handle)
            return os.fdopen(descriptor, "rb")

    def stat(self, path: str) -> Entry:
        """Describe what a path leads to; links are followed as far as they stay allowed."""
        with _Told(path):
            handle = self._open(path, os.O_PATH)
            try:
                return _entry(posixpath.basename(path.rstrip("/")) or path, os.fstat(handle))
            finally:
                os.close(handle)

    def exists(self, path: str) -> bool:
        """Whether a path leads to anything."""
        try:
            self.stat(path)
        except NotFoundError:
            return False
        return True

    def entries(self, path: str) -> list[Entry]:
        """Return what a folder holds, by name; forbidden things in it are left out."""
        with _Told(path):
            folder = self._open(path, os.O_RDONLY | os.O_DIRECTORY)
            try:
                return self._scan(folder)
            finally:
                os.close(folder)

    def walk(self, path: str, *, skip: frozenset[str] = frozenset()) -> Iterator[tuple[str, Entry]]:
        """Yield everything under a folder, each folder before what it holds, by name.

        Paths are relative to the folder. Links are not followed; what cannot be read is skipped,
        and so are folders of the names in `skip`, and what lies more than 64 folders down.
        """
        with _Told(path):
            folder = self._open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            yield from self._walk(folder, "", skip)
        finally:
            os.close(folder)

    def write(self, path: str, data: bytes) -> bool:
        """Replace or create a file at once and whole, making missing folders; tells if created.

        A link is followed as far as it stays allowed; a hard link is broken, not written through.
        """
        with _Told(path):
            folder, name = self._open_target(path)
            try:
                mode = _replaceable_mode(path, name, folder)
                _replace(folder, name, data, mode)
            finally:
                os.close(folder)
            return mode is None

    def append(self, path: str, data: bytes) -> bool:
        """Add to the end of a file or create it; tells if created."""
        with _Told(path):
            folder, name = self._open_target(path)
            try:
                mode = _replaceable_mode(path, name, folder)
                if mode is None:
                    _replace(folder, name, data, None)
                else:
                    _append(path, name, folder, data)
            finally:
                os.close(folder)
            return mode is None

    def _open(self, path: str, flags: int) -> int:
        rules = self.rules
        location = classify(path, rules)
        if location.place == "forbidden" or (rules.workspace_only and location.place == "outside"):
            raise ForbiddenError(location.reason, hint=_hint(location))
        if location.place == "outside":
            descriptor = open_anywhere(absolute(path, rules), flags)
        else:
            relative = str(location.path.relative_to(rules.workspace))
            descriptor = open_beneath(self._root, relative, flags)
        try:
            self._check(descriptor)
        except ForbiddenError:
            os.close(descriptor)
            raise
        return descriptor

    def _check(self, descriptor: int) -> None:
        """Refuse a descriptor that turns out to be of something forbidden."""
        real = _real_path(descriptor)
        if folder := self.rules.forbids(real):
            raise ForbiddenError(f"{real} lies under the forbidden path {folder}")

    def _open_target(self, path: str) -> tuple[int, str]:
        """Open the folder that holds (or will hold) a file; `classify` has resolved links."""
        if path.strip().endswith("/"):
            raise InvalidRequestError(f"{path} ends with a slash; a file's path was expected")
        location = classify(path, self.rules)
        if location.path in {self.rules.workspace, Path("/")}:
            raise InvalidRequestError(f"{path} is a folder; a file's path was expected")
        parent = str(location.path.parent)
        try:
            folder = self._open(parent, os.O_RDONLY | os.O_DIRECTORY)
        except FileNotFoundError:
            self._make_folders(location.path.parent)
            folder = self._open(parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            self._check_name(folder, location.path.name)
        except ForbiddenError:
            os.close(folder)
            raise
        return folder, location.path.name

    def _check_name(self, folder: int, name: str) -> None:
        real = _real_path(folder) / name
        if forbidden := self.rules.forbids(real):
            raise ForbiddenError(f"{real} lies under the forbidden path {forbidden}")

    def _make_folders(self, folder: Path) -> None:
        try:
            os.close(self._open(str(folder), os.O_PATH | os.O_DIRECTORY))
        except FileNotFoundError:
            self._make_folders(folder.parent)
            above = self._open(str(folder.parent), os.O_RDONLY | os.O_DIRECTORY)
            try:
                self._check_name(above, folder.name)
                os.mkdir(folder.name, dir_fd=above)
            except FileExistsError:
                return  # somebody else was quicker; the open that follows tells what it is
            finally:
                os.close(above)

    def _scan(self, folder: int) -> list[Entry]:
        base = _real_path(folder)
        found = []
        with os.scandir(folder) as scan:
            for item in scan:
                if self.rules.forbids(base / item.name):
                    continue
                try:
                    status = item.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue
                found.append(_entry(item.name, status))
        return sorted(found, key=lambda entry: entry.name)

    def _walk(self, folder: int, prefix: str, skip: frozenset[str]) -> Iterator[tuple[str, Entry]]:
        for entry in self._scan(folder):
            if entry.kind == "folder" and entry.name in skip:
                continue
            yield prefix + entry.name, entry
            if entry.kind != "folder" or prefix.count("/") >= _MAX_DEPTH:
                continue
            flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
            try:
                below = os.open(entry.name, flags, dir_fd=folder)
            except OSError:
                continue
            try:
                yield from self._walk(below, f"{prefix}{entry.name}/", skip)
            finally:
                os.close(below)


class _Told:
    """Turns the system's errors about a path into clawd's."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __enter__(self) -> None:
        return

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if isinstance(error, OSError):
            raise _told(error, self._path) from error


def _told(error: OSError, path: str) -> ClawError:
    match error.errno:
        case errno.ENOENT:
            return NotFoundError(f"{path} does not exist", hint="file_list shows what is there.")
        case errno.EXDEV | errno.ELOOP:
            return ForbiddenError(f"{path} leads out of the workspace")
        case errno.ENOTDIR:
            return InvalidRequestError(f"{path} is no folder, or leads through a file")
        case errno.EISDIR:
            return InvalidRequestError(f"{path} is a folder; file_list lists it")
        case errno.ENAMETOOLONG:
            return InvalidRequestError(f"{path[:80]}… is too long for a path")
        case _:
            return StorageError(f"{path}: {os.strerror(error.errno or errno.EIO)}")


def _real_path(descriptor: int) -> Path:
    return Path(f"/proc/self/fd/{descriptor}").readlink()


def _hint(location: Location) -> str:
    if location.place == "forbidden":
        return ""
    return "Give a path relative to the workspace; workspace_only = false in [security] lifts this."


def _wrong_kind(path: str, mode: int) -> InvalidRequestError:
    if stat.S_ISDIR(mode):
        return InvalidRequestError(f"{path} is a folder; file_list lists it")
    return InvalidRequestError(f"{path} is {_kind_words(mode)}, not a regular file")


def _kind_words(mode: int) -> str:
    kinds = {stat.S_IFIFO: "a FIFO", stat.S_IFSOCK: "a socket", stat.S_IFLNK: "a link"}
    return kinds.get(stat.S_IFMT(mode), "a device")


def _entry(name: str, status: os.stat_result) -> Entry:
    kinds: dict[int, Kind] = {stat.S_IFREG: "file", stat.S_IFDIR: "folder", stat.S_IFLNK: "link"}
    kind = kinds.get(stat.S_IFMT(status.st_mode), "other")
    return Entry(name=name, kind=kind, size=status.st_size, modified_at=status.st_mtime)


def _replaceable_mode(path: str, name: str, folder: int) -> int | None:
    """Return the permissions of the regular file there, or None when there is nothing."""
    try:
        mode = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(mode):
        raise _wrong_kind(path, mode)
    return mode & 0o777


def _replace(folder: int, name: str, data: bytes, mode: int | None) -> None:
    temporary = f".{name[:80]}.{secrets.token_hex(6)}.tmp"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(temporary, flags, 0o666, dir_fd=folder)
    try:
        try:
            _write_all(descriptor, data)
            if mode is not None:
                os.fchmod(descriptor, mode)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        os.unlink(temporary, dir_fd=folder)
        raise
    os.fsync(folder)


def _append(path: str, name: str, folder: int, data: bytes) -> None:
    flags = os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(name, flags, dir_fd=folder)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise _wrong_kind(path, status.st_mode)
        if status.st_nlink > 1:
            raise ForbiddenError(
                f"{path} has {status.st_nlink} names and may be a file outside the workspace",
                hint="file_write replaces it by a file of its own.",
            )
        _write_all(descriptor, data)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
