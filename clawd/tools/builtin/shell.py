"""The tool `shell`: one command in the workspace, in the sandbox."""

from pathlib import Path
from typing import Any, ClassVar

from typing_extensions import override

from clawd.security.command import assess
from clawd.security.risk import Assessment
from clawd.security.sandbox_plan import ChildCommand
from clawd.security.shell_reads import files_read
from clawd.tools.base import (
    Arguments,
    Tool,
    ToolContext,
    ToolResult,
    Touched,
)
from clawd.tools.builtin.deps import BuiltinDeps, object_schema
from clawd.tools.child_outcome import told_of

TIMEOUT_LIMIT_S = 600
_KILL_GRACE_S = 10.0


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
        return told_of(result, limit_s)
