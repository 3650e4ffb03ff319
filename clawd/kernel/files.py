"""Files that are whole and on disk when a call returns, and folders that are wholly gone."""

import contextlib
import os
import secrets
from pathlib import Path

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


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


def remove_tree(folder: Path) -> None:
    """Remove a folder with all that is in it, however deep and closed; no link is followed.

    Nothing may be at work in it.

    Raises:
        OSError: something of it stays.
    """
    try:
        folder.chmod(0o700)
        top = os.open(folder, _FOLDER)
    except FileNotFoundError:
        return
    try:
        waiting = _cleared(top, top)
        while waiting:
            name = waiting.pop()
            os.chmod(name, 0o700, dir_fd=top)
            inner = os.open(name, _FOLDER, dir_fd=top)
            try:
                waiting += _cleared(inner, top)
            finally:
                os.close(inner)
            os.rmdir(name, dir_fd=top)
    finally:
        os.close(top)
    folder.rmdir()


def _cleared(folder: int, top: int) -> list[str]:
    """Remove the files of an open folder and move its folders to the top one; return their names.

    So no depth is too deep.
    """
    with os.scandir(folder) as entries:
        found = [(each.name, each.is_dir(follow_symlinks=False)) for each in entries]
    moved: list[str] = []
    for name, is_folder in found:
        if not is_folder:
            os.unlink(name, dir_fd=folder)
            continue
        if folder != top:
            os.chmod(name, 0o700, dir_fd=folder)
            new = secrets.token_hex(16)
            os.rename(name, new, src_dir_fd=folder, dst_dir_fd=top)
            name = new
        moved.append(name)
    return moved
