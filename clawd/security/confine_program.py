"""Runs one command behind Landlock and seccomp; stays beside it until its last process is dead.

    python -I -S -E confine_program.py --args FD -- prlimit … -- command …

It takes bubblewrap's place where namespaces are refused, and speaks as it does: options come NUL
separated from a descriptor, reports go to another as lines of JSON, the command waits at a gate.

    {"child-pid": 4711}     the command's process, the leader of its group, held at the gate
    {"exit-code": 0}        the command has ended, and nothing that it started is left

The filters keep every process of the command in its group, so one signal ends them all; so does
the daemon's death. The command can neither signal nor trace this process. Standard library and
`clawd.kernel` only: an interpreter without site packages runs it, in about ten milliseconds.
"""

import os
import signal
import sys
from collections.abc import Callable

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))  # noqa: PTH100, PTH120 - pathlib alone takes longer to import than all of this
sys.path.append(ROOT)

from clawd.kernel import landlock, seccomp, syscalls  # noqa: E402 - found by the line above

_NOT_STARTED = 125
_FIRST_OF_OTHERS = 3
_LAST_DESCRIPTOR = 1 << 20


class _Options:
    """What the daemon wants; see `sandbox_landlock`."""

    def __init__(self, words: list[str]) -> None:
        self.status = self.gate = -1
        self.chdir = "/"
        self.env: dict[str, str] = {}
        self.rules: list[landlock.Rule] = []
        self.filters: list[bytes] = []
        self.network = False
        takers: dict[str, Callable[[], None]] = {
            "--status": lambda: setattr(self, "status", int(take())),
            "--gate": lambda: setattr(self, "gate", int(take())),
            "--chdir": lambda: setattr(self, "chdir", take()),
            "--setenv": lambda: self.env.__setitem__(take(), take()),
            "--rule": lambda: self.rules.append((take(), int(take()))),
            "--seccomp": lambda: self.filters.append(_all_of(int(take()))),
            "--network": lambda: setattr(self, "network", True),
        }
        left = iter(words)

        def take() -> str:
            return next(left)

        for word in left:
            takers[word]()


def main() -> int:
    """Run the command; return its exit code, or 125 when it could not be fenced."""
    _, _, descriptor, _, *argv = sys.argv
    options = _Options([os.fsdecode(word) for word in _all_of(int(descriptor)).split(b"\0")[:-1]])
    child = 0

    def end_all(_number: int, _frame: object) -> None:
        if child and os.getpgid(child) == child:
            os.killpg(child, signal.SIGKILL)

    signal.signal(signal.SIGTERM, end_all)
    syscalls.set_child_subreaper()
    syscalls.set_death_signal(signal.SIGTERM)
    failure, failed = os.pipe()
    child = os.fork()
    if child == 0:
        _become(argv, options, failed)
    os.close(failed)
    os.setpgid(child, child)
    _report(options.status, "child-pid", child)
    code = _outlive(child)
    if os.read(failure, 1):
        return _NOT_STARTED
    _report(options.status, "exit-code", code)
    return code


def _become(argv: list[str], options: _Options, failed: int) -> None:
    """Turn into the command, in the forked child; never returns."""
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        syscalls.set_death_signal(signal.SIGKILL)
        if not os.read(options.gate, 1):
            os._exit(_NOT_STARTED)
        os.dup2(failed, _FIRST_OF_OTHERS, inheritable=False)
        os.closerange(_FIRST_OF_OTHERS + 1, _LAST_DESCRIPTOR)
        os.chdir(options.chdir)
        for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them, and exec keeps that
            signal.signal(number, signal.SIG_DFL)
        syscalls.drop_capabilities()
        ports = None if options.network else ()
        landlock.restrict(options.rules, landlock.abi(), ports=ports)
        machine = os.uname().machine
        for program in options.filters:
            seccomp.load(program, machine)
        os.execve(argv[0], argv, options.env)  # noqa: S606 - what this program is for
    except BaseException as error:  # noqa: BLE001 - a forked child must never return
        os.write(sys.stderr.fileno(), f"{error!r}\n".encode())
        os.write(_FIRST_OF_OTHERS, b"x")
    os._exit(_NOT_STARTED)


def _outlive(child: int) -> int:
    """Reap what dies until the child does, kill the rest of its group, reap that; its exit code."""
    while (died := _next_death()) != child:
        os.waitpid(died, 0)
    # Not reaped yet, so that the group's number is still its own.
    os.killpg(child, signal.SIGKILL)
    code = _NOT_STARTED
    while True:
        try:
            pid, status = os.waitpid(-1, 0)
        except ChildProcessError:
            return code
        if pid == child:
            ended = os.waitstatus_to_exitcode(status)
            code = ended if ended >= 0 else 128 - ended


def _next_death() -> int:
    found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
    return found.si_pid if found is not None else 0


def _report(descriptor: int, name: str, value: int) -> None:
    os.write(descriptor, f'{{"{name}": {value}}}\n'.encode())


def _all_of(descriptor: int) -> bytes:
    with open(descriptor, "rb") as file:
        return file.read()


if __name__ == "__main__":
    sys.exit(main())
