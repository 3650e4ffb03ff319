"""The tool `evaluate`: Python that computes, in the sandbox, with nothing that it could change.

What holds it: the sandbox (no network, a workspace that is only read, a /tmp of its own), and
within it limits and a filter that `evaluate_program` puts in force before the code is looked at.
"""

import platform
import shutil
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

from typing_extensions import override

from clawd.security.risk import Assessment
from clawd.security.sandbox.plan import DEFAULT_PATH, SYSTEM_TREES, USR_LINKS, ChildCommand
from clawd.security.sandbox.seccomp import compute_filter
from clawd.tools.base import Arguments, Tool, ToolContext, ToolResult, Touched, failed
from clawd.tools.builtin import evaluate_program
from clawd.tools.builtin.deps import BuiltinDeps, object_schema
from clawd.tools.child_outcome import told_of

MAX_CODE_BYTES = 256 << 10
MEMORY_BYTES = 512 << 20
_KILL_GRACE_S = 10.0
# What Python says of things that are not allowed here.
_REFUSALS = ("Read-only file system", "Permission denied", "Operation not permitted")


class EvaluateTool(Tool):
    """Runs Python code.

    Attributes:
        write_tool: what the model calls the tool that writes files.
        shell_tool: what it calls the one that runs programs.
    """

    name: ClassVar[str] = "evaluate"
    short: ClassVar[str] = "Compute with Python 3; it can read the workspace, not change it."
    description: ClassVar[str] = (
        "Runs the code in a sandbox and answers what it prints, and the value of its last line "
        "when that is an expression. The standard library is there, other packages are not. Files "
        "of the workspace, which is its current folder, can be read; only /tmp can be written and "
        "is gone afterwards. No network, no other programs, no threads, no input. Nothing is kept "
        f"from call to call. At most {MEMORY_BYTES >> 20} MiB of memory."
    )
    parameters: ClassVar[dict[str, Any]] = object_schema(
        {"code": {"type": "string", "description": "Python code.", "examples": ["sum(range(10))"]}},
        "code",
    )
    aliases: ClassVar[tuple[str, ...]] = ("python3", "python")
    starts_process: ClassVar[bool] = True
    holds_until_cleared: ClassVar[bool] = True
    outward: ClassVar[bool | None] = False
    write_tool: str = "file_write"
    shell_tool: str = "shell"

    def __init__(self, deps: BuiltinDeps) -> None:
        self._deps = deps
        self.timeout_s = deps.shell_timeout_s + _KILL_GRACE_S

    @override
    def risk(self, arguments: Arguments, context: ToolContext) -> Assessment:
        status, reason = self._deps.sandbox.status, "computes with Python"
        level = status.level if status is not None else "none"
        if level == "bwrap":
            return Assessment(risk="low", reason=reason)
        if level == "landlock":
            # There it may learn that a file outside is there, and how large it is.
            return Assessment(risk="medium", reason=f"{reason} in a sandbox that is not a full one")
        return Assessment(
            risk="high",
            reason=reason,
            blocked="Python code runs in a sandbox only, and there is none here",
            allow_hint="clawctl doctor says what is missing",
        )

    @override
    def touches(self, arguments: Arguments, context: ToolContext) -> Touched:
        return Touched(reads=(context.workspace,))

    @override
    async def invoke(self, arguments: Arguments, context: ToolContext) -> ToolResult:
        code = arguments["code"].encode("utf-8", "replace")
        if len(code) > MAX_CODE_BYTES:
            return failed(f"the code has {len(code)} bytes; at most {MAX_CODE_BYTES} are run")
        python, program = system_python(), compute_filter(platform.machine())
        if not python or not program:
            what = "a system call filter for this machine" if python else _no_python()
            return failed(f"Python code cannot be run here: there is no {what}")
        limit_s = self._deps.shell_timeout_s
        words = (program.hex(), str(MEMORY_BYTES), str(int(limit_s) + 1))
        result = await self._deps.sandbox.run(
            ChildCommand(
                argv=(python, "-I", "-S", "-E", "-c", _program_text(), *words),
                workspace=context.workspace,
                workspace_writable=False,
                stdin=code,
                timeout_s=limit_s,
                max_output_bytes=self._deps.max_shell_output_bytes,
            ),
            on_output=context.report,
            cleared=context.cleared,
        )
        is_refused = any(words in result.output for words in _REFUSALS)
        return told_of(result, limit_s, noun="code", advice=self._advice() if is_refused else "")

    def _advice(self) -> str:
        return (
            "evaluate only computes: it cannot change files, start programs or use the network; "
            f"{self.write_tool} writes a file, {self.shell_tool} runs a command"
        )


def system_python(path: str = DEFAULT_PATH) -> str:
    """Return a Python that a command in the sandbox can see; empty when there is none."""
    found = shutil.which("python3", path=path)
    if found is None:
        return ""
    visible = [Path(name) for name in (*SYSTEM_TREES, *USR_LINKS)]
    real = Path(found).resolve()
    return found if any(tree in real.parents for tree in visible) else ""


def _no_python() -> str:
    return f"python3 in {DEFAULT_PATH}; install the system's own"


@cache
def _program_text() -> str:
    return Path(evaluate_program.__file__).read_text(encoding="utf-8")
