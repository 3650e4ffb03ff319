"""The files of a plugin or skill: read whole within bounds, named by one hash, written out again.

The hash covers every name, mode and content, so that a folder is what was approved or is not.

A skill in a zip or tar archive, read into memory within bounds; nothing is unpacked to disk.
"""

import bz2
import gzip
import hashlib
import io
import lzma
import os
import secrets
import shutil
import stat
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import NamedTuple

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


_FILE, _PROGRAM, _FOLDER = 0o600, 0o700, 0o700
_MOST_BYTES = 2 * MAX_BYTES  # with headers
_PACKED = ((b"\x1f\x8b", gzip.open), (b"BZh", bz2.open), (b"\xfd7zXZ\x00", lzma.open))


class _Member(NamedTuple):
    """A file of an archive: its name as it stands there, its mode, what it holds."""

    name: str
    mode: int
    data: bytes


def read_archive(source: Path) -> tuple[str, PluginTree]:
    """Return the one folder that an archive holds, its name first; "" for the archive's own root.

    Blocks.

    Raises:
        InvalidRequestError: it is no archive, or holds an absolute path, `..`, a link, a path
            twice, or more than a skill may have.
    """
    try:
        members = list(_members(source))
    except (OSError, EOFError, RuntimeError, ValueError, NotImplementedError) as error:
        raise _unreadable(source) from error
    except (tarfile.TarError, zipfile.BadZipFile, lzma.LZMAError) as error:
        raise _unreadable(source) from error
    files: dict[str, _Member] = {}
    for member in members:
        path = _checked(member.name)
        if LEFT_OUT.isdisjoint(path.parts) and files.setdefault(str(path), member) is not member:
            raise InvalidRequestError(f"the archive holds {str(path)!r} twice")
    return _tree(files)


def _members(source: Path) -> Iterator[_Member]:
    with source.open("rb") as file:
        data = _bounded(file.read(MAX_BYTES + 1))
    for magic, unpacker in _PACKED:
        if data.startswith(magic):
            with unpacker(io.BytesIO(data)) as file:
                data = file.read(_MOST_BYTES + 1)
            if len(data) > _MOST_BYTES:
                raise _too_much()
    is_zip = data.startswith(b"PK")
    size = count = 0
    for member in (_zipped if is_zip else _tarred)(data):
        size, count = size + len(member.data), count + 1
        if size > MAX_BYTES or count > MAX_FILES:
            raise _too_much()
        yield member


def _zipped(data: bytes) -> Iterator[_Member]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        for info in archive.infolist():
            mode = info.external_attr >> 16
            if stat.S_IFMT(mode) not in {0, stat.S_IFREG, stat.S_IFDIR}:
                raise _no_file(info.filename)
            if not info.is_dir():
                with archive.open(info) as file:
                    yield _Member(info.filename, mode, _bounded(file.read(MAX_BYTES + 1)))


def _tarred(data: bytes) -> Iterator[_Member]:
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as archive:
        for info in archive:
            if info.isdir():
                continue
            file = archive.extractfile(info) if info.isreg() else None
            if file is None:
                raise _no_file(info.name)
            yield _Member(info.name, info.mode, _bounded(file.read(MAX_BYTES + 1)))


def _checked(name: str) -> PurePosixPath:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\\" in name or not path.parts:
        raise InvalidRequestError(f"the archive holds {name[:80]!r}, which leads out of its folder")
    return path


def _tree(files: dict[str, _Member]) -> tuple[str, PluginTree]:
    """Return the folder that all files lie in, "" for none, and what it holds."""
    tops = {path.partition("/")[0] for path in files if "/" in path}
    alone = len(tops) == 1 and all("/" in path for path in files)
    name = tops.pop() if alone else ""
    found: dict[str, PluginFile] = {}
    for whole, member in files.items():
        path = PurePosixPath(whole.removeprefix(f"{name}/") if name else whole)
        mode = _PROGRAM if member.mode & stat.S_IXUSR else _FILE
        for place, data in ((path, member.data), *((each, None) for each in path.parents)):
            if place.parts:
                text = checked_path(place)
                known = found.get(text)
                if known is not None and (known.data is not None or data is not None):
                    raise InvalidRequestError(f"the archive holds {text!r} as file and folder")
                of = mode if data is not None else _FOLDER
                found[text] = PluginFile(path=text, mode=of, data=data)
    if not found or len(found) > MAX_FILES:
        raise InvalidRequestError("the archive holds no file") if not found else _too_much()
    return name, PluginTree(files=tuple(found[path] for path in sorted(found)))


def _bounded(data: bytes) -> bytes:
    if len(data) > MAX_BYTES:
        raise _too_much()
    return data


def _too_much() -> InvalidRequestError:
    return InvalidRequestError(
        f"the archive holds more than {MAX_BYTES >> 20} MiB or {MAX_FILES} files"
    )


def _no_file(name: str) -> InvalidRequestError:
    return InvalidRequestError(f"the archive holds {name[:80]!r}, a link or no plain file")


def _unreadable(source: Path) -> InvalidRequestError:
    return InvalidRequestError(f"{source} is no folder and no archive that can be read")
