"""The system call filter of a process that only computes: it stays one process and talks to nobody.

A process puts it in force itself, within the sandbox, when it is all set up; from then on it can
start no program and no thread and open no socket, by whatever library it tries. Denied calls fail
with EPERM. Files are the sandbox's business.
"""

from clawd.kernel import seccomp
from clawd.kernel.numbers import NUMBERS

_DENIED = (
    # programs and processes
    "clone", "clone3", "execve", "execveat", "fork", "vfork", "kill", "pidfd_open",
    "pidfd_send_signal", "rt_sigqueueinfo", "rt_tgsigqueueinfo", "tkill",
    # sockets and other ways to talk
    "bind", "listen", "mq_open", "msgget", "msgsnd", "semget", "semop", "shmat", "shmget",
    "socket", "socketpair",
    # other processes and rarely tested parts of the kernel
    "bpf", "io_uring_enter", "io_uring_register", "io_uring_setup", "kcmp", "keyctl", "add_key",
    "move_pages", "perf_event_open", "pidfd_getfd", "process_madvise", "process_vm_readv",
    "process_vm_writev", "ptrace", "request_key", "setns", "unshare", "userfaultfd",
)  # fmt: skip


def compute_filter(machine: str) -> bytes:
    """Return the filter for a machine as `platform.machine()` names it; empty for others."""
    if machine not in NUMBERS:
        return b""
    lines = seccomp.beginning(machine)
    lines += seccomp.denied(machine, _DENIED)
    return b"".join([*lines, seccomp.statement(seccomp.RETURN, seccomp.ALLOW)])
