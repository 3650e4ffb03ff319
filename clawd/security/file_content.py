"""The content of one regular file, by descriptor: its state, replacing it whole, adding to it.

What makes a change undoable is a `Keeper`: it hears of a change before the change is made.
"""

import contextlib
import errno
import fcntl
import hashlib
import itertools
import os
import re
import secrets
import stat
from collections.abc import Iterable, Iterator
from typing import Literal, Protocol, Self

import msgspec

from clawd.errors import BusyError, ForbiddenError, InvalidRequestError, StorageError

CHUNK_BYTES = 1 << 20
_FICLONE = 0x40049409
# What a file system without hard links answers to link(2).
_NO_LINKS = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK})
# What one without files that have no name answers to O_TMPFILE.
_NO_NAMELESS = frozenset({errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOENT})
_DRAFT_NAME = re.compile(r"\.clawd-([0-9a-f]{16})([0-9a-f]{16})\.(tmp|link)")
_MOST_LOOKED_AT = 10_000

Kind = Literal["file", "link", "folder", "fifo", "other"]


class FileState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a file holds: its size in bytes, SHA-256 in lower-case hex, permission bits.

    Attributes:
        sha256: of a link that of its target, empty for what has no content; empty for a file,
            too, that was not read, because it is large and ignored, or closed.
        kind: what it is.
    """

    size: int
    sha256: str
    mode: int
    kind: Kind = "file"

    @classmethod
    def of(cls, data: bytes) -> "FileState":
        """Return the state of a file that holds these bytes."""
        return cls(size=len(data), sha256=hashlib.sha256(data).hexdigest(), mode=0)

    def holds(self, other: "FileState") -> bool:
        """Whether both hold the same bytes."""
        return (self.kind, self.size, self.sha256) == (other.kind, other.size, other.sha256)


class FileChange(msgspec.Struct, frozen=True, kw_only=True):
    """One change of one file.

    Attributes:
        path: resolved; relative to the workspace, or absolute when it lies outside.
        before: None when there was no file.
        after: None when there will be none.
        folders: those made for it, outermost first, named like `path`.
        raw: the path's bytes, where they are no UTF-8; `path` then writes them out.
    """

    path: str
    before: FileState | None
    after: FileState | None
    folders: tuple[str, ...] = ()
    raw: bytes = b""

    @property
    def name(self) -> str:
        """The path as the system takes it."""
        return os.fsdecode(self.raw) if self.raw else self.path

    @classmethod
    def of(cls, name: str, before: FileState | None, after: FileState | None) -> "FileChange":
        """Return the change of a path as the system gives it."""
        raw = os.fsencode(name)
        try:
            return cls(path=raw.decode(), before=before, after=after)
        except UnicodeDecodeError:
            shown = raw.decode(errors="backslashreplace")
            return cls(path=shown, before=before, after=after, raw=raw)


class Keeper(Protocol):
    """Makes changes undoable."""

    def keep(self, change: FileChange, old: int) -> None:
        """Make what the file holds durable; `old` is its descriptor, or -1 when there is none.

        Raises:
            ClawError: that cannot be done, or nobody wants the change any more; it is not made.
        """

    def drop(self) -> None:
        """Forget the change that was kept last: it was not made."""


class ReplacementRules(msgspec.Struct, frozen=True, kw_only=True):
    """What a replacement must fit, beside the file's name.

    Attributes:
        mode: permissions to set; None keeps those of the file that is there.
        new_mode: those of a file that was not there, if `mode` is None.
        result: the bytes must come to this state.
        replaces: what the file must hold now; None where that does not matter.
        must_be_new: whether no file may be there.
    """

    mode: int | None = None
    new_mode: int = 0o600
    result: FileState | None = None
    replaces: FileState | None = None
    must_be_new: bool = False


class FileTarget(msgspec.Struct, frozen=True, kw_only=True):
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
def opened(target: FileTarget, flags: int = os.O_RDONLY) -> Iterator[int]:
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


def replace(
    target: FileTarget, chunks: Iterable[bytes], keeper: Keeper | None, plan: ReplacementRules
) -> bool:
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
        mode = plan.mode if plan.mode is not None else before.mode if before else plan.new_mode
        with Draft(target.folder) as draft:
            after = draft.fill(chunks, mode)
            if plan.result is not None and not after.holds(plan.result):
                raise StorageError(f"what was kept of {target.shown} is damaged")
            with _kept(target, before, after, keeper, old):
                if _identity(old) != seen:
                    raise _changed(target)
                _move(target, draft, old)
    os.fsync(target.folder)
    return before is None


def append(target: FileTarget, data: bytes, keeper: Keeper | None) -> None:
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


def remove(target: FileTarget, keeper: Keeper | None, plan: ReplacementRules) -> None:
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


def clone(source: int, target: int) -> None:
    """Copy what an open file holds by now, sharing its blocks where the file system can."""
    with contextlib.suppress(OSError):
        fcntl.ioctl(target, _FICLONE, source)
        return
    at, size = 0, os.fstat(source).st_size
    while at < size and (chunk := os.pread(source, min(CHUNK_BYTES, size - at), at)):
        write_all(target, chunk)
        at += len(chunk)


@contextlib.contextmanager
def _kept(
    target: FileTarget,
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


def _check_plan(target: FileTarget, before: FileState | None, plan: ReplacementRules) -> None:
    is_wrong = plan.must_be_new and before is not None
    if plan.replaces is not None:
        is_wrong = before is None or not before.holds(plan.replaces)
    if is_wrong:
        raise _changed(target)


def _changed(target: FileTarget) -> BusyError:
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


def _is_there(target: FileTarget, old: int) -> bool:
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


class Draft:
    """The new content of a file, until it gets the file's name: a context manager.

    It has no name where the file system allows that, so that nothing is left of it when the
    process dies. Where it needs one (always for the moment before it replaces a file) the name
    says that it is ours, and the next change of a file in that folder removes what was left.

    Args:
        folder: an open one, for the draft and the file.
        is_one_of_many: leaves it to the caller to remove stale drafts and to sync.
    """

    def __init__(self, folder: int, *, is_one_of_many: bool = False) -> None:
        self._folder = folder
        self._is_one_of_many = is_one_of_many
        self._name = ""
        self._descriptor = -1

    def __enter__(self) -> Self:
        if not self._is_one_of_many:
            remove_stale_drafts(self._folder)
        flags = os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC
        try:
            self._descriptor = os.open(".", flags, 0o600, dir_fd=self._folder)
        except OSError as error:
            if error.errno not in _NO_NAMELESS:
                raise
            name = draft_name(self._folder)
            self._descriptor = _created(self._folder, name)
            self._name = name
            return self
        fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return self

    def __exit__(self, *_exception: object) -> None:
        if self._name:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._name, dir_fd=self._folder)
        os.close(self._descriptor)

    def fill(self, chunks: Iterable[bytes], mode: int) -> FileState:
        """Write the content; durable when it returns, unless it is one of many."""
        digest, size = hashlib.sha256(), 0
        for chunk in chunks:
            write_all(self._descriptor, chunk)
            digest.update(chunk)
            size += len(chunk)
        os.fchmod(self._descriptor, mode)
        if not self._is_one_of_many:
            os.fsync(self._descriptor)
        mode = os.fstat(self._descriptor).st_mode & 0o777
        return FileState(size=size, sha256=digest.hexdigest(), mode=mode)

    def become(self, name: str) -> None:
        """Take a name that nothing has.

        Raises:
            FileExistsError: something has it.
        """
        try:
            self._link(name)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            self.replace(name)

    def replace(self, name: str) -> None:
        """Take a name from what has it."""
        if not self._name:
            draft = draft_name(self._folder)
            try:
                self._link(draft)
            except OSError as error:
                if error.errno not in _NO_LINKS:
                    raise
                self._copy(draft)
            self._name = draft
        os.rename(self._name, name, src_dir_fd=self._folder, dst_dir_fd=self._folder)
        self._name = ""

    def _link(self, name: str) -> None:
        source = f"/proc/self/fd/{self._descriptor}"  # a magic link to just this file
        os.link(source, name, dst_dir_fd=self._folder, follow_symlinks=True)

    def _copy(self, name: str) -> None:
        """Go on with a copy that has a name, where what has none can be given none."""
        facts, at = os.fstat(self._descriptor), 0
        copy = _created(self._folder, name)
        try:
            while chunk := os.pread(self._descriptor, CHUNK_BYTES, at):
                write_all(copy, chunk)
                at += len(chunk)
            os.fchmod(copy, stat.S_IMODE(facts.st_mode))
            os.fsync(copy)
        except BaseException:
            os.unlink(name, dir_fd=self._folder)
            os.close(copy)
            raise
        os.close(self._descriptor)
        self._descriptor = copy


def _created(folder: int, name: str) -> int:
    """Create a draft that has a name; it is locked, which says that somebody works on it."""
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(name, flags, 0o600, dir_fd=folder)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def remove_stale_drafts(folder: int, *, is_alone: bool = False) -> None:
    """Remove what a process that was killed has left of its drafts in a folder.

    A name of ours holds a check of its random part and of this folder; nobody else's file has one
    by accident, and a draft that is being worked on is locked. Those of links cannot be: they go
    where nobody else is at work (`is_alone`).
    """
    with contextlib.suppress(OSError), os.scandir(folder) as scan:
        names = [each.name for each in itertools.islice(scan, _MOST_LOOKED_AT)]
        for name in names:
            found = _DRAFT_NAME.fullmatch(name)
            if found is None or found[2] != _check_of(folder, found[1]):
                continue
            with contextlib.suppress(OSError):
                if found[3] == "tmp":
                    with _left_alone(folder, name):
                        os.unlink(name, dir_fd=folder)
                elif is_alone:
                    os.unlink(name, dir_fd=folder)


@contextlib.contextmanager
def _left_alone(folder: int, name: str) -> Iterator[None]:
    """Hold a regular file of our own that nobody works on.

    Raises:
        OSError: it is another's, or somebody does.
    """
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(name, flags, dir_fd=folder)
    try:
        facts = os.fstat(descriptor)
        if not stat.S_ISREG(facts.st_mode) or facts.st_uid != os.geteuid():
            raise PermissionError(errno.EPERM, os.strerror(errno.EPERM), name)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


def draft_name(folder: int, suffix: str = "tmp") -> str:
    """Return a name in an open folder by which a draft is known as ours."""
    token = secrets.token_hex(8)
    return f".clawd-{token}{_check_of(folder, token)}.{suffix}"


def _check_of(folder: int, token: str) -> str:
    text = f"clawd draft {token} in {os.fstat(folder).st_ino}"
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _move(target: FileTarget, draft: Draft, old: int) -> None:
    """Give the draft the name; a file that nobody has seen is never replaced."""
    if old >= 0:
        try:
            is_there = _is_there(target, old)
        except FileNotFoundError:
            is_there = False
        if not is_there:
            raise _changed(target)
        draft.replace(target.name)
        return
    try:
        draft.become(target.name)
    except FileExistsError as error:
        raise _changed(target) from error


def wrong_kind(path: str, mode: int) -> InvalidRequestError:
    """Return the error for a path that leads to no regular file."""
    if stat.S_ISDIR(mode):
        return InvalidRequestError(f"{path} is a folder; file_list lists it")
    return InvalidRequestError(f"{path} is {_kind_words(mode)}, not a regular file")


def _kind_words(mode: int) -> str:
    kinds = {stat.S_IFIFO: "a FIFO", stat.S_IFSOCK: "a socket", stat.S_IFLNK: "a link"}
    return kinds.get(stat.S_IFMT(mode), "a device")
