"""Calls into the kernel that Python has no names for. Thin: numbers, structures, errors.

Nothing here decides anything. Standard library only, so that a program can use it that is started
with nothing else, and quick to import.
"""

import ctypes
import os

# Numbers of system calls by name, one table for each machine (asm/unistd.h).
#
# A name that a machine lacks is a call that it does not have.

NUMBERS = {
    "x86_64": {
        "acct": 163, "add_key": 248, "bind": 49, "bpf": 321, "capset": 126, "chmod": 90,
        "chown": 92, "chroot": 161, "clone": 56, "clone3": 435, "connect": 42, "creat": 85,
        "delete_module": 176, "execve": 59, "execveat": 322, "fanotify_init": 300, "fchmod": 91,
        "fchmodat": 268, "fchmodat2": 452, "fchown": 93, "fchownat": 260, "file_setattr": 469,
        "finit_module": 313, "fork": 57, "fremovexattr": 199, "fsconfig": 431, "fsetxattr": 190,
        "fsmount": 432, "fsopen": 430, "fspick": 433, "futimesat": 261, "init_module": 175,
        "inotify_add_watch": 254, "io_uring_enter": 426, "io_uring_register": 427,
        "io_uring_setup": 425, "ioctl": 16, "ioprio_set": 251, "kcmp": 312, "kexec_file_load": 320,
        "kexec_load": 246, "keyctl": 250, "kill": 62, "lchown": 94, "listen": 50,
        "lremovexattr": 198, "lsetxattr": 189, "migrate_pages": 256, "mknod": 133, "mknodat": 259,
        "mount": 165, "mount_setattr": 442, "move_mount": 429, "move_pages": 279, "mq_open": 240,
        "mq_unlink": 241, "msgctl": 71, "msgget": 68, "msgrcv": 70, "msgsnd": 69,
        "name_to_handle_at": 303, "open": 2, "open_by_handle_at": 304, "open_tree": 428,
        "openat": 257, "openat2": 437, "perf_event_open": 298, "pidfd_getfd": 438,
        "pidfd_open": 434, "pidfd_send_signal": 424, "pivot_root": 155, "prlimit64": 302,
        "process_madvise": 440, "process_mrelease": 448, "process_vm_readv": 310,
        "process_vm_writev": 311, "ptrace": 101, "removexattr": 197, "removexattrat": 466,
        "request_key": 249, "rt_sigqueueinfo": 129, "rt_tgsigqueueinfo": 297,
        "sched_setaffinity": 203, "sched_setattr": 314, "sched_setparam": 142,
        "sched_setscheduler": 144, "seccomp": 317, "semctl": 66, "semget": 64, "semop": 65,
        "semtimedop": 220, "setns": 308, "setpgid": 109, "setpriority": 141, "setsid": 112,
        "setxattr": 188, "setxattrat": 463, "shmat": 30, "shmctl": 31, "shmget": 29, "socket": 41,
        "socketpair": 53, "tgkill": 234, "tkill": 200, "umount2": 166, "unshare": 272,
        "userfaultfd": 323, "utime": 132, "utimensat": 280, "utimes": 235, "vfork": 58,
    },
    "aarch64": {
        "acct": 89, "add_key": 217, "bind": 200, "bpf": 280, "capset": 91, "chroot": 51,
        "clone": 220, "clone3": 435, "connect": 203, "delete_module": 106, "execve": 221,
        "execveat": 281, "fanotify_init": 262, "fchmod": 52, "fchmodat": 53, "fchmodat2": 452,
        "fchown": 55, "fchownat": 54, "file_setattr": 469, "finit_module": 273, "fremovexattr": 16,
        "fsconfig": 431, "fsetxattr": 7, "fsmount": 432, "fsopen": 430, "fspick": 433,
        "init_module": 105, "inotify_add_watch": 27, "io_uring_enter": 426,
        "io_uring_register": 427, "io_uring_setup": 425, "ioctl": 29, "ioprio_set": 30, "kcmp": 272,
        "kexec_file_load": 294, "kexec_load": 104, "keyctl": 219, "kill": 129, "listen": 201,
        "lremovexattr": 15, "lsetxattr": 6, "migrate_pages": 238, "mknodat": 33, "mount": 40,
        "mount_setattr": 442, "move_mount": 429, "move_pages": 239, "mq_open": 180,
        "mq_unlink": 181, "msgctl": 187, "msgget": 186, "msgrcv": 188, "msgsnd": 189,
        "name_to_handle_at": 264, "open_by_handle_at": 265, "open_tree": 428, "openat": 56,
        "openat2": 437, "perf_event_open": 241, "pidfd_getfd": 438, "pidfd_open": 434,
        "pidfd_send_signal": 424, "pivot_root": 41, "prlimit64": 261, "process_madvise": 440,
        "process_mrelease": 448, "process_vm_readv": 270, "process_vm_writev": 271, "ptrace": 117,
        "removexattr": 14, "removexattrat": 466, "request_key": 218, "rt_sigqueueinfo": 138,
        "rt_tgsigqueueinfo": 240, "sched_setaffinity": 122, "sched_setattr": 274,
        "sched_setparam": 118, "sched_setscheduler": 119, "seccomp": 277, "semctl": 191,
        "semget": 190, "semop": 193, "semtimedop": 192, "setns": 268, "setpgid": 154,
        "setpriority": 140, "setsid": 157, "setxattr": 5, "setxattrat": 463, "shmat": 196,
        "shmctl": 195, "shmget": 194, "socket": 198, "socketpair": 199, "tgkill": 131, "tkill": 130,
        "umount2": 39, "unshare": 97, "userfaultfd": 282, "utimensat": 88,
    },
}  # fmt: skip


_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_CAPBSET_DROP = 24
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_NO_NEW_PRIVS = 38

_CAPABILITY_VERSION_3 = 0x20080522

_libc = ctypes.CDLL(None, use_errno=True)


def system_call(number: int, *arguments: object) -> int:
    """Make a system call by its number; integers and pointers are passed as they are.

    Raises:
        OSError: it failed.
    """
    words = [ctypes.c_long(each) if isinstance(each, int) else each for each in arguments]
    result = int(_libc.syscall(ctypes.c_long(number), *words))
    if result < 0:
        raise _error(f"system call {number}")
    return result


def set_not_dumpable() -> None:
    """Close this process to others of its user: no ptrace, no /proc/PID/mem, no core file.

    An exec undoes it. Raises OSError.
    """
    _prctl(_PR_SET_DUMPABLE, 0)


def set_death_signal(number: int) -> None:
    """Have this signal sent here when the parent's starting thread ends; no child inherits it.

    Raises OSError.
    """
    _prctl(_PR_SET_PDEATHSIG, number)


def set_child_subreaper() -> None:
    """Become the parent of every descendant that loses its own. Raises OSError."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def set_no_new_privileges() -> None:
    """Let no exec give this thread, or what it starts, more rights. Raises OSError."""
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)


def set_default_action(number: int) -> None:
    """Let a signal do what it does by default, as programs expect that are started from here."""
    _libc.signal(number, None)


def drop_capabilities() -> None:
    """Give up every capability for good; root's files stay root's, but nothing else is left.

    Raises:
        OSError: the kernel refused.
        KeyError: the machine's numbers are not known.
    """
    number = NUMBERS[os.uname().machine]["capset"]
    for capability in range(64):
        # EINVAL beyond the last one; EPERM for a user who never had any.
        if _libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0) != 0:
            break
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    none = (ctypes.c_uint32 * 6)()
    system_call(number, header, none)


def _prctl(option: int, value: int) -> None:
    if _libc.prctl(option, ctypes.c_ulong(value), ctypes.c_ulong(0), 0, 0) != 0:
        raise _error(f"prctl {option}")


def _error(what: str) -> OSError:
    number = ctypes.get_errno()
    return OSError(number, f"{what}: {os.strerror(number)}")
