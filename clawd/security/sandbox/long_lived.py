"""A child process that stays: its standard input and output are open for as long as it lives.

    async with sandbox.open(command, on_errors=log.add) as child:
        await child.write(b"ping")
        data = await child.read()           # b"" at its end

Nothing is buffered here: what nobody reads stays in the kernel's pipe, and so holds the child back.
Its standard error is read at once and handed on. At the end it is asked to go, in three steps:
end of file, SIGTERM, SIGKILL; its namespace or its keeper takes all that it has started with it.
"""

import asyncio
import contextlib
import fcntl
import os
import platform
from collections.abc import AsyncIterator, Callable

import msgspec
from typing_extensions import override

from clawd.errors import SandboxUnavailableError
from clawd.security.sandbox import confine_program
from clawd.security.sandbox.auto_exec_guard import AutoExecGuard
from clawd.security.sandbox.child import READ_BYTES, Child, KillRegistry, Overseer
from clawd.security.sandbox.landlock import landlock_plan, make_folder, remove_folder
from clawd.security.sandbox.neighbours import Neighbour, Neighbours
from clawd.security.sandbox.plan import (
    ChildCommand,
    DescriptorSlot,
    HostFacts,
    SandboxPlan,
    bare_home,
    bare_plan,
    bubblewrap_plan,
    environment,
    limited_argv,
)
from clawd.security.sandbox.process import Level

EOF_GRACE_S = 2.0
TERM_GRACE_S = 1.0

_PIPE_BYTES = 256 << 10
_PAUSE_S = 0.01
"""So long a child that fills the pipe of its errors waits for the next look at it."""


class OpenChild(Child):
    """A child to talk with. One task reads at a time, and one writes."""

    def __init__(
        self,
        registry: KillRegistry | None,
        overseer: Overseer | None,
        *,
        on_errors: Callable[[bytes], None],
    ) -> None:
        super().__init__(registry, overseer)
        self._on_errors = on_errors
        self._stdin = -1
        self._stdout = -1
        self._waiting: set[asyncio.Event] = set()

    @override
    def open_stdio(self, given: dict[str, int]) -> None:
        given["stdin"], self._stdin = os.pipe2(os.O_CLOEXEC)
        self._stdout, given["out"] = os.pipe2(os.O_CLOEXEC)
        for ours in (self._stdin, self._stdout):
            os.set_blocking(ours, False)
            with contextlib.suppress(OSError):  # the user's pipes may be at their limit
                fcntl.fcntl(ours, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        errors, given["err"] = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(errors, False)
        self.watch(errors, self._take_errors)

    def _take_errors(self, descriptor: int) -> None:
        data = os.read(descriptor, READ_BYTES)
        if not data:
            self.unwatch(descriptor)
            return
        self._on_errors(data)
        if len(data) == READ_BYTES:  # more than anybody reads: the full pipe holds it back
            self._loop.remove_reader(descriptor)
            self._loop.call_later(_PAUSE_S, self._look_again, descriptor)

    def _look_again(self, descriptor: int) -> None:
        if self.is_watched(descriptor):
            self._loop.add_reader(descriptor, self._take_errors, descriptor)

    async def read(self, max_bytes: int = READ_BYTES) -> bytes:
        """Return what it has printed, at least a byte; nothing at its end.

        It always gives way to others first: a child may print faster than anybody reads.
        """
        await asyncio.sleep(0)
        while self._stdout != -1:
            try:
                return os.read(self._stdout, max_bytes)
            except BlockingIOError:
                await self._until_ready(self._stdout)
        return b""

    async def write(self, data: bytes) -> None:
        """Write all of it, as fast as the child reads.

        Raises:
            BrokenPipeError: it does not read any more.
        """
        view = memoryview(data)
        while view:
            if self._stdin == -1:
                raise BrokenPipeError("its standard input is closed")
            try:
                view = view[os.write(self._stdin, view) :]
            except BlockingIOError:
                await self._until_ready(self._stdin)

    def close_stdin(self) -> None:
        """Let it see the end of its input; idempotent."""
        if self._stdin != -1:
            self._loop.remove_writer(self._stdin)
            os.close(self._stdin)
            self._stdin = -1
            self._wake()

    async def ask_to_leave(self) -> None:
        """Close its input and wait, then send SIGTERM and wait; what lives then is `end`'s."""
        self.close_stdin()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(EOF_GRACE_S):
                await self.dead()
        if not self.is_dead:
            await self.ask_to_end(TERM_GRACE_S)

    @override
    def close_stdio(self) -> None:
        self.close_stdin()
        if self._stdout != -1:
            self._loop.remove_reader(self._stdout)
            os.close(self._stdout)
            self._stdout = -1
            self._wake()

    async def _until_ready(self, descriptor: int) -> None:
        """Wait until one of the child's descriptors is ready, or closed."""
        loop = self._loop
        if descriptor == self._stdout:
            add, remove = loop.add_reader, loop.remove_reader
        else:
            add, remove = loop.add_writer, loop.remove_writer
        ready = asyncio.Event()
        self._waiting.add(ready)
        add(descriptor, ready.set)
        try:
            await ready.wait()
        finally:
            self._waiting.discard(ready)
            if descriptor in {self._stdin, self._stdout}:
                remove(descriptor)

    def _wake(self) -> None:
        for ready in self._waiting:
            ready.set()


@contextlib.asynccontextmanager
async def opened(child: OpenChild, plan: SandboxPlan) -> AsyncIterator[None]:
    """Start a child by its plan and let it begin; on exit nothing of it is alive.

    Raises:
        SandboxUnavailableError: it cannot be started.
    """
    try:
        try:
            child.start(plan)
        except OSError as error:
            raise SandboxUnavailableError(f"cannot start a process: {error}") from error
        child.let_go()
        await child.begun()
        if child.failure:
            raise SandboxUnavailableError(f"the sandbox cannot be set up: {child.failure}")
        try:
            yield
        finally:
            await child.ask_to_leave()
    finally:
        await child.end()


# A life of years: the limit of a command's processor time would end what stays sooner or later.
_LIFE_CPU_S = 10 * 366 * 24 * 3600
_SETUP_LOOK_S = 0.005
_SETUP_LIMIT_S = 30.0


class Stay(msgspec.Struct, frozen=True, kw_only=True):
    """One stay, at a level. `host` is for its whole life; see `for_life`."""

    level: Level
    host: HostFacts
    guard: AutoExecGuard
    neighbours: Neighbours
    interpreter: str
    registry: KillRegistry | None

    @contextlib.asynccontextmanager
    async def child(
        self,
        command: ChildCommand,
        *,
        overseer_of: Callable[[Neighbour], Overseer],
        on_errors: Callable[[bytes], None],
    ) -> AsyncIterator[OpenChild]:
        """Start the command and let it begin, as `Sandbox.open` says."""
        async with self._planned(command) as (plan, neighbour):
            overseer = None if self.level == "none" else overseer_of(neighbour)
            child = OpenChild(self.registry, overseer, on_errors=on_errors)
            async with opened(child, plan):
                await self._settled(command, neighbour, child)
                yield child

    @contextlib.asynccontextmanager
    async def _planned(self, command: ChildCommand) -> AsyncIterator[tuple[SandboxPlan, Neighbour]]:
        """Hold what must hold while the command is alive; gives its plan and its place.

        Raises:
            InvalidRequestError: the command cannot be meant.
            SandboxUnavailableError: its workspace cannot be had.
        """
        binds = self.level == "bwrap"
        async with contextlib.AsyncExitStack() as stack:
            guarded: tuple[tuple[bool, str], ...] = ()
            neighbour = Neighbour(command.workspace, binds=binds)
            if self.level != "none":
                neighbour = self.neighbours.enter(command.workspace, binds=binds)
                stack.callback(self.neighbours.leave, neighbour)
                if command.workspace_writable:
                    visit = await self.guard.enter(command.workspace, binds=binds)
                    stack.push_async_callback(self.guard.leave, visit)
                    guarded = visit.binds
            plan = await self._plan(command, guarded, stack)
            yield plan, neighbour

    async def _settled(self, command: ChildCommand, neighbour: Neighbour, child: OpenChild) -> None:
        """Wait until its sandbox binds nothing more; what can change nothing is no neighbour then.

        Raises:
            SandboxUnavailableError: that does not come to an end.
        """
        deadline = asyncio.get_running_loop().time() + _SETUP_LIMIT_S
        while self.level != "none" and not (neighbour.is_set_up or child.is_dead):
            if asyncio.get_running_loop().time() > deadline:
                raise SandboxUnavailableError("the sandbox cannot be set up: it takes too long")
            await asyncio.sleep(_SETUP_LOOK_S)
        if not command.workspace_writable:
            self.neighbours.leave(neighbour)

    async def _plan(
        self,
        command: ChildCommand,
        guarded: tuple[tuple[bool, str], ...],
        stack: contextlib.AsyncExitStack,
    ) -> SandboxPlan:
        if self.level == "bwrap":
            return bubblewrap_plan(command, self.host, guarded)
        if self.level == "none":
            return kept_plan(command, self.host, self.interpreter)
        folder = make_folder()
        stack.push_async_callback(asyncio.to_thread, remove_folder, folder)
        return await asyncio.to_thread(
            landlock_plan,
            command,
            self.host,
            machine=platform.machine(),
            interpreter=self.interpreter,
            folder=folder,
        )


def for_life(host: HostFacts) -> HostFacts:
    """Return surroundings in which what stays may live as long as it likes."""
    limits = msgspec.structs.replace(host.limits, cpu_s=_LIFE_CPU_S)
    return msgspec.structs.replace(host, limits=limits)


def kept_plan(command: ChildCommand, host: HostFacts, interpreter: str) -> SandboxPlan:
    """Plan a run without isolation, beside a keeper that ends all of it when the daemon dies.

    Raises:
        InvalidRequestError: the command cannot be meant.
    """
    bare_plan(command, host)  # refuses what cannot be meant
    options: list[str | DescriptorSlot] = [
        "--status",
        DescriptorSlot(name="status"),
        "--gate",
        DescriptorSlot(name="gate"),
    ]
    options += ["--chdir", str(command.cwd or command.workspace), "--unfenced"]
    for name, value in environment(command, host, home=bare_home(host)).items():
        options += ["--setenv", name, value]
    return SandboxPlan(
        argv=limited_argv(command, host),
        bwrap=confine_program.__file__,
        interpreter=(interpreter, "-I", "-S", "-E"),
        options=tuple(options),
        is_group=True,
        umask=host.umask,
    )
