"""The folder of state files: which are there, how many bytes they may take, which go first.

Names are `<model>-<sequence>.kv`; a file's time of change is when its sequence was last used. All
models share one folder and one quota. Nothing is removed but what has such a name.
"""

import contextlib
import fcntl
import hashlib
import logging
import os
import stat
import struct
import time
import zlib
from collections.abc import Generator
from pathlib import Path

import msgspec
import numpy as np

from clawd.engine.worker.buffers import Buffer
from clawd.engine.worker.prompt import Part
from clawd.kernel.files import sync_folder

# A sequence's state as a file: what it is the state of, the state, a checksum.
#
#     offset 0     8 bytes   b"CLAWDKV1"
#            8     4 bytes   length of the header, little-endian
#            12    4 bytes   CRC-32 of the header
#            16    header    msgpack: {"fingerprint": "9c1f…", "tokens": …, "parts": […], "size": n}
#                  n bytes   what llama_state_seq_get_data gave
#                  4 bytes   CRC-32 of these
#
# llama.cpp stores no more than the architecture's name, takes the state of any model of the same
# shape, and ends the process on one that is cut short: everything is checked here before it sees
# a byte. A file is complete or absent: it is written under another name, synced and renamed. It is
# locked until then (flock(2)), so that one which a crash left behind is known at once.

MAGIC = b"CLAWDKV1"
TEMPORARY_SUFFIX = ".part"
SLICE_BYTES = 8 * 1024 * 1024
_PREFIX = struct.Struct("<8sII")
_TRAILER = struct.Struct("<I")
_READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_WRITE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class BadStateError(Exception):
    """The file is no whole state file of this format."""


class StateHeader(msgspec.Struct, frozen=True, kw_only=True):
    """What a state is of.

    Attributes:
        fingerprint: of the model and of all that shapes its state.
        tokens: the sequence's tokens, 4 bytes each, little-endian.
        parts: the text that the tokens came from.
        size: length of the state in bytes.
    """

    fingerprint: str
    tokens: bytes
    parts: tuple[Part, ...]
    size: int

    def token_list(self) -> list[int]:
        """Return the sequence's tokens."""
        return list(map(int, np.frombuffer(self.tokens, "<i4").tolist()))


_decoder = msgspec.msgpack.Decoder(StateHeader)


def pack_tokens(tokens: list[int]) -> bytes:
    """Return tokens as a header holds them."""
    return np.array(tokens, "<i4").tobytes()


def file_size(header: StateHeader) -> int:
    """Return how long the file of a state is."""
    return _PREFIX.size + len(msgspec.msgpack.encode(header)) + header.size + _TRAILER.size


def read_header(path: Path) -> StateHeader:
    """Return the header of a file whose length is right.

    Raises:
        BadStateError: it is no state file, or it is cut short.
        OSError: it cannot be read.
    """
    with _opened(path) as (file, length):
        return _read_header(file, length, path)


def read_state(path: Path, header: StateHeader, into: Buffer) -> None:
    """Read the state into the first `header.size` bytes of a buffer.

    Raises:
        BadStateError: it is not whole, or not the one that the header was read from.
        OSError: it cannot be read.
    """
    with _opened(path) as (file, length):
        if _read_header(file, length, path) != header:
            raise BadStateError(f"{path} was replaced by another state")
        view = into[: header.size].data
        done = 0
        while done < header.size:
            count = os.readv(file, [view[done : done + SLICE_BYTES]])
            if not count:
                raise BadStateError(f"{path} ends {header.size - done} bytes early")
            done += count
        trailer = os.read(file, _TRAILER.size)
    if trailer != _TRAILER.pack(zlib.crc32(view)):
        raise BadStateError(f"{path}: the state's checksum does not match")


def write_slices(path: Path, header: StateHeader, state: Buffer) -> Generator[None]:
    """Write a state file in slices, pausing after each; closing the iterator undoes all.

    Every slice is on the disk before the next, so no pause is far away and the last sync is short.

    Raises:
        OSError: it cannot be written; nothing is left behind.
    """
    temporary = path.with_name(f"{path.stem}.{os.getpid()}{TEMPORARY_SUFFIX}")
    view = state[: header.size].data
    encoded = msgspec.msgpack.encode(header)
    checksum = 0
    try:
        file = os.open(temporary, _WRITE_FLAGS, 0o600)
        try:
            # Some file systems have no locks; there, age decides. Who looks whether it is locked
            # holds the lock for that moment.
            with contextlib.suppress(OSError):
                fcntl.flock(file, fcntl.LOCK_EX)
            _write(file, _PREFIX.pack(MAGIC, len(encoded), zlib.crc32(encoded)) + encoded)
            for start in range(0, header.size, SLICE_BYTES):
                piece = view[start : start + SLICE_BYTES]
                checksum = zlib.crc32(piece, checksum)
                _write(file, piece)
                os.fdatasync(file)
                yield
            _write(file, _TRAILER.pack(checksum))
            os.fsync(file)
        finally:
            os.close(file)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    sync_folder(path.parent)


def is_being_written(path: Path) -> bool | None:
    """Return whether somebody writes the file under its temporary name; None if nobody can tell.

    Raises:
        OSError: it cannot be opened.
    """
    file = os.open(path, _READ_FLAGS)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return None
    else:
        return False
    finally:
        os.close(file)


class _opened:  # noqa: N801  (used as a function in `with`)
    """A regular file's descriptor and length; links and devices are refused."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = -1

    def __enter__(self) -> tuple[int, int]:
        self._file = os.open(self._path, _READ_FLAGS)
        status = os.fstat(self._file)
        if not stat.S_ISREG(status.st_mode):
            os.close(self._file)
            raise BadStateError(f"{self._path} is no regular file")
        return self._file, status.st_size

    def __exit__(self, *_: object) -> None:
        os.close(self._file)


def _read_header(file: int, length: int, path: Path) -> StateHeader:
    prefix = os.read(file, _PREFIX.size)
    if len(prefix) < _PREFIX.size:
        raise BadStateError(f"{path} has {len(prefix)} bytes")
    magic, header_length, checksum = _PREFIX.unpack(prefix)
    if magic != MAGIC:
        raise BadStateError(f"{path} begins with {magic!r}, not {MAGIC!r}")
    if header_length > length:
        raise BadStateError(f"{path} is cut short in its header")
    encoded = os.read(file, header_length)
    if zlib.crc32(encoded) != checksum:
        raise BadStateError(f"{path}: the header's checksum does not match")
    try:
        header = _decoder.decode(encoded)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadStateError(f"{path}: {error}") from error
    expected = _PREFIX.size + header_length + header.size + _TRAILER.size
    if length != expected or header.size < 0 or len(header.tokens) % 4:
        raise BadStateError(f"{path} has {length} bytes, expected {expected}")
    return header


def _write(file: int, data: bytes | memoryview) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]


SUFFIX = ".kv"
MAX_FILES = 64
# A file under its temporary name is written within seconds; where it cannot be seen whether
# somebody does, older ones were left by a crash.
STALE_S = 120.0

logger = logging.getLogger(__name__)


class StoredState(msgspec.Struct, frozen=True, kw_only=True):
    """A state file and its header."""

    path: Path
    header: StateHeader
    used_at: float


class StateFolder:
    """State files of one model. Its methods raise no OSError: what fails is logged and skipped.

    Args:
        folder: where; made when something is written.
        limit_bytes: of all state files in it.
        fingerprint: of the model; files with another are of no use.
    """

    def __init__(self, folder: Path, limit_bytes: int, fingerprint: str) -> None:
        self._folder = folder
        self._limit_bytes = limit_bytes
        self._fingerprint = fingerprint
        self._prefix = fingerprint[:16] + "-"

    def states(self) -> list[StoredState]:
        """Return this model's states, last used first; removes what is broken or left behind."""
        self._remove_stale()
        found: list[StoredState] = []
        for used_at, _, path in sorted(self._files(), reverse=True):
            if not path.name.startswith(self._prefix):
                continue
            header = self._header(path)
            if header is None or len(found) == MAX_FILES:
                self.remove(path)
            else:
                found.append(StoredState(path=path, header=header, used_at=used_at))
        return found

    def read(self, stored: StoredState, into: Buffer) -> bool:
        """Read a state into a buffer; False, and the file is gone, when it is not whole."""
        try:
            read_state(stored.path, stored.header, into)
        except (OSError, BadStateError) as error:
            logger.warning("a kept state is not used: %s", error)
            self.remove(stored.path)
            return False
        return True

    def write(
        self, tokens: list[int], parts: tuple[Part, ...], state: Buffer, used_at: float
    ) -> Generator[StoredState | None]:
        """Write a state slice by slice, yielding None after each and the file at the end.

        Makes room by removing files that were used less recently; ends without a file when there
        is none to be made, or the disk takes no more. Closing the iterator leaves nothing behind.
        """
        packed = pack_tokens(tokens)
        header = StateHeader(
            fingerprint=self._fingerprint, tokens=packed, parts=parts, size=state.nbytes
        )
        digest = hashlib.sha256(packed).hexdigest()[:16]
        path = self._folder / f"{self._prefix}{digest}{SUFFIX}"
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not self._make_room(file_size(header), used_at):
                return
            for _ in write_slices(path, header, state):
                yield None
        except OSError as error:
            logger.warning("a sequence's state is not kept: %s", error)
            return
        self.touch(path, used_at)
        yield StoredState(path=path, header=header, used_at=used_at)

    def touch(self, path: Path, used_at: float) -> None:
        """Note when a state was used."""
        try:
            # Through a descriptor: by its path, no file's times may be changed here.
            file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                os.utime(file, (used_at, used_at))
            finally:
                os.close(file)
        except OSError as error:
            logger.debug("the time of a kept state is not set: %s", error)

    def remove(self, path: Path) -> None:
        """Remove a state file."""
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            logger.warning("a kept state is not removed: %s", error)

    def _header(self, path: Path) -> StateHeader | None:
        try:
            header = read_header(path)
        except (OSError, BadStateError) as error:
            logger.warning("a kept state is removed: %s", error)
            return None
        return header if header.fingerprint == self._fingerprint else None

    def _files(self) -> list[tuple[float, int, Path]]:
        """Return time, size and path of every state file, other models' included."""
        return [
            (status.st_mtime, status.st_size, path)
            for path, status in self._entries(SUFFIX)
            if _is_our_name(path.stem)
        ]

    def _entries(self, suffix: str) -> list[tuple[Path, os.stat_result]]:
        entries = []
        try:
            with os.scandir(self._folder) as found:
                for entry in found:
                    # Another worker may remove a file while this one looks.
                    with contextlib.suppress(FileNotFoundError):
                        if entry.name.endswith(suffix):
                            entries.append((Path(entry.path), entry.stat(follow_symlinks=False)))
        except FileNotFoundError:
            return []  # the first write makes the folder
        except OSError as error:
            logger.warning("the folder of kept states cannot be read: %s", error)
        return entries

    def _make_room(self, size: int, used_at: float) -> bool:
        files = sorted(self._files())
        total = sum(length for _, length, _ in files)
        for time_used, length, path in files:
            if total + size <= self._limit_bytes or time_used > used_at:
                break
            self.remove(path)
            total -= length
        return total + size <= self._limit_bytes

    def _remove_stale(self) -> None:
        for path, status in self._entries(TEMPORARY_SUFFIX):
            if _is_our_name(path.stem.partition(".")[0]) and _is_left_behind(path, status):
                self.remove(path)


def _is_left_behind(path: Path, status: os.stat_result) -> bool:
    try:
        is_written = is_being_written(path)
    except OSError:
        return False
    # It is locked before its first byte is written: an empty one may be about to be.
    if is_written is None or (not is_written and not status.st_size):
        return status.st_mtime < time.time() - STALE_S
    return not is_written


def _is_our_name(stem: str) -> bool:
    model, _, sequence = stem.partition("-")
    return all(
        len(half) == 16 and set(half) <= set("0123456789abcdef") for half in (model, sequence)
    )
