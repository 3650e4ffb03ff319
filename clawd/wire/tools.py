"""Methods about tools, their changes, jobs and plugins, and what they report."""

from typing import Annotated, Any, ClassVar, Literal

import msgspec

from clawd.wire.events import FileDiff
from clawd.wire.method import Done, Method


class ToolLine(msgspec.Struct, frozen=True, kw_only=True):
    """One tool.

    Attributes:
        offered_as: how a model calls it in the mode in force: `file_read`, `fs(action="read")`.
        aliases: other names that lead to it.
        example: arguments of a call that works.
    """

    name: str
    short: str
    description: str
    parameters: dict[str, Any]
    source: str = "builtin"
    offered_as: str = ""
    aliases: tuple[str, ...] = ()
    example: dict[str, Any] = {}


class ToolProblem(msgspec.Struct, frozen=True, kw_only=True):
    """What is wrong, or doubtful, about a manifest of external tools or a plugin.

    `line` is 0 where none is meant; `severity` refused means that it was left out.
    """

    file: str
    line: int
    severity: Literal["refused", "warning"]
    reason: str
    tool: str = ""


class ToolList(msgspec.Struct, frozen=True, kw_only=True):
    """The tools, by name, and (for an admin) what of the tools of others was left out.

    `mode` says how they are offered to models: split, unified, both.
    """

    items: tuple[ToolLine, ...]
    mode: str = "split"
    problems: tuple[ToolProblem, ...] = ()


class ListTools(Method[ToolList], frozen=True, kw_only=True):
    """List the tools."""


class ToolOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a call outside a conversation."""

    status: Literal["allowed", "denied", "failed"]
    kind: str
    output: str
    receipt_id: str
    risk: str
    duration_ms: int
    exit_code: int | None = None
    unanswered: bool = False


class RunTool(Method[ToolOutcome], frozen=True, kw_only=True):
    """Run one tool through the gate; `arguments` is JSON text. Streams approvals and progress.

    With `conversation_id` (or a unique beginning of it) it is a call of that conversation, in its
    workspace.
    """

    streams: ClassVar[bool] = True
    name: str
    arguments: str = "{}"
    workspace: str = ""
    conversation_id: str = ""
    interactive: bool = False


class ChangeLine(msgspec.Struct, frozen=True, kw_only=True):
    """One change of one file that can be taken back.

    Attributes:
        receipt_id: of the call; what one call changed is undone as a whole.
        path: relative to the workspace, or absolute when it lies outside.
        action: what the call did.
        size_before: bytes that the file had; 0 when there was none. `size_after` likewise.
    """

    receipt_id: str
    at: str
    tool: str
    path: str
    action: Literal["created", "changed", "removed"]
    size_before: int
    size_after: int
    conversation_id: str
    workspace: str


class ChangeList(msgspec.Struct, frozen=True, kw_only=True):
    """Changes, newest first."""

    items: tuple[ChangeLine, ...]


class ListChanges(Method[ChangeList], frozen=True, kw_only=True):
    """List what the caller's calls changed in files and undo can take back, newest first.

    Of one workspace (empty: the configured one), or of one conversation in its workspace. With
    `redo` what undo took away and redo can bring back. `limit` counts calls.
    """

    workspace: str = ""
    conversation_id: str = ""
    redo: bool = False
    limit: int = 20


class ChangeDiffs(msgspec.Struct, frozen=True, kw_only=True):
    """What became of each file that a call changed."""

    items: tuple[FileDiff, ...]


class ShowChanges(Method[ChangeDiffs], frozen=True, kw_only=True):
    """Show line by line what one call of `list_changes` did to files.

    The old content is what undo keeps. The new one is what a later change replaced, or the file
    itself while it holds just that; a note says where it does not.
    """

    receipt_id: str
    workspace: str = ""
    conversation_id: str = ""


class PluginLine(msgspec.Struct, frozen=True, kw_only=True):
    """One installed plugin; `reason` says why it does not run."""

    name: str
    state: Literal["ready", "changed", "unapproved", "broken"]
    version: str = ""
    capabilities: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    digest: str = ""
    approved_at: str = ""
    reason: str = ""


class PluginList(msgspec.Struct, frozen=True, kw_only=True):
    """The installed plugins, by name."""

    items: tuple[PluginLine, ...]


class ListPlugins(Method[PluginList], frozen=True, kw_only=True):
    """List the installed plugins, whether they run or not."""

    admin: ClassVar[bool] = True


class PluginToolLine(msgspec.Struct, frozen=True, kw_only=True):
    """One tool of a plugin."""

    name: str
    risk: str
    description: str


class PluginFileLine(msgspec.Struct, frozen=True, kw_only=True):
    """One file of a plugin."""

    path: str
    size_bytes: int
    is_program: bool = False


class PluginReview(msgspec.Struct, frozen=True, kw_only=True):
    """What a plugin is and may do; `digest` is what an approval of it names.

    `reach` says what it may do, `secrets` where it holds what looks like a secret, `replaces` the
    version that is installed, `changes` what differs from what was approved.
    """

    name: str
    version: str
    description: str
    digest: str
    tools: tuple[PluginToolLine, ...]
    files: tuple[PluginFileLine, ...]
    reach: tuple[str, ...]
    secrets: tuple[str, ...] = ()
    replaces: str = ""
    changes: tuple[str, ...] = ()


class InspectPlugin(Method[PluginReview], frozen=True, kw_only=True):
    """Say what a plugin is and may do: one in a folder (`path`, absolute), or an installed one."""

    admin: ClassVar[bool] = True
    path: str = ""
    name: str = ""


class InstallPlugin(Method[Done], frozen=True, kw_only=True):
    """Install the plugin of a folder, if its hash is still the one that was inspected."""

    admin: ClassVar[bool] = True
    path: str
    digest: str


class ApprovePlugin(Method[Done], frozen=True, kw_only=True):
    """Approve an installed plugin as it is now, if its hash is the one that was inspected."""

    admin: ClassVar[bool] = True
    name: str
    digest: str


class RemovePlugin(Method[Done], frozen=True, kw_only=True):
    """Remove a plugin."""

    admin: ClassVar[bool] = True
    name: str


class ReloadPlugins(Method[Done], frozen=True, kw_only=True):
    """Read plugins and external tools again; the config stays as it is."""

    admin: ClassVar[bool] = True


JobState = Literal["running", "ended", "failed", "stopped"]


class JobLine(msgspec.Struct, frozen=True, kw_only=True):
    """One job.

    Attributes:
        command: on one line, without secrets.
        owner: uid of whose it is.
        state: running; ended by itself with exit code 0, or failed; stopped by somebody.
        started_at: when its call began, UTC; it runs, or ran, since for `duration_s`.
        limit_s: so long it may take in all.
        exit_code: None while it runs, and where it was ended.
        receipt_id: of the call that began it.
        end_receipt_id: of its end; empty while it runs.
    """

    id: str
    command: str
    conversation_id: str
    workspace: str
    owner: int
    state: JobState
    started_at: str
    duration_s: float
    limit_s: float
    output_bytes: int
    exit_code: int | None = None
    receipt_id: str = ""
    end_receipt_id: str = ""


class JobList(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs: those that run first, then the newest."""

    items: tuple[JobLine, ...]


class ListJobs(Method[JobList], frozen=True, kw_only=True):
    """List jobs; with `conversation_id` (or a unique beginning of it) those of a conversation."""

    conversation_id: str = ""


class JobOutput(msgspec.Struct, frozen=True, kw_only=True):
    """A job and the end of what it printed, without secrets; `is_cut` where that is not all."""

    job: JobLine
    output: str
    is_cut: bool = False


class ShowJob(Method[JobOutput], frozen=True, kw_only=True):
    """Show a job and at most so much of the end of its output."""

    job_id: str
    max_bytes: Annotated[int, msgspec.Meta(ge=0, le=1_048_576)] = 65_536


class StopJob(Method[JobLine], frozen=True, kw_only=True):
    """End a job; when this is answered nothing of it is alive, and its end has a receipt."""

    job_id: str
