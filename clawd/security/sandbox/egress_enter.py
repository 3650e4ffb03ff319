"""Binds a socket in the network namespace of a sandbox, and passes it out; see `egress`.

    → a descriptor of the namespace (SCM_RIGHTS)
    ← b"+" and a descriptor that listens there, or why there is none

Who enters a user namespace must be a process of one thread, and nothing should come back from
there: each request is a fork of its own, which binds, answers and ends. Standard library and
`clawd.kernel` only: `egress_program` starts it without site packages.
"""

import fcntl
import os
import socket

from clawd.kernel import landlock, seccomp, syscalls
from clawd.kernel.syscalls import NUMBERS

PROXY_PORT = 3128

_NS_GET_USERNS = 0xB701
_CLONE_NEWUSER, _CLONE_NEWNET = 0x10000000, 0x40000000
_BACKLOG = 128
_SIGKILL = 9

_DENIED = (
    "execve", "execveat", "connect", "open", "openat", "openat2", "creat", "ptrace", "pidfd_open",
    "pidfd_getfd", "process_vm_readv", "process_vm_writev", "kill", "tkill", "mount", "umount2",
    "move_mount", "open_tree", "fsopen", "fsmount", "pivot_root", "chroot", "unshare", "bpf",
    "perf_event_open", "userfaultfd", "io_uring_setup", "keyctl", "add_key", "request_key",
    "init_module", "finit_module", "kexec_load", "kexec_file_load", "open_by_handle_at",
)  # fmt: skip


def main(descriptor: int) -> int:
    """Answer requests until the client is gone."""
    control = socket.socket(fileno=descriptor)
    setns = NUMBERS[os.uname().machine]["setns"]
    syscalls.set_death_signal(_SIGKILL)
    syscalls.set_not_dumpable()
    raise_fence()
    while True:
        data, given, _, _ = socket.recv_fds(control, 1, 1)
        if not data:
            return 0
        child = os.fork()
        if child == 0:
            _answer(control, given, setns)
        _, status = os.waitpid(child, 0)
        for each in given:
            os.close(each)
        if status:
            control.send(b"the process that entered the sandbox's network ended")


def _answer(control: socket.socket, given: list[int], setns: int) -> None:
    """Bind, answer and end, in the forked child; never returns."""
    try:
        (namespace,) = given
        owner = fcntl.ioctl(namespace, _NS_GET_USERNS)
        syscalls.system_call(setns, owner, _CLONE_NEWUSER)
        syscalls.system_call(setns, namespace, _CLONE_NEWNET)
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        listener.bind(("127.0.0.1", PROXY_PORT))
        listener.listen(_BACKLOG)
        socket.send_fds(control, [b"+"], [listener.fileno()])
    except BaseException as error:  # noqa: BLE001 - a forked child must never return
        control.send(f"{type(error).__name__}: {error}".encode()[:500])
    os._exit(0)


def raise_fence() -> None:
    """Give up for good all that binding in a namespace does not need."""
    # The user who made a namespace has all rights in it, with no capability outside.
    syscalls.drop_capabilities()
    if landlock.abi():
        landlock.restrict((), landlock.abi(), ports=None)
    machine = os.uname().machine
    lines = [*seccomp.beginning(machine), *seccomp.denied(machine, _DENIED)]
    seccomp.load(b"".join([*lines, seccomp.statement(seccomp.RETURN, seccomp.ALLOW)]), machine)
