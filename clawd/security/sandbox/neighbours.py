"""Commands at work at the same time, and what they must not do to each other's sandboxes.

bubblewrap names what it binds by path and follows links in it. A command at work can put a link
where another's sandbox is just binding a folder, and so have it show a folder that no command may
see. Therefore a command begins only when the sandboxes of all that came before it in its workspace
are set up, and none begins in a workspace that lies within another's, or around it.

Sandboxes that outlived their daemon: how they are told from others, and how they end.

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
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from clawd.errors import SandboxUnavailableError

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


_PROC = Path("/proc")


class Neighbour:
    """One command with a workspace that it may change.

    Attributes:
        workspace: absolute and resolved.
        init: its namespace's init, 0 before that is known.
    """

    def __init__(self, workspace: Path, *, binds: bool) -> None:
        self.workspace = workspace
        self.init = 0
        self._is_set_up = not binds

    @property
    def is_set_up(self) -> bool:
        """Whether its sandbox binds nothing more."""
        if not self._is_set_up and self.init:
            self._is_set_up = _is_set_up(self.init)
        return self._is_set_up


class Neighbours:
    """The commands at work, oldest first. Use from one event loop only."""

    def __init__(self) -> None:
        self._at_work: list[Neighbour] = []

    @contextmanager
    def beside(self, workspace: Path, *, binds: bool) -> Iterator[Neighbour]:
        """Count a command in while it is at work; `binds`: its sandbox is set up by binding.

        Raises:
            SandboxUnavailableError: the workspace is not what was judged, or another command is at
                work in one within it or around it.
        """
        neighbour = self.enter(workspace, binds=binds)
        try:
            yield neighbour
        finally:
            self.leave(neighbour)

    def enter(self, workspace: Path, *, binds: bool) -> Neighbour:
        """Count a command in; `leave` must follow.

        Raises:
            SandboxUnavailableError: as `beside`.
        """
        check_place(workspace)
        for other in self._at_work:
            theirs = other.workspace
            if theirs != workspace and (theirs in workspace.parents or workspace in theirs.parents):
                raise SandboxUnavailableError(
                    f"a command is at work in {theirs}, which overlaps with {workspace}",
                    hint="Try again when it has ended.",
                )
        neighbour = Neighbour(workspace, binds=binds)
        self._at_work.append(neighbour)
        return neighbour

    def leave(self, neighbour: Neighbour) -> None:
        """Count a command out; idempotent.

        One that can change nothing may be counted out as soon as its sandbox is set up.
        """
        if neighbour in self._at_work:
            self._at_work.remove(neighbour)

    def may_begin(self, neighbour: Neighbour) -> bool:
        """Whether all that came before it in its workspace are set up; ask again if not."""
        for other in self._at_work:
            if other is neighbour:
                return True
            if other.workspace == neighbour.workspace and not other.is_set_up:
                return False
        return True


def _is_set_up(init: int) -> bool:
    """Whether bubblewrap has done its last mount: making the sandbox's own root read-only."""
    try:
        text = (_PROC / str(init) / "mountinfo").read_bytes()
    except OSError:
        return True  # it is gone
    for line in text.splitlines():
        fields = line.split(b" ")
        if len(fields) > 6 and fields[4] == b"/":
            return b"tmpfs" in fields[6:] and b"ro" in fields[5].split(b",")
    return True  # it ends: nothing is mounted any more


def check_place(workspace: Path) -> None:
    """Check that a workspace is the folder that was judged.

    Raises:
        SandboxUnavailableError: a link stands in its place or above it, or there is no folder.
    """
    if os.path.realpath(workspace) != str(workspace):
        raise SandboxUnavailableError(
            f"the workspace {workspace} is not where it was: a link leads elsewhere",
            hint="Look at who put it there; then start a conversation in the right folder.",
        )
    if not workspace.is_dir():
        raise SandboxUnavailableError(
            f"workspace {workspace} is no folder", hint="Create it or set workspace_dir."
        )
