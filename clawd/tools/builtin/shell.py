"""The tools that run commands in the sandbox: `shell`, and `job` for those that still run."""

import os
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, ClassVar

from typing_extensions import override

from clawd.paths import user_home
from clawd.security.auto_exec_files import is_auto_exec
from clawd.security.command import Wall, assess
from clawd.security.risk import Assessment, Opening
from clawd.security.sandbox.plan import ChildCommand
from clawd.security.sandbox.process import ChildResult
from clawd.security.shell_paths import files_read
from clawd.tools.base import Arguments, Tool, ToolContext, ToolResult, Touched, failed
from clawd.tools.builtin.deps import BuiltinDeps, object_schema
from clawd.tools.child_outcome import told_of
from clawd.tools.jobs import MAX_WAIT_S, looked_at
from clawd.tools.preview import Preview
from clawd.wire.safe_text import shown_name

TIMEOUT_LIMIT_S = 600
_KILL_GRACE_S = 10.0
_LOOK_S = 20.0
_NAMES_TOLD, _NAME_CHARS = 5, 80
_INTO = re.compile(r"\s*cd ([\w./-]+) *(?:&&|;)")
# Names what differs between HEAD and each revision; "" is the work tree, and what the index has
# more than that. None of it starts a program.
_DIFFERING = (
    'd() { git -c core.fsmonitor= diff --no-ext-diff --no-textconv --name-only -z "$@" --; }; '
    'for r; do [ "$r" ] || d; d HEAD ${r:+"$r"}; done 2>/dev/null; exit 0'
)


class ShellTool(Tool):
    """Runs a command."""

    name: ClassVar[str] = "shell"
    short: ClassVar[str] = "Run one shell command in the workspace."
    description: ClassVar[str] = (
        "Runs the command with bash in a sandbox: the workspace is its current folder and the only "
        "place it can change, there is no input, and no network but hosts that the owner grants. "
        "Answers what it prints; a failing command is an error that gives the exit code. What "
        f"still runs after `timeout_s` seconds, at most {TIMEOUT_LIMIT_S}, goes on as a job: the "
        "tool `job` waits for it, shows what it prints and ends it."
    )
    parameters: ClassVar[dict[str, Any]] = object_schema(
        {
            "command": {"type": "string", "description": "The command line."},
            "timeout_s": {"type": "number", "description": "Seconds to wait for it."},
        },
        "command",
    )
    timeout_s: float = TIMEOUT_LIMIT_S + _KILL_GRACE_S
    starts_process: ClassVar[bool] = True
    holds_until_cleared: ClassVar[bool] = True
    reaches_hosts: ClassVar[bool] = True
    outward: ClassVar[bool | None] = False

    def __init__(self, deps: BuiltinDeps) -> None:
        self._deps = deps

    @override
    def risk(self, arguments: Arguments, context: ToolContext) -> Assessment:
        return assess(
            arguments["command"],
            self._deps.policy,
            workspace=context.workspace,
            home=user_home(os.environ),
            wall=self._wall(context.workspace),
        )

    def _wall(self, workspace: Path) -> Wall | None:
        """Return what the full sandbox shows, where that is in force: it decides what is a risk."""
        status = self._deps.sandbox.status
        if status is None or status.level != "bwrap":
            return None
        found = self._deps.sandbox.inside(workspace)
        return Wall(own=tuple(map(str, found.own)), shown=tuple(map(str, found.shown)))

    def _project(self, workspace: Path) -> Path | None:
        """Return the workspace that one is a copy of: it has the same caches."""
        copies = self._deps.copies
        return copies.original(workspace) if copies is not None else None

    @override
    def touches(self, arguments: Arguments, context: ToolContext) -> Touched:
        workspace = context.workspace
        named = files_read(arguments["command"], workspace)
        reads = (workspace,) if named is None else named
        if self.risk(arguments, context).risk == "low":
            return Touched(reads=reads)
        return Touched(reads=reads, writes=(workspace,))

    @override
    async def preview(self, arguments: Arguments, context: ToolContext) -> Preview | None:
        """Return which files that run later git would bring: a rule for it is none for those."""
        judged = self.risk(arguments, context)
        if "checkouts" not in judged.opens:
            return None
        into = _INTO.match(arguments["command"])
        folder = into[1] if into else "."
        revisions, named = _brought_by(judged)
        look = ChildCommand(
            argv=("bash", "-c", f'cd "$0" && {_DIFFERING}', folder, *revisions),
            workspace=context.workspace,
            workspace_writable=False,
            timeout_s=_LOOK_S,
            toolchains=True,
        )
        result = await self._deps.sandbox.run(look)
        names = dict.fromkeys((*named, *result.output.split("\0")))
        brought = [name for name in names if is_auto_exec(tuple(name.split("/")))]
        if not brought:
            return None
        more = f" and {len(brought) - _NAMES_TOLD} more" if len(brought) > _NAMES_TOLD else ""
        told = (
            f"{', '.join(shown_name(name)[-_NAME_CHARS:] for name in brought[:_NAMES_TOLD])}{more}"
        )
        return Preview(losses=(f"it may bring {told}, which programs outside run later",))

    @override
    async def invoke(self, arguments: Arguments, context: ToolContext) -> ToolResult:
        wanted = arguments.get("timeout_s", self._deps.shell_timeout_s)
        wait_s = min(max(0.1, wanted), TIMEOUT_LIMIT_S)
        jobs = self._deps.jobs
        has_jobs = bool(jobs and context.conversation_id and jobs.has_room(context.conversation_id))
        limit_s = max(wait_s, self._deps.max_command_s) if has_jobs else wait_s
        judged = self.risk(arguments, context)
        command = ChildCommand(
            argv=("bash", "--noprofile", "--norc", "-c", arguments["command"]),
            workspace=context.workspace,
            # What was judged to read only is held to it.
            workspace_writable=judged.risk != "low",
            # A rule for `git switch` is none for what a branch brings.
            opens=judged.opens if context.is_answered else _without_checkouts(judged.opens),
            timeout_s=limit_s,
            toolchains=True,
            project=self._project(context.workspace),
            max_output_bytes=self._deps.max_shell_output_bytes,
        )

        async def run(
            report: Callable[[str], None], cleared: Callable[[], Awaitable[None]]
        ) -> ChildResult:
            return await self._deps.sandbox.run(
                command, on_output=report, cleared=cleared, way_out=context.way_out
            )

        if jobs is None or not has_jobs:
            return told_of(await run(context.report, context.cleared), limit_s)
        return await jobs.run(self, arguments, context, run=run, wait_s=wait_s, limit_s=limit_s)


def _brought_by(judged: Assessment) -> tuple[list[str], list[str]]:
    """Return the revisions whose files git would bring, and what may be files by themselves."""
    revisions: dict[str, None] = {}
    named: list[str] = []
    for words in (need.words for need in judged.needs if need.words[:1] == ("git",)):
        rest = words[3:] if words[1:2] == ("-C",) else words[1:]
        operands = [word for word in rest[1:] if word and not word.startswith("-")]
        named += operands
        revisions |= dict.fromkeys(operands)
        match rest[:1]:
            case ("stash",):
                revisions |= dict.fromkeys(("", "stash@{0}", "stash@{0}^3"))
            case ("reset" | "restore" | "checkout",):
                revisions[""] = None
            case ("pull" | "merge" | "rebase",):
                revisions["@{upstream}"] = None
            case _:
                pass
    return list(revisions), named


def _without_checkouts(opens: tuple[Opening, ...]) -> tuple[Opening, ...]:
    return tuple(each for each in opens if each != "checkouts")


class JobTool(Tool):
    """Waits for a job, shows what it printed, ends it."""

    name: ClassVar[str] = "job"
    short: ClassVar[str] = "Wait for a command that still runs, see its output, or stop it."
    description: ClassVar[str] = (
        "A command of `shell` that takes longer than its call waits goes on as a job. wait returns "
        f"when it has ended, or after `wait_s` seconds (30 by itself, at most {MAX_WAIT_S:g}); "
        "output returns at once; both answer what it printed since the last look. stop ends it. "
        "Without `id` it is the newest one that runs. Jobs end with the conversation, and with the "
        "daemon."
    )
    parameters: ClassVar[dict[str, Any]] = object_schema(
        {
            "action": {"type": "string", "enum": ["wait", "output", "stop"]},
            "id": {"type": "string", "description": "The job, as job-1."},
            "wait_s": {"type": "number", "description": "Seconds to wait for its end."},
        }
    )
    timeout_s: float = MAX_WAIT_S + 30.0
    outward: ClassVar[bool | None] = False

    def __init__(self, deps: BuiltinDeps) -> None:
        self._jobs = deps.jobs

    @override
    def risk(self, arguments: Arguments, context: ToolContext) -> Assessment:
        reason = "looks after a command of this conversation"
        return Assessment(risk="low", reason=reason, outward=False)

    @override
    def touches(self, arguments: Arguments, context: ToolContext) -> Touched:
        return Touched(reads=(context.workspace,))  # what it prints may stand in any file there

    @override
    async def invoke(self, arguments: Arguments, context: ToolContext) -> ToolResult:
        identity = arguments.get("id", "")
        job = self._jobs.of(context.conversation_id, identity) if self._jobs is not None else None
        if job is None or self._jobs is None:
            named = f"is no job {identity}" if identity else "is no job"
            return failed(f"there {named} in this conversation; jobs end with the daemon")
        action = arguments.get("action", "wait")
        if action == "stop":
            await self._jobs.stop(job, "the model")
        elif action == "wait":
            await self._jobs.wait(job, arguments.get("wait_s", 30.0))
        return looked_at(job)
