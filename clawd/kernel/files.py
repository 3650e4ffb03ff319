"""Files that are whole and on disk when a call returns."""

import contextlib
import os
from pathlib import Path


def sync_folder(folder: Path) -> None:
    """Make the names in a folder survive a loss of power.

    Raises:
        OSError: the disk refused.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace_file(path: Path, data: bytes, *, mode: int = 0o600) -> None:
    """Write a file beside its place and rename it there: all of it, or none.

    Raises:
        OSError: the disk refused; what was there before still is.
    """
    partial = path.with_name(f".{path.name}.{os.urandom(4).hex()}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with os.fdopen(os.open(partial, flags, 0o600), "wb") as file:
            os.fchmod(file.fileno(), mode)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def changed_at(path: Path) -> float:
    """Return when a file was changed; 0 where it cannot be looked at."""
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
