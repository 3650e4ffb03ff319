"""Limits over all processes of a command together, where systemd has delegated a cgroup to us.

    <our cgroup>/daemon          the daemon itself: a cgroup with children holds no process
    <our cgroup>/tools           nobody in here may talk to the daemon
    <our cgroup>/tools/<number>  one command: memory.max, pids.max, cgroup.kill

Only cgroup v2 with `Delegate=yes` (the attribute `user.delegate`): elsewhere the tree is somebody
else's. See cgroup-v2.rst of the kernel, "Delegation" and "No Internal Process Constraint".
"""

import contextlib
import itertools
import logging
import os
from collections.abc import Callable
from pathlib import Path

import msgspec

_DELEGATED = "user.delegate"
_WANTED = ("memory", "pids")
_END_TRIES = 3

_log = logging.getLogger(__name__)


class NoCgroup(msgspec.Struct, frozen=True, kw_only=True):
    """There is none that we may use; `reason` says why."""

    reason: str


class CommandCgroup:
    """The cgroup of one command."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def add(self, pid: int) -> None:
        """Move a process in, before it has children. Raises OSError when that fails."""
        _write(self._folder / "cgroup.procs", str(pid))

    def kill(self) -> None:
        """Kill everything in it; knows no error."""
        with contextlib.suppress(OSError):
            _write(self._folder / "cgroup.kill", "1")

    def ran_out_of_memory(self) -> bool:
        """Whether the kernel has killed something in it for memory."""
        try:
            events = (self._folder / "memory.events").read_text(encoding="ascii")
        except OSError:
            return False
        counts = dict(line.split() for line in events.splitlines())
        return int(counts.get("oom_kill", 0)) > 0

    def close(self) -> None:
        """Remove it; what is left alive in it is killed first."""
        for _ in range(_END_TRIES):
            try:
                self._folder.rmdir()
            except FileNotFoundError:
                return
            except OSError:
                self.kill()
            else:
                return
        _log.warning("a command's cgroup cannot be removed", extra={"cgroup": str(self._folder)})


class ToolsCgroup:
    """The cgroup of all commands.

    Attributes:
        name: as /proc/PID/cgroup has it.
        controllers: which of memory and pids it has.
    """

    def __init__(self, folder: Path, name: str, controllers: frozenset[str]) -> None:
        self._folder = folder
        self.name = name
        self.controllers = controllers
        self._numbers = itertools.count(1)

    def new(self, *, memory_bytes: int, processes: int) -> CommandCgroup:
        """Make the cgroup of one command. Raises OSError when that fails."""
        folder = self._made()
        if "memory" in self.controllers:
            _write(folder / "memory.max", str(memory_bytes))
            _write(folder / "memory.oom.group", "1")
            with contextlib.suppress(FileNotFoundError):  # a kernel without swap accounting
                _write(folder / "memory.swap.max", "0")
        if "pids" in self.controllers:
            _write(folder / "pids.max", str(processes))
        return CommandCgroup(folder)

    def _made(self) -> Path:
        while True:
            folder = self._folder / str(next(self._numbers))
            # One that an earlier daemon left is there until the last of what it holds has died.
            with contextlib.suppress(FileExistsError):
                folder.mkdir()
                return folder


def tools_cgroup(
    *,
    proc: Path = Path("/proc/self"),
    is_delegated: Callable[[Path], bool] | None = None,
) -> ToolsCgroup | NoCgroup:
    """Set up the subtree of the tools and move this process beside it.

    Call once, before anything else is started: its threads go along, its children do not.
    """
    try:
        own = _own_cgroup((proc / "cgroup").read_text(encoding="utf-8"))
        mount, root = _mount((proc / "mountinfo").read_text(encoding="utf-8"))
        if own is None or mount is None:
            return NoCgroup(reason="no cgroup v2 here")
        folder = mount / os.path.relpath(own, root)
        if not (is_delegated or _is_delegated)(folder):
            return NoCgroup(reason=f"cgroup {own} is not delegated (Delegate=yes)")
        _make(folder / "daemon")
        _write(folder / "daemon" / "cgroup.procs", str(os.getpid()))
        tools = _make(folder / "tools")
        _enable(folder)
        controllers = _enable(tools)
    except (OSError, ValueError) as error:
        return NoCgroup(reason=f"the delegated cgroup cannot be used: {error}")
    _remove_old(tools)
    return ToolsCgroup(tools, f"{own.rstrip('/')}/tools", controllers)


def _own_cgroup(text: str) -> str | None:
    """Return the v2 line of /proc/PID/cgroup (`0::/a/b`), without our own leaf."""
    for line in text.splitlines():
        if line.startswith("0::/"):
            return line[3:].removesuffix("/daemon") or "/"
    return None


def _mount(text: str) -> tuple[Path | None, str]:
    """Return where cgroup v2 is mounted, and which cgroup is its root there."""
    for line in text.splitlines():
        before, _, after = line.partition(" - ")
        if after.startswith("cgroup2 "):
            root, point = before.split()[3:5]
            return Path(point), root
    return None, "/"


def _is_delegated(folder: Path) -> bool:
    try:
        return os.getxattr(folder, _DELEGATED) == b"1"
    except OSError:
        return False


def _make(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    return folder


def _enable(folder: Path) -> frozenset[str]:
    """Give the children of a cgroup the controllers that are wanted and there."""
    there = set((folder / "cgroup.controllers").read_text(encoding="ascii").split())
    enabled = [name for name in _WANTED if name in there]
    if enabled:
        _write(folder / "cgroup.subtree_control", " ".join(f"+{name}" for name in enabled))
    return frozenset(enabled)


def _remove_old(tools: Path) -> None:
    """Kill and remove what a daemon that was killed has left behind."""
    for folder in tools.iterdir():
        if folder.is_dir():
            CommandCgroup(folder).close()


def _write(file: Path, text: str) -> None:
    descriptor = os.open(file, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, text.encode("ascii"))
    finally:
        os.close(descriptor)
