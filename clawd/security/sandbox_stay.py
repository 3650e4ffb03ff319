"""What holds around a child process that stays: its plan, its guarded workspace, its neighbours."""

import asyncio
import contextlib
import platform
from collections.abc import AsyncIterator, Callable

import msgspec

from clawd.errors import SandboxUnavailableError
from clawd.security import confine_program
from clawd.security.run_later_guard import RunLaterGuard
from clawd.security.sandbox_child import KillRegistry
from clawd.security.sandbox_landlock import landlock_plan, make_folder, remove_folder
from clawd.security.sandbox_looks import Overseer
from clawd.security.sandbox_neighbours import Neighbour, Neighbours
from clawd.security.sandbox_open import OpenChild, opened
from clawd.security.sandbox_plan import (
    ChildCommand,
    Plan,
    Slot,
    Surroundings,
    bare_home,
    bare_plan,
    bubblewrap_plan,
    environment,
    limited_argv,
)
from clawd.security.sandbox_result import Level

# A life of years: the limit of a command's processor time would end what stays sooner or later.
_LIFE_CPU_S = 10 * 366 * 24 * 3600
_SETUP_LOOK_S = 0.005
_SETUP_LIMIT_S = 30.0


class Stay(msgspec.Struct, frozen=True, kw_only=True):
    """One stay, at a level. `host` is for its whole life; see `for_life`."""

    level: Level
    host: Surroundings
    guard: RunLaterGuard
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
    async def _planned(self, command: ChildCommand) -> AsyncIterator[tuple[Plan, Neighbour]]:
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
    ) -> Plan:
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


def for_life(host: Surroundings) -> Surroundings:
    """Return surroundings in which what stays may live as long as it likes."""
    limits = msgspec.structs.replace(host.limits, cpu_s=_LIFE_CPU_S)
    return msgspec.structs.replace(host, limits=limits)


def kept_plan(command: ChildCommand, host: Surroundings, interpreter: str) -> Plan:
    """Plan a run without isolation, beside a keeper that ends all of it when the daemon dies.

    Raises:
        InvalidRequestError: the command cannot be meant.
    """
    bare_plan(command, host)  # refuses what cannot be meant
    options: list[str | Slot] = ["--status", Slot(name="status"), "--gate", Slot(name="gate")]
    options += ["--chdir", str(command.cwd or command.workspace), "--unfenced"]
    for name, value in environment(command, host, home=bare_home(host)).items():
        options += ["--setenv", name, value]
    return Plan(
        argv=limited_argv(command, host),
        bwrap=confine_program.__file__,
        interpreter=(interpreter, "-I", "-S", "-E"),
        options=tuple(options),
        is_group=True,
        umask=host.umask,
    )
