"""A sequence's state as a file: what it is the state of, the state, a checksum.

    offset 0     8 bytes   b"CLAWDKV1"
           8     4 bytes   length of the header, little-endian
           12    4 bytes   CRC-32 of the header
           16    header    msgpack: {"fingerprint": "9c1f…", "tokens": …, "parts": […], "size": n}
                 n bytes   what llama_state_seq_get_data gave
                 4 bytes   CRC-32 of these

llama.cpp stores no more than the architecture's name, takes the state of any model of the same
shape, and ends the process on one that is cut short: everything is checked here before it sees
a byte. A file is complete or absent: it is written under another name, synced and renamed. It is
locked until then (flock(2)), so that one which a crash left behind is known at once.
"""

import contextlib
import fcntl
import os
import stat
import struct
import zlib
from collections.abc import Generator
from pathlib import Path

import msgspec
import numpy as np

from clawd.engine.worker.buffers import Buffer
from clawd.engine.worker.prompt import Part

MAGIC = b"CLAWDKV1"
TEMPORARY_SUFFIX = ".part"
SLICE_BYTES = 8 * 1024 * 1024
_PREFIX = struct.Struct("<8sII")
_TRAILER = struct.Struct("<I")
_READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_WRITE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class BadStateError(Exception):
    """The file is no whole state file of this format."""


class Header(msgspec.Struct, frozen=True, kw_only=True):
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


_decoder = msgspec.msgpack.Decoder(Header)


def pack_tokens(tokens: list[int]) -> bytes:
    """Return tokens as a header holds them."""
    return np.array(tokens, "<i4").tobytes()


def file_size(header: Header) -> int:
    """Return how long the file of a state is."""
    return _PREFIX.size + len(msgspec.msgpack.encode(header)) + header.size + _TRAILER.size


def read_header(path: Path) -> Header:
    """Return the header of a file whose length is right.

    Raises:
        BadStateError: it is no state file, or it is cut short.
        OSError: it cannot be read.
    """
    with _opened(path) as (file, length):
        return _read_header(file, length, path)


def read_state(path: Path, header: Header, into: Buffer) -> None:
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


def write_slices(path: Path, header: Header, state: Buffer) -> Generator[None]:
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
    _sync_folder(path.parent)


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


def _read_header(file: int, length: int, path: Path) -> Header:
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


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
