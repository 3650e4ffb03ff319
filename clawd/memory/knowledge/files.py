"""The files of one person's knowledge: seen, read, replaced whole and kept. Everything blocks.

    knowledge/                  of the daemon's own user (0700)
      backup_server.md          an entry (0600)
      fix-backup_server.md      a fixed one
      .trash/                   what was replaced or deleted, newest name last
      uid-1001/                 the same for another user of this daemon

Only regular files ending in `.md` are seen; links, folders, devices and hidden files are left
alone, whoever put them there. A file is replaced by another one that is on disk already, so that
a crash or a full disk leaves the old one or the new one.
"""

import contextlib
import errno
import os
import secrets
import stat
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from clawd.errors import BusyError, StorageError
from clawd.memory.knowledge.entry import HEADER_LIMIT_BYTES
from clawd.memory.knowledge.keywords import SUFFIX
from clawd.receipts.durable import write_all
from clawd.receipts.record import new_ulid

TRASH = ".trash"
MAX_TRASHED = 1_000
MAX_SEEN = 100_000

_TEMPORARY = ".clawd-"
_STALE_S = 3_600.0
_CLOCK_STEP_NS = 50_000_000  # the kernel's clock for files lags behind by a tick
_NAME_IN_TRASH = 120
_NO_LINKS = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK})

Identity = tuple[int, int, int]


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """A file as it was seen.

    Attributes:
        identity: inode, size and time of change; equal for a file that is still the same.
        head: its first bytes, enough for a header.
        is_settled: whether a later change would show; one in the same tick of the clock may not.
    """

    identity: Identity
    head: bytes
    is_settled: bool

    @property
    def size(self) -> int:
        """Bytes of the whole file."""
        return self.identity[1]

    @property
    def modified_ns(self) -> int:
        """When it was changed last, in nanoseconds since 1970."""
        return self.identity[2]


class EntryFiles:
    """The files in one folder, which is made when the first one is written.

    Args:
        root: the folder of all knowledge.
        name: of a folder in it, for a person with one of his own; "" for the root itself.
        trash_bytes: how much of what was replaced or deleted is kept; 0 keeps nothing.
    """

    def __init__(self, root: Path, name: str, *, trash_bytes: int) -> None:
        self._root = root
        self._name = name
        self._trash_bytes = trash_bytes

    @property
    def shown(self) -> str:
        """The folder, as errors name it."""
        return str(self._root / self._name) if self._name else str(self._root)

    def changed_at(self) -> tuple[int, bool]:
        """Return when names in the folder changed last, and whether a later change would show."""
        with self._opened() as folder:
            if folder < 0:
                return 0, True
            at = os.fstat(folder).st_mtime_ns
            return at, time.time_ns() - at > _CLOCK_STEP_NS

    def seen(self, before: Mapping[str, Seen]) -> dict[str, Seen]:
        """Return every file, read anew where it is not as it was before."""
        found: dict[str, Seen] = {}
        with self._opened() as folder:
            if folder < 0:
                return found
            with os.scandir(folder) as entries:
                for entry in entries:
                    if entry.name.startswith(_TEMPORARY):
                        _drop_stale(folder, entry)
                    if not _is_entry(entry) or len(found) >= MAX_SEEN:
                        continue
                    now_seen = _seen(folder, entry, before.get(entry.name))
                    if now_seen is not None:
                        found[entry.name] = now_seen
        return found

    def read(self, file: str, limit_bytes: int) -> tuple[bytes, Identity] | None:
        """Return at most so many bytes of a file and what it was then; None when it is gone."""
        with self._opened() as folder:
            descriptor = _open_regular(folder, file) if folder >= 0 else -1
            if descriptor < 0:
                return None
            with os.fdopen(descriptor, "rb") as stream:
                identity = _identity(os.fstat(descriptor))
                return stream.read(limit_bytes), identity

    def replace(
        self, file: str, data: bytes, *, before: Identity | None, keeps_old: bool = True
    ) -> None:
        """Put a file in place of the one that is there, or make it new.

        Args:
            file: its name.
            data: all of it.
            before: what is there, None for nothing.
            keeps_old: whether the old file goes to the trash.

        Raises:
            BusyError: it is not what `before` says any more.
            OSError: the system refuses; nothing has changed.
        """
        with self._opened(makes=True) as folder:
            temporary = f"{_TEMPORARY}{secrets.token_hex(8)}"
            try:
                _write_new(folder, temporary, data)
                if before is not None and keeps_old:
                    self._keep(folder, file)
                _check(folder, file, before)
                os.rename(temporary, file, src_dir_fd=folder, dst_dir_fd=folder)
            except BaseException:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(temporary, dir_fd=folder)
                raise
            os.fsync(folder)

    def remove(self, file: str, *, before: Identity) -> None:
        """Move a file to the trash.

        Raises:
            BusyError: it is not what `before` says any more.
            OSError: the system refuses; nothing has changed.
        """
        with self._opened() as folder:
            if folder < 0:
                raise _changed(file)
            self._keep(folder, file)
            _check(folder, file, before)
            os.unlink(file, dir_fd=folder)
            os.fsync(folder)

    @contextlib.contextmanager
    def _opened(self, *, makes: bool = False) -> Iterator[int]:
        """Open the folder; -1 when there is none and none is to be made."""
        folder = -1
        if makes:
            self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            folder = os.open(self._root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            if self._name:
                folder = _own_folder(folder, self._name, makes=makes)
        except FileNotFoundError:
            folder = -1
        try:
            yield folder
        finally:
            if folder >= 0:
                os.close(folder)

    def _keep(self, folder: int, file: str) -> None:
        """Give the file a second name in the trash, and make room there."""
        if self._trash_bytes <= 0:
            return
        with contextlib.suppress(FileExistsError):
            os.mkdir(TRASH, 0o700, dir_fd=folder)
        trash = os.open(
            TRASH, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder
        )
        try:
            kept = f"{new_ulid()}-{file[:_NAME_IN_TRASH]}"
            try:
                os.link(file, kept, src_dir_fd=folder, dst_dir_fd=trash, follow_symlinks=False)
            except FileNotFoundError as error:
                raise _changed(file) from error
            except OSError as error:
                if error.errno not in _NO_LINKS:
                    raise
                _copy(folder, file, trash, kept)
            os.fsync(trash)
            _make_room(trash, self._trash_bytes, newest=kept)
        finally:
            os.close(trash)


def _own_folder(root: int, name: str, *, makes: bool) -> int:
    """Open a person's folder in the root, and close the root."""
    try:
        if makes:
            with contextlib.suppress(FileExistsError):
                os.mkdir(name, 0o700, dir_fd=root)
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        return os.open(name, flags, dir_fd=root)
    finally:
        os.close(root)


def _is_entry(entry: "os.DirEntry[str]") -> bool:
    name = entry.name
    if (
        name.startswith(".")
        or not name.endswith(SUFFIX)
        or not entry.is_file(follow_symlinks=False)
    ):
        return False
    try:
        name.encode()
    except UnicodeEncodeError:  # no UTF-8: nobody could name it
        return False
    return True


def _seen(folder: int, entry: "os.DirEntry[str]", before: Seen | None) -> Seen | None:
    try:
        status = entry.stat(follow_symlinks=False)
        identity = _identity(status)
        if before is not None and before.is_settled and before.identity == identity:
            return before
        # By the time of change that the kernel keeps: the other one can be set at will.
        is_settled = time.time_ns() - status.st_ctime_ns > _CLOCK_STEP_NS
        descriptor = _open_regular(folder, entry.name)
    except OSError:  # gone, or not for us to read
        return None
    if descriptor < 0:
        return None
    with os.fdopen(descriptor, "rb") as stream:
        head = stream.read(HEADER_LIMIT_BYTES)
    return Seen(identity=identity, head=head, is_settled=is_settled)


def _open_regular(folder: int, name: str) -> int:
    """Open a regular file, or give -1 when there is none; never follows, never waits."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(name, flags, dir_fd=folder)
    except FileNotFoundError:
        return -1
    except OSError as error:
        if error.errno in {errno.ELOOP, errno.ENXIO}:
            return -1
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        return -1
    return descriptor


def _write_new(folder: int, name: str, data: bytes) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(name, flags, 0o600, dir_fd=folder)
    try:
        write_all(descriptor, data)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _copy(folder: int, file: str, trash: int, kept: str) -> None:
    descriptor = _open_regular(folder, file)
    if descriptor < 0:
        raise _changed(file)
    with os.fdopen(descriptor, "rb") as stream:
        _write_new(trash, kept, stream.read())


def _make_room(trash: int, limit_bytes: int, *, newest: str) -> None:
    """Remove the oldest files from the trash until the rest fits; never the newest."""
    with os.scandir(trash) as entries:
        names = sorted(entry.name for entry in entries)
    sizes = [(name, os.stat(name, dir_fd=trash, follow_symlinks=False).st_size) for name in names]
    total, count = sum(size for _, size in sizes), len(sizes)
    for name, size in sizes:
        if (total <= limit_bytes and count <= MAX_TRASHED) or name == newest:
            return
        os.unlink(name, dir_fd=trash)
        total, count = total - size, count - 1


def _drop_stale(folder: int, entry: "os.DirEntry[str]") -> None:
    """Remove what a crash left half written."""
    with contextlib.suppress(OSError):
        if time.time() - entry.stat(follow_symlinks=False).st_mtime > _STALE_S:
            os.unlink(entry.name, dir_fd=folder)


def _identity(status: os.stat_result) -> Identity:
    return (status.st_ino, status.st_size, status.st_mtime_ns)


def _check(folder: int, file: str, before: Identity | None) -> None:
    try:
        there = _identity(os.stat(file, dir_fd=folder, follow_symlinks=False))
    except FileNotFoundError:
        there = None
    if there != before:
        raise _changed(file)


def _changed(file: str) -> BusyError:
    return BusyError(
        f'"{file}" was changed by somebody else at the same time; it is left as it is',
        retry_after_s=0.1,
        hint="Load it again and repeat the change.",
    )


def storage_error(error: OSError, where: str) -> StorageError:
    """Return what to tell of a failure of the system."""
    return StorageError(
        f"knowledge in {where} cannot be used: {error.strerror or error}; nothing was changed",
        hint="Look at the disk's space and at the folder's owner and permissions.",
    )
