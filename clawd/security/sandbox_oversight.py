"""What a command uses over all its processes and files: told why it must end, while it runs.

`prlimit` bounds one process or file. What bounds their number: the command's cgroup where we have
one, the disk watch, and, where the daemon is root, whom the kernel's own limit on processes does
not bind, the process numbers of the namespace (Linux 6.14).
"""

import asyncio
import contextlib
import logging
import os
import shutil
from pathlib import Path

from clawd.security.egress import WayOut
from clawd.security.sandbox_cgroup import CommandCgroup, ToolsCgroup
from clawd.security.sandbox_disk import DiskUse, DiskWatch, is_dead
from clawd.security.sandbox_neighbours import Neighbour, Neighbours
from clawd.security.sandbox_plan import DEFAULT_PATH, ResourceLimits

_log = logging.getLogger(__name__)

# Once all numbers were used the kernel gives none below this again: a command that has started
# very many processes, one after the other, must still find as many as it may have at once.
_KEPT_BACK = 300
_OWN_NUMBERS_SINCE = (6, 14)


class Oversight:
    """Oversees one command. Call from the event loop; nothing blocks for long.

    Args:
        written: the folders that it can write and that stay, absolute and resolved.
        limits: what the command may use.
        cgroup: of all commands, where there is one.
        has_namespace: whether the command has namespaces of its own.
        neighbour: it, among the commands at work, and whether it may begin beside them.
        way_out: is set up before the command begins; None for none.
    """

    def __init__(
        self,
        written: tuple[Path, ...],
        limits: ResourceLimits,
        cgroup: ToolsCgroup | None,
        *,
        has_namespace: bool = True,
        neighbour: tuple[Neighbour, Neighbours] | None = None,
        way_out: WayOut | None = None,
    ) -> None:
        self._way_out = way_out
        self._has_namespace = has_namespace
        self._neighbour = neighbour
        self._limits = limits
        self._cgroups = cgroup
        self._cgroup: CommandCgroup | None = None
        self._init = 0
        self._namespace = -1
        self._binding: asyncio.Future[None] | None = None
        allowed = DiskUse(written_bytes=limits.disk_bytes, files=limits.new_files)
        self._disk = None
        if written:
            self._disk = DiskWatch(written, allowed, has_mounts=has_namespace)

    def begin(self, init: int) -> None:
        """Take the namespace's init before the command runs. Raises OSError: it may not run."""
        self._init = init
        if self._neighbour is not None:
            self._neighbour[0].init = init
        has_cgroup = self._cgroups is not None and "pids" in self._cgroups.controllers
        if self._has_namespace and not has_cgroup and can_bind_numbers():
            self._namespace = _process_namespace(init)
        if self._cgroups is not None:
            self._cgroup = self._cgroups.new(
                memory_bytes=self._limits.total_memory_bytes, processes=self._limits.processes
            )
            self._cgroup.add(init)
        if self._way_out is not None:
            self._way_out.begin(init)

    def may_begin(self) -> bool:
        """Whether the command may begin now; ask again if not."""
        if self._way_out is not None and not self._way_out.is_ready:
            return False
        if self._neighbour is None:
            return True
        neighbour, others = self._neighbour
        return others.may_begin(neighbour)

    def keep_time(self, limit: asyncio.Timeout) -> None:
        """Let the time limit stand still while a person is asked about a host."""
        if self._way_out is not None:
            self._way_out.halt(limit)

    def overuse(self) -> str:
        """Return why the command must be killed now; empty when it need not."""
        if self._namespace != -1:
            most = _KEPT_BACK + self._limits.processes
            loop = asyncio.get_running_loop()
            self._binding = loop.run_in_executor(None, _bind_numbers, self._namespace, most)
            self._namespace = -1  # the thread's now
        if self._disk is not None and self._disk.is_over(self._init):
            limits = self._limits
            return f"it wrote more than {limits.disk_bytes} bytes or {limits.new_files} files"
        return ""

    def end(self) -> str:
        """Kill and forget what is left; return what limit ended it, empty for none."""
        if self._namespace != -1:
            os.close(self._namespace)
            self._namespace = -1
        if self._cgroup is None:
            return ""
        out_of_memory = self._cgroup.ran_out_of_memory()
        self._cgroup.close()
        self._cgroup = None
        return f"it used more than {self._limits.total_memory_bytes} bytes" if out_of_memory else ""


def bounds_of(cgroup: ToolsCgroup | None) -> tuple[str, ...]:
    """Return what bounds all processes of a command together, for people."""
    if cgroup is None:
        return ("disk watch",)
    return ("disk watch", f"cgroup ({', '.join(['kill', *sorted(cgroup.controllers)])})")


def unbounded_by(cgroup: ToolsCgroup | None, *, has_namespace: bool = True) -> tuple[str, ...]:
    """Return what nothing bounds here, for people."""
    controllers = cgroup.controllers if cgroup is not None else frozenset()
    lacking = [] if "memory" in controllers else ["memory of all processes together"]
    can_bind = has_namespace and can_bind_numbers()
    if "pids" not in controllers and os.geteuid() == 0 and not can_bind:
        lacking.append("processes of root")
    return tuple(lacking)


def can_bind_numbers() -> bool:
    """Whether a namespace has a limit of process numbers of its own, and we may set it.

    On an older kernel the same file is the limit of the whole machine.
    """
    release = os.uname().release.split(".")
    with contextlib.suppress(ValueError, IndexError):
        return os.geteuid() == 0 and (int(release[0]), int(release[1])) >= _OWN_NUMBERS_SINCE
    return False


def _process_namespace(init: int) -> int:
    """Open a process namespace other than ours: the limit of ours is the machine's."""
    try:
        namespace = os.open(f"/proc/{init}/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError as error:  # one that ends has left its namespaces
        raise ProcessLookupError(f"process {init} ends") from error
    except PermissionError as error:  # so the kernel says when it is reaped just then
        if not is_dead(init):
            raise
        raise ProcessLookupError(f"process {init} is gone") from error
    if os.fstat(namespace).st_ino == Path("/proc/self/ns/pid").stat().st_ino:
        os.close(namespace)
        raise ProcessLookupError(f"process {init} is gone")
    return namespace


def _bind_numbers(namespace: int, most: int) -> None:
    """Write a namespace's limit, from inside: the file shows who looks at it. Closes it."""
    nsenter = shutil.which("nsenter", path=DEFAULT_PATH)
    try:
        if nsenter is None:
            return
        script = f"echo {most} > /proc/sys/kernel/pid_max"
        argv = [nsenter, "--pid=/proc/self/fd/3", "--", "/bin/sh", "-c", script]
        with open(os.devnull, "r+b") as nothing:  # noqa: PTH123 - a descriptor, not a path
            given = (nothing.fileno(), nothing.fileno(), nothing.fileno(), namespace)
            actions = [(os.POSIX_SPAWN_DUP2, fd, number) for number, fd in enumerate(given)]
            pid = os.posix_spawn(nsenter, argv, {"PATH": DEFAULT_PATH}, file_actions=actions)
        os.waitpid(pid, 0)
    except OSError as error:
        _log.warning("the number of a command's processes is not bounded: %s", error)
    finally:
        os.close(namespace)
