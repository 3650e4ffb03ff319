"""What the daemon does to its own process at start, before it holds a secret."""

import resource

from clawd.kernel.syscalls import set_not_dumpable


def harden_process() -> None:
    """Close the process to others of the same user: no ptrace, no /proc/PID/environ, no core.

    Raises:
        OSError: the kernel refused; a daemon that can be read by its own tools must not run.
    """
    set_not_dumpable()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
