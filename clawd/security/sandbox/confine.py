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
"""

import _socket
import os
import pathlib
import select
import struct
import sys
from collections.abc import Callable

from clawd.kernel import landlock, seccomp, syscalls
from clawd.security.sandbox.confine_broker import Broker

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
