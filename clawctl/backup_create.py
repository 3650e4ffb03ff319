"""Makes a backup of a home, also while its daemon runs.

Memory is copied by SQLite itself (`VACUUM INTO`) and before the receipts: so the log is never
behind the head that memory remembers. What else a daemon may change is copied aside first.
"""

import hashlib
import os
import re
import shutil
import socket
import sqlite3
import stat
import tempfile
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

import msgspec

from clawctl.backup_archive import (
    FORMAT,
    PIECE_BYTES,
    ArchivedFile,
    ArchiveWriter,
    ChainFacts,
    Manifest,
)
from clawctl.backup_archive import Progress as Progress
from clawd import __version__
from clawd.errors import ClawError, StorageError
from clawd.kernel.files import sync_folder
from clawd.paths import Layout
from clawd.receipts.verify import read_head

KEY_TRIES = 20
_STAGED_BYTES = 64 << 20

# Private keys: with them the chain can be written on, and secrets behind tags be guessed.
KEYS = frozenset({"checkpoint.key", "checkpoint.key.next", "receipts.key"})
# What belongs to a process, can be made again, or is copied in another way.
_NEVER = re.compile(
    r"(run|cache|copies|snapshots)|.*\.lock|clawd\.log(\.\d+)?|daemon\.log|memory\.sqlite.*"
    r"|.*\.part|\..*|tool_receipts\.log.*|restored\.json"
)


class Sources(msgspec.Struct, frozen=True, kw_only=True):
    """Where everything lies, and what of it is wanted."""

    layout: Layout
    memory: Path
    receipts: Path
    workspace: Path
    with_keys: bool = False
    with_models: bool = False
    with_workspace: bool = False


class _Found(msgspec.Struct, frozen=True, kw_only=True):
    entry: ArchivedFile
    file: Path


class Created(msgspec.Struct, frozen=True, kw_only=True):
    """What was written."""

    path: str
    size_bytes: int
    manifest: Manifest


def create(sources: Sources, target: Path, *, force: bool, progress: Progress) -> Created:
    """Write a backup to a file: whole, on disk and for its owner only, or not at all.

    Raises:
        ClawError: there is nothing to back up, or it cannot be read or written.
    """
    if target.exists() and not force:
        raise ClawError(f"{target} is there already", hint="Name another file, or use --force.")
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        descriptor = os.open(part, flags, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as stream:
                manifest = write(sources, stream, target.absolute().parent, progress)
                stream.flush()
                os.fsync(descriptor)
            size_bytes = part.stat().st_size
            part.replace(target)
            sync_folder(target.absolute().parent)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        raise StorageError(
            f"{target} cannot be written: {error.strerror or error}",
            hint="Nothing was left behind. Choose a folder with room that you may write.",
        ) from error
    return Created(path=str(target), size_bytes=size_bytes, manifest=manifest)


def write(sources: Sources, stream: BinaryIO, room: Path, progress: Progress) -> Manifest:
    """Write a backup to a stream; `room` is a folder with space for copies of what may change.

    Raises:
        ClawError: there is nothing to back up, or it cannot be read.
        OSError: the stream cannot be written.
    """
    if not sources.layout.home.is_dir():
        raise ClawError(
            f"there is no home at {sources.layout.home}", hint="Name it with CLAWD_HOME."
        )
    with tempfile.TemporaryDirectory(prefix=".clawd-backup-", dir=room) as folder:
        staging = Path(folder)
        left_out: list[str] = []
        found, schema = _stage(sources, staging, left_out)
        head = _head(sources, staging)
        manifest = Manifest(
            format=FORMAT,
            created_at=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            version=__version__,
            host=socket.gethostname(),
            home=str(sources.layout.home),
            is_system=sources.layout.is_system,
            with_keys=sources.with_keys,
            schema=schema,
            receipts=head,
            left_out=tuple(left_out),
            files=tuple(each.entry for each in found),
        )
        _write_files(stream, manifest, found, progress)
    return manifest


def _write_files(
    stream: BinaryIO, manifest: Manifest, found: list[_Found], progress: Progress
) -> None:
    writer, total, done = ArchiveWriter(stream, manifest), manifest.total_bytes, 0

    def count(amount: int) -> None:
        nonlocal done
        done += amount
        progress(done, total)

    for each in found:
        with each.file.open("rb") as file:
            writer.add(each.entry, file, count)
    writer.close()


def _stage(sources: Sources, staging: Path, left_out: list[str]) -> tuple[list[_Found], int]:
    home = sources.layout.home
    copies = staging / "home"
    copies.mkdir(mode=0o700)
    found: list[_Found] = []
    schema = 0
    if sources.memory.exists():
        schema = _copy_memory(sources.memory, copies / "memory.sqlite")
        found.append(_described(copies / "memory.sqlite", "home/memory.sqlite"))
    names = _copy_receipts(sources, copies)
    found += [_described(copies / name, f"home/{name}") for name in names]
    for file in _files_below(home, sources, left_out):
        found += _copied_or_described(file, f"home/{file.relative_to(home)}", staging)
    if not sources.layout.config.is_relative_to(home) and sources.layout.config.exists():
        found += _copied_or_described(sources.layout.config, "config/config.toml", staging)
    if sources.with_workspace and sources.workspace.is_dir():
        for file in _plain_files(sources.workspace, left_out):
            path = f"workspace/{file.relative_to(sources.workspace)}"
            found += _copied_or_described(file, path, staging)
    elif sources.workspace.is_dir():
        left_out.append(f"the workspace {sources.workspace} (--workspace)")
    for what, place, usual in (
        ("memory", sources.memory, sources.layout.database),
        ("the receipt log", sources.receipts, sources.layout.receipts),
    ):
        if place != usual:
            left_out.append(f"the place of {what}: it was {place}, here it is home/{usual.name}")
    if not sources.with_keys:
        left_out.append("private keys and tokens of MCP servers (--keys)")
    return found, schema


def _files_below(home: Path, sources: Sources, left_out: list[str]) -> Iterator[Path]:
    elsewhere = [each for each in (sources.memory, sources.receipts) if each.parent == home]
    copied = tuple(each.name for each in elsewhere)  # and what lies beside them: -wal, .lock, .1
    for each in sorted(home.iterdir()):
        if _NEVER.fullmatch(each.name) or each.name.startswith(copied):
            continue
        if each == sources.workspace:
            continue
        if each.name in KEYS | {"mcp"} and not sources.with_keys:
            continue
        if each.name in KEYS:
            continue  # copied together with the log
        if each == sources.layout.models and not sources.with_models:
            if each.is_dir() and any(each.iterdir()):
                left_out.append(f"the models in {each} (--models)")
            continue
        if each.is_dir() and not each.is_symlink():
            yield from _plain_files(each, left_out)
        else:
            yield from _if_plain(each, left_out)


def _plain_files(folder: Path, left_out: list[str]) -> Iterator[Path]:
    for where, folders, names in os.walk(folder):
        folders.sort()
        links = [Path(where, name) for name in folders if Path(where, name).is_symlink()]
        left_out += [f"{each}: a link" for each in links]
        for name in sorted(names):
            yield from _if_plain(Path(where, name), left_out)


def _if_plain(file: Path, left_out: list[str]) -> Iterator[Path]:
    try:
        about = file.lstat()
    except FileNotFoundError:
        return  # it went after it was listed
    if not stat.S_ISREG(about.st_mode):
        left_out.append(f"{file}: no plain file")
    elif not str(file).isprintable():
        left_out.append(f"{str(file)!r}: a name that cannot be shown")
    else:
        yield file


def _copy_memory(memory: Path, target: Path) -> int:
    """Copy a database that may be in use, at one point in time; return its schema."""
    try:
        with closing(sqlite3.connect(memory, timeout=30)) as connection:
            (schema,) = connection.execute("PRAGMA user_version").fetchone()
            connection.execute("VACUUM INTO ?", (str(target),))
    except sqlite3.Error as error:
        raise StorageError(
            f"memory {memory} cannot be copied: {error}",
            hint="Is there room? `clawctl doctor` says whether the file is damaged.",
        ) from error
    target.chmod(0o600)
    return int(schema)


def _copy_receipts(sources: Sources, copies: Path) -> list[str]:
    """Copy the log, with its keys where they are wanted: then both are of one moment."""
    for _ in range(KEY_TRIES):
        before = _keys_of(sources)
        names = _copy_log(sources.receipts, copies)
        if not sources.with_keys or before == _keys_of(sources):
            break
    else:
        raise ClawError("the key of the receipts changes all the time", hint="Run it again.")
    for name, content in before.items() if sources.with_keys else ():
        (copies / name).write_bytes(content)
        names.append(name)
    return names


def _keys_of(sources: Sources) -> dict[str, bytes]:
    keys = {}
    for name in sorted(KEYS):
        try:
            keys[name] = (sources.layout.home / name).read_bytes()
        except FileNotFoundError:
            continue
    return keys


def _copy_log(log: Path, copies: Path) -> list[str]:
    """Copy the log's files up to the last whole line; return their names in the backup."""
    if not log.parent.is_dir():
        return []
    current = log.open("rb") if log.exists() else None
    held = os.fstat(current.fileno()) if current is not None else None
    names = []
    try:
        for file in sorted(log.parent.glob(f"{log.name}.[0-9]*")):
            if file.suffix[1:].isdigit() and not (held and os.path.samestat(file.stat(), held)):
                names.append(f"tool_receipts.log{file.suffix}")
                shutil.copyfile(file, copies / names[-1])
        if current is not None:
            names.append("tool_receipts.log")
            with (copies / names[-1]).open("wb") as copy:
                shutil.copyfileobj(current, copy)
            _cut_half_line(copies / names[-1])
    finally:
        if current is not None:
            current.close()
    return names


def _cut_half_line(path: Path) -> None:
    """Cut what the daemon had not finished writing when it was read."""
    with path.open("r+b") as file:
        end = file.seek(0, os.SEEK_END)
        start = max(0, end - (2 << 20))
        file.seek(start)
        tail = file.read()
        file.truncate(start + tail.rfind(b"\n") + 1)


def _head(sources: Sources, staging: Path) -> ChainFacts:
    copy = staging / "home" / "tool_receipts.log"
    if not copy.exists():
        return ChainFacts()
    head = read_head(copy, first_public_key_path=sources.layout.checkpoint_public_key)
    return ChainFacts(seq=head.seq, hash=head.receipt_hash, first_public_key=head.first_public_key)


def _copied_or_described(file: Path, path: str, staging: Path) -> list[_Found]:
    """Copy a file of usual size aside, so that it stays as it is now; a huge one is only hashed.

    Of a file that went after it was listed there is nothing to copy.
    """
    try:
        try:
            descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            return []
        with os.fdopen(descriptor, "rb") as opened:
            if os.fstat(descriptor).st_size > _STAGED_BYTES:
                return [_described(file, path)]
            copy = staging / path
            copy.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with copy.open("xb") as target:
                shutil.copyfileobj(opened, target)
            about = os.fstat(descriptor)
            copy.chmod(0o700 if about.st_mode & stat.S_IXUSR else 0o600)
            os.utime(copy, ns=(about.st_mtime_ns, about.st_mtime_ns))
    except OSError as error:
        raise StorageError(f"{file} cannot be copied: {error.strerror or error}") from error
    return [_described(copy, path)]


def _described(file: Path, path: str) -> _Found:
    digest, size = hashlib.sha256(), 0
    with file.open("rb") as opened:
        for piece in iter(lambda: opened.read(PIECE_BYTES), b""):
            digest.update(piece)
            size += len(piece)
        about = os.fstat(opened.fileno())
    entry = ArchivedFile(
        path=path,
        size=size,
        sha256=digest.hexdigest(),
        mtime_ns=about.st_mtime_ns,
        executable=bool(about.st_mode & stat.S_IXUSR),
    )
    return _Found(entry=entry, file=file)
