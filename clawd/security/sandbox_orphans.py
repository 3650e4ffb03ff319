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

_NAME = "CLAWD_SANDBOX"

_log = logging.getLogger(__name__)


def marked(home: Path | None) -> dict[str, str]:
    """Return the environment of a sandbox's outer processes; it tells nothing of the home."""
    if home is None:
        return {}
    return {_NAME: hashlib.sha256(os.fsencode(home.resolve())).hexdigest()}


def end_orphans(home: Path | None) -> int:
    """Kill the sandboxes of the home, which must have no daemon; return how many processes."""
    mark = b"".join(f"{key}={value}".encode() for key, value in marked(home).items())
    if not mark:
        return 0
    found = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    count = sum(_end(pid, mark) for pid in found if _carries(pid, mark))
    if count:
        _log.warning("sandboxes of a daemon that was killed were ended", extra={"count": count})
    return count


def _end(pid: int, mark: bytes) -> bool:
    with contextlib.suppress(ProcessLookupError):
        pidfd = os.pidfd_open(pid)
        try:
            if _carries(pid, mark):  # still: the number may be another's by now
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
                return True
        finally:
            os.close(pidfd)
    return False


def _carries(pid: int, mark: bytes) -> bool:
    try:
        if Path(f"/proc/{pid}/comm").read_bytes() != b"bwrap\n":
            return False
        return mark in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False
