"""Opening a path so that it cannot lead out of a folder, whoever swaps what meanwhile.

openat2(2) with RESOLVE_BENEATH does it in the kernel (Linux 5.6); where it is missing or barred,
a walk by descriptors does the same. Symbolic links that stay beneath are followed.
"""

import ctypes
import errno
import functools
import os
import stat
from collections import deque

_SYS_OPENAT2 = 437
_RESOLVE_NO_MAGICLINKS = 0x02
_RESOLVE_NO_SYMLINKS = 0x04
_RESOLVE_BENEATH = 0x08
_MAX_LINKS = 40
_RETRIES = 16


class _OpenHow(ctypes.Structure):
    _fields_ = (
        ("flags", ctypes.c_uint64),
        ("mode", ctypes.c_uint64),
        ("resolve", ctypes.c_uint64),
    )


def open_beneath(folder: int, path: str, flags: int) -> int:
    """Open a relative path beneath a folder's descriptor; creates nothing.

    Raises:
        OSError: EXDEV when the path leads out of the folder; else as open(2).
    """
    return (
        _openat2(folder, path, flags, _RESOLVE_NO_MAGICLINKS | _RESOLVE_BENEATH)
        if has_openat2()
        else walk_beneath(folder, path, flags)
    )


def open_resolved(path: str, flags: int) -> int:
    """Open an absolute path that was resolved before; a link that is there by now is not followed.

    Raises:
        OSError: ELOOP or ENOTDIR for a link; else as open(2).
    """
    if has_openat2():
        return _openat2(-100, path, flags, _RESOLVE_NO_MAGICLINKS | _RESOLVE_NO_SYMLINKS)
    return _walk(os.open("/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC), _parts(path), flags)


def open_without_links(folder: int, path: str, flags: int) -> int:
    """Open a relative path beneath a folder's descriptor, with no link on the way to it.

    The last part may be one, for `O_PATH | O_NOFOLLOW`.

    Raises:
        OSError: ELOOP or ENOTDIR for a link on the way; else as open(2).
    """
    if has_openat2():
        return _openat2(folder, path, flags, _RESOLVE_NO_SYMLINKS | _RESOLVE_BENEATH)
    parts = _parts(path)
    if ".." in parts or path.startswith("/"):
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), path)
    return _walk(os.dup(folder), parts, flags)


def _walk(descriptor: int, parts: list[str], flags: int) -> int:
    """Open what a path leads to, a part after the other; closes `descriptor`, where it begins."""
    parts = parts or ["."]
    for position, part in enumerate(parts, 1):
        try:
            above, descriptor = (
                descriptor,
                _step(part, descriptor, flags, is_last=position == len(parts)),
            )
        except OSError:
            os.close(descriptor)
            raise
        os.close(above)
    return descriptor


@functools.cache
def has_openat2() -> bool:
    """Whether the kernel has openat2 and lets us use it (old container filters do not)."""
    try:
        os.close(_openat2(-100, "/", os.O_PATH, _RESOLVE_NO_MAGICLINKS))
    except OSError:
        return False
    return True


def walk_beneath(folder: int, path: str, flags: int) -> int:
    """Do what `open_beneath` does, one component at a time.

    The descriptors of all folders on the way stay open: `..` goes back to where the walk came
    from, not to where a folder has been moved meanwhile.
    """
    if path.startswith("/"):
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), path)
    opened = [os.open(".", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=folder)]
    parts = deque(_parts(path))
    links = 0
    try:
        while parts:
            part = parts.popleft()
            if part == "..":
                if len(opened) == 1:
                    raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), path)
                os.close(opened.pop())
                continue
            target = _link_target(part, opened[-1])
            if target is None:
                opened.append(_step(part, opened[-1], flags, is_last=not parts))
                continue
            links += 1
            if links > _MAX_LINKS or (flags & os.O_NOFOLLOW and not parts):
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
            if target.startswith("/"):
                raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), path)
            parts.extendleft(reversed(_parts(target)))
        return (
            os.open(".", flags | os.O_CLOEXEC, dir_fd=opened[0])
            if len(opened) == 1
            else (opened.pop())
        )
    finally:
        for descriptor in opened:
            os.close(descriptor)


def _step(part: str, folder: int, flags: int, *, is_last: bool) -> int:
    wanted = flags if is_last else os.O_PATH | os.O_DIRECTORY
    return os.open(part, wanted | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)


def _link_target(part: str, folder: int) -> str | None:
    status = os.stat(part, dir_fd=folder, follow_symlinks=False)
    return os.readlink(part, dir_fd=folder) if stat.S_ISLNK(status.st_mode) else None


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in {"", "."}]


def _openat2(folder: int, path: str, flags: int, resolve: int) -> int:
    how = _OpenHow(flags=flags | os.O_CLOEXEC, mode=0, resolve=resolve)
    name = os.fsencode(path)
    number = errno.EAGAIN
    for _ in range(_RETRIES):  # EAGAIN: something on the way was renamed meanwhile
        descriptor = _libc().syscall(
            ctypes.c_long(_SYS_OPENAT2),
            ctypes.c_int(folder),
            ctypes.c_char_p(name),
            ctypes.byref(how),
            ctypes.c_size_t(ctypes.sizeof(how)),
        )
        if descriptor >= 0:
            return int(descriptor)
        number = ctypes.get_errno()
        if number not in {errno.EAGAIN, errno.EINTR}:
            break
    raise OSError(number, os.strerror(number), path)


@functools.cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
