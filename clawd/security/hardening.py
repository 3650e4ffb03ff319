"""What the daemon does to its own process at start, before it holds a secret."""

import ctypes
import os
import resource

PR_SET_DUMPABLE = 4  # linux/prctl.h


def harden_process() -> None:
    """Close the process to others of the same user: no ptrace, no /proc/PID/environ, no core.

    Raises:
        OSError: the kernel refused; a daemon that can be read by its own tools must not run.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl(PR_SET_DUMPABLE): {os.strerror(number)}")
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.umask(0o077)
