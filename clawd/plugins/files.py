"""The files of a plugin or skill: read whole within bounds, named by one hash, written out again.

The hash covers every name, mode and content, so that a folder is what was approved or is not.
"""

import hashlib
import os
import secrets
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import msgspec

from clawd.errors import InvalidRequestError
from clawd.kernel.files import sync_folder

MAX_FILES = 512
MAX_BYTES = 16 << 20
MAX_DEPTH = 16
MAX_NAME_BYTES = 255
FRESH, OLD = ".new-", ".old-"  # of what an end in the middle of writing leaves behind
LEFT_OUT = frozenset({".git", "__pycache__"})

_PRIVATE, _PRIVATE_PROGRAM = 0o600, 0o700


class PluginFile(msgspec.Struct, frozen=True, kw_only=True):
    """One file or folder.

    Attributes:
        path: relative to the plugin, with slashes.
        mode: its permission bits.
        data: what it holds; None for a folder.
    """

    path: str
    mode: int
    data: bytes | None

    @property
    def is_program(self) -> bool:
        """Whether its owner may execute it."""
        return self.data is not None and bool(self.mode & stat.S_IXUSR)

    @property
    def digest(self) -> str:
        """Return what its name, mode and content are known by (hex)."""
        kind = b"folder" if self.data is None else b"file"
        parts = (kind, self.path.encode(), f"{self.mode:o}".encode(), self.data or b"")
        return _hash_of(parts)


class PluginTree(msgspec.Struct, frozen=True, kw_only=True):
    """All that a plugin's folder holds, sorted by path."""

    files: tuple[PluginFile, ...]

    @property
    def digest(self) -> str:
        """Return what the whole is known by (hex)."""
        return _hash_of((b"clawd-plugin/1", *(each.digest.encode() for each in self.files)))

    def file(self, path: str) -> PluginFile | None:
        """Return the file of this path."""
        return next((each for each in self.files if each.path == path), None)


def read_tree(folder: Path, *, is_installed: bool) -> PluginTree:
    """Read a plugin. Blocks.

    What is installed counts as it is. Of a folder to install, version control and caches are left
    out, and modes become those that it will have.

    Raises:
        InvalidRequestError: it holds what no plugin may (links, devices, too much), or cannot be
            read.
    """
    found: list[PluginFile] = []
    try:
        found.extend(_walked(folder, is_installed=is_installed))
    except OSError as error:
        raise InvalidRequestError(f"{folder} cannot be read: {error}") from error
    if not found:
        raise InvalidRequestError(f"{folder} is no folder with files")
    return PluginTree(files=tuple(sorted(found, key=lambda each: each.path)))


def write_tree(tree: PluginTree, folder: Path, *, is_durable: bool) -> None:
    """Write a plugin into a folder that is empty and private. Blocks.

    Raises:
        OSError: the disk refused; what was written is left there.
    """
    for each in tree.files:
        path = folder / each.path
        if each.data is None:
            path.mkdir(mode=0o700)
            continue
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(path, flags, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(each.data)
            file.flush()
            os.fchmod(descriptor, each.mode)
            if is_durable:
                os.fsync(descriptor)


def put_tree(tree: PluginTree, place: Path) -> None:
    """Write a tree beside its place, which is private, and rename it there. Blocks.

    Raises:
        OSError: the disk refused; what was there before is still there.
    """
    place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    fresh, old = (place.with_name(f"{prefix}{secrets.token_hex(4)}") for prefix in (FRESH, OLD))
    fresh.mkdir(mode=0o700)
    try:
        write_tree(tree, fresh, is_durable=True)
        if place.exists() or place.is_symlink():
            place.rename(old)
        fresh.rename(place)
    except OSError:
        if old.exists() and not place.exists():
            old.rename(place)
        shutil.rmtree(fresh, ignore_errors=True)
        raise
    sync_folder(place.parent)
    shutil.rmtree(old, ignore_errors=True)


def stamp(folder: Path) -> tuple[tuple[str, int, int, int, int], ...]:
    """Return what shows cheaply that a plugin may have changed. Blocks for as long as a listing.

    A change cannot go back to an old stamp: the kernel sets the time of each change itself.

    Raises:
        OSError: it cannot be read.
    """
    found = []
    for parent, folders, names, top in os.fwalk(folder, onerror=_raise):
        for name in (*folders, *names):
            facts = os.lstat(name, dir_fd=top)
            place = os.path.join(parent, name)  # noqa: PTH118 - a name, not a path to use
            found.append((place, facts.st_ino, facts.st_mode, facts.st_size, facts.st_ctime_ns))
            if len(found) > 2 * MAX_FILES:
                return ()
    return tuple(sorted(found))


def _walked(folder: Path, *, is_installed: bool) -> Iterator[PluginFile]:
    count, size = 0, 0
    for parent, folders, names, top in os.fwalk(folder, onerror=_raise):
        below = PurePosixPath(os.path.relpath(parent, folder))
        if not is_installed:
            folders[:] = [name for name in folders if name not in LEFT_OUT]
            names = [name for name in names if name not in LEFT_OUT]
        for name in (*folders, *names):
            path = checked_path(below / name)
            count += 1
            if count > MAX_FILES:
                raise InvalidRequestError(f"at most {MAX_FILES} files and folders are taken")
            each = _read(name, top, path, is_installed=is_installed)
            size += len(each.data or b"")
            if size > MAX_BYTES:
                raise InvalidRequestError(f"at most {MAX_BYTES} bytes in all are taken")
            yield each


def _read(name: str, top: int, path: str, *, is_installed: bool) -> PluginFile:
    facts = os.lstat(name, dir_fd=top)
    if stat.S_ISDIR(facts.st_mode):
        mode = stat.S_IMODE(facts.st_mode) if is_installed else _PRIVATE_PROGRAM
        return PluginFile(path=path, mode=mode, data=None)
    if not stat.S_ISREG(facts.st_mode):
        raise InvalidRequestError(f"{path!r} is a link or no plain file; plain ones are wanted")
    # Neither a link nor a pipe that was put in its place meanwhile is followed or waited for.
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(name, flags, dir_fd=top)
    with os.fdopen(descriptor, "rb") as file:
        facts = os.fstat(descriptor)
        if not stat.S_ISREG(facts.st_mode):
            raise InvalidRequestError(f"{path!r} is no plain file")
        data = file.read(MAX_BYTES + 1)
    if is_installed:
        return PluginFile(path=path, mode=stat.S_IMODE(facts.st_mode), data=data)
    is_program = facts.st_mode & stat.S_IXUSR
    return PluginFile(path=path, mode=_PRIVATE_PROGRAM if is_program else _PRIVATE, data=data)


def checked_path(path: PurePosixPath) -> str:
    """Return a path in a folder as text.

    Raises:
        InvalidRequestError: it is too long or too deep, or does not print.
    """
    text = str(path)
    if len(path.parts) > MAX_DEPTH:
        raise InvalidRequestError(f"{text[:80]!r}… is nested more than {MAX_DEPTH} deep")
    if not text.isprintable() or len(text.encode("utf-8", "surrogateescape")) > MAX_NAME_BYTES:
        raise InvalidRequestError(
            f"the path {text[:80]!r} is longer than {MAX_NAME_BYTES} bytes or not printable"
        )
    return text


def _hash_of(parts: tuple[bytes, ...]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "big"))
        digest.update(part)
    return digest.hexdigest()


def _raise(error: OSError) -> None:
    raise error
