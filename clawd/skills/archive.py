"""A skill in a zip or tar archive, read into memory within bounds; nothing is unpacked to disk."""

import bz2
import gzip
import io
import lzma
import stat
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from clawd.errors import InvalidRequestError
from clawd.plugins.files import LEFT_OUT, MAX_BYTES, MAX_FILES, PluginFile, PluginTree, checked_path

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
