"""The one door for child processes: probes what isolation there is and runs commands behind it.

    sandbox = Sandbox(SandboxSettings(home=home), registry=estop)
    status = await sandbox.probe()
    result = await sandbox.run(ChildCommand(argv=("ls",), workspace=workspace))

`plan` says what a command sees, `landlock` what it sees where namespaces are
refused, `child` starts and kills it, `long_lived` talks with one that stays.
"""

import asyncio
import os
import platform
import re
import shutil
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Literal, assert_never

import msgspec

from clawd.errors import SandboxUnavailableError
from clawd.kernel import landlock, landlock_exec
from clawd.security.sandbox.auto_exec_guard import AutoExecGuard, QuarantinedPaths
from clawd.security.sandbox.child import KillRegistry
from clawd.security.sandbox.egress import WayOut, proxy_environment, shown_for_network
from clawd.security.sandbox.home import ProjectCache, ProjectCaches
from clawd.security.sandbox.landlock import (
    landlock_plan,
    landlock_problem,
    make_folder,
    remove_folder,
)
from clawd.security.sandbox.limits import Oversight, ToolsCgroup, bounds_of, unbounded_by
from clawd.security.sandbox.long_lived import OpenChild, Stay, for_life
from clawd.security.sandbox.neighbours import Neighbour, Neighbours
from clawd.security.sandbox.plan import (
    DEFAULT_PATH,
    ChildCommand,
    HostFacts,
    Inside,
    ResourceLimits,
    SandboxPlan,
    Toolchains,
    bare_plan,
    bubblewrap_plan,
    closed_files,
    hidden_paths,
    inside_of,
    mend_devices,
)
from clawd.security.sandbox.process import ChildResult, Ended, Level, run_plan
from clawd.security.sandbox.seccomp import filter_program
from clawd.security.sandbox.toolchains import Wanted, find_toolchains
from clawd.wire.codec import mirror

Mode = Literal["required", "preferred", "off"]

_Run = Callable[[SandboxPlan], Awaitable[Ended]]

# What a busy machine is late with must not pass for a sandbox that does not work here.
_PROBE_LIMIT_S = 30.0
_SHRINK_EVERY_S = 600.0
_LESS = (
    "Landlock and seccomp stand in: a command may learn that a file outside is there, its /tmp "
    "has no size limit, and /proc and setsid fail"
)
_UNAWAITED = "commands may begin before the sandbox's first process has its system call filter"
_HINT = (
    "Install bubblewrap and util-linux and allow unprivileged user namespaces (or run Linux 6.12 "
    "or newer with Landlock), "
    'or set sandbox = "preferred" in [security] to run without.'
)


class SandboxSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How commands are to be isolated.

    Attributes:
        mode: required refuses to run without a sandbox, preferred goes on with less, off never
            uses one.
        home: clawd's home, which no command may see.
        forbidden_paths: what no command may see; `~` is the user's home.
        limits: what one command may use.
        writable_run_later: patterns of files that run later outside and may be written all the
            same; see `auto_exec_guard`.
        levels: what may be used, best first.
        python: path of the interpreter that puts Landlock in force; no library of it is used.
        tools_cgroup: the cgroup of all commands, where we have one.
        umask: permissions that files do not get which tools make: the owner's.
        devices: a folder with devices for commands (`own_devices`); empty for the host's.
        toolchains: which of the person's are shown to commands that want any.
        person: the home that they are looked for in; None looks for none.
        caches: where those of projects are kept; None keeps none.
        cache_bytes: for the caches of all projects together.
    """

    mode: Mode = "required"
    home: Path | None = None
    forbidden_paths: tuple[Path, ...] = ()
    limits: ResourceLimits = ResourceLimits()
    writable_run_later: tuple[str, ...] = ()
    levels: tuple[Level, ...] = ("bwrap", "landlock")
    python: str = sys.executable
    tools_cgroup: ToolsCgroup | None = None
    umask: int = 0o077
    devices: str = ""
    toolchains: Wanted = "off"
    person: Path | None = None
    caches: Path | None = None
    cache_bytes: int = 4 << 30


class SandboxStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What was found at the start.

    Attributes:
        level: the isolation in force.
        reason: why it is not more; empty when nothing is lacking.
        program: path of bubblewrap, where that is the level.
        layers: what holds a command, for people.
        unbounded: what a command may use without a limit, for people.
    """

    level: Level
    reason: str = ""
    program: str = ""
    layers: tuple[str, ...] = ()
    unbounded: tuple[str, ...] = ()


class Sandbox:
    """Runs commands. Safe to use from many tasks of the one event loop at once."""

    def __init__(self, settings: SandboxSettings, *, registry: KillRegistry | None = None) -> None:
        self._registry = registry
        self._host: HostFacts | None = None
        self._status: SandboxStatus | None = None
        self._probing = asyncio.Lock()
        self._settings = settings
        self._guard = self._guard_of(settings)
        self._neighbours = Neighbours()
        self._toolchains: Toolchains | None = None
        self._searching = asyncio.Lock()
        self._caches = _caches_of(settings)
        self._shrunk_at = float("-inf")
        self._shrinking: asyncio.Future[list[ProjectCache]] | None = None

    def adopt(self, settings: SandboxSettings) -> None:
        """Hold the commands that start from now on to other settings; the level stays."""
        before, self._settings = self._settings, settings
        self._toolchains = None  # looked for again when the next command wants them
        if before.caches != settings.caches:
            self._caches = _caches_of(settings)
        if self._host is not None:
            self._host = msgspec.structs.replace(
                self._host, forbidden_paths=settings.forbidden_paths, limits=settings.limits
            )
        # The guard knows the commands that run: it is replaced only where it must be.
        if (before.forbidden_paths, before.writable_run_later) != (
            settings.forbidden_paths,
            settings.writable_run_later,
        ):
            self._guard = self._guard_of(settings)

    @property
    def umask(self) -> int:
        """Permissions that new files of tools do not get."""
        return self._settings.umask

    @property
    def status(self) -> SandboxStatus | None:
        """What the probe found; None before it."""
        return self._status

    @property
    def is_available(self) -> bool:
        """Whether commands may run at all: the probe found what the mode asks for."""
        status = self._status
        return status is not None and (status.level != "none" or self._settings.mode != "required")

    async def probe(self) -> SandboxStatus:
        """Find out, once, what isolation works here, by running `true` in it."""
        async with self._probing:
            if self._status is None:
                found = await self._find_out()
                layers, unbounded = self._layers(found.level)
                self._status = msgspec.structs.replace(found, layers=layers, unbounded=unbounded)
            return self._status

    async def toolchains(self) -> Toolchains:
        """Return what commands see of the person's toolchains; looked for once, and at a reload."""
        async with self._searching:
            settings, found = self._settings, self._toolchains
            if found is None:
                found = await asyncio.to_thread(_toolchains_of, settings)
                if settings is self._settings:
                    self._toolchains = found
            return found

    def inside(self, workspace: Path, *, workspace_writable: bool = True) -> Inside:
        """Return what a command of the tool `shell` finds of the file system in a workspace.

        Before the toolchains were looked for it knows of none, and before the probe of no sandbox.
        """
        command = ChildCommand(
            argv=("true",),
            workspace=workspace,
            workspace_writable=workspace_writable,
            toolchains=True,
        )
        host = self._host or self._surroundings("", "")
        host = msgspec.structs.replace(host, toolchains=self._toolchains or Toolchains())
        return inside_of(command, host, self._status.level if self._status else "none")

    @property
    def caches(self) -> ProjectCaches | None:
        """The caches of projects; None where none are kept."""
        return self._caches

    async def run(
        self,
        command: ChildCommand,
        *,
        on_output: Callable[[str], None] | None = None,
        cleared: Callable[[], Awaitable[None]] | None = None,
        way_out: WayOut | None = None,
    ) -> ChildResult:
        """Run a command to its end; on return and on cancellation nothing of it is alive.

        Args:
            command: what to run.
            on_output: takes pieces of the output as they come, up to the command's limit; called
                on the event loop and must not block.
            cleared: awaited before the command begins, while its sandbox is set up; what it raises
                ends the run and is raised.
            way_out: lets it reach hosts by name; where there are no namespaces it has none.

        Raises:
            InvalidRequestError: the command cannot be meant.
            SandboxUnavailableError: there is no sandbox of the required level here.
        """
        level, host = await self._ready()
        start = partial(run_plan, registry=self._registry, on_output=on_output, cleared=cleared)
        async with (
            _held(command, level, way_out, host) as command,
            self._at_home(command, host) as host,
        ):
            run = partial(start, command=command)
            if level == "none":
                return await self._run_at(level, host, command, run)
            with self._neighbours.beside(command.workspace, binds=level == "bwrap") as neighbour:
                overseer = self._oversight(command, level, way_out, host.kept, neighbour)
                return await self._run_guarded(
                    level, host, command, partial(run, overseer=overseer)
                )

    @asynccontextmanager
    async def open(
        self,
        command: ChildCommand,
        *,
        on_errors: Callable[[bytes], None],
        way_out: WayOut | None = None,
    ) -> AsyncIterator[OpenChild]:
        """Start a command that stays, with open input and output; on exit nothing of it is alive.

        Its limits of time and output do not hold, nor that of processor time. `on_errors` takes
        its standard error and must not block. While it can change its workspace, commands in
        folders within it or around it are refused. Raises as `run`.
        """
        level, host = await self._ready()
        async with (
            _held(command, level, way_out, host) as command,
            self._at_home(command, host) as host,
        ):
            stay = Stay(
                level=level,
                host=for_life(host),
                guard=self._guard,
                neighbours=self._neighbours,
                interpreter=self._settings.python,
                registry=self._registry,
            )
            overseer_of = partial(self._oversight, command, level, way_out, host.kept)
            async with stay.child(command, overseer_of=overseer_of, on_errors=on_errors) as child:
                yield child

    @asynccontextmanager
    async def _at_home(self, command: ChildCommand, host: HostFacts) -> AsyncIterator[HostFacts]:
        """Give surroundings with toolchains and the project's caches, to a command that wants them.

        The caches stay while it is at work; afterwards those of all projects are made to fit.
        """
        if not command.toolchains:
            yield host
            return
        found = await self.toolchains()
        if command.apart:
            nameless = tuple(each for each in found.settings if each[0] != ".gitconfig")
            found = msgspec.structs.replace(found, settings=nameless)
        host = msgspec.structs.replace(host, toolchains=found)
        caches = self._caches
        place = Path(command.apart or command.project or command.workspace)
        if caches is None:
            yield host
            return
        entering = asyncio.get_running_loop().run_in_executor(None, caches.enter, place)
        try:
            kept = await asyncio.shield(entering)
        except asyncio.CancelledError:
            entering.add_done_callback(partial(_left, caches, place))
            raise
        except OSError as error:
            raise SandboxUnavailableError(
                f"the caches of {place} cannot be made: {error}"
            ) from error
        try:
            yield msgspec.structs.replace(host, kept=kept)
        finally:
            caches.leave(place)
            self._shrink(caches)

    def _shrink(self, caches: ProjectCaches) -> None:
        """Make all caches fit, now and then, in a thread: they are walked for it."""
        loop = asyncio.get_running_loop()
        if loop.time() - self._shrunk_at > _SHRINK_EVERY_S:
            self._shrunk_at = loop.time()
            self._shrinking = loop.run_in_executor(None, caches.shrink, self._settings.cache_bytes)

    async def _ready(self) -> tuple[Level, HostFacts]:
        status = await self.probe()
        if not self.is_available or self._host is None:
            raise SandboxUnavailableError(f"no sandbox here: {status.reason}", hint=_HINT)
        mend_devices(self._host.devices)
        return status.level, self._host

    async def _run_guarded(
        self, level: Level, host: HostFacts, command: ChildCommand, run: _Run
    ) -> ChildResult:
        """Run, and see to it that nothing stays which programs outside run later."""
        if not command.workspace_writable:
            return await self._run_at(level, host, command, run)
        guard = self._guard  # a reload may put another in its place meanwhile
        binds = level == "bwrap"
        visit = await guard.enter(command.workspace, binds=binds, opens=command.opens)
        quarantined = QuarantinedPaths()
        try:
            result = await self._run_at(level, host, command, run, visit.binds)
        finally:
            quarantined = await guard.leave(visit)
        return msgspec.structs.replace(result, quarantined=quarantined)

    async def _find_out(self) -> SandboxStatus:
        prlimit = shutil.which("prlimit", path=DEFAULT_PATH)
        if prlimit is None:
            return SandboxStatus(level="none", reason="prlimit (util-linux) is not installed")
        self._host = self._surroundings("", prlimit)
        if self._settings.mode == "off":
            return SandboxStatus(level="none", reason='sandbox = "off" in [security]')
        lacking: list[str] = []
        for level in self._settings.levels:
            found = await self._find(level, prlimit)
            if found.level != "none":
                lacking += [found.reason] if found.reason else []
                return msgspec.structs.replace(found, reason="; ".join(lacking))
            lacking.append(found.reason)
        return SandboxStatus(level="none", reason="; ".join(lacking))

    async def _find(self, level: Level, prlimit: str) -> SandboxStatus:
        """Try one level; `none` and a reason when it does not work here."""
        match level:
            case "bwrap":
                return await self._find_bwrap(prlimit)
            case "landlock":
                return await self._find_landlock(prlimit)
            case "none":
                return SandboxStatus(level="none")
            case _:
                assert_never(level)

    async def _find_bwrap(self, prlimit: str) -> SandboxStatus:
        bwrap = shutil.which("bwrap", path=DEFAULT_PATH)
        if bwrap is None:
            return SandboxStatus(level="none", reason="bubblewrap is not installed")
        # Trying is the only sure way: distributions forbid user namespaces by many means.
        reason = ""
        for host in self._bwrap_surroundings(bwrap, prlimit):
            reason = await self._try("bwrap", host)
            if not reason:
                self._host = host
                lacking = "" if host.landlock[1] else _UNAWAITED
                lacking = lacking if host.seccomp else "without a system call filter"
                return SandboxStatus(level="bwrap", reason=lacking, program=bwrap)
        return SandboxStatus(level="none", reason=f"bubblewrap does not work: {reason}")

    def _bwrap_surroundings(self, bwrap: str, prlimit: str) -> Iterator[HostFacts]:
        """Return what may work, best first: older bubblewraps and kernels have less of it."""
        machine = platform.machine()
        program, version = filter_program(machine), landlock.abi()
        version = version if version >= landlock_exec.MIN_ABI else 0
        # Where no file of the memory may be run, commands begin without a starter.
        starters = dict.fromkeys(((version, machine), (0, machine), (0, "")))
        for seccomp in (program, b"") if program else (b"",):
            for wanted in starters:
                for disables_userns in (True, False):
                    host = self._surroundings(
                        bwrap, prlimit, disables_userns=disables_userns, seccomp=seccomp
                    )
                    yield msgspec.structs.replace(host, landlock=wanted, closed=closed_files())

    async def _find_landlock(self, prlimit: str) -> SandboxStatus:
        problem = landlock_problem(platform.machine())
        if not problem:
            host = self._surroundings("", prlimit, seccomp=filter_program(platform.machine()))
            problem = await self._try("landlock", host)
            if not problem:
                self._host = host
                return SandboxStatus(level="landlock", reason=_LESS)
        return SandboxStatus(level="none", reason=f"Landlock does not work: {problem}")

    def _layers(self, level: Level) -> tuple[tuple[str, ...], tuple[str, ...]]:
        if level == "none" or self._host is None:
            return (), ()
        walls = ["namespaces"] if level == "bwrap" else ["landlock"]
        if level == "bwrap" and self._host.landlock[0]:
            walls.append("landlock")
        seccomp = ("seccomp",) if self._host.seccomp else ()
        cgroup = self._settings.tools_cgroup
        unbounded = unbounded_by(cgroup, has_namespace=level == "bwrap")
        if level == "landlock":
            unbounded = (*unbounded, "its /tmp")
        return (*walls, *seccomp, "rlimits", *bounds_of(cgroup)), unbounded

    async def _try(self, level: Level, host: HostFacts) -> str:
        """Run `true`; return why it failed, or nothing."""
        folder = make_folder()
        command = ChildCommand(argv=("true",), workspace=folder, timeout_s=_PROBE_LIMIT_S)
        try:
            # Not registered: a stop that is set now must not pass for a missing sandbox.
            run = partial(run_plan, command=command, registry=None, on_output=None)
            result = await self._run_at(level, host, command, run)
        except SandboxUnavailableError as error:
            return error.message
        finally:
            remove_folder(folder)
        return "" if result.exit_code == 0 else f"a probe ended with code {result.exit_code}"

    async def _run_at(
        self,
        level: Level,
        host: HostFacts,
        command: ChildCommand,
        run: _Run,
        guarded: tuple[tuple[bool, str], ...] = (),
    ) -> ChildResult:
        try:
            match level:
                case "bwrap":
                    ended = await run(bubblewrap_plan(command, host, guarded))
                case "landlock":
                    ended = await self._run_in_own_folder(run, command, host)
                case "none":
                    ended = await run(bare_plan(command, host))
                case _:
                    assert_never(level)
        except OSError as error:
            raise SandboxUnavailableError(f"cannot start a process: {error}") from error
        if not ended.started:
            said = re.sub(r"\s+", " ", ended.errors or ended.output).strip()
            raise SandboxUnavailableError(f"the sandbox cannot be set up: {said[:500]}")
        signal = ended.exit_code - 128 if 128 < ended.exit_code <= 192 else 0
        return mirror(
            ChildResult, ended, signal=signal, level=level, quarantined=QuarantinedPaths()
        )

    def _guard_of(self, settings: SandboxSettings) -> AutoExecGuard:
        hidden = [*settings.forbidden_paths, *([settings.home] if settings.home else [])]
        return AutoExecGuard(
            granted=settings.writable_run_later,
            left_out=frozenset(str(path.expanduser().resolve()) for path in hidden),
        )

    def _oversight(
        self,
        command: ChildCommand,
        level: Level,
        way_out: WayOut | None,
        kept: Path | None,
        neighbour: Neighbour,
    ) -> Oversight:
        written = (command.workspace,) if command.workspace_writable else ()
        return Oversight(
            (*written, kept) if kept else written,
            self._settings.limits,
            self._settings.tools_cgroup,
            has_namespace=level == "bwrap",
            neighbour=(neighbour, self._neighbours),
            way_out=way_out if level == "bwrap" else None,
        )

    async def _run_in_own_folder(self, run: _Run, command: ChildCommand, host: HostFacts) -> Ended:
        folder = make_folder()
        try:
            plan = await asyncio.to_thread(
                landlock_plan,
                command,
                host,
                machine=platform.machine(),
                interpreter=self._settings.python,
                folder=folder,
            )
            return await run(plan)
        finally:
            await asyncio.to_thread(remove_folder, folder)

    def _surroundings(
        self, bwrap: str, prlimit: str, *, disables_userns: bool = False, seccomp: bytes = b""
    ) -> HostFacts:
        return HostFacts(
            bwrap=bwrap,
            prlimit=prlimit,
            disables_userns=disables_userns,
            home=self._settings.home,
            forbidden_paths=self._settings.forbidden_paths,
            limits=self._settings.limits,
            seccomp=seccomp,
            devices=self._settings.devices,
            umask=self._settings.umask,
        )


@asynccontextmanager
async def _held(
    command: ChildCommand, level: Level, way_out: WayOut | None, host: HostFacts
) -> AsyncIterator[ChildCommand]:
    """Hold a command's way out as long as it lives; gives the command as it is to be run.

    Only a network namespace can have one: the rules of Landlock know ports, and no hosts.
    """
    if way_out is None:
        yield command
    elif level != "bwrap":
        way_out.problem = (
            "there is no sandbox and no network namespace, so it has this machine's own network"
            if level == "none"
            else f"the sandbox is {level}, which has no network namespace"
        )
        yield command
    else:
        named, paths = shown_for_network(os.environ, hidden_paths(host))
        async with way_out.held():
            yield msgspec.structs.replace(
                command,
                env={
                    **proxy_environment(reaches_here=way_out.reaches_here),
                    **named,
                    **command.env,
                },
                readonly_paths=(*command.readonly_paths, *paths),
            )


def _left(caches: ProjectCaches, place: Path, entered: asyncio.Future[Path]) -> None:
    """Count out a caller that was cancelled while entering."""
    if not entered.cancelled() and entered.exception() is None:
        caches.leave(place)


def _caches_of(settings: SandboxSettings) -> ProjectCaches | None:
    return None if settings.caches is None else ProjectCaches(settings.caches)


def _toolchains_of(settings: SandboxSettings) -> Toolchains:
    if settings.person is None:
        return Toolchains()
    apart = [*settings.forbidden_paths, *([settings.home] if settings.home else [])]
    return find_toolchains(settings.toolchains, person=settings.person, apart=apart)
