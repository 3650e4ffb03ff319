"""The files of one person's knowledge: seen, read, replaced whole and kept. Everything blocks.

    knowledge/                  of the daemon's own user (0700)
      backup_server.md          an entry (0600)
      fix-backup_server.md      a fixed one
      .trash/                   what was replaced or deleted, newest name last
      uid-1001/                 the same for another user of this daemon

Only regular files ending in `.md` are seen; links, folders, devices and hidden files are left
alone, however they came there. A file is replaced by another one that is on disk already, so that
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
from clawd.memory.knowledge.keywords import SUFFIX, header_keywords
from clawd.receipts.durable import write_all
from clawd.receipts.record import new_ulid
from clawd.wire.safe_text import paragraph, shortened, single_line

# One entry as a file: a header, an empty line, the body. Pure.
#
#     keywords: backup, server
#     created: 2026-11-21T08:00:00Z by a model in conv-01KAJ5…
#     updated: 2026-11-21T09:00:00Z by uid 1000
#     untrusted: web_fetch example.org
#
#     The backup server is nas2.
#
# An entry that is written gets this header before its text, and the header ends at the first empty
# line: nothing in a body can be taken for a header, whatever it looks like. By hand a header may
# also stand between two lines of `---`, as other programs write it.

HEADER_LIMIT_BYTES = 32 * 1024
MAX_SOURCES = 20
SEPARATOR = "\n\n---\n\n"

_SOURCE_LIMIT = 200
_FENCE = "---"
_NAMES = ("keywords", "created", "updated", "untrusted")


class EntryHeader(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of an entry.

    Attributes:
        keywords: sorted.
        created: when and by whom, as one line; may be empty where a hand wrote it.
        updated: the same of the last change.
        untrusted: where untrusted text in it came from; empty for none.
    """

    keywords: tuple[str, ...]
    created: str = ""
    updated: str = ""
    untrusted: tuple[str, ...] = ()


class Parsed(msgspec.Struct, frozen=True, kw_only=True):
    """A file, read.

    Attributes:
        header: None where there is none; then all of the file is the body.
        offset: how many bytes of the file stand before the body.
    """

    header: EntryHeader | None
    body: str
    offset: int = 0


def render(header: EntryHeader, body: str) -> bytes:
    """Return the file of an entry; the body is one that `clean_body` gave."""
    lines = [f"keywords: {', '.join(header.keywords)}"]
    for name, value in (("created", header.created), ("updated", header.updated)):
        if value:
            lines.append(f"{name}: {single_line(value)}")
    lines += [f"untrusted: {source}" for source in _bounded_sources(header.untrusted)]
    return ("\n".join(lines) + f"\n\n{body}\n").encode(errors="replace")


def parse(data: bytes) -> Parsed:
    """Read a file, or the beginning of one."""
    text = data.decode(errors="replace").removeprefix("\ufeff").replace("\r\n", "\n")
    lines = text.split("\n")
    fenced = lines[0].rstrip() == _FENCE
    found: dict[str, list[str]] = {name: [] for name in _NAMES}
    at = 1 if fenced else 0
    while at < len(lines):
        name, colon, value = lines[at].partition(":")
        if lines[at].rstrip() == (_FENCE if fenced else ""):
            at += 1
            break
        is_known = bool(colon) and name in found
        if not is_known and not fenced:
            break
        if is_known:
            found[name].append(value.strip())
        at += 1
    keywords = header_keywords(found["keywords"][0]) if found["keywords"] else ()
    if not keywords:
        return Parsed(header=None, body=clean_body(text))
    header = EntryHeader(
        keywords=keywords,
        created="".join(found["created"][:1]),
        updated="".join(found["updated"][:1]),
        untrusted=_bounded_sources(tuple(filter(None, found["untrusted"]))),
    )
    offset = sum(len(line.encode()) + 1 for line in lines[:at])
    return Parsed(header=header, body=clean_body("\n".join(lines[at:])), offset=offset)


def clean_body(text: str) -> str:
    r"""Return a text as a body: no control characters but `\n` and `\t`, no empty lines around."""
    return paragraph(text.replace("\r\n", "\n")).strip("\n").rstrip()


def _bounded_sources(sources: tuple[str, ...]) -> tuple[str, ...]:
    """Return the sources one line each, each once, and not more than a header holds."""
    lines = [single_line(source, _SOURCE_LIMIT) or "unknown sources" for source in sources]
    distinct = list(dict.fromkeys(lines))
    if len(distinct) <= MAX_SOURCES:
        return tuple(distinct)
    return (*distinct[: MAX_SOURCES - 1], "more sources")


def snippet(body: str, limit: int) -> str:
    """Return the beginning of a body as one line."""
    return shortened(" ".join(single_line(body[: 4 * limit], 4 * limit).split()), limit)


_TRASH = ".trash"
_MAX_TRASHED = 1_000
_MAX_SEEN = 100_000

_TEMPORARY = ".clawd-"
_STALE_S = 3_600.0
_CLOCK_STEP_NS = 50_000_000  # the kernel's clock for files lags behind by a tick
_NAME_IN_TRASH = 120
_NO_LINKS = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK})

Identity = tuple[int, int, int]


class SeenFile(msgspec.Struct, frozen=True, kw_only=True):
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

    def seen(self, before: Mapping[str, SeenFile]) -> dict[str, SeenFile]:
        """Return every file, read anew where it is not as it was before."""
        found: dict[str, SeenFile] = {}
        with self._opened() as folder:
            if folder < 0:
                return found
            with os.scandir(folder) as entries:
                for entry in entries:
                    if entry.name.startswith(_TEMPORARY):
                        _drop_stale(folder, entry)
                    if not _is_entry(entry) or len(found) >= _MAX_SEEN:
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
            os.mkdir(_TRASH, 0o700, dir_fd=folder)
        trash = os.open(
            _TRASH, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder
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


def _seen(folder: int, entry: "os.DirEntry[str]", before: SeenFile | None) -> SeenFile | None:
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
    return SeenFile(identity=identity, head=head, is_settled=is_settled)


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
        if (total <= limit_bytes and count <= _MAX_TRASHED) or name == newest:
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
