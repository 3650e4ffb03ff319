"""The one door for child processes: probes what isolation there is and runs commands behind it.

    sandbox = Sandbox(SandboxSettings(home=home), registry=estop)
    status = await sandbox.probe()
    result = await sandbox.run(ChildCommand(argv=("ls",), workspace=workspace))

`sandbox_plan` says what a command sees, `sandbox_process` starts and kills it.
"""

import asyncio
import platform
import re
import shutil
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Literal, assert_never

import msgspec

from clawd.errors import SandboxUnavailableError
from clawd.security.sandbox_orphans import end_orphans
from clawd.security.sandbox_plan import (
    DEFAULT_PATH,
    ChildCommand,
    ResourceLimits,
    Surroundings,
    bare_plan,
    bubblewrap_plan,
)
from clawd.security.sandbox_process import EndedBy, KillRegistry, run_plan
from clawd.security.sandbox_seccomp import filter_program

Level = Literal["bwrap", "none"]
Mode = Literal["required", "preferred", "off"]

_PROBE_LIMIT_S = 10.0
_HINT = (
    "Install bubblewrap and util-linux and allow unprivileged user namespaces, "
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
    """

    mode: Mode = "required"
    home: Path | None = None
    forbidden_paths: tuple[Path, ...] = ()
    limits: ResourceLimits = ResourceLimits()


class SandboxStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What was found at the start.

    Attributes:
        level: the isolation in force.
        reason: why it is not more; empty when nothing is lacking.
        program: path of bubblewrap, where it is installed.
    """

    level: Level
    reason: str = ""
    program: str = ""


class ChildResult(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a command.

    Attributes:
        exit_code: its exit code; 128 and the number of the signal that ended it.
        signal: that number, or 0.
        output: standard output and error as they came, invalid UTF-8 replaced.
        output_bytes: how much there was.
        truncated: whether `output` is only its beginning.
        ended_by: itself, the time limit, or a flood of output.
        duration_ms: from the start to the death of its last process.
        level: the isolation that was in force.
    """

    exit_code: int
    signal: int
    output: str
    output_bytes: int
    truncated: bool
    ended_by: EndedBy
    duration_ms: int
    level: Level

    @property
    def timed_out(self) -> bool:
        """Whether the time limit ended it."""
        return self.ended_by == "timeout"


class Sandbox:
    """Runs commands. Safe to use from many tasks of the one event loop at once."""

    def __init__(self, settings: SandboxSettings, *, registry: KillRegistry | None = None) -> None:
        self._settings = settings
        self._registry = registry
        self._host: Surroundings | None = None
        self._status: SandboxStatus | None = None
        self._probing = asyncio.Lock()

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
                self._status = await self._find_out()
            return self._status

    async def run(
        self,
        command: ChildCommand,
        *,
        on_output: Callable[[str], None] | None = None,
        cleared: Callable[[], Awaitable[None]] | None = None,
    ) -> ChildResult:
        """Run a command to its end; on return and on cancellation nothing of it is alive.

        Args:
            command: what to run.
            on_output: takes pieces of the output as they come, up to the command's limit; called
                on the event loop and must not block.
            cleared: awaited before the command begins, while its sandbox is set up; what it raises
                ends the run and is raised.

        Raises:
            InvalidRequestError: the command cannot be meant.
            SandboxUnavailableError: there is no sandbox of the required level here.
        """
        status = await self.probe()
        if not self.is_available or self._host is None:
            raise SandboxUnavailableError(f"no sandbox here: {status.reason}", hint=_HINT)
        return await self._run_at(
            status.level,
            self._host,
            command,
            on_output,
            registry=self._registry,
            cleared=cleared,
        )

    async def _find_out(self) -> SandboxStatus:
        await asyncio.to_thread(end_orphans, self._settings.home)
        prlimit = shutil.which("prlimit", path=DEFAULT_PATH)
        if prlimit is None:
            return SandboxStatus(level="none", reason="prlimit (util-linux) is not installed")
        self._host = self._surroundings("", prlimit)
        if self._settings.mode == "off":
            return SandboxStatus(level="none", reason='sandbox = "off" in [security]')
        bwrap = shutil.which("bwrap", path=DEFAULT_PATH)
        if bwrap is None:
            return SandboxStatus(level="none", reason="bubblewrap is not installed")
        # Trying is the only sure way: distributions forbid user namespaces by many means.
        program = filter_program(platform.machine())
        reason = ""
        for seccomp in (program, b"") if program else (b"",):
            for disables_userns in (True, False):
                host = self._surroundings(
                    bwrap, prlimit, disables_userns=disables_userns, seccomp=seccomp
                )
                reason = await self._try(host)
                if not reason:
                    self._host = host
                    lacking = "" if seccomp else "without a system call filter"
                    return SandboxStatus(level="bwrap", reason=lacking, program=bwrap)
        return SandboxStatus(level="none", reason=reason, program=bwrap)

    async def _try(self, host: Surroundings) -> str:
        """Run `true`; return why it failed, or nothing."""
        with tempfile.TemporaryDirectory(prefix="clawd-probe-") as folder:
            command = ChildCommand(argv=("true",), workspace=Path(folder), timeout_s=_PROBE_LIMIT_S)
            try:
                # Not registered: a stop that is set now must not pass for a missing sandbox.
                result = await self._run_at("bwrap", host, command, None, registry=None)
            except SandboxUnavailableError as error:
                return error.message
        return "" if result.exit_code == 0 else f"a probe ended with code {result.exit_code}"

    async def _run_at(
        self,
        level: Level,
        host: Surroundings,
        command: ChildCommand,
        on_output: Callable[[str], None] | None,
        *,
        registry: KillRegistry | None,
        cleared: Callable[[], Awaitable[None]] | None = None,
    ) -> ChildResult:
        match level:
            case "bwrap":
                plan = bubblewrap_plan(command, host)
            case "none":
                plan = bare_plan(command, host)
            case _:
                assert_never(level)
        try:
            ended = await run_plan(
                plan, command, registry=registry, on_output=on_output, cleared=cleared
            )
        except OSError as error:
            raise SandboxUnavailableError(f"cannot start a process: {error}") from error
        if not ended.started:
            said = re.sub(r"\s+", " ", ended.output).strip()
            raise SandboxUnavailableError(f"the sandbox cannot be set up: {said[:500]}")
        return ChildResult(
            exit_code=ended.exit_code,
            signal=ended.exit_code - 128 if 128 < ended.exit_code <= 192 else 0,
            output=ended.output,
            output_bytes=ended.output_bytes,
            truncated=ended.truncated,
            ended_by=ended.ended_by,
            duration_ms=ended.duration_ms,
            level=level,
        )

    def _surroundings(
        self, bwrap: str, prlimit: str, *, disables_userns: bool = False, seccomp: bytes = b""
    ) -> Surroundings:
        return Surroundings(
            bwrap=bwrap,
            prlimit=prlimit,
            disables_userns=disables_userns,
            home=self._settings.home,
            forbidden_paths=self._settings.forbidden_paths,
            limits=self._settings.limits,
            seccomp=seccomp,
        )
