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

import msgspec

from clawd.errors import ForbiddenError, InvalidRequestError, NotFoundError, StorageError
from clawd.kernel.files import replace_file
from clawd.wire.models import MERGED_ASSISTANT, ModelPin, decode_pin, encode_pin, pin_of, seen

MAGIC = b"GGUF"
VERSIONS = (2, 3)
RESERVED = "embedded"
ASSISTANT, SHARED = "assistant", Path("/usr/share/clawd/models")
PROJECTOR = "mmproj"
# Ollama's kinds of layers.
MODEL_LAYER = "application/vnd.ollama.image.model"
PROJECTOR_LAYER = "application/vnd.ollama.image.projector"
SUFFIX = ".gguf"

_HEAD = struct.Struct("<4sI")
HEAD_BYTES = _HEAD.size
_SHARD = re.compile(r"-(\d{5})-of-(\d{5})$")
_UNFINISHED = re.compile(r"\..+\.gguf\.(\d+)\.part")
_PIECE_BYTES = 4 * 1024 * 1024

Progress = Callable[[int, int], None]


@dataclass(frozen=True, kw_only=True)
class Added:
    """A model that is in the folder now.

    Attributes:
        how: `linked` shares the file with where it came from, `symlinked` its name, `copied` and
            `pulled` nothing; `there already` changed nothing.
        replaced: whether another file had that name.
    """

    name: str
    path: Path
    size_bytes: int
    how: str
    replaced: bool = False


@dataclass(frozen=True, kw_only=True)
class AddOptions:
    """How a model is added.

    Attributes:
        name: there; "" for its own.
        force: whether one of that name goes.
        copy: never link it.
        symlink: never copy it: where no hard link can be, its name is linked.
    """

    name: str = ""
    force: bool = False
    copy: bool = False
    symlink: bool = False


def add_model(source: Path, folder: Path, options: AddOptions, progress: Progress) -> Added:
    """Put a model into the folder; of a split one all parts. `progress` gets bytes done, in all.

    Raises:
        NotFoundError: the file, or a part of it, is not there.
        InvalidRequestError: it is no GGUF, or its name is taken or cannot be one.
        ForbiddenError: the folder may not be written.
        StorageError: there is no room, or the disk failed.
    """
    parts = _parts(source.expanduser())
    names = names_of(parts, options.name)
    sizes = [_checked_size(part) for part in parts]
    targets = [folder / name for name in names]
    taken = [target for target in targets if os.path.lexists(target)]
    stem = _SHARD.sub("", Path(names[0]).stem)
    if all(map(_is_same, parts, targets)):
        return Added(name=stem, path=targets[0], size_bytes=sum(sizes), how="there already")
    if taken and not options.force:
        raise taken_error(taken[0])
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


def is_remote(ref: str) -> bool:
    """Return whether a name is one of another machine's models."""
    return ref.startswith(("hf:", "ollama:", "pypi:", "http://", "https://"))


def checked_digests(source: Path, wanted: str, progress: Progress) -> list[str]:
    """Return the SHA-256 of each file of a model that is to be added.

    Raises:
        ClawError: a file is not there, is no GGUF, or has not the digest that is wanted.
    """
    parts = _parts(source.expanduser())
    for part in parts:
        _checked_size(part)
    try:
        digests = [digest_of(part, progress) for part in parts]
    except OSError as error:
        raise ForbiddenError(f"{source} cannot be read: {error.strerror}") from error
    if wanted and digests != [wanted]:
        raise InvalidRequestError(
            f"{source} has SHA-256 {', '.join(digests)}, expected {wanted}",
            hint="It is not the file that you mean, or it was damaged.",
        )
    return digests


def digest_of(path: Path, progress: Progress) -> str:
    """Return the SHA-256 of a file in hexadecimal."""
    import hashlib  # loads OpenSSL

    digest = hashlib.sha256()
    piece = bytearray(_PIECE_BYTES)
    done = 0
    with path.open("rb", buffering=0) as file:
        total = os.fstat(file.fileno()).st_size
        while count := file.readinto(piece):
            digest.update(memoryview(piece)[:count])
            done += count
            progress(done, total)
    return digest.hexdigest()


def pin_parts(path: Path, digests: list[str], source: str) -> None:
    """Write down the digests of a model's files."""
    for part, digest in zip(_parts(path), digests, strict=True):
        write_pin(part, ModelPin(sha256=digest, source=source))


def files_here(folder: Path, name: str) -> list[Path]:
    """Return the files of a model of the folder; its name in any case, with or without .gguf.

    Raises:
        NotFoundError: there is none; says which are there.
    """
    wanted = name[: -len(SUFFIX)] if name.lower().endswith(SUFFIX) else name
    models: dict[str, list[Path]] = {}
    try:
        paths = sorted(folder.iterdir())
    except OSError:
        paths = []
    for path in paths:
        if path.suffix.lower() == SUFFIX and not path.name.startswith((".", f"{PROJECTOR}-")):
            models.setdefault(_SHARD.sub("", path.stem), []).append(path)
    alike = [stem for stem in models if stem.lower() == wanted.lower()]
    if wanted in models:
        alike = [wanted]
    if len(alike) != 1:
        raise NotFoundError(
            f"no model named {name!r} in {folder}; there are: {', '.join(models) or 'none'}",
            hint="`clawctl model add FILE` takes a file in, `clawctl model pull REF` fetches one, "
            "and `clawctl model recommend` says which fit this machine.",
        )
    return models[alike[0]]


def remove_model(folder: Path, name: str) -> list[Path]:
    """Remove a model's files, their pins, its eyes and what it was merged into; of links the link.

    Raises:
        NotFoundError: there is none of this name.
        ForbiddenError: the folder may not be written.
    """
    files = files_here(folder, name)
    stem = _SHARD.sub("", files[0].stem)
    beside = [folder / f"{PROJECTOR}-{stem}{SUFFIX}"]
    if stem.lower() == ASSISTANT:
        beside.append(folder / f"{MERGED_ASSISTANT}{SUFFIX}")
    gone = [*files, *(path for path in beside if os.path.lexists(path))]
    try:
        for path in gone:
            path.unlink()
            pin_of(path).unlink(missing_ok=True)
    except OSError as error:
        raise ForbiddenError(
            f"{folder} may not be written: {error.strerror}",
            hint="Do it as the user whose home it is, or as root.",
        ) from error
    return gone


def taken_error(path: Path) -> InvalidRequestError:
    """Return the error for a name that another file has."""
    return InvalidRequestError(
        f"{path} is there already",
        hint="Give another name with --name, or overwrite it with --force.",
    )


def noted_pin(path: Path) -> ModelPin | None:
    """Return what was noted of a file; None for nothing, or nothing that can be read."""
    try:
        return decode_pin(pin_of(path).read_bytes())
    except (OSError, ValueError):
        return None


def model_name(path: Path) -> str:
    """Return the name of the model of which this is a file."""
    return _SHARD.sub("", path.stem)


def write_pin(path: Path, pin: ModelPin, *, is_seen: bool = True) -> None:
    """Write down the digest of a model's file, and how the file looks if it was seen to have it."""
    beside = pin_of(path)
    try:
        looks = seen(path.stat()) if is_seen else None
        data = encode_pin(msgspec.structs.replace(pin, seen=looks))
        replace_file(beside, data, mode=0o644)
    except OSError as error:
        raise StorageError(f"{beside} was not written: {error.strerror}") from error


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


def names_of(parts: list[Path], wanted: str) -> list[str]:
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
            head = file.read(HEAD_BYTES)
            size_bytes = os.fstat(file.fileno()).st_size
    except OSError as error:
        raise ForbiddenError(f"{path} cannot be read: {error.strerror}") from error
    check_head(head, str(path))
    return size_bytes


def check_head(head: bytes, path: str) -> None:
    """See that what begins with this is a GGUF file; `path` is where it is.

    Raises:
        InvalidRequestError: it is none that llama.cpp reads.
    """
    if len(head) < _HEAD.size or head[:4] != MAGIC:
        raise InvalidRequestError(
            f"{path} is not a GGUF file: it begins with {head[:4]!r}, expected {MAGIC!r}",
            hint="Was it downloaded whole? A page or a pointer file of a few hundred bytes is not "
            "the model.",
        )
    _, version = _HEAD.unpack(head)
    if version not in VERSIONS:
        raise InvalidRequestError(
            f"{path} is GGUF of version {version}; expected one of {', '.join(map(str, VERSIONS))}",
            hint="Convert it anew, on a machine of this byte order.",
        )


def _is_same(part: Path, target: Path) -> bool:
    return target.exists() and target.samefile(part)


def _put(parts: list[Path], targets: list[Path], options: AddOptions, progress: Progress) -> str:
    """Make every file beside its place first, then move all of them there."""
    folder = targets[0].parent
    make_folder(folder)
    remove_unfinished(folder)
    fresh = [folder / f".{target.name}.{os.getpid()}.part" for target in targets]
    try:
        how = "linked" if not options.copy and all(map(_link, parts, fresh)) else "copied"
        if how == "copied":
            for path in fresh:
                path.unlink(missing_ok=True)
            if options.symlink:
                how = "symlinked"
                for part, path in zip(parts, fresh, strict=True):
                    _link_name(part, path)
            else:
                _copy_all(parts, fresh, progress)
        for path, target in zip(fresh, targets, strict=True):
            path.replace(target)
    finally:
        for path in fresh:
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)
    return how


def make_folder(folder: Path) -> None:
    """Make the folder, its home's owner its owner: root may do this for the service."""
    if folder.is_dir():
        return
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if os.geteuid() == 0:
        home = folder.parent.stat()
        os.chown(folder, home.st_uid, home.st_gid)


def remove_unfinished(folder: Path) -> None:
    """Remove copies whose process was killed: each may be as large as a model."""
    for path in folder.iterdir():
        made = _UNFINISHED.fullmatch(path.name)
        if made is not None and not _is_running(int(made[1])):
            with contextlib.suppress(OSError):
                path.unlink()


def _is_running(pid: int) -> bool:
    import psutil

    try:
        return bool(psutil.pid_exists(pid))
    except OverflowError:
        return False


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


def _link_name(part: Path, fresh: Path) -> None:
    """Link a file's name; the daemon reads it as the owner of the folder."""
    real = part.resolve()
    owner = fresh.parent.stat().st_uid
    about = real.stat()
    if owner not in {about.st_uid, 0} and not about.st_mode & 0o004:
        raise ForbiddenError(
            f"{real} can be read by its owner only, and the folder of models is another user's",
            hint=f"Copy it: clawctl model add --copy {real}",
        )
    fresh.symlink_to(real)


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
