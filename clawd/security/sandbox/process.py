"""One command from start to the death of its last descendant: drain it, time it, tell how it went.

What the command may see is `plan`'s; its process is `child`'s.
"""

import asyncio
import codecs
import os
import signal
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Literal

import msgspec
from typing_extensions import override

from clawd.security.sandbox.auto_exec_guard import QuarantinedPaths
from clawd.security.sandbox.child import (
    READ_BYTES,
    Child,
    KeepsTime,
    KillRegistry,
    Overseer,
    memory_file,
)
from clawd.security.sandbox.plan import ChildCommand, SandboxPlan

# Beyond this a flood costs the daemon more than the rest of the output is worth.
FLOOD_BYTES = 64 << 20


class Output:
    """Keeps the first bytes of the output and counts the rest.

    Args:
        limit: how many bytes are kept.
        on_output: takes them as text, as they come.
    """

    def __init__(self, limit: int, on_output: Callable[[str], None] | None) -> None:
        self._limit = limit
        self._on_output = on_output
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._parts: list[str] = []
        self.total_bytes = 0

    @property
    def truncated(self) -> bool:
        """Whether there was more than is kept."""
        return self.total_bytes > self._limit

    @property
    def flooded(self) -> bool:
        """Whether there was so much that it must end."""
        return self.total_bytes > max(FLOOD_BYTES, self._limit)

    def add(self, data: bytes) -> None:
        """Take what came."""
        room = max(0, self._limit - self.total_bytes)
        self.total_bytes += len(data)
        self._take(self._decoder.decode(data[:room]))

    def close(self) -> None:
        """Take what an unfinished character leaves, as its replacement."""
        self._take(self._decoder.decode(b"", final=True))

    def text(self) -> str:
        """Return what is kept."""
        return "".join(self._parts)

    def _take(self, text: str) -> None:
        if text:
            self._parts.append(text)
            if self._on_output is not None:
                self._on_output(text)


_ERROR_BYTES = 4 << 10
_NO_FILE = ": No such file or directory"

EndedBy = Literal["exit", "timeout", "output", "limit"]


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
    plan: SandboxPlan,
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
    child = _Child(command, Output(command.max_output_bytes, on_output), registry, overseer)
    ended_by: EndedBy = "exit"
    has_gate = bool(plan.bwrap)
    try:
        async with asyncio.timeout(command.timeout_s) as limit:
            if isinstance(overseer, KeepsTime):
                overseer.keep_time(limit)
            if cleared is not None and not has_gate:
                await cleared()
            child.start(plan)
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


class _Child(Child):
    """A command that runs to its end: what it prints is kept, and counted."""

    def __init__(
        self,
        command: ChildCommand,
        output: Output,
        registry: KillRegistry | None,
        overseer: Overseer | None,
    ) -> None:
        super().__init__(registry, overseer)
        self._command = command
        self._output = output
        self._errors: Output | None = None

    @override
    def open_stdio(self, given: dict[str, int]) -> None:
        given["stdin"] = memory_file(self._command.stdin)
        output, given["out"] = os.pipe2(os.O_CLOEXEC)
        self.watch(output, partial(self._on_output, self._output))
        if self._command.separate_errors:
            self._errors = Output(_ERROR_BYTES, None)
            errors, given["err"] = os.pipe2(os.O_CLOEXEC)
            self.watch(errors, partial(self._on_output, self._errors))

    @override
    def close_stdio(self) -> None:
        self._output.close()
        if self._errors is not None:
            self._errors.close()

    def _on_output(self, output: Output, descriptor: int) -> None:
        data = os.read(descriptor, READ_BYTES)
        if not data:
            self.unwatch(descriptor)
            return
        output.add(data)
        if output.flooded:
            self.kill()

    @property
    def is_flooded(self) -> bool:
        """Whether it printed so much that it was killed."""
        return self._output.flooded or (self._errors is not None and self._errors.flooded)

    def result(self, ended_by: EndedBy) -> Ended:
        """Say how it went; after `end`."""
        code = self.exit_code()
        said = (self._errors or self._output).text()
        if self._has_no_program(code, said):
            code = self.reported_exit = 127 if _NO_FILE in said else 126
        # Killed before it began: bubblewrap reports no code, but nothing was wrong with it.
        was_killed = self.kill_wanted or code in {-signal.SIGKILL, 128 + signal.SIGKILL}
        return Ended(
            exit_code=code if code >= 0 else 128 - code,
            output=self.failure or self._output.text(),
            output_bytes=self._output.total_bytes,
            truncated=self._output.truncated,
            ended_by="limit" if self.overuse else ended_by,
            duration_ms=round((self.ended - self.began) * 1000),
            started=not self.failure
            and (self.is_bare or self.reported_exit is not None or was_killed),
            overuse=self.overuse,
            errors=self._errors.text() if self._errors is not None else "",
        )

    def _has_no_program(self, code: int, said: str) -> bool:
        """Whether bubblewrap was let go and could not start the program; it tells no code then."""
        is_silent = self.reported_exit is None and not self.is_bare and not self.kill_wanted
        return is_silent and code == 1 and said.startswith("bwrap: execvp ")


Level = Literal["bwrap", "landlock", "none"]


class ChildResult(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a command.

    Attributes:
        exit_code: its exit code; 128 and the number of the signal that ended it.
        signal: that number, or 0.
        output: standard output and error as they came, invalid UTF-8 replaced; without the error
            where that was kept apart.
        output_bytes: how much there was.
        truncated: whether `output` is only its beginning.
        ended_by: itself, the time limit, a flood of output, or another limit.
        duration_ms: from the start to the death of its last process.
        level: the isolation that was in force.
        overuse: which limit it met, where `ended_by` is `limit`.
        quarantined: what it made that would have run later outside.
        errors: the beginning of its standard error, where that was kept apart.
    """

    exit_code: int
    signal: int
    output: str
    output_bytes: int
    truncated: bool
    ended_by: EndedBy
    duration_ms: int
    level: Level
    overuse: str = ""
    quarantined: QuarantinedPaths = QuarantinedPaths()
    errors: str = ""

    @property
    def timed_out(self) -> bool:
        """Whether the time limit ended it."""
        return self.ended_by == "timeout"
