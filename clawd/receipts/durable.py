"""Files that only their owner may read, and writes that have reached the disk."""

import errno
import os
import stat
from pathlib import Path

from clawd.errors import StorageError


def open_private(path: Path, flags: int) -> int:
    """Open a regular file that only its owner may read, creating it where it is missing."""
    descriptor = os.open(path, flags | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a regular file")
    if stat.S_IMODE(status.st_mode) != 0o600:
        os.fchmod(descriptor, 0o600)
    return descriptor


def write_all(descriptor: int, data: bytes) -> None:
    """Write all of the data, in as many pieces as it takes."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def write_private(path: Path, data: bytes, flags: int = os.O_TRUNC) -> None:
    """Write the file and have it, but for its name, on disk."""
    descriptor = open_private(path, os.O_WRONLY | flags)
    try:
        write_all(descriptor, data)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_folder(path: Path) -> None:
    """Make the names in the file's folder durable, a new one among them."""
    descriptor = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_private(path: Path, max_bytes: int) -> bytes | None:
    """Return the beginning of a file that nobody else could have written; None where it is not.

    Anything but a regular file is taken for an empty one.

    Raises:
        StorageError: it cannot be read, or is not this user's own with mode 0600.
    """
    try:
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW
        with os.fdopen(os.open(path, flags), "rb") as file:
            facts = os.fstat(file.fileno())
            data = file.read(max_bytes) if stat.S_ISREG(facts.st_mode) else b""
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StorageError(f"{path} cannot be read: {error}") from error
    if facts.st_uid != os.geteuid() or stat.S_IMODE(facts.st_mode) & 0o077:
        raise StorageError(
            f"{path} must belong to uid {os.geteuid()} with mode 0600: it has uid "
            f"{facts.st_uid}, mode {stat.S_IMODE(facts.st_mode):04o}"
        )
    return data
