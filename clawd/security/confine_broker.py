"""Changes modes and times of files for a command that may not name files to the kernel itself.

Landlock does not ask who changes a file's mode or times by its path. The filter therefore stops
these calls and asks here (seccomp_unotify(2)): the path is read once, opened without being
followed further, looked at, and the change made through what was opened. A command that changes
the path meanwhile changes nothing. Standard library and `clawd.kernel` only.
"""

import ctypes
import errno
import fcntl
import os
import struct

from clawd.kernel.numbers import NUMBERS
from clawd.kernel.syscalls import system_call

_RECEIVE, _SEND, _IS_VALID = 0xC0502100, 0xC0182101, 0x40082102  # SECCOMP_IOCTL_NOTIF_*
# struct seccomp_notif: id, pid, flags, then seccomp_data: nr, arch, instruction pointer, args.
_QUESTION = struct.Struct("=QIIiIQ6Q")
_ANSWER = struct.Struct("=QqiI")
_AT_FDCWD, _AT_SYMLINK_NOFOLLOW = -100, 0x100
_PATH_BYTES, _TIMES_BYTES = 4096, 32
_MODE_BITS = 0o1777


class Broker:
    """Answers the questions of one filter.

    Args:
        listener: where they come; not closed here.
        folders: where a command may change what is there, without links in their paths.
    """

    def __init__(self, listener: int, folders: list[str]) -> None:
        self._listener = listener
        self._folders = folders
        numbers = NUMBERS[os.uname().machine]
        self._names = {numbers[name]: name for name in ASKED if name in numbers}
        self._utimensat = numbers["utimensat"]

    def answer(self) -> None:
        """Take one question and answer it; one whose asker is gone by now is dropped."""
        buffer = bytearray(_QUESTION.size)
        try:
            fcntl.ioctl(self._listener, _RECEIVE, buffer)
        except OSError:
            return
        number, pid, _, call, _, _, *arguments = _QUESTION.unpack(buffer)
        try:
            self._change(number, pid, self._names[call], arguments)
            error = 0
        except OSError as failure:
            error = failure.errno or errno.EPERM
        try:
            fcntl.ioctl(self._listener, _SEND, _ANSWER.pack(number, 0, -error, 0))
        except OSError:
            return

    def _change(self, number: int, pid: int, name: str, arguments: list[int]) -> None:
        """Do what was asked for; raises OSError as the call would."""
        if name == "chmod":
            arguments = [_AT_FDCWD, *arguments]
        folder, path_at, value, flags = arguments[:4]
        times = b""
        memory = os.open(f"/proc/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC)
        try:
            path, end, _ = os.pread(memory, _PATH_BYTES, path_at).partition(b"\0")
            if name == "utimensat" and value:
                times = os.pread(memory, _TIMES_BYTES, value)
        finally:
            os.close(memory)
        if not end:
            raise OSError(errno.ENAMETOOLONG, "a path without an end")
        follows = name != "utimensat" or not flags & _AT_SYMLINK_NOFOLLOW
        target = self._open(number, pid, ctypes.c_int32(folder).value, path, follows=follows)
        try:
            opened = f"/proc/self/fd/{target}"
            self._check(os.readlink(opened))  # noqa: PTH115 - likewise
            if name == "utimensat":
                system_call(self._utimensat, _AT_FDCWD, opened.encode(), times or None, 0)
            else:
                os.chmod(opened, value & _MODE_BITS)  # noqa: PTH101 - pathlib is slow to import
        finally:
            os.close(target)

    def _open(self, number: int, pid: int, folder: int, path: bytes, *, follows: bool) -> int:
        """Open what a path of the asker means, without reading or changing it."""
        where = f"/proc/{pid}/" + ("cwd" if folder == _AT_FDCWD else f"fd/{folder}")
        base = os.open(where, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            # If it has died, all of the above may have been another process's.
            fcntl.ioctl(self._listener, _IS_VALID, struct.pack("=Q", number))
            flags = os.O_PATH | os.O_CLOEXEC | (0 if follows else os.O_NOFOLLOW)
            return os.open(path, flags, dir_fd=base)
        finally:
            os.close(base)

    def _check(self, path: str) -> None:
        if not any(path == folder or path.startswith(f"{folder}/") for folder in self._folders):
            raise OSError(errno.EPERM, "outside of what the command may change")


ASKED = ("chmod", "fchmodat", "utimensat")
"""The calls that a filter may ask about."""
