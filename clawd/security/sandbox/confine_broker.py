"""Changes modes, owners and times of files for a command, within the folders that it may change.

Landlock does not ask who changes a mode, an owner or times, be it by path or through a file that
is open for reading. The filter therefore stops these calls and asks here (seccomp_unotify(2)): a
path is read once and opened, what was opened is looked at, and changed. A command that changes the
path meanwhile changes nothing. Standard library and `clawd.kernel` only.
"""

import ctypes
import errno
import fcntl
import os
import struct

from clawd.kernel.syscalls import NUMBERS, system_call

_RECEIVE, _SEND, _IS_VALID = 0xC0502100, 0xC0182101, 0x40082102  # SECCOMP_IOCTL_NOTIF_*
# struct seccomp_notif: id, pid, flags, then seccomp_data: nr, arch, instruction pointer, args.
_QUESTION = struct.Struct("=QIIiIQ6Q")
_ANSWER = struct.Struct("=QqiI")
_AT_FDCWD, _AT_SYMLINK_NOFOLLOW = -100, 0x100
_PATH_BYTES, _TIMES_BYTES = 4096, 32
_MODE_BITS = 0o1777

ASKED: dict[str, tuple[int | None, int | None, int, int | None]] = {
    "chmod": (None, 0, 1, None),
    "fchmod": (0, None, 1, None),
    "fchmodat": (0, 1, 2, None),
    "chown": (None, 0, 1, None),
    "lchown": (None, 0, 1, None),
    "fchown": (0, None, 1, None),
    "fchownat": (0, 1, 2, 4),
    "utimensat": (0, 1, 2, 3),
}
"""The calls that a filter may ask about: which argument is the folder or the file's descriptor,
the path, the first new value, the flags."""


class Broker:
    """Answers the questions of one filter.

    Args:
        listener: where they come; not closed here.
        folders: where a command may change what is there, without links in their paths.
    """

    def __init__(self, listener: int, folders: list[str]) -> None:
        self.listener = listener
        self._folders = folders
        numbers = NUMBERS[os.uname().machine]
        self._names = {numbers[name]: name for name in ASKED if name in numbers}
        self._utimensat = numbers["utimensat"]

    def answer(self) -> None:
        """Take one question and answer it; one whose asker is gone by now is dropped."""
        buffer = bytearray(_QUESTION.size)
        try:
            fcntl.ioctl(self.listener, _RECEIVE, buffer)
        except OSError:
            return
        number, pid, _, call, _, _, *arguments = _QUESTION.unpack(buffer)
        try:
            self._change(number, pid, self._names[call], arguments)
            error = 0
        except OSError as failure:
            error = failure.errno or errno.EPERM
        except OverflowError:
            error = errno.EFAULT
        try:
            fcntl.ioctl(self.listener, _SEND, _ANSWER.pack(number, 0, -error, 0))
        except OSError:
            return

    def _change(self, number: int, pid: int, name: str, arguments: list[int]) -> None:
        """Do what was asked for; raises OSError as the call would."""
        folder_at, path_at, value_at, flags_at = ASKED[name]
        folder = _AT_FDCWD if folder_at is None else ctypes.c_int32(arguments[folder_at]).value
        address = 0 if path_at is None else arguments[path_at]
        flags = 0 if flags_at is None else arguments[flags_at]
        value, group = arguments[value_at : value_at + 2]
        path, times = self._read(pid, address, value if name == "utimensat" else 0)
        follows = name != "lchown" and not flags & _AT_SYMLINK_NOFOLLOW
        target = self._open(number, pid, folder, path, follows=follows)
        try:
            opened = f"/proc/self/fd/{target}"
            self._check(os.readlink(opened))  # noqa: PTH115 - pathlib is slow to import
            if name == "utimensat":
                system_call(self._utimensat, _AT_FDCWD, opened.encode(), times or None, 0)
            elif "chown" in name:
                self._keep_owner(opened, ctypes.c_int32(value).value, ctypes.c_int32(group).value)
            else:
                os.chmod(opened, value & _MODE_BITS)  # noqa: PTH101 - likewise
        finally:
            os.close(target)

    @staticmethod
    def _keep_owner(opened: str, user: int, group: int) -> None:
        """Let programs give a file to who they run as, as those do that unpack files."""
        if user not in {-1, os.getuid()} or group not in {-1, os.getgid()}:
            raise OSError(errno.EPERM, "to somebody else")
        os.chown(opened, user, group)

    @staticmethod
    def _read(pid: int, path_at: int, times_at: int) -> tuple[bytes, bytes]:
        """Return what lies in the asker's memory, once: a path and two times, empty for none."""
        path = times = b""
        memory = os.open(f"/proc/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC)
        try:
            if path_at:
                path, end, _ = os.pread(memory, _PATH_BYTES, path_at).partition(b"\0")
                if not (path and end):
                    raise OSError(errno.ENOENT, "a path without an end, or an empty one")
            if times_at:
                times = os.pread(memory, _TIMES_BYTES, times_at)
                if len(times) != _TIMES_BYTES:
                    raise OSError(errno.EFAULT, "times that are not there")
        finally:
            os.close(memory)
        return path, times

    def _open(self, number: int, pid: int, folder: int, path: bytes, *, follows: bool) -> int:
        """Open what a path of the asker means, or its own descriptor, without using it."""
        where = f"/proc/{pid}/" + ("cwd" if folder == _AT_FDCWD else f"fd/{folder}")
        base = os.open(where, os.O_PATH | os.O_CLOEXEC)
        try:
            # If it has died, all that was looked at may have been another process's.
            fcntl.ioctl(self.listener, _IS_VALID, struct.pack("=Q", number))
            if not path:
                return os.dup(base)
            flags = os.O_PATH | os.O_CLOEXEC | (0 if follows else os.O_NOFOLLOW)
            return os.open(path, flags, dir_fd=base)
        finally:
            os.close(base)

    def _check(self, path: str) -> None:
        if not any(path == folder or path.startswith(f"{folder}/") for folder in self._folders):
            raise OSError(errno.EPERM, "outside of what the command may change")
