"""What the built-in tools are given, and the judgement that those with paths share."""

from pathlib import Path
from typing import ClassVar

import msgspec
from typing_extensions import override

from clawd.config.sections import WebSection
from clawd.errors import ClawError
from clawd.security.approval_rules import file_need
from clawd.security.file_content import Keeper
from clawd.security.network import NetworkRules, Resolve
from clawd.security.paths import Location, PathRules, acts_later, classify, path_rules
from clawd.security.policy import PolicySettings
from clawd.security.risk import Assessment, Risk, raised
from clawd.security.sandbox import Sandbox
from clawd.security.workspace import Workspace
from clawd.tools.base import Arguments, Tool, ToolContext, Touched
from clawd.tools.changes import ChangeLog
from clawd.tools.jobs import Jobs
from clawd.tools.plans import PlanStore
from clawd.tools.preview import RehearsedWorkspace
from clawd.tools.session_files import SessionAccess
from clawd.wire.references import looks_like_reference


class BuiltinDeps(msgspec.Struct, frozen=True, kw_only=True):
    """What the built-in tools need.

    Attributes:
        policy: what the owner allows.
        home: clawd's own home, which no tool may touch; None for none.
        sandbox: runs commands.
        changes: keeps what file tools change, for undo; None keeps nothing.
        plans: keeps plans; None keeps none.
        sessions: the files of conversations; None for none.
        network: where web tools may go.
        web: how those that read pages and PDFs work.
        jobs: keeps commands that take longer than their call; None ends them then.
        shell_timeout_s: how long a call waits for a command unless it says otherwise.
        max_command_s: how long a command may take in all.
        tool_timeout_s: how long the others may take.
        http_timeout_s: how long a transfer may take, redirects included.
        max_response_bytes: how much of a response's body is read.
        max_shell_output_bytes: how much of a command's output is kept.
        resolve: gives the addresses of a host; the system's resolver if None.
    """

    policy: PolicySettings
    home: Path | None
    sandbox: Sandbox
    changes: ChangeLog | None = None
    plans: PlanStore | None = None
    sessions: SessionAccess | None = None
    network: NetworkRules = NetworkRules()
    web: WebSection = WebSection()
    jobs: Jobs | None = None
    shell_timeout_s: float = 15.0
    max_command_s: float = 1_800.0
    tool_timeout_s: float = 30.0
    http_timeout_s: float = 20.0
    max_response_bytes: int = 1_000_000
    max_shell_output_bytes: int = 1 << 20
    resolve: Resolve | None = None


class FileTool(Tool):
    """A tool that touches the file or folder `path` of the workspace.

    Attributes:
        reads: whether its result may hold text that stands there, or names of files.
        writes: whether it changes it.
        takes_session_files: whether `path` may be the reference of a session file as well.
    """

    outward: ClassVar[bool | None] = False
    reads: ClassVar[bool] = True
    writes: ClassVar[bool] = False
    takes_session_files: ClassVar[bool] = False

    def __init__(self, deps: BuiltinDeps) -> None:
        self._policy = deps.policy
        self._home = deps.home
        self._sessions = deps.sessions
        self._umask = deps.sandbox.umask
        self.timeout_s = deps.tool_timeout_s

    @override
    def touches(self, arguments: Arguments, context: ToolContext) -> Touched:
        given = arguments.get("path") or "."
        if looks_like_reference(given):
            return Touched()  # what a conversation holds stays in it
        path = (self._located(given, context).path,)
        return Touched(reads=path if self.reads else (), writes=path if self.writes else ())

    def _rules(self, context: ToolContext) -> PathRules:
        return path_rules(self._policy, workspace=context.workspace, home=self._home)

    def _located(self, path: str | Path, context: ToolContext) -> Location:
        """Return where a path leads: as the call was first judged, if it is one that is run."""
        rules = self._rules(context)
        return classify(path, rules) if context.held is None else context.held.locate(path, rules)

    def _opened(self, context: ToolContext, keeper: Keeper | None = None) -> Workspace:
        """Return the workspace of a call, to be entered in the thread that acts."""
        return Workspace(self._rules(context), keeper, held=context.held, umask=self._umask)

    def _rehearsal(self, context: ToolContext) -> RehearsedWorkspace:
        """Return a workspace like that of the call, in which nothing is changed."""
        return RehearsedWorkspace(self._rules(context), held=context.held)

    def _assess(self, path: str, context: ToolContext, risk: Risk, reason: str) -> Assessment:
        """Assess an act on a path that has this risk inside of the workspace."""
        if self.takes_session_files and looks_like_reference(path):
            return Assessment(risk="low", reason=f"{reason} of the conversation", outward=False)
        try:
            location = self._located(path, context)
        except ClawError as error:
            return Assessment(risk="high", reason=reason, blocked=error.message)
        if location.place == "forbidden":
            return Assessment(risk="high", reason=reason, blocked=location.reason)
        if location.place == "inside":
            return self._assess_inside(location.path, context, risk, reason)
        if self._policy.workspace_only:
            return Assessment(
                risk="high",
                reason=reason,
                blocked="path is outside the workspace",
                allow_hint="workspace_only = false in [security] lets file tools leave it",
            )
        reason = f"{reason} outside the workspace"
        return Assessment(risk=raised(risk), reason=reason, outward=self.writes)

    def _assess_inside(
        self, path: Path, context: ToolContext, risk: Risk, reason: str
    ) -> Assessment:
        if not self.writes:
            return Assessment(risk=risk, reason=reason, outward=False)
        named = path.relative_to(context.workspace)
        later = acts_later(named, workspace=context.workspace)
        if later:
            reason += ", which programs outside the sandbox run or obey later"
        need = file_need(named, risk=risk, is_guarded=later)
        return Assessment(risk=risk, reason=reason, outward=later, edits=not later, needs=(need,))


def object_schema(properties: dict[str, object], *required: str) -> dict[str, object]:
    """Return a JSON Schema of type object that takes these properties and no others."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


PATH = {"type": "string", "description": "Path, relative to the workspace."}
