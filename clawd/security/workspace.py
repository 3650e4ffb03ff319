"""The files of a workspace, opened by descriptor so that they are really there.

Every open is checked on what was opened, whatever was swapped since the path was judged.
"""

import contextlib
import errno
import os
import posixpath
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, Literal, Self

import msgspec

from clawd.errors import ClawError, ForbiddenError, InvalidRequestError, NotFoundError, StorageError
from clawd.security import paths
from clawd.security.file_content import (
    FileState,
    FileTarget,
    Keeper,
    ReplacementRules,
    append,
    opened,
    remove,
    replace,
    state_of,
    wrong_kind,
)

_MAX_DEPTH = 64
# What processes tell about themselves, and ways into them; no policy means these by "files".
_PROC = Path("/proc")

Kind = Literal["file", "folder", "link", "other"]


class FolderEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One thing in a folder; links are not followed."""

    name: str
    kind: Kind
    size: int
    modified_at: float


class Workspace:
    """The files of one workspace, for one call: a context manager that holds its folder open.

    Paths as text are as a model writes them: relative to the workspace, absolute or with `~`. A
    `Path` is one that was resolved before; it is refused once a link makes it lead elsewhere. All
    methods block and raise `ForbiddenError` for what leads elsewhere, `NotFoundError` for what
    is not there, `InvalidRequestError` for what is of the wrong kind and `StorageError` for what
    the system refuses.

    Args:
        rules: where files may be touched.
        keeper: makes every change undoable; without one none is kept.
        held: the paths that the call was judged by. With them only these are changed, and what is
            read beside them lies in the workspace or beneath one of them.
        umask: permissions that new files and folders do not get.
    """

    def __init__(
        self,
        rules: paths.PathRules,
        keeper: Keeper | None = None,
        *,
        held: paths.HeldPaths | None = None,
        umask: int = 0o077,
    ) -> None:
        self.rules = rules
        self._keeper = keeper
        self._held = held
        self._umask = umask
        self._root = -1

    def __enter__(self) -> Self:
        folder = self.rules.workspace
        with _translated_errors(str(folder)):
            root = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        if paths.real_path(root) != folder:
            os.close(root)
            raise ForbiddenError(f"the workspace {folder} is not the folder that it was")
        self._root = root
        return self

    def __exit__(self, *_exception: object) -> None:
        os.close(self._root)

    def place_of(self, path: str | Path) -> Path:
        """Return where a path leads, there or not."""
        location, _ = self._locate(path)
        return location.path

    def open_read(self, path: str | Path) -> BinaryIO:
        """Open a regular file; never blocks on and never touches a FIFO, device or socket."""
        with _translated_errors(str(path)):
            handle = self._open(path, os.O_PATH)
            try:
                mode = os.fstat(handle).st_mode
                if not stat.S_ISREG(mode):
                    raise wrong_kind(str(path), mode)
                # The handle was checked; its own magic link opens just that file.
                descriptor = os.open(f"/proc/self/fd/{handle}", os.O_RDONLY | os.O_CLOEXEC)
            finally:
                os.close(handle)
            return os.fdopen(descriptor, "rb")

    def stat(self, path: str) -> FolderEntry:
        """Describe what a path leads to; links are followed as far as they stay allowed."""
        with _translated_errors(path):
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

    def entries(self, path: str) -> list[FolderEntry]:
        """Return what a folder holds, by name; forbidden things in it are left out."""
        with _translated_errors(path):
            folder = self._open(path, os.O_RDONLY | os.O_DIRECTORY)
            try:
                return self._scan(folder)
            finally:
                os.close(folder)

    def walk(
        self, path: str, *, skip: frozenset[str] = frozenset()
    ) -> Iterator[tuple[str, FolderEntry]]:
        """Yield everything under a folder, each folder before what it holds, by name.

        Paths are relative to the folder. Links are not followed; what cannot be read is skipped,
        and so are folders of the names in `skip`, and what lies more than 64 folders down.
        """
        with _translated_errors(path):
            folder = self._open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            yield from self._walk(folder, "", skip)
        finally:
            os.close(folder)

    def state(self, path: str | Path) -> FileState | None:
        """Return what a regular file holds, or None when nothing is there."""
        with _translated_errors(str(path)):
            try:
                with self._target(path, makes_folders=False) as target, opened(target) as file:
                    return state_of(file) if file >= 0 else None
            except FileNotFoundError:
                return None

    def write(self, path: str, data: bytes, *, was: FileState | None = None) -> bool:
        """Replace or create a file at once and whole, making missing folders; tells if created.

        A link is followed as far as it stays allowed; a hard link is broken, not written through.
        `was` is what the file must still hold: `BusyError` if it does not.
        """
        return self.restore(path, (data,), ReplacementRules(replaces=was))

    def restore(self, path: str | Path, chunks: Iterable[bytes], plan: ReplacementRules) -> bool:
        """Do what `write` does, with the bytes in pieces, when the plan fits."""
        plan = msgspec.structs.replace(plan, new_mode=0o666 & ~self._umask)
        with _translated_errors(str(path)), self._target(path, makes_folders=True) as target:
            return replace(target, chunks, self._keeper, plan)

    def append(self, path: str, data: bytes) -> bool:
        """Add to the end of a file or create it; tells if created."""
        with _translated_errors(path), self._target(path, makes_folders=True) as target:
            with opened(target) as file:
                is_new = file < 0
            if is_new:
                plan = ReplacementRules(must_be_new=True, new_mode=0o666 & ~self._umask)
                replace(target, (data,), self._keeper, plan)
            else:
                append(target, data, self._keeper)
            return is_new

    def remove(
        self, path: str | Path, was: FileState | None, folders: tuple[str, ...] = ()
    ) -> None:
        """Remove a file that holds just that, and of these folders those that are empty then.

        `folders` are named outermost first, as a `FileChange` does.
        """
        with _translated_errors(str(path)), self._target(path, makes_folders=False) as target:
            remove(target, self._keeper, ReplacementRules(replaces=was))
        self._remove_folders(folders)

    def _locate(self, path: str | Path) -> tuple[paths.Location, paths.HeldPaths | None]:
        """Return where a path leads, and what holds it, where the call was judged by it."""
        held = self._held
        known = held.knows(path, self.rules) if held is not None else None
        location = known or paths.classify(path, self.rules)
        if isinstance(path, Path) and location.path != path:
            raise ForbiddenError(f"{path} leads to another place by now; it is left as it is")
        return location, held if known is not None else None

    def _open(self, path: str | Path, flags: int) -> int:
        rules = self.rules
        location, holder = self._locate(path)
        if location.place != "inside":
            self._refuse_forbidden(location)
        if holder is not None:
            descriptor = holder.open(path, rules, flags)
        elif location.place == "outside":
            if self._held is not None and not self._held.covers(location.path):
                raise _unjudged(path, location)
            descriptor = paths.open_resolved(str(location.path), flags)
        else:
            relative = str(location.path.relative_to(rules.workspace))
            descriptor = paths.open_beneath(self._root, relative, flags)
        try:
            self._check(descriptor, location.path, path)
        except ForbiddenError:
            os.close(descriptor)
            raise
        return descriptor

    def _refuse_forbidden(self, location: paths.Location) -> None:
        outside = self.rules.workspace_only and location.place == "outside"
        if outside or location.place == "forbidden":
            raise ForbiddenError(location.reason, hint=_hint(location))

    def _check(self, descriptor: int, expected: Path, path: str | Path) -> None:
        """Refuse a descriptor that turns out to be of another thing, or of something forbidden."""
        real = paths.real_path(descriptor)
        if real.is_relative_to(_PROC):
            raise ForbiddenError(f"{real} tells about processes and is never opened")
        if folder := self.rules.forbids(real):
            raise ForbiddenError(f"{real} lies under the forbidden path {folder}")
        if real != expected:
            raise ForbiddenError(f"{path} was moved while it was opened; look at it again")

    @contextlib.contextmanager
    def _target(self, path: str | Path, *, makes_folders: bool) -> Iterator[FileTarget]:
        """Open the folder that holds (or will hold) a file; `classify` has resolved links.

        Folders that were made for a change that fails are removed again.
        """
        if isinstance(path, str) and path.strip().endswith("/"):
            raise InvalidRequestError(f"{path} ends with a slash; a file's path was expected")
        location, holder = self._locate(path)
        if location.path in {self.rules.workspace, Path("/")}:
            raise InvalidRequestError(f"{path} is a folder; a file's path was expected")
        made: list[str] = []
        try:
            folder = self._open_parent(path, location, holder, made if makes_folders else None)
            try:
                self._check_name(folder, location.path.name)
                yield FileTarget(
                    folder=folder,
                    name=location.path.name,
                    shown=str(path),
                    path=self._named(location.path),
                    folders=tuple(made),
                )
            finally:
                os.close(folder)
        except BaseException:
            self._remove_folders(tuple(made))
            raise

    def _open_parent(
        self,
        path: str | Path,
        location: paths.Location,
        holder: paths.HeldPaths | None,
        made: list[str] | None,
    ) -> int:
        """Open the folder that holds a file; takes down in `made` what is made; None makes none."""
        rules, parent = self.rules, location.path.parent
        if holder is not None:
            self._refuse_forbidden(location)

            def make(above: int, folder: Path) -> None:
                assert made is not None
                self._make_folder(above, folder, made)

            above = holder.open_parent(path, rules, None if made is None else make)
            try:
                self._check(above, parent, path)
            except ForbiddenError:
                os.close(above)
                raise
            return above
        if self._held is not None:
            raise _unjudged(path, location)
        flags = os.O_RDONLY | os.O_DIRECTORY
        try:
            return self._open(parent, flags)
        except FileNotFoundError:
            if made is None:
                raise
        self._make_folders(parent, made)
        return self._open(parent, flags)

    def _named(self, path: Path) -> str:
        """Return a resolved path relative to the workspace, or absolute when it lies outside."""
        workspace = self.rules.workspace
        return str(path.relative_to(workspace) if path.is_relative_to(workspace) else path)

    def _remove_folders(self, folders: tuple[str, ...]) -> None:
        for name in reversed(folders):
            folder = Path(self.rules.workspace, name)
            try:
                above = self._open(folder.parent, os.O_RDONLY | os.O_DIRECTORY)
                try:
                    os.rmdir(folder.name, dir_fd=above)
                finally:
                    os.close(above)
            except (OSError, ForbiddenError):
                return  # somebody uses it by now, or it is gone

    def _check_name(self, folder: int, name: str) -> None:
        real = paths.real_path(folder) / name
        if forbidden := self.rules.forbids(real):
            raise ForbiddenError(f"{real} lies under the forbidden path {forbidden}")

    def _make_folders(self, folder: Path, made: list[str]) -> None:
        try:
            os.close(self._open(folder, os.O_PATH | os.O_DIRECTORY))
        except FileNotFoundError:
            self._make_folders(folder.parent, made)
            above = self._open(folder.parent, os.O_RDONLY | os.O_DIRECTORY)
            try:
                self._make_folder(above, folder, made)
            finally:
                os.close(above)

    def _make_folder(self, above: int, folder: Path, made: list[str]) -> None:
        """Make a folder in an open one, unless it is there."""
        self._check_name(above, folder.name)
        try:
            os.mkdir(folder.name, dir_fd=above)
        except FileExistsError:
            return  # the open that follows tells what it is
        made.append(self._named(folder))
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        fresh = os.open(folder.name, flags, dir_fd=above)
        try:
            os.fchmod(fresh, 0o777 & ~self._umask)
        finally:
            os.close(fresh)

    def _scan(self, folder: int) -> list[FolderEntry]:
        base = paths.real_path(folder)
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

    def _walk(
        self, folder: int, prefix: str, skip: frozenset[str]
    ) -> Iterator[tuple[str, FolderEntry]]:
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


def _unjudged(path: str | Path, location: paths.Location) -> ForbiddenError:
    return ForbiddenError(
        f"{path} leads to {location.path}, which this call was not judged by; it is left as it is",
        hint="Make the call anew.",
    )


def _hint(location: paths.Location) -> str:
    if location.place == "forbidden":
        return ""
    return "Give a path relative to the workspace; workspace_only = false in [security] lifts this."


def _entry(name: str, status: os.stat_result) -> FolderEntry:
    kinds: dict[int, Kind] = {stat.S_IFREG: "file", stat.S_IFDIR: "folder", stat.S_IFLNK: "link"}
    kind = kinds.get(stat.S_IFMT(status.st_mode), "other")
    return FolderEntry(name=name, kind=kind, size=status.st_size, modified_at=status.st_mtime)


@contextlib.contextmanager
def _translated_errors(path: str) -> Iterator[None]:
    """Turn the system's errors about a path into clawd's while the body runs."""
    try:
        yield
    except OSError as error:
        raise _translated(error, path) from error


def _translated(error: OSError, path: str) -> ClawError:
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
