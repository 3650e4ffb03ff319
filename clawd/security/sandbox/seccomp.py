"""The system call filter of the sandbox, packed by hand: no library, a few hundred bytes.

Everything is allowed but what reaches past the namespaces (sockets to other programs, other
processes' memory) or into rarely tested parts of the kernel. A denied call fails with EPERM, so
that programs can go on without it. Layout: linux/filter.h `struct sock_filter` (code, jt, jf, k)
over linux/seccomp.h `struct seccomp_data` (nr, arch, instruction pointer, args).
"""

import errno
import socket
from collections.abc import Sequence

import msgspec

from clawd.kernel import seccomp
from clawd.kernel.seccomp import (
    ALLOW,
    AT_ARCHITECTURE,
    AT_FIRST_ARGUMENT,
    AT_NUMBER,
    ERRNO,
    JUMP_ANY_BIT,
    JUMP_AT_LEAST,
    JUMP_EQUAL,
    KILL,
    LOAD,
    RETURN,
    X32_BIT,
    argument,
    denied_if,
    jump,
    only_for,
    statement,
)
from clawd.kernel.syscalls import NUMBERS

# A file that a sandboxed program makes set-user-ID or set-group-ID would run outside as the daemon.
_SET_ID = 0o6000
# Of open's flags, those with which a mode is read: O_CREAT, O_TMPFILE.
_MAKES_A_FILE = 0o100 | 0o20000000

# Of ioctl: both put characters into a terminal's input, as if typed there.
_TERMINAL_INPUT = (0x5412, 0x541C)  # TIOCSTI, TIOCLINUX
# Of personality: Linux as it is, and the question which one is in force. Others change how memory
# is laid out (no randomization, a mapped null page) or what the kernel says it is.
_PERSONALITIES = (0, 0xFFFFFFFF)

_NEW_NAMESPACES = 0x7E020080  # CLONE_NEW{NS,CGROUP,UTS,IPC,USER,PID,NET} and CLONE_NEWTIME
_SOCKET_FAMILIES = (socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK)

# Numbers that are the same everywhere: calls newer than Linux 5.0, and the io_uring ones.
_COMMON = {
    "io_uring_setup": 425,
    "io_uring_enter": 426,
    "io_uring_register": 427,
    "open_tree": 428,
    "move_mount": 429,
    "fsopen": 430,
    "fsconfig": 431,
    "fsmount": 432,
    "fspick": 433,
    "pidfd_getfd": 438,
    "mount_setattr": 442,
    "quotactl_fd": 443,
    "open_tree_attr": 467,
}
_FCHMODAT2 = 452
# Its mode lies in memory, where no filter looks; programs know how to do without it.
_OPENAT2 = 437


class _Machine(msgspec.Struct, frozen=True, kw_only=True):
    architecture: int
    denied: dict[str, int]
    socket: int
    clone: int
    ioctl: int
    personality: int
    modes: dict[str, tuple[int, int]]
    """Calls that give a file its mode: the number, and which argument the mode is."""
    opens: dict[str, tuple[int, int]]
    """Calls that open a file: the number, and which argument the flags are; the mode is next."""
    clone3: int = 435
    has_x32: bool = False


_MACHINES = {
    "x86_64": _Machine(
        architecture=0xC000003E,
        socket=41,
        clone=56,
        ioctl=16,
        personality=135,
        has_x32=True,
        modes={
            "mkdir": (83, 1), "creat": (85, 1), "chmod": (90, 1), "fchmod": (91, 1),
            "mknod": (133, 1), "mkdirat": (258, 2), "mknodat": (259, 2), "fchmodat": (268, 2),
        },
        opens={"open": (2, 1), "openat": (257, 2)},
        denied={
            "ptrace": 101, "syslog": 103, "uselib": 134, "ustat": 136, "sysfs": 139,
            "vhangup": 153, "modify_ldt": 154, "pivot_root": 155, "_sysctl": 156,
            "adjtimex": 159, "chroot": 161, "acct": 163, "settimeofday": 164, "mount": 165,
            "umount2": 166, "swapon": 167, "swapoff": 168, "reboot": 169, "sethostname": 170,
            "setdomainname": 171, "iopl": 172, "ioperm": 173, "create_module": 174,
            "init_module": 175, "delete_module": 176, "get_kernel_syms": 177,
            "query_module": 178, "quotactl": 179, "nfsservctl": 180, "lookup_dcookie": 212,
            "clock_settime": 227, "kexec_load": 246, "add_key": 248, "request_key": 249,
            "keyctl": 250, "unshare": 272, "move_pages": 279, "perf_event_open": 298,
            "fanotify_init": 300, "open_by_handle_at": 304, "clock_adjtime": 305,
            "setns": 308, "process_vm_readv": 310, "process_vm_writev": 311, "kcmp": 312,
            "finit_module": 313, "kexec_file_load": 320, "bpf": 321, "userfaultfd": 323,
        },
    ),
    "aarch64": _Machine(
        architecture=0xC00000B7,
        socket=198,
        clone=220,
        ioctl=29,
        personality=92,
        modes={"mknodat": (33, 2), "mkdirat": (34, 2), "fchmod": (52, 1), "fchmodat": (53, 2)},
        opens={"openat": (56, 2)},
        denied={
            "lookup_dcookie": 18, "umount2": 39, "mount": 40, "pivot_root": 41,
            "nfsservctl": 42, "chroot": 51, "vhangup": 58, "quotactl": 60, "acct": 89,
            "unshare": 97, "kexec_load": 104, "init_module": 105, "delete_module": 106,
            "clock_settime": 112, "syslog": 116, "ptrace": 117, "reboot": 142,
            "sethostname": 161, "setdomainname": 162, "settimeofday": 170, "adjtimex": 171,
            "add_key": 217, "request_key": 218, "keyctl": 219, "swapon": 224, "swapoff": 225,
            "move_pages": 239, "perf_event_open": 241, "fanotify_init": 262,
            "open_by_handle_at": 265, "clock_adjtime": 266, "setns": 268,
            "process_vm_readv": 270, "process_vm_writev": 271, "kcmp": 272,
            "finit_module": 273, "bpf": 280, "userfaultfd": 282, "kexec_file_load": 294,
        },
    ),
}  # fmt: skip


def filter_program(machine: str) -> bytes:
    """Return the filter for a machine as `platform.machine()` names it; empty for others."""
    if machine not in _MACHINES:
        return b""
    known = _MACHINES[machine]
    lines = [
        statement(LOAD, AT_ARCHITECTURE),
        jump(JUMP_EQUAL, known.architecture, then=1, otherwise=0),
        statement(RETURN, KILL),
        statement(LOAD, AT_NUMBER),
    ]
    if known.has_x32:
        lines += denied_if(JUMP_AT_LEAST, X32_BIT)
    # glibc takes ENOSYS as "not there" and uses clone, whose flags can be looked at.
    lines += denied_if(JUMP_EQUAL, known.clone3, errno.ENOSYS)
    lines += denied_if(JUMP_EQUAL, _OPENAT2, errno.ENOSYS)
    for number in sorted({*known.denied.values(), *_COMMON.values()}):
        lines += denied_if(JUMP_EQUAL, number)
    for number, place in [*known.modes.values(), (_FCHMODAT2, 2)]:
        lines += only_for(number, _without_set_id(place))
    for number, place in known.opens.values():
        flags = statement(LOAD, argument(place))
        is_making = jump(JUMP_ANY_BIT, _MAKES_A_FILE, then=1, otherwise=0)
        allowed = statement(RETURN, ALLOW)
        lines += only_for(number, [flags, is_making, allowed, *_without_set_id(place + 1)])
    namespaces = [statement(LOAD, AT_FIRST_ARGUMENT)]
    namespaces += denied_if(JUMP_ANY_BIT, _NEW_NAMESPACES)
    lines += only_for(known.clone, [*namespaces, statement(RETURN, ALLOW)])
    terminal = [statement(LOAD, argument(1))]
    for request in _TERMINAL_INPUT:
        terminal += denied_if(JUMP_EQUAL, request)
    lines += only_for(known.ioctl, [*terminal, statement(RETURN, ALLOW)])
    for number, values in ((known.personality, _PERSONALITIES), (known.socket, _SOCKET_FAMILIES)):
        lines += only_for(number, _with_first_argument_in(values))
    return b"".join([*lines, statement(RETURN, ALLOW)])


def _without_set_id(place: int) -> list[bytes]:
    """Return what allows a call unless the argument at `place` is a mode with such a bit."""
    lines = [statement(LOAD, argument(place)), *denied_if(JUMP_ANY_BIT, _SET_ID)]
    return [*lines, statement(RETURN, ALLOW)]


def _with_first_argument_in(values: Sequence[int]) -> list[bytes]:
    """Return what allows a call with one of these first arguments and denies it with others."""
    lines = [statement(LOAD, AT_FIRST_ARGUMENT)]
    for value in values:
        lines += [jump(JUMP_EQUAL, value, then=0, otherwise=1), statement(RETURN, ALLOW)]
    return [*lines, statement(RETURN, ERRNO | errno.EPERM)]


# The system call filter of a process that only computes: it stays one process and talks to nobody.
#
# A process puts it in force itself, within the sandbox, when it is all set up; from then on it can
# start no program and no thread and open no socket, by whatever library it tries. Denied calls fail
# with EPERM. Files are the sandbox's business.

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
