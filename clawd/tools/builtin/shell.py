"""The tool `shell`: one command in the workspace, in the sandbox."""

from pathlib import Path
from typing import Any, ClassVar

from typing_extensions import override

from clawd.security.command import assess
from clawd.security.risk import Assessment
from clawd.security.run_later_guard import HELD_SUFFIX, PutAside
from clawd.security.sandbox import ChildResult
from clawd.security.sandbox_plan import ChildCommand
from clawd.security.shell_reads import files_read
from clawd.tools.base import (
    Arguments,
    Tool,
    ToolContext,
    ToolResult,
    Touched,
    failed,
    succeeded,
)
from clawd.tools.builtin.deps import BuiltinDeps, object_schema

TIMEOUT_LIMIT_S = 600
_KILL_GRACE_S = 10.0
_NAMES_TOLD = 5
_CONVENTIONS = {126: " (it may not be executed)", 127: " (there is no such command)"}


class ShellTool(Tool):
    """Runs a command."""

    name: ClassVar[str] = "shell"
    short: ClassVar[str] = "Run one shell command in the workspace."
    description: ClassVar[str] = (
        "Runs the command with bash in a sandbox: the workspace is its current folder and the only "
        "place it can change, there is no network and no input. Answers what it prints; a failing "
        "command is an error that gives the exit code. It is ended after `timeout_s` seconds, at "
        f"most {TIMEOUT_LIMIT_S}, together with everything that it started."
    )
    parameters: ClassVar[dict[str, Any]] = object_schema(
        {
            "command": {"type": "string", "description": "The command line."},
            "timeout_s": {"type": "number", "description": "Seconds it may take."},
        },
        "command",
    )
    timeout_s: float = TIMEOUT_LIMIT_S + _KILL_GRACE_S
    starts_process: ClassVar[bool] = True
    holds_until_cleared: ClassVar[bool] = True
    outward: ClassVar[bool | None] = False

    def __init__(self, deps: BuiltinDeps) -> None:
        self._deps = deps

    @override
    def risk(self, arguments: Arguments, context: ToolContext) -> Assessment:
        return assess(
            arguments["command"],
            self._deps.policy,
            workspace=context.workspace,
            home=Path.home(),
        )

    @override
    def touches(self, arguments: Arguments, context: ToolContext) -> Touched:
        workspace = context.workspace
        named = files_read(arguments["command"], workspace)
        return Touched(reads=(workspace,) if named is None else named, writes=(workspace,))

    @override
    async def invoke(self, arguments: Arguments, context: ToolContext) -> ToolResult:
        wanted = arguments.get("timeout_s", self._deps.shell_timeout_s)
        limit_s = min(max(0.1, wanted), TIMEOUT_LIMIT_S)
        result = await self._deps.sandbox.run(
            ChildCommand(
                argv=("bash", "--noprofile", "--norc", "-c", arguments["command"]),
                workspace=context.workspace,
                timeout_s=limit_s,
                max_output_bytes=self._deps.max_shell_output_bytes,
            ),
            on_output=context.report,
            cleared=context.cleared,
        )
        return _told(result, limit_s)


def _told(result: ChildResult, limit_s: float) -> ToolResult:
    output = result.output.rstrip("\n")
    if result.truncated:
        kept = len(result.output.encode("utf-8", "replace"))
        output += f"\n[cut: {result.output_bytes - kept} of {result.output_bytes} bytes left out]"
    facts: dict[str, Any] = {
        "exit_code": result.exit_code,
        "duration_ms": result.duration_ms,
        "output_bytes": result.output_bytes,
        "truncated": result.truncated,
        "timed_out": result.timed_out,
        "sandbox": result.level,
    }
    if result.put_aside:
        facts["put_aside"] = [*result.put_aside.held, *result.put_aside.left]
    problem = ". ".join(
        part for part in (_problem(result, limit_s), _aside(result.put_aside)) if part
    )
    if problem:
        return failed(problem, output=output, **facts)
    return succeeded(output or "(no output)", **facts)


def _problem(result: ChildResult, limit_s: float) -> str:
    if result.timed_out:
        return f"The command was ended after {limit_s:g} s"
    if result.ended_by == "output":
        return "The command was ended because of too much output"
    if result.ended_by == "limit":
        return f"The command was ended: {result.overuse}"
    if not result.exit_code:
        return ""
    convention = _CONVENTIONS.get(result.exit_code, "")
    if result.signal:
        convention = f" (ended by signal {result.signal})"
    return f"The command exited with code {result.exit_code}{convention}"


def _aside(put_aside: PutAside) -> str:
    """Say what the command made that would have run outside the sandbox."""
    told = []
    if put_aside.held:
        told.append(f"renamed to NAME{HELD_SUFFIX}: {_listed(put_aside.held)}")
    if put_aside.left:
        told.append(f"not renamed, look at them first: {_listed(put_aside.left)}")
    if not told:
        return ""
    return (
        "Files that programs outside the sandbox run later may not be made by a command; "
        f"{'; '.join(told)}. Use file_write, which asks, or writable_run_later in [security]."
    )


def _listed(names: tuple[str, ...]) -> str:
    rest = f" and {len(names) - _NAMES_TOLD} more" if len(names) > _NAMES_TOLD else ""
    return ", ".join(names[:_NAMES_TOLD]) + rest
