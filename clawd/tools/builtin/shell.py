"""The tool `shell`: one command in the workspace, in the sandbox."""

from pathlib import Path
from typing import Any, ClassVar

from typing_extensions import override

from clawd.security.command import assess
from clawd.security.risk import Assessment
from clawd.security.sandbox import ChildResult
from clawd.security.sandbox_plan import ChildCommand
from clawd.tools.base import Arguments, Tool, ToolContext, ToolResult, failed, succeeded
from clawd.tools.builtin.deps import BuiltinDeps, object_schema

TIMEOUT_LIMIT_S = 600
_KILL_GRACE_S = 10.0
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
    if result.timed_out:
        return failed(f"The command was ended after {limit_s:g} s", output=output, **facts)
    if result.ended_by == "output":
        return failed("The command was ended because of too much output", output=output, **facts)
    if result.exit_code:
        code = result.exit_code
        convention = _CONVENTIONS.get(code, "")
        if result.signal:
            convention = f" (ended by signal {result.signal})"
        return failed(f"The command exited with code {code}{convention}", output=output, **facts)
    return succeeded(output or "(no output)", **facts)
