"""Puts a GGUF file into a folder of models: checked, linked or copied, in place in one step.

A GGUF file begins with `GGUF` and its version, a little-endian 32-bit number
(the GGUF specification of ggml, "File Structure").
"""

import contextlib
import os
import re
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from clawd.errors import ForbiddenError, InvalidRequestError, NotFoundError, StorageError

MAGIC = b"GGUF"
VERSIONS = (2, 3)
RESERVED = "embedded"
SUFFIX = ".gguf"

_HEAD = struct.Struct("<4sI")
_SHARD = re.compile(r"-(\d{5})-of-(\d{5})$")
_UNFINISHED = re.compile(r"\..+\.gguf\.(\d+)\.part")
_PIECE_BYTES = 4 * 1024 * 1024

Progress = Callable[[int, int], None]


@dataclass(frozen=True, kw_only=True)
class Added:
    """A model that is in the folder now.

    Attributes:
        how: `linked` shares the file with where it came from, `copied` does not, `there already`
            changed nothing.
        replaced: whether another file had that name.
    """

    name: str
    path: Path
    size_bytes: int
    how: str
    replaced: bool = False


@dataclass(frozen=True, kw_only=True)
class AddOptions:
    """How a model is added: its name there, whether one of that name goes, and never a link."""

    name: str = ""
    force: bool = False
    copy: bool = False


def add_model(source: Path, folder: Path, options: AddOptions, progress: Progress) -> Added:
    """Put a model into the folder; of a split one all parts. `progress` gets bytes done, in all.

    Raises:
        NotFoundError: the file, or a part of it, is not there.
        InvalidRequestError: it is no GGUF, or its name is taken or cannot be one.
        ForbiddenError: the folder may not be written.
        StorageError: there is no room, or the disk failed.
    """
    parts = _parts(source.expanduser())
    names = _names(parts, options.name)
    sizes = [_checked_size(part) for part in parts]
    targets = [folder / name for name in names]
    taken = [target for target in targets if os.path.lexists(target)]
    stem = _SHARD.sub("", Path(names[0]).stem)
    if all(map(_is_same, parts, targets)):
        return Added(name=stem, path=targets[0], size_bytes=sum(sizes), how="there already")
    if taken and not options.force:
        raise InvalidRequestError(
            f"{taken[0]} is there already",
            hint="Give another name with --name, or overwrite it with --force.",
        )
    try:
        how = _put(parts, targets, options, progress)
    except PermissionError as error:
        raise ForbiddenError(
            f"{folder} may not be written: {error.strerror}",
            hint="Do it as the user whose home it is, or as root.",
        ) from error
    except OSError as error:
        raise StorageError(f"{source} was not added: {error}") from error
    return Added(name=stem, path=targets[0], size_bytes=sum(sizes), how=how, replaced=bool(taken))


def _parts(source: Path) -> list[Path]:
    """Return the files of a model, symbolic links followed."""
    shard = _SHARD.search(source.stem)
    names = [source.name]
    if shard is not None and source.suffix.lower() == SUFFIX:
        stem, count = source.stem[: shard.start()], int(shard[2])
        names = [f"{stem}-{n:05}-of-{shard[2]}{source.suffix}" for n in range(1, count + 1)]
    for name in names:
        if not source.with_name(name).is_file():
            whole = f"; {source.name} is one of {len(names)} parts" if len(names) > 1 else ""
            raise NotFoundError(f"there is no file {source.with_name(name)}{whole}")
    return [source.with_name(name) for name in names]


def _names(parts: list[Path], wanted: str) -> list[str]:
    """Return the names in the folder; each ends with .gguf, as only such are found."""
    shards = [match[0] if (match := _SHARD.search(part.stem)) else "" for part in parts]
    own = parts[0].stem if parts[0].suffix.lower() == SUFFIX else parts[0].name
    stem = wanted[: -len(SUFFIX)] if wanted.lower().endswith(SUFFIX) else wanted
    stem = stem or _SHARD.sub("", own)
    if not stem or "/" in stem or "\0" in stem or stem.startswith(".") or stem != stem.strip():
        raise InvalidRequestError(
            f"{stem!r} cannot be the name of a model: expected a file name without / that does not "
            "begin with a dot"
        )
    if stem.lower() == RESERVED:
        raise InvalidRequestError(
            f"{stem!r} is the name of the built-in model", hint="Give another name with --name."
        )
    return [f"{stem}{shard}{SUFFIX}" for shard in shards]


def _checked_size(path: Path) -> int:
    """Return the size of a GGUF file.

    Raises:
        InvalidRequestError: it is none that llama.cpp reads.
    """
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD.size)
            size_bytes = os.fstat(file.fileno()).st_size
    except OSError as error:
        raise ForbiddenError(f"{path} cannot be read: {error.strerror}") from error
    if len(head) < _HEAD.size or head[:4] != MAGIC:
        raise InvalidRequestError(
            f"{path} is no GGUF file: it begins with {head[:4]!r}, expected {MAGIC!r}",
            hint="Was it downloaded whole? A page or a pointer file of a few hundred bytes is not "
            "the model.",
        )
    _, version = _HEAD.unpack(head)
    if version not in VERSIONS:
        raise InvalidRequestError(
            f"{path} is GGUF of version {version}; expected one of {', '.join(map(str, VERSIONS))}",
            hint="Convert it anew, on a machine of this byte order.",
        )
    return size_bytes


def _is_same(part: Path, target: Path) -> bool:
    return target.exists() and target.samefile(part)


def _put(parts: list[Path], targets: list[Path], options: AddOptions, progress: Progress) -> str:
    """Make every file beside its place first, then move all of them there."""
    folder = targets[0].parent
    _make_folder(folder)
    _remove_unfinished(folder)
    fresh = [folder / f".{target.name}.{os.getpid()}.part" for target in targets]
    try:
        linked = not options.copy and all(map(_link, parts, fresh))
        if not linked:
            for path in fresh:
                path.unlink(missing_ok=True)
            _copy_all(parts, fresh, progress)
        for path, target in zip(fresh, targets, strict=True):
            path.replace(target)
    finally:
        for path in fresh:
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)
    return "linked" if linked else "copied"


def _make_folder(folder: Path) -> None:
    """Make the folder, its home's owner its owner: root may do this for the service."""
    if folder.is_dir():
        return
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if os.geteuid() == 0:
        home = folder.parent.stat()
        os.chown(folder, home.st_uid, home.st_gid)


def _remove_unfinished(folder: Path) -> None:
    """Remove copies whose process was killed: each may be as large as a model."""
    for path in folder.iterdir():
        made = _UNFINISHED.fullmatch(path.name)
        if made is not None and not _is_running(int(made[1])):
            with contextlib.suppress(OSError):
                path.unlink()


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True


def _link(part: Path, fresh: Path) -> bool:
    """Link a file; not another user's, which might be one that the daemon cannot read."""
    real = part.resolve()
    if real.stat().st_uid != fresh.parent.stat().st_uid:
        return False
    try:
        os.link(real, fresh)
    except OSError:
        return False
    return True


def _copy_all(parts: list[Path], fresh: list[Path], progress: Progress) -> None:
    total = sum(part.stat().st_size for part in parts)
    place = os.statvfs(fresh[0].parent)
    free = place.f_bavail * place.f_frsize
    if free < total:
        raise StorageError(
            f"{fresh[0].parent} has room for {free} bytes, and the model has {total}",
            hint="Make room, or give the file's absolute path as the model's name.",
        )
    done = 0
    piece = bytearray(_PIECE_BYTES)
    for part, path in zip(parts, fresh, strict=True):
        with part.open("rb", buffering=0) as source, path.open("xb", buffering=0) as target:
            while count := source.readinto(piece):
                _write_all(target.fileno(), memoryview(piece)[:count])
                done += count
                progress(done, total)
            os.fsync(target.fileno())
        path.chmod(0o644)


def _write_all(descriptor: int, data: memoryview) -> None:
    while data:
        data = data[os.write(descriptor, data) :]
