"""Runs one command behind Landlock and seccomp; stays beside it until its last process is dead.

    python -I -S -E confine_program.py --args FD -- prlimit … -- command …

It takes bubblewrap's place where namespaces are refused, and speaks as it does: options come NUL
separated from a descriptor, reports go to another as lines of JSON, the command waits at a gate.

    {"child-pid": 4711}     the command's process, the leader of its group, held at the gate
    {"exit-code": 0}        the command has ended, and nothing that it started is left

The filters keep every process of the command in its group, so one signal ends them all; so does
the daemon's death. The command can neither signal nor trace this process. With `--unfenced` there
is no fence, only the keeping: what leaves the group becomes this process's child when its parent
dies, and is killed as such. Standard library and `clawd.kernel` only: an interpreter without site
packages runs it, in about ten milliseconds.

Changes modes, owners and times of files for a command, within the folders that it may change.

Landlock does not ask who changes a mode, an owner or times, be it by path or through a file that
is open for reading. The filter therefore stops these calls and asks here (seccomp_unotify(2)): a
path is read once and opened, what was opened is looked at, and changed. A command that changes the
path meanwhile changes nothing. Standard library and `clawd.kernel` only.
"""

import _socket
import ctypes
import errno
import fcntl
import os
import pathlib
import select
import struct
import sys
from collections.abc import Callable

from clawd.kernel import landlock, seccomp, syscalls
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


_NOT_STARTED = 125
_GAVE_UP, _UNFENCED = -1, -2
_FIRST_OF_OTHERS = 3
_LAST_DESCRIPTOR = 1 << 20
_REAP_MS = 1_000
# Plain numbers, the same on every machine here: the module for them takes long to import.
_SIGKILL, _SIGPIPE, _SIGXFSZ = 9, 13, 25


class _Options:
    """What the daemon wants; see `landlock`."""

    def __init__(self, words: list[str]) -> None:
        self.status = self.gate = -1
        self.chdir = "/"
        self.env: dict[str, str] = {}
        self.rules: list[landlock.Rule] = []
        self.filters: list[bytes] = []
        self.asking = b""
        self.changed: list[str] = []
        self.is_fenced = True
        takers: dict[str, Callable[[], None]] = {
            "--status": lambda: setattr(self, "status", int(take())),
            "--gate": lambda: setattr(self, "gate", int(take())),
            "--chdir": lambda: setattr(self, "chdir", take()),
            "--setenv": lambda: self.env.__setitem__(take(), take()),
            "--rule": lambda: self.rules.append((take(), int(take()))),
            "--seccomp": lambda: self.filters.append(_all_of(int(take()))),
            "--asking": lambda: setattr(self, "asking", _all_of(int(take()))),
            "--changed": lambda: self.changed.append(take()),
            "--unfenced": lambda: setattr(self, "is_fenced", False),
        }
        left = iter(words)

        def take() -> str:
            return next(left)

        for word in left:
            takers[word]()


def main(arguments: list[str]) -> int:
    """Run the command; return its exit code, or 125 when it could not be fenced."""
    _, descriptor, _, *argv = arguments
    options = _Options([os.fsdecode(word) for word in _all_of(int(descriptor)).split(b"\0")[:-1]])
    if options.is_fenced:
        syscalls.drop_capabilities()
    syscalls.set_child_subreaper()
    ours, theirs = _socket.socketpair()
    child = os.fork()
    if child == 0:
        _become(argv, options, theirs)
    theirs.close()
    os.setpgid(child, child)
    _report(options.status, "child-pid", child)
    listener = _listener_from(ours)
    _attend(child, options.gate, Broker(listener, options.changed) if listener >= 0 else None)
    code = _end(child)
    if code == _NOT_STARTED and (listener == _GAVE_UP or ours.recv(1)):
        return _NOT_STARTED
    _report(options.status, "exit-code", code)
    return code


def _become(argv: list[str], options: _Options, keeper: _socket.socket) -> None:
    """Turn into the command, in the forked child; never returns."""
    try:
        syscalls.set_death_signal(_SIGKILL)
        if not os.read(options.gate, 1):
            os._exit(_NOT_STARTED)
        os.chdir(options.chdir)
        for number in (_SIGPIPE, _SIGXFSZ):  # Python ignores them, and exec keeps that
            syscalls.set_default_action(number)
        if options.is_fenced:
            _fence(options, keeper)
        else:
            keeper.send(b"u")
        os.closerange(_FIRST_OF_OTHERS, keeper.fileno())
        os.closerange(keeper.fileno() + 1, _LAST_DESCRIPTOR)
        os.execve(argv[0], argv, options.env)  # noqa: S606 - what this program is for
    except BaseException as error:  # noqa: BLE001 - a forked child must never return
        os.write(sys.stderr.fileno(), f"{error!r}\n".encode())
        keeper.send(b"x")
    os._exit(_NOT_STARTED)


def _fence(options: _Options, keeper: _socket.socket) -> None:
    """Restrict this process for good, and tell the keeper where the filter's questions come."""
    landlock.restrict(options.rules, landlock.abi())
    machine = os.uname().machine
    for program in options.filters:
        seccomp.load(program, machine)
    listener = seccomp.load_asking(options.asking, machine)
    keeper.sendmsg([b"l"], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, struct.pack("i", listener))])


def _listener_from(child: _socket.socket) -> int:
    """Wait for where the filter's questions come; negative where there is no filter."""
    data, attached, _, _ = child.recvmsg(1, _socket.CMSG_SPACE(4))
    if data == b"u":
        return _UNFENCED
    if data != b"l" or not attached:
        return _GAVE_UP
    return int(struct.unpack("i", attached[0][2])[0])


def _attend(child: int, gate: int, broker: Broker | None) -> None:
    """Answer the filter's questions and reap what dies, until the child itself does.

    The daemon holds the other end of the gate as long as it lives; then the child must go too.
    """
    poller = select.poll()
    watched = os.pidfd_open(child)
    poller.register(watched, select.POLLIN)
    poller.register(gate, 0)
    if broker is not None:
        poller.register(broker.listener, select.POLLIN)
    while not _is_over(child):
        for descriptor, events in poller.poll(_REAP_MS):
            if descriptor == gate:
                os.killpg(child, _SIGKILL)
                poller.unregister(gate)
            elif broker is not None and descriptor == broker.listener:
                if events & select.POLLIN:
                    broker.answer()
                else:
                    poller.unregister(descriptor)


def _is_over(child: int) -> bool:
    """Reap all that is dead but the child; return whether that is, too."""
    while (found := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT | os.WNOHANG)) is not None:
        if found.si_pid == child:
            return True
        os.waitpid(found.si_pid, 0)
    return False


def _end(child: int) -> int:
    """Kill the dead child's group and all orphans, reap them, and return the child's exit code."""
    # Not reaped yet, so that the group's number is still its own.
    os.killpg(child, _SIGKILL)
    code = _NOT_STARTED
    while True:
        _kill_orphans(child)
        try:
            pid, status = os.waitpid(-1, 0)
        except ChildProcessError:
            return code
        if pid == child:
            ended = os.waitstatus_to_exitcode(status)
            code = ended if ended >= 0 else 128 - ended


def _kill_orphans(child: int) -> None:
    """Kill our other children: what left the group, and was orphaned since. None is reaped yet."""
    me = os.getpid()
    try:
        with pathlib.Path(f"/proc/{me}/task/{me}/children").open("rb") as file:
            found = [int(word) for word in file.read().split()]
    except OSError:
        return  # a kernel that does not tell; fenced ones never leave their group
    for pid in found:
        if pid != child:
            try:
                os.kill(pid, _SIGKILL)
            except OSError:
                continue  # another user's by now: it is waited for


def _report(descriptor: int, name: str, value: int) -> None:
    os.write(descriptor, f'{{"{name}": {value}}}\n'.encode())


def _all_of(descriptor: int) -> bytes:
    with open(descriptor, "rb") as file:
        return file.read()
