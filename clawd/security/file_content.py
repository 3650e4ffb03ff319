"""The content of one regular file, by descriptor: its state, replacing it whole, adding to it.

Whoever is to make a change undoable is a `Keeper`: it hears of a change before the change is made.
"""

import contextlib
import errno
import hashlib
import os
import secrets
import stat
from collections.abc import Iterable, Iterator
from typing import Protocol

import msgspec

from clawd.errors import BusyError, ForbiddenError, StorageError
from clawd.security.file_errors import wrong_kind

CHUNK_BYTES = 1 << 20
# What a file system without hard links answers to link(2).
_NO_LINKS = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK})


class FileState(msgspec.Struct, frozen=True, kw_only=True):
    """What a file holds: its size in bytes, SHA-256 in lower-case hex, permission bits."""

    size: int
    sha256: str
    mode: int

    @classmethod
    def of(cls, data: bytes) -> "FileState":
        """Return the state of a file that holds these bytes."""
        return cls(size=len(data), sha256=hashlib.sha256(data).hexdigest(), mode=0)

    def holds(self, other: "FileState") -> bool:
        """Whether both hold the same bytes."""
        return self.size == other.size and self.sha256 == other.sha256


class FileChange(msgspec.Struct, frozen=True, kw_only=True):
    """One change of one file.

    Attributes:
        path: resolved; relative to the workspace, or absolute when it lies outside.
        before: None when there was no file.
        after: None when there will be none.
        folders: those made for it, outermost first, named like `path`.
    """

    path: str
    before: FileState | None
    after: FileState | None
    folders: tuple[str, ...] = ()


class Keeper(Protocol):
    """Makes changes undoable."""

    def keep(self, change: FileChange, old: int) -> None:
        """Make what the file holds durable; `old` is its descriptor, or -1 when there is none.

        Raises:
            ClawError: that cannot be done, or nobody wants the change any more; it is not made.
        """

    def drop(self) -> None:
        """Forget the change that was kept last: it was not made."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What a replacement must fit, beside the file's name.

    Attributes:
        mode: permissions to set; None keeps those of the file, or gives new ones.
        result: the bytes must come to this state.
        replaces: what the file must hold now; None where that does not matter.
        must_be_new: whether no file may be there.
    """

    mode: int | None = None
    result: FileState | None = None
    replaces: FileState | None = None
    must_be_new: bool = False


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """A file's place: the open folder, the name in it, how errors and undo name it."""

    folder: int
    name: str
    shown: str
    path: str
    folders: tuple[str, ...] = ()


def state_of(descriptor: int) -> FileState:
    """Return what a file holds; reads all of it."""
    return _state_with(descriptor, b"")[0]


@contextlib.contextmanager
def opened(target: Target, flags: int = os.O_RDONLY) -> Iterator[int]:
    """Open the regular file that is there, or give -1 when there is nothing.

    Raises:
        InvalidRequestError: it is something else; that is never waited for and never touched.
    """
    try:
        handle = os.open(
            target.name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=target.folder
        )
    except FileNotFoundError:
        yield -1
        return
    try:
        mode = os.fstat(handle).st_mode
        if not stat.S_ISREG(mode):
            raise wrong_kind(target.shown, mode)
        # The handle was checked; its own magic link opens just that file.
        descriptor = os.open(f"/proc/self/fd/{handle}", flags | os.O_CLOEXEC)
    finally:
        os.close(handle)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def replace(target: Target, chunks: Iterable[bytes], keeper: Keeper | None, plan: Plan) -> bool:
    """Replace or create a file at once and whole; tells if created.

    Raises:
        BusyError: somebody else changed the file meanwhile, or it is not what `plan` says.
        StorageError: the bytes are not what `plan` says.
        OSError: the system refuses.
    """
    with opened(target) as old:
        seen = _identity(old)
        before = state_of(old) if old >= 0 else None
        _check_plan(target, before, plan)
        mode = plan.mode if plan.mode is not None or before is None else before.mode
        temporary, after = _write_temporary(target, chunks, mode)
        try:
            if plan.result is not None and not after.holds(plan.result):
                raise StorageError(f"what was kept of {target.shown} is damaged")
            with _kept(target, before, after, keeper, old):
                if _identity(old) != seen:
                    raise _changed(target)
                _move(target, temporary, old)
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary, dir_fd=target.folder)
    os.fsync(target.folder)
    return before is None


def append(target: Target, data: bytes, keeper: Keeper | None) -> None:
    """Add to the end of the file that is there.

    Raises:
        ForbiddenError: the file has other names, which may lie outside the workspace.
        BusyError: somebody else changed the file meanwhile.
        OSError: the system refuses; what was written of it is taken back.
    """
    with opened(target, os.O_RDWR | os.O_APPEND) as file:
        if file < 0:
            raise _changed(target)
        links = os.fstat(file).st_nlink
        if links > 1:
            raise ForbiddenError(
                f"{target.shown} has {links} names and may be a file outside the workspace",
                hint="file_write replaces it by a file of its own.",
            )
        seen = _identity(file)
        before, after = _state_with(file, data)
        with _kept(target, before, after, keeper, file):
            if _identity(file) != seen:
                raise _changed(target)
            try:
                write_all(file, data)
            except OSError:
                if before.size < os.fstat(file).st_size < after.size:
                    os.ftruncate(file, before.size)
                raise
            os.fsync(file)


def remove(target: Target, keeper: Keeper | None, plan: Plan) -> None:
    """Remove the file.

    Raises:
        BusyError: it is not what `plan` says, or somebody changed it meanwhile.
        OSError: the system refuses.
    """
    with opened(target) as old:
        if old < 0:
            raise _changed(target)
        seen, before = _identity(old), state_of(old)
        _check_plan(target, before, plan)
        with _kept(target, before, None, keeper, old):
            if _identity(old) != seen or not _is_there(target, old):
                raise _changed(target)
            os.unlink(target.name, dir_fd=target.folder)
    os.fsync(target.folder)


def write_all(descriptor: int, data: bytes) -> None:
    """Write all of it, however the system cuts it up."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


@contextlib.contextmanager
def _kept(
    target: Target,
    before: FileState | None,
    after: FileState | None,
    keeper: Keeper | None,
    old: int,
) -> Iterator[None]:
    """Keep a change around the act that makes it; a change that fails is dropped again."""
    if keeper is None:
        yield
        return
    change = FileChange(path=target.path, before=before, after=after, folders=target.folders)
    keeper.keep(change, old)
    try:
        yield
    except BaseException:
        keeper.drop()
        raise


def _check_plan(target: Target, before: FileState | None, plan: Plan) -> None:
    is_wrong = plan.must_be_new and before is not None
    if plan.replaces is not None:
        is_wrong = before is None or not before.holds(plan.replaces)
    if is_wrong:
        raise _changed(target)


def _changed(target: Target) -> BusyError:
    return BusyError(
        f"{target.shown} was changed by somebody else at the same time; it is left as it is",
        retry_after_s=0.1,
        hint="Look at it again.",
    )


def _identity(descriptor: int) -> tuple[int, ...]:
    if descriptor < 0:
        return ()
    status = os.fstat(descriptor)
    return (status.st_ino, status.st_dev, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def _is_there(target: Target, old: int) -> bool:
    status = os.stat(target.name, dir_fd=target.folder, follow_symlinks=False)
    known = os.fstat(old)
    return (status.st_ino, status.st_dev) == (known.st_ino, known.st_dev)


def _state_with(descriptor: int, data: bytes) -> tuple[FileState, FileState]:
    """Return what a file holds, and what it will hold with the data at its end."""
    digest, at = hashlib.sha256(), 0
    while chunk := os.pread(descriptor, CHUNK_BYTES, at):
        digest.update(chunk)
        at += len(chunk)
    mode = os.fstat(descriptor).st_mode & 0o777
    before = FileState(size=at, sha256=digest.hexdigest(), mode=mode)
    digest.update(data)
    return before, FileState(size=at + len(data), sha256=digest.hexdigest(), mode=mode)


def _write_temporary(
    target: Target, chunks: Iterable[bytes], mode: int | None
) -> tuple[str, FileState]:
    name = f".clawd-{secrets.token_hex(8)}.tmp"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(name, flags, 0o666, dir_fd=target.folder)
    try:
        digest, size = hashlib.sha256(), 0
        for chunk in chunks:
            write_all(descriptor, chunk)
            digest.update(chunk)
            size += len(chunk)
        if mode is not None:
            os.fchmod(descriptor, mode)
        os.fsync(descriptor)
        mode = os.fstat(descriptor).st_mode & 0o777
        return name, FileState(size=size, sha256=digest.hexdigest(), mode=mode)
    except BaseException:
        os.unlink(name, dir_fd=target.folder)
        raise
    finally:
        os.close(descriptor)


def _move(target: Target, temporary: str, old: int) -> None:
    """Give the temporary file the name; a file that nobody has seen is never replaced."""
    folder, name = target.folder, target.name
    if old >= 0:
        try:
            is_there = _is_there(target, old)
        except FileNotFoundError:
            is_there = False
        if not is_there:
            raise _changed(target)
        os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
        return
    try:
        os.link(temporary, name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
    except FileExistsError as error:
        raise _changed(target) from error
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
