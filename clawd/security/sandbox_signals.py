"""Signals to what runs in a sandbox, sent so that a reused number never meets a stranger."""

import contextlib
import errno
import os
import signal
import subprocess
from pathlib import Path

PROCESS_GROUP = 4  # PIDFD_SIGNAL_PROCESS_GROUP, Linux 6.9


def signal_group(leader: "subprocess.Popen[bytes]", number: signal.Signals) -> None:
    """Signal a child's group; its leader is not reaped yet, so the number is its own."""
    if leader.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(leader.pid, number)


def ask_namespace(init: int) -> None:
    """Ask the command whose namespace's init this descriptor holds to end (SIGTERM).

    The init itself ignores it. Where it leads no group, or the kernel cannot signal one by a
    descriptor, the init's own children are asked.
    """
    try:
        signal.pidfd_send_signal(init, signal.SIGTERM, None, PROCESS_GROUP)
    except OSError as error:
        if error.errno not in {errno.EINVAL, errno.ESRCH}:
            raise
        _ask_children(init)


def parent_of(pid: int) -> int:
    """Return a process's parent, 0 when it is gone."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
        return int(stat.rpartition(b")")[2].split()[1])
    except OSError:
        return 0


def _ask_children(init: int) -> None:
    for pid in _children_of(_pid_of(init)):
        with contextlib.suppress(ProcessLookupError):
            child = os.pidfd_open(pid)
            try:
                # Asked again with the descriptor in hand: the number may have been given away.
                if parent_of(pid) == _pid_of(init):
                    signal.pidfd_send_signal(child, signal.SIGTERM)
            finally:
                os.close(child)


def _pid_of(descriptor: int) -> int:
    """Return the number of the process that a pidfd holds, -1 when it is gone."""
    for line in Path(f"/proc/self/fdinfo/{descriptor}").read_text("ascii").splitlines():
        if line.startswith("Pid:"):
            return int(line.split()[1])
    return -1


def _children_of(pid: int) -> list[int]:
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text("ascii")
        return [int(each) for each in children.split()]
    except OSError:
        return []
