"""Files that only their owner may read, and writes that have reached the disk."""

import errno
import os
import stat
from pathlib import Path


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
