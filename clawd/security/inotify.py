"""The few inotify calls of Linux that the emergency stop needs, by ctypes (inotify(7))."""

import ctypes
import os
import struct
from pathlib import Path

IN_ATTRIB = 0x4
IN_CLOSE_WRITE = 0x8
IN_MOVED_FROM = 0x40
IN_MOVED_TO = 0x80
IN_CREATE = 0x100
IN_DELETE = 0x200
IN_DELETE_SELF = 0x400
IN_MOVE_SELF = 0x800
IN_UNMOUNT = 0x2000
IN_Q_OVERFLOW = 0x4000
IN_IGNORED = 0x8000
IN_ONLYDIR = 0x1000000

_EVENT = struct.Struct("iIII")
_READ_BYTES = 65_536

_libc = ctypes.CDLL(None, use_errno=True)


def watch_directory(path: Path, mask: int) -> int:
    """Return a new non-blocking inotify descriptor that watches the directory.

    Raises:
        OSError: no such directory, or no inotify instance or watch is left.
    """
    descriptor: int = _libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK)
    if descriptor < 0:
        raise _last_error(path)
    if _libc.inotify_add_watch(descriptor, os.fsencode(path), mask | IN_ONLYDIR) < 0:
        error = _last_error(path)
        os.close(descriptor)
        raise error
    return descriptor


def read_masks(descriptor: int) -> int:
    """Return the masks of all waiting events, or-ed; 0 when none waits.

    Raises:
        OSError: the descriptor is broken.
    """
    try:
        data = os.read(descriptor, _READ_BYTES)
    except BlockingIOError:
        return 0
    masks = offset = 0
    while offset + _EVENT.size <= len(data):
        _watch, mask, _cookie, name_length = _EVENT.unpack_from(data, offset)
        masks |= mask
        offset += _EVENT.size + name_length
    return masks


def _last_error(path: Path) -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number), str(path))
