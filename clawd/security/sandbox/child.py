"""One child process behind its plan: spawn it, hold it at its gate, limit it, kill it whole.

What it reads and prints is for those who build on this: `process` runs a command to its
end, `long_lived` talks with one that stays. What it may see is `plan`'s.
"""

import asyncio
import contextlib
import errno
import json
import logging
import os
import resource
import signal
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Protocol, runtime_checkable

from clawd.security.sandbox.plan import DescriptorSlot, SandboxPlan

# The first look comes when a short command has ended long ago.
_FIRST_LOOK_S = 0.1
_LOOK_EVERY_S = 0.25


class Overseer(Protocol):
    """Watches what a command uses; called on the event loop, must not block."""

    def begin(self, init: int) -> None:
        """Take the process number of the namespace's init before the command runs.

        Raises OSError when the command must not run, ProcessLookupError when it cannot, as it ends.
        """

    def may_begin(self) -> bool:
        """Whether the command may begin now; asked again if not."""

    def overuse(self) -> str:
        """Return why the command must be killed now; empty when it need not. Asked repeatedly."""

    def end(self) -> str:
        """Clean up when all is dead; return which limit ended it, empty for none."""


@runtime_checkable
class KeepsTime(Protocol):
    """An overseer that may let the time limit of its command stand still."""

    def keep_time(self, limit: asyncio.Timeout) -> None:
        """Take the limit, which is in force; not to be moved once the command is dead."""


class Looks:
    """Asks an overseer from time to time. `end` must follow, come what may.

    Args:
        overseer: None asks nobody.
        on_overuse: kills the command; `overuse` says why by then.
    """

    def __init__(self, overseer: Overseer | None, *, on_overuse: Callable[[], None]) -> None:
        self.overuse = ""
        self._overseer = overseer
        self._on_overuse = on_overuse
        self._next: asyncio.TimerHandle | None = None
        self._is_gone = False

    def begin(self, init: int) -> None:
        """Begin before the command runs; kills it where its limits cannot be set.

        One that is ending by itself, because its sandbox cannot be set up, is left to say why.
        """
        if self._overseer is None:
            return
        try:
            self._overseer.begin(init)
        except ProcessLookupError:
            self._is_gone = True
            return
        except OSError as error:
            self.overuse = f"its limits cannot be set: {error}"
            self._on_overuse()
            return
        self._ask_in(_FIRST_LOOK_S, self._overseer)

    def may_begin(self) -> bool:
        """Whether the command may begin now; ask again if not."""
        if self._is_gone:
            return False
        return self._overseer is None or self._overseer.may_begin()

    def end(self) -> None:
        """Ask no more; `overuse` is final after this."""
        if self._next is not None:
            self._next.cancel()
        if self._overseer is not None:
            self.overuse = self._overseer.end() or self.overuse
            self._overseer = None

    def _ask_in(self, delay_s: float, overseer: Overseer) -> None:
        loop = asyncio.get_running_loop()
        self._next = loop.call_later(delay_s, self._ask, overseer)

    def _ask(self, overseer: Overseer) -> None:
        try:
            self.overuse = overseer.overuse()
        except Exception as error:  # noqa: BLE001 - a process that cannot be watched must end
            _log.error("a command cannot be watched, it is ended", exc_info=error)
            self.overuse = f"what it uses cannot be told: {type(error).__name__}"
        if self.overuse:
            self._on_overuse()
        else:
            self._ask_in(_LOOK_EVERY_S, overseer)


READ_BYTES = 64 << 10
# A busy machine lets what was killed run, and so die, only seconds later.
_DEATH_LIMIT_S = 20.0
_DRAIN_LIMIT_S = 0.5
_SETUP_LOOK_S = 0.001

_log = logging.getLogger(__name__)


class KillRegistry(Protocol):
    """Takes descriptors of processes that an emergency stop must kill at once."""

    def register_kill(self, pidfd: int) -> None:
        """Take a pidfd, which stays the caller's; kill it when the stop is or becomes set."""

    def unregister_kill(self, pidfd: int) -> None:
        """Forget it; after this the caller may close it."""


class Child(ABC):
    """The process, its descriptors and its pidfds. `end` must follow `start`, come what may.

    bubblewrap is held at a gate (`--block-fd`) until `let_go` was called and its namespace's init
    is known and registered, so that no command ever runs that could not be killed whole. Killing
    bubblewrap itself before that would leave the init behind as an orphan; a kill that comes too
    early therefore waits for the report.
    """

    def __init__(self, registry: KillRegistry | None, overseer: Overseer | None) -> None:
        self.began = time.monotonic()
        self.ended = self.began
        self.failure = ""
        self.reported_exit: int | None = None
        self.is_bare = False
        self.kill_wanted = False
        self._looks = Looks(overseer, on_overuse=self.kill)
        self._registry = registry
        self._loop = asyncio.get_running_loop()
        self._process: subprocess.Popen[bytes] | None = None
        self._is_group = False
        self._outer = -1
        self._init = -1
        self._gate = -1
        self._is_let_go = False
        self._limits: dict[str, int] = {}
        self._status_open = False
        self._status = b""
        self._watched: set[int] = set()
        self._let_in = asyncio.Event()
        self._dead = asyncio.Event()
        self._quiet = asyncio.Event()

    @property
    def overuse(self) -> str:
        """Which limit it met; empty for none."""
        return self._looks.overuse

    @property
    def is_dead(self) -> bool:
        """Whether all of it is dead."""
        return self._dead.is_set()

    @abstractmethod
    def open_stdio(self, given: dict[str, int]) -> None:
        """Add the descriptors `stdin`, `out` and, where it is not the same, `err`.

        They are closed here once the child has them. Raises OSError.
        """

    @abstractmethod
    def close_stdio(self) -> None:
        """Close this side's ends; nothing of the child is alive."""

    def start(self, plan: SandboxPlan) -> None:
        """Spawn it. Raises OSError when the program cannot be started."""
        self.is_bare = not plan.bwrap
        self._is_group = plan.is_group
        self._limits = plan.limits
        given: dict[str, int] = {}
        try:
            self.open_stdio(given)
            status, given["status"] = os.pipe2(os.O_CLOEXEC)
            self.watch(status, self._on_status)
            self._status_open = True
            given["gate"], self._gate = os.pipe2(os.O_CLOEXEC) if plan.is_group else endless_pipe()
            self._spawn(plan, given)
        finally:
            for descriptor in given.values():
                os.close(descriptor)

    def let_go(self) -> None:
        """Let the command begin, now or as soon as it can be killed whole."""
        self._is_let_go = True
        if self.is_bare:
            self._let_in.set()
        if self._init != -1:
            self._open_gate()

    async def begun(self) -> None:
        """Wait until the command was let begin, or is dead already."""
        await self._let_in.wait()

    def _open_gate(self) -> None:
        if self._init == -1 or self.kill_wanted or self._gate == -1:
            return  # it ends before it began
        if not self._looks.may_begin():
            self._loop.call_later(_SETUP_LOOK_S, self._open_gate)
            return
        # A stop that is set has sent SIGKILL by now; what opens the gate then opens it for nobody.
        with contextlib.suppress(BrokenPipeError):
            os.write(self._gate, b"x")
        self._let_in.set()

    def _spawn(self, plan: SandboxPlan, given: dict[str, int]) -> None:
        argv, passed = list(plan.argv), []
        if not self.is_bare:
            for name, data in plan.files.items():
                given[name] = memory_file(data)
            given["args"] = memory_file(joined(plan.options, given))
            if plan.starter:
                argv = [f"/proc/self/fd/{given[plan.starter]}", *argv]
            argv = [*plan.interpreter, plan.bwrap, "--args", str(given["args"]), "--", *argv]
            passed = [fd for name, fd in given.items() if name not in {"stdin", "out", "err"}]
        self._process = subprocess.Popen(  # noqa: S603 - an argument vector, judged before, no shell
            argv,
            stdin=given["stdin"],
            stdout=given["out"],
            stderr=given.get("err", given["out"]),
            cwd=plan.cwd,
            env=plan.env,
            pass_fds=passed,
            start_new_session=True,
            umask=plan.umask,
        )
        self._outer = os.pidfd_open(self._process.pid)
        self.watch(self._outer, self._on_death)
        if self.is_bare:
            self._register(self._outer)

    def watch(self, descriptor: int, callback: Callable[[int], None]) -> None:
        """Call back when there is something to read, until `unwatch`, which closes it."""
        self._watched.add(descriptor)
        self._loop.add_reader(descriptor, callback, descriptor)

    def is_watched(self, descriptor: int) -> bool:
        """Return whether a descriptor is watched, and so open."""
        return descriptor in self._watched

    def unwatch(self, descriptor: int) -> None:
        """Stop watching a descriptor and close it."""
        self._watched.discard(descriptor)
        self._loop.remove_reader(descriptor)
        os.close(descriptor)
        if not self._watched:
            self._quiet.set()

    def _register(self, pidfd: int) -> None:
        if self._registry is not None:
            self._registry.register_kill(pidfd)

    def _on_status(self, descriptor: int) -> None:
        """Read bubblewrap's report, which comes in pieces: the namespace's init, the exit code."""
        data = os.read(descriptor, READ_BYTES)
        if not data:
            self._status_open = False
            self.unwatch(descriptor)
            if self.kill_wanted:
                self.kill()
            return
        *lines, self._status = (self._status + data).split(b"\n")
        for line in lines:
            report = json.loads(line)
            if "child-pid" in report:
                self._adopt_init(report["child-pid"])
            self.reported_exit = report.get("exit-code", self.reported_exit)

    def _adopt_init(self, pid: int) -> None:
        """Hold and limit the namespace's init, whose death is that of all in the namespace."""
        try:
            pidfd = os.pidfd_open(pid)
        except ProcessLookupError:
            return
        if self._process is None or parent_of(pid) != self._process.pid:
            os.close(pidfd)  # it is gone, and the number may be somebody else's by now
            return
        self._init = pidfd
        self.watch(pidfd, self._on_death)
        try:
            limit_process(pid, self._limits)
        except ProcessLookupError:
            pass  # it is dead: there is nothing to limit, and nobody to open the gate for
        except OSError as error:
            self.failure = f"its limits cannot be set: {error}"
            self.kill_wanted = True
        self._register(pidfd)
        self._looks.begin(pid)
        if self.kill_wanted:
            self.kill()
        elif self._is_let_go:
            self._open_gate()

    def _on_death(self, pidfd: int) -> None:
        if self._registry is not None:
            self._registry.unregister_kill(pidfd)
        if self.is_bare:
            self._kill_group()
        if self._is_group:
            self._kill_now()  # where its keeper died first, nobody else does
        if pidfd == self._init:
            self._init = -1
        else:
            self._outer = -1
        self.unwatch(pidfd)
        if self._outer == self._init == -1:
            self.ended = time.monotonic()
            self._dead.set()
            self._let_in.set()

    def kill(self) -> None:
        """Kill all of it, as soon as that can be done whole."""
        self.kill_wanted = True
        if self.is_bare:
            self._kill_group()
        elif self._init == -1 and self._status_open and not self.reported_exit:
            return  # `_adopt_init` or the report's end comes back here
        self._kill_now()

    def _kill_now(self) -> None:
        if self._is_group and self._init != -1:
            self._kill_kept(self._init)
            return
        for pidfd in (self._init, self._outer):
            if pidfd != -1:
                with contextlib.suppress(ProcessLookupError):  # reaped, and not yet told
                    signal.pidfd_send_signal(pidfd, signal.SIGKILL)

    @staticmethod
    def _kill_kept(leader: int) -> None:
        """Kill a group; its keeper lives on, and ends when all of them are dead."""
        with contextlib.suppress(ProcessLookupError):
            try:
                signal.pidfd_send_signal(leader, signal.SIGKILL, None, PROCESS_GROUP)
            except OSError as error:
                if error.errno != errno.EINVAL:
                    raise
                # An older kernel; the keeper kills the group of a leader that is dead.
                signal.pidfd_send_signal(leader, signal.SIGKILL)

    def _kill_group(self) -> None:
        if self._process is not None:
            signal_group(self._process, signal.SIGKILL)

    async def ask_to_end(self, grace_s: float) -> None:
        """Send SIGTERM and wait that long; whatever lives then is `end`'s.

        A command that has not begun yet gets no grace: it would begin only now, and unasked.
        """
        if grace_s <= 0 or self._process is None or not self._let_in.is_set():
            return
        if self.is_bare:
            signal_group(self._process, signal.SIGTERM)
        elif self._init != -1:
            ask_namespace(self._init)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(grace_s):
                await self.wait()

    async def dead(self) -> None:
        """Wait until all of it is dead."""
        await self._dead.wait()

    async def wait(self) -> None:
        """Wait until all are dead and their output is read."""
        await self._dead.wait()
        # What escaped a bare group may hold the pipe for ever; a namespace's is closed by now.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_DRAIN_LIMIT_S):
                await self._quiet.wait()

    async def end(self) -> None:
        """Kill what is left, wait for its death and close everything, even when cancelled."""
        cancelled: asyncio.CancelledError | None = None
        if self._process is not None and not self._dead.is_set():
            self.kill()
            deadline = self._loop.time() + _DEATH_LIMIT_S
            while not self._quiet.is_set():
                try:
                    async with asyncio.timeout_at(deadline):
                        await self.wait()
                        break
                except TimeoutError:
                    _log.error("a child process did not die of SIGKILL in %s s", _DEATH_LIMIT_S)
                    self._kill_now()
                    break
                except asyncio.CancelledError as error:
                    cancelled = error
        self._close()
        if cancelled is not None:
            raise cancelled

    def _close(self) -> None:
        self._looks.end()
        for pidfd in (self._init, self._outer):
            if pidfd != -1 and self._registry is not None:
                self._registry.unregister_kill(pidfd)
        for descriptor in list(self._watched):
            self.unwatch(descriptor)
        if self._gate != -1:
            os.close(self._gate)
            self._gate = -1
        if self._process is not None:
            self._process.poll()
        self.close_stdio()

    def exit_code(self) -> int:
        """Return how it ended, after `end`: negative for a signal, as `Popen.returncode`."""
        code = self._process.returncode if self._process is not None else None
        if self.reported_exit is not None:
            code = self.reported_exit
        return -signal.SIGKILL if code is None else code


_LIMITS = {
    "core": resource.RLIMIT_CORE,
    "cpu": resource.RLIMIT_CPU,
    "data": resource.RLIMIT_DATA,
    "as": resource.RLIMIT_AS,
    "fsize": resource.RLIMIT_FSIZE,
    "nofile": resource.RLIMIT_NOFILE,
    "nproc": resource.RLIMIT_NPROC,
}


def limit_process(pid: int, limits: Mapping[str, int]) -> None:
    """Set soft and hard limits, by prlimit(1)'s names; a hard limit that is lower stays.

    Raises:
        OSError: they cannot be set; the process must not go on.
    """
    for name, wanted in limits.items():
        kind = _LIMITS[name]
        _, hard = resource.prlimit(pid, kind)
        value = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.prlimit(pid, kind, (value, value))


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


def endless_pipe() -> tuple[int, int]:
    """Return both ends of a pipe whose reader never sees its end, whatever dies.

    At the end of a plain pipe bubblewrap goes on as if it had been let go: a daemon that is killed
    would start what it holds. A reader that could write as well is a writer that lives. `confine`
    ends its command at the end of a plain one.
    """
    held, gate = os.pipe2(os.O_CLOEXEC)
    try:
        return os.open(f"/proc/self/fd/{held}", os.O_RDWR | os.O_CLOEXEC), gate
    except OSError:
        os.close(gate)
        raise
    finally:
        os.close(held)


def joined(options: Iterable[str | DescriptorSlot], descriptors: dict[str, int]) -> bytes:
    """Return options as bubblewrap reads them, with descriptor numbers in their slots."""
    words = (str(descriptors[o.name]) if isinstance(o, DescriptorSlot) else o for o in options)
    return b"".join(os.fsencode(word) + b"\0" for word in words)


def memory_file(data: bytes) -> int:
    """Return a descriptor of a nameless file that holds the data, at its beginning."""
    descriptor = os.memfd_create("clawd", os.MFD_CLOEXEC)
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor
