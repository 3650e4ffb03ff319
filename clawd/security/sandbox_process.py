"""One child process from start to the death of its last descendant: spawn, drain, limit, kill.

What the child may see is `sandbox_plan`'s; this file knows descriptors and signals only.
"""

import asyncio
import contextlib
import json
import logging
import os
import signal
import subprocess
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Literal, Protocol

import msgspec

from clawd.security.sandbox_descriptors import endless_pipe, joined, memory_file
from clawd.security.sandbox_limits import limit_process
from clawd.security.sandbox_looks import Looks, Overseer
from clawd.security.sandbox_output import Output
from clawd.security.sandbox_plan import ChildCommand, Plan
from clawd.security.sandbox_signals import (
    PROCESS_GROUP,
    ask_namespace,
    parent_of,
    signal_group,
)

_READ_BYTES = 64 << 10
_ERROR_BYTES = 4 << 10
_DEATH_LIMIT_S = 5.0
_DRAIN_LIMIT_S = 0.5
_SETUP_LOOK_S = 0.001
_NO_FILE = ": No such file or directory"

_log = logging.getLogger(__name__)

EndedBy = Literal["exit", "timeout", "output", "limit"]


class KillRegistry(Protocol):
    """Takes descriptors of processes that an emergency stop must kill at once."""

    def register_kill(self, pidfd: int) -> None:
        """Take a pidfd, which stays the caller's; kill it when the stop is or becomes set."""

    def unregister_kill(self, pidfd: int) -> None:
        """Forget it; after this the caller may close it."""


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """How it went. `started` is False when the sandbox itself could not be set up.

    `overuse` says which limit it met, when `ended_by` is `limit`. `errors` is the beginning of its
    standard error, where that was kept apart.
    """

    exit_code: int
    output: str
    output_bytes: int
    truncated: bool
    ended_by: EndedBy
    duration_ms: int
    started: bool
    overuse: str = ""
    errors: str = ""


async def run_plan(
    plan: Plan,
    command: ChildCommand,
    *,
    registry: KillRegistry | None,
    on_output: Callable[[str], None] | None,
    overseer: Overseer | None = None,
    cleared: Callable[[], Awaitable[None]] | None = None,
) -> Ended:
    """Run a command, by its plan, to its end.

    `cleared` is awaited before the command begins, while its sandbox is set up; what it raises ends
    the sandbox and is raised here. On return and on cancellation every process of its namespaces is
    dead. Must be called from the thread that runs the event loop for the daemon's life: the kernel
    ties the child's parent-death signal to the thread that started it.
    """
    child = _Child(Output(command.max_output_bytes, on_output), registry, overseer)
    ended_by: EndedBy = "exit"
    has_gate = bool(plan.bwrap)
    try:
        async with asyncio.timeout(command.timeout_s):
            if cleared is not None and not has_gate:
                await cleared()
            child.start(plan, command)
            if cleared is not None and has_gate:
                await cleared()
            child.let_go()
            await child.wait()
        if child.is_flooded:
            ended_by = "output"
    except TimeoutError:
        ended_by = "timeout"
        await child.ask_to_end(command.grace_s)
    finally:
        await child.end()
    return child.result(ended_by)


class _Child:
    """The process, its descriptors and its pidfds. `end` must follow `start`, come what may.

    bubblewrap is held at a gate (`--block-fd`) until `let_go` was called and its namespace's init
    is known and registered, so that no command ever runs that could not be killed whole. Killing
    bubblewrap itself before that would leave the init behind as an orphan; a kill that comes too
    early therefore waits for the report.
    """

    def __init__(
        self, output: Output, registry: KillRegistry | None, overseer: Overseer | None
    ) -> None:
        self.output = output
        self._errors: Output | None = None
        self._looks = Looks(overseer, on_overuse=self._kill)
        self._registry = registry
        self._loop = asyncio.get_running_loop()
        self._process: subprocess.Popen[bytes] | None = None
        self._bare = False
        self._is_group = False
        self._outer = -1
        self._init = -1
        self._gate = -1
        self._kill_wanted = False
        self._is_let_go = False
        self._limits: dict[str, int] = {}
        self._failure = ""
        self._status_open = False
        self._status = b""
        self._reported_exit: int | None = None
        self._watched: set[int] = set()
        self._began = time.monotonic()
        self._ended = self._began
        self._dead = asyncio.Event()
        self._quiet = asyncio.Event()

    def start(self, plan: Plan, command: ChildCommand) -> None:
        """Spawn it. Raises OSError when the program cannot be started."""
        self._bare = not plan.bwrap
        self._is_group = plan.is_group
        self._limits = plan.limits
        given: dict[str, int] = {"stdin": memory_file(command.stdin)}
        try:
            output, given["out"] = os.pipe2(os.O_CLOEXEC)
            self._watch(output, partial(self._on_output, self.output))
            if command.separate_errors:
                self._errors = Output(_ERROR_BYTES, None)
                errors, given["err"] = os.pipe2(os.O_CLOEXEC)
                self._watch(errors, partial(self._on_output, self._errors))
            status, given["status"] = os.pipe2(os.O_CLOEXEC)
            self._watch(status, self._on_status)
            self._status_open = True
            given["gate"], self._gate = os.pipe2(os.O_CLOEXEC) if plan.is_group else endless_pipe()
            self._spawn(plan, given)
        finally:
            for descriptor in given.values():
                os.close(descriptor)

    def let_go(self) -> None:
        """Let the command begin, now or as soon as it can be killed whole."""
        self._is_let_go = True
        if self._init != -1:
            self._open_gate()

    def _open_gate(self) -> None:
        if self._init == -1 or self._kill_wanted or self._gate == -1:
            return  # it ends before it began
        if not self._looks.may_begin():
            self._loop.call_later(_SETUP_LOOK_S, self._open_gate)
            return
        # A stop that is set has sent SIGKILL by now; what opens the gate then opens it for nobody.
        with contextlib.suppress(BrokenPipeError):
            os.write(self._gate, b"x")

    def _spawn(self, plan: Plan, given: dict[str, int]) -> None:
        argv, passed = list(plan.argv), []
        if not self._bare:
            for name, data in plan.files.items():
                given[name] = memory_file(data)
            given["args"] = memory_file(joined(plan.options, given))
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
        )
        self._outer = os.pidfd_open(self._process.pid)
        self._watch(self._outer, self._on_death)
        if self._bare:
            self._register(self._outer)

    def _watch(self, descriptor: int, callback: Callable[[int], None]) -> None:
        self._watched.add(descriptor)
        self._loop.add_reader(descriptor, callback, descriptor)

    def _unwatch(self, descriptor: int) -> None:
        self._watched.discard(descriptor)
        self._loop.remove_reader(descriptor)
        os.close(descriptor)
        if not self._watched:
            self._quiet.set()

    def _register(self, pidfd: int) -> None:
        if self._registry is not None:
            self._registry.register_kill(pidfd)

    def _on_output(self, output: Output, descriptor: int) -> None:
        data = os.read(descriptor, _READ_BYTES)
        if not data:
            self._unwatch(descriptor)
            return
        output.add(data)
        if output.flooded:
            self._kill()

    def _on_status(self, descriptor: int) -> None:
        """Read bubblewrap's report, which comes in pieces: the namespace's init, the exit code."""
        data = os.read(descriptor, _READ_BYTES)
        if not data:
            self._status_open = False
            self._unwatch(descriptor)
            if self._kill_wanted:
                self._kill()
            return
        *lines, self._status = (self._status + data).split(b"\n")
        for line in lines:
            report = json.loads(line)
            if "child-pid" in report:
                self._adopt_init(report["child-pid"])
            self._reported_exit = report.get("exit-code", self._reported_exit)

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
        self._watch(pidfd, self._on_death)
        try:
            limit_process(pid, self._limits)
        except ProcessLookupError:
            pass  # it is dead: there is nothing to limit, and nobody to open the gate for
        except OSError as error:
            self._failure = f"its limits cannot be set: {error}"
            self._kill_wanted = True
        self._register(pidfd)
        self._looks.begin(pid)
        if self._kill_wanted:
            self._kill()
        elif self._is_let_go:
            self._open_gate()

    def _on_death(self, pidfd: int) -> None:
        if self._registry is not None:
            self._registry.unregister_kill(pidfd)
        if self._bare:
            self._kill_group()
        if self._is_group:
            self._kill_now()  # where its keeper died first, nobody else does
        if pidfd == self._init:
            self._init = -1
        else:
            self._outer = -1
        self._unwatch(pidfd)
        if self._outer == self._init == -1:
            self._ended = time.monotonic()
            self._dead.set()

    def _kill(self) -> None:
        self._kill_wanted = True
        if self._bare:
            self._kill_group()
        elif self._init == -1 and self._status_open and not self._reported_exit:
            return  # `_adopt_init` or the report's end comes back here
        self._kill_now()

    def _kill_now(self) -> None:
        if self._is_group and self._init != -1:
            # Its keeper lives on, and ends when all of them are dead.
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._init, signal.SIGKILL, None, PROCESS_GROUP)
            return
        for pidfd in (self._init, self._outer):
            if pidfd != -1:
                with contextlib.suppress(ProcessLookupError):  # reaped, and not yet told
                    signal.pidfd_send_signal(pidfd, signal.SIGKILL)

    def _kill_group(self) -> None:
        if self._process is not None:
            signal_group(self._process, signal.SIGKILL)

    @property
    def is_flooded(self) -> bool:
        """Whether it printed so much that it was killed."""
        return self.output.flooded or (self._errors is not None and self._errors.flooded)

    async def ask_to_end(self, grace_s: float) -> None:
        """Send SIGTERM and wait that long; whatever lives then is `end`'s."""
        if grace_s <= 0 or self._process is None or not (self._bare or self._is_let_go):
            return
        if self._bare:
            signal_group(self._process, signal.SIGTERM)
        elif self._init != -1:
            ask_namespace(self._init)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(grace_s):
                await self.wait()

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
            self._kill()
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
            self._unwatch(descriptor)
        if self._gate != -1:
            os.close(self._gate)
            self._gate = -1
        if self._process is not None:
            self._process.poll()
        self.output.close()
        if self._errors is not None:
            self._errors.close()

    def result(self, ended_by: EndedBy) -> Ended:
        """Say how it went; after `end`."""
        code = self._process.returncode if self._process is not None else None
        if self._reported_exit is not None:
            code = self._reported_exit
        code = -signal.SIGKILL if code is None else code
        said = (self._errors or self.output).text()
        if self._has_no_program(code, said):
            code = self._reported_exit = 127 if _NO_FILE in said else 126
        # Killed before it began: bubblewrap reports no code, but nothing was wrong with it.
        was_killed = self._kill_wanted or code in {-signal.SIGKILL, 128 + signal.SIGKILL}
        return Ended(
            exit_code=code if code >= 0 else 128 - code,
            output=self._failure or self.output.text(),
            output_bytes=self.output.total_bytes,
            truncated=self.output.truncated,
            ended_by="limit" if self._looks.overuse else ended_by,
            duration_ms=round((self._ended - self._began) * 1000),
            started=not self._failure
            and (self._bare or self._reported_exit is not None or was_killed),
            overuse=self._looks.overuse,
            errors=self._errors.text() if self._errors is not None else "",
        )

    def _has_no_program(self, code: int, said: str) -> bool:
        """Whether bubblewrap was let go and could not start the program; it tells no code then."""
        is_silent = self._reported_exit is None and not self._bare and not self._kill_wanted
        return is_silent and code == 1 and said.startswith("bwrap: execvp ")
