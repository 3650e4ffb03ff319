"""Sandboxes that outlived their daemon: how they are told from others, and how they end.

bubblewrap ties a sandbox to its starter's life only when the command begins. A daemon that is
killed before that leaves an init behind which waits at its gate for ever, and one that is killed
just then may leave a command running. Each carries a mark of the daemon's home in its environment,
so that the home's next daemon finds it.
"""

import contextlib
import hashlib
import logging
import os
import signal
from pathlib import Path

import psutil

_NAME = "CLAWD_SANDBOX"

_log = logging.getLogger(__name__)


def marked(home: Path | None) -> dict[str, str]:
    """Return the environment of a sandbox's outer processes; it tells nothing of the home."""
    if home is None:
        return {}
    return {_NAME: hashlib.sha256(os.fsencode(home.resolve())).hexdigest()}


def end_orphans(home: Path | None) -> int:
    """Kill the sandboxes of the home, which must have no daemon; return how many processes."""
    mark = marked(home)
    if not mark:
        return 0
    count = sum(_end(pid, mark) for pid in psutil.pids() if _carries(pid, mark))
    if count:
        _log.warning("sandboxes of a daemon that was killed were ended", extra={"count": count})
    return count


def _end(pid: int, mark: dict[str, str]) -> bool:
    with contextlib.suppress(ProcessLookupError):
        pidfd = os.pidfd_open(pid)
        try:
            if _carries(pid, mark):  # still: the number may be another's by now
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
                return True
        finally:
            os.close(pidfd)
    return False


def _carries(pid: int, mark: dict[str, str]) -> bool:
    try:
        process = psutil.Process(pid)
        return bool(process.name() == "bwrap" and mark.items() <= process.environ().items())
    except psutil.Error:
        return False
