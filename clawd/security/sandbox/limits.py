"""What a command uses over all its processes and files: told why it must end, while it runs.

`prlimit` bounds one process or file. What bounds their number: the command's cgroup where we have
one, the disk watch, and, where the daemon is root, whom the kernel's own limit on processes does
not bind, the process numbers of the namespace (Linux 6.14).
"""

import asyncio
import contextlib
import itertools
import logging
import os
import shutil
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec

from clawd.security.sandbox.egress import WayOut
from clawd.security.sandbox.neighbours import Neighbour, Neighbours
from clawd.security.sandbox.plan import DEFAULT_PATH, ResourceLimits

_log = logging.getLogger(__name__)

# Limits over all processes of a command together, where systemd has delegated a cgroup to us.
#
#     <our cgroup>/daemon          the daemon itself: a cgroup with children holds no process
#     <our cgroup>/tools           nobody in here may talk to the daemon
#     <our cgroup>/tools/<number>  one command: memory.max, pids.max, cgroup.kill
#
# Only cgroup v2 with `Delegate=yes` (the attribute `user.delegate`): elsewhere the tree is somebody
# else's. See cgroup-v2.rst of the kernel, "Delegation" and "No Internal Process Constraint".

_DELEGATED = "user.delegate"
_WANTED = ("memory", "pids")
_END_TRIES = 3


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
    *, proc: Path = Path("/proc/self"), is_delegated: Callable[[Path], bool] | None = None
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


# How much one command writes to the folders that it may change: asked while it runs, cheaply.
#
# A limit on one file does not bound many. So the free space is compared with that at the start,
# and only when it has gone down or up by half the limit are they walked, in a thread, for what has
# changed since: other programs fill disks too, and free them. Files that have no name any more are
# found by the descriptors of the command's processes. How much can be written beyond the limit is
# what fits between two looks and into the time of a walk; at twice the limit nobody waits for the
# walk.

_BLOCK_BYTES = 512
_CLOCK_SLACK_NS = 50_000_000
_PROC = Path("/proc")
_OWN = ("/tmp", "/dev/shm")  # noqa: S108 - the sandbox's


class DiskUse(msgspec.Struct, frozen=True, kw_only=True):
    """So many bytes and files."""

    written_bytes: int
    files: int

    def without(self, other: "DiskUse") -> "DiskUse":
        """Return what is left of it without another."""
        return DiskUse(
            written_bytes=self.written_bytes - other.written_bytes, files=self.files - other.files
        )

    def is_over(self, limit: "DiskUse", *, part: float = 1) -> bool:
        """Whether it reaches this part of a limit in either."""
        return self.written_bytes >= limit.written_bytes * part or self.files >= limit.files * part


class DiskWatch:
    """Watches one command. Call from the event loop only.

    Args:
        folders: its workspace and its caches, absolute and resolved.
        limit: what the command may use.
        has_mounts: whether its /tmp and /dev/shm are its own; else they are the host's.
    """

    def __init__(self, folders: Sequence[Path], limit: DiskUse, *, has_mounts: bool = True) -> None:
        self._has_mounts = has_mounts
        self._folders = tuple(folders)
        self._limit = limit
        self._since_ns = time.time_ns() - _CLOCK_SLACK_NS
        self._before = _taken_by(self._folders)
        self._walk: asyncio.Future[DiskUse | None] | None = None
        self._at_walk = self._before

    def is_over(self, init: int) -> bool:
        """Whether it has used more than it may; never blocks. `init`: its namespace's, or 0."""
        now = _taken_by(self._folders)
        grown = now.without(self._before)
        if self._walk is not None and self._walk.done():
            used = self._walk.result()
            self._walk = None
            # None: something is hidden, so all that the disk lost is its.
            if (used or grown).is_over(self._limit):
                return True
            if used is not None:
                self._before = self._at_walk.without(used)  # what others wrote is forgotten
                return False
        if init and self._has_mounts and _fills_its_own(init, self._limit.files):
            return True
        # What others have removed meanwhile would hide as much of what the command writes.
        freed = self._before.without(now)
        if not (grown.is_over(self._limit, part=0.5) or freed.is_over(self._limit, part=0.5)):
            return False
        if self._walk is None:
            loop = asyncio.get_running_loop()
            self._at_walk = now
            self._walk = loop.run_in_executor(
                None, changed_since, self._folders, self._since_ns, init
            )
        return False


def changed_since(folders: Sequence[Path], since_ns: int, init: int) -> DiskUse | None:
    """Return what was changed in folders, and is held open without a name, since a time.

    None when a process of the command hides what it holds.
    """
    written, files = 0, 0
    named: set[tuple[int, int]] = set()
    for about in (about for folder in folders for about in _walked(str(folder))):
        if about.st_nlink > 1 and not stat.S_ISDIR(about.st_mode):
            if (about.st_dev, about.st_ino) in named:
                continue  # the same file by another name
            named.add((about.st_dev, about.st_ino))
        if about.st_ctime_ns >= since_ns:
            written += about.st_blocks * _BLOCK_BYTES
            files += 1
    devices = {folder.stat().st_dev for folder in folders}
    seen: set[tuple[int, int]] = set()
    try:
        for pid in _descendants(init) if init else ():
            for about in _nameless(pid):
                if about.st_dev in devices and (about.st_dev, about.st_ino) not in seen:
                    seen.add((about.st_dev, about.st_ino))
                    written += about.st_blocks * _BLOCK_BYTES
                    files += 1
    except PermissionError:
        return None
    return DiskUse(written_bytes=written, files=files)


def _taken_by(folders: Sequence[Path]) -> DiskUse:
    """Return what is taken of the file systems of some folders."""
    of_each = {folder.stat().st_dev: _taken(folder) for folder in folders}.values()
    return DiskUse(
        written_bytes=sum(each.written_bytes for each in of_each),
        files=sum(each.files for each in of_each),
    )


def _taken(folder: Path | str) -> DiskUse:
    """Return what of a file system is taken."""
    about = os.statvfs(folder)
    return DiskUse(
        written_bytes=(about.f_blocks - about.f_bfree) * about.f_frsize,
        files=about.f_files - about.f_ffree,
    )


def _fills_its_own(init: int, files: int) -> bool:
    """Whether the sandbox's own file systems, whose size is bounded, hold too many files."""
    for folder in _OWN:
        inside = f"{_PROC}/{init}/root{folder}"
        # Until the sandbox is set up its root is the host's, and so is how full that is.
        if _device(inside) not in {-1, _device(folder)}:
            try:
                if _taken(inside).files > files:
                    return True
            except OSError:
                return False  # it is ending
    return False


def _device(folder: str) -> int:
    """Return which file system a folder lies on; -1 where there is no such folder."""
    try:
        return os.stat(folder).st_dev  # noqa: PTH116 - a Path would be made four times a second
    except OSError:
        return -1


def _walked(folder: str) -> Iterator[os.stat_result]:
    waiting = [folder]
    while waiting:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    try:
                        about = entry.stat(follow_symlinks=False)
                    except FileNotFoundError:
                        continue  # gone meanwhile; the others in the folder are not
                    yield about
                    if stat.S_ISDIR(about.st_mode):
                        waiting.append(entry.path)
        except OSError:
            continue  # gone meanwhile, or not ours to read


def _descendants(init: int) -> Iterator[int]:
    waiting = [init]
    while waiting:
        pid = waiting.pop()
        yield pid
        try:
            for task in (_PROC / str(pid) / "task").iterdir():
                waiting += map(int, (task / "children").read_bytes().split())
        except (FileNotFoundError, ProcessLookupError):
            continue


def _nameless(pid: int) -> Iterator[os.stat_result]:
    try:
        for held in (_PROC / str(pid) / "fd").iterdir():
            try:
                about = held.stat()
            except FileNotFoundError:
                continue  # closed meanwhile; the others are not
            if stat.S_ISREG(about.st_mode) and about.st_nlink == 0:
                yield about
    except (FileNotFoundError, ProcessLookupError):
        return
    except PermissionError:
        if not is_dead(pid):
            raise


def is_dead(pid: int) -> bool:
    """Whether a process has ended and only waits for its parent; then it holds nothing."""
    try:
        facts = (_PROC / str(pid) / "stat").read_bytes().rpartition(b")")[2]
    except OSError:
        return True
    return facts.split()[0] in {b"Z", b"X"}


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
