"""Handlers about tools, their changes, jobs and plugins."""

import asyncio
import contextlib
import logging
from contextlib import AsyncExitStack
from pathlib import Path
from typing import BinaryIO, Literal

import msgspec

from clawd.channels.rpc.connection import Call
from clawd.errors import ClawError, InvalidRequestError, NotFoundError
from clawd.memory.rows import visible_to
from clawd.plugins.loader import InstalledPlugin, Review
from clawd.runtime.calls import ClientCall, new_call_id
from clawd.runtime.incoming import Door
from clawd.security.paths import PathRules, path_rules
from clawd.security.workspace import Workspace
from clawd.service.build import Daemon
from clawd.service.handlers.shared import absolute_path, call_tool, outcome_report, own_conversation
from clawd.tools.base import Tool, first_line, in_thread
from clawd.tools.changes import Change, ChangeScope, Which
from clawd.tools.jobs import Job
from clawd.tools.offer import Offer, aliases_of, example_of, short_of
from clawd.tools.outcome import CallRequest
from clawd.tools.preview import diffs_of_kept
from clawd.wire import tools as wire
from clawd.wire.codec import mirror
from clawd.wire.events import FileDiff
from clawd.wire.method import PAGE_LIMIT, Done
from clawd.wire.safe_text import shortened

NAME_SHOWN = 40
_FROM_WORKSPACE = "it lies in the workspace: the model may have written it, read its files first"
_log = logging.getLogger(__name__)


async def list_tools(daemon: Daemon, _params: wire.ListTools, call: Call) -> wire.ToolList:
    """List the tools; to an admin also what could not be loaded."""
    offer = Offer(_tools_at(daemon, call.door), daemon.calls.tool_mode())
    problems = daemon.toolset.problems if call.principal.is_admin else ()
    return wire.ToolList(
        items=tuple(_tool_line(tool, offer) for tool in offer.flat),
        mode=offer.mode,
        problems=tuple(mirror(wire.ToolProblem, each) for each in problems),
    )


async def run_tool(daemon: Daemon, params: wire.RunTool, call: Call) -> wire.ToolOutcome:
    """Run one tool through the gate."""
    workspace, conversation_id = params.workspace, ""
    async with AsyncExitStack() as stack:
        if params.conversation_id:
            workspace, conversation_id = await own_conversation(
                daemon, params.conversation_id, call
            )
            # The untrusted text that it holds counts for the call, to its end.
            held = daemon.inbox.book.in_use(conversation_id, call.principal)
            await stack.enter_async_context(held)
        visit = ClientCall(
            conversation_id=conversation_id,
            workspace=workspace,
            interactive=params.interactive,
            offered=_offered_at(daemon, call.door),
        )
        request = CallRequest(id=new_call_id(), tool=params.name, arguments=params.arguments)
        return outcome_report(await call_tool(daemon, request, visit, call))


async def list_changes(daemon: Daemon, params: wire.ListChanges, call: Call) -> wire.ChangeList:
    """List what undo can take back."""
    if not 1 <= params.limit <= PAGE_LIMIT:
        raise InvalidRequestError(f"limit is {params.limit}; it must be 1 to {PAGE_LIMIT}")
    scope = await _scope_of(daemon, params, call)
    calls = await daemon.changes.listed(scope, calls=params.limit, reverting=params.redo)
    return wire.ChangeList(items=tuple(_change_line(change) for group in calls for change in group))


async def show_changes(daemon: Daemon, params: wire.ShowChanges, call: Call) -> wire.ChangeDiffs:
    """Show what one call changed, line by line."""
    scope = await _scope_of(daemon, params, call)
    which = Which(call=params.receipt_id)
    calls = await daemon.changes.listed(scope, calls=1, reverting=False, which=which)
    if not calls:
        raise NotFoundError(f"nothing is kept of what {params.receipt_id[:64]!r} changed")
    home = daemon.state.runtime.home
    rules = path_rules(daemon.state.policy, workspace=Path(scope.workspace), home=home)
    return wire.ChangeDiffs(items=await in_thread(lambda: _diffs(daemon, calls[0], rules)))


def _diffs(daemon: Daemon, changes: list[Change], rules: PathRules) -> tuple[FileDiff, ...]:
    """Return what became of each file of a call; `changes` are the newest first. Blocks."""
    spans: dict[str, tuple[Change, Change]] = {}
    for change in reversed(changes):
        first, _ = spans.get(change.file.name, (change, change))
        spans[change.file.name] = first, change
    with Workspace(rules) as workspace:

        def now(change: Change) -> BinaryIO | None:
            with contextlib.suppress(ClawError):  # no file any more, or one that tools may not read
                return workspace.open_read(rules.workspace / change.file.name)
            return None

        log = daemon.changes
        return diffs_of_kept(
            (
                msgspec.structs.replace(last.file, before=first.file.before),
                log.content(first) if first.kept else None,
                log.written(last) or now(last),
            )
            for first, last in spans.values()
        )


async def _scope_of(
    daemon: Daemon, params: wire.ListChanges | wire.ShowChanges, call: Call
) -> ChangeScope:
    workspace, conversation_id = params.workspace, ""
    if params.conversation_id:
        workspace, conversation_id = await own_conversation(daemon, params.conversation_id, call)
    return ChangeScope(
        owner=call.principal.uid,
        workspace=str(daemon.calls.workspace(workspace)),
        conversation_id=conversation_id,
    )


async def list_jobs(daemon: Daemon, params: wire.ListJobs, call: Call) -> wire.JobList:
    """List the jobs that the caller may see."""
    seen = daemon.jobs.seen_by(call.principal)
    if params.conversation_id:
        owner = visible_to(call.principal)
        found = await daemon.memory.conversations.match(params.conversation_id, owner=owner)
        seen = [job for job in seen if job.context.conversation_id == found.id]
    return wire.JobList(items=tuple(_job_line(daemon, job) for job in seen))


async def show_job(daemon: Daemon, params: wire.ShowJob, call: Call) -> wire.JobOutput:
    """Show a job and the end of what it printed."""
    job = _job(daemon, params.job_id, call)
    whole = await asyncio.to_thread(daemon.redactor.text, job.output)
    data = whole.encode(errors="replace")
    is_cut = len(data) > params.max_bytes
    end = data[len(data) - params.max_bytes :].decode(errors="ignore") if is_cut else whole
    return wire.JobOutput(job=_job_line(daemon, job), output=end, is_cut=is_cut)


async def stop_job(daemon: Daemon, params: wire.StopJob, call: Call) -> wire.JobLine:
    """End a job."""
    job = _job(daemon, params.job_id, call)
    await daemon.jobs.stop(job, f"uid {call.principal.uid}")
    return _job_line(daemon, job)


async def list_plugins(daemon: Daemon, _params: wire.ListPlugins, _call: Call) -> wire.PluginList:
    """List the installed plugins."""
    return wire.PluginList(
        items=tuple(map(_plugin_line, await in_thread(daemon.toolset.plugins.installed)))
    )


async def inspect_plugin(
    daemon: Daemon, params: wire.InspectPlugin, _call: Call
) -> wire.PluginReview:
    """Say what a plugin is and may do."""
    store = daemon.toolset.plugins
    if bool(params.path) == bool(params.name):
        raise InvalidRequestError("either a path or a name is wanted")
    if params.name:
        return _review_shown(await in_thread(lambda: store.review(params.name)))
    source = absolute_path(params.path)
    found = await in_thread(lambda: store.inspect(source))
    if source.resolve().is_relative_to(daemon.calls.workspace("")):
        found = msgspec.structs.replace(found, reach=(*found.reach, _FROM_WORKSPACE))
    return _review_shown(found)


async def install_plugin(daemon: Daemon, params: wire.InstallPlugin, call: Call) -> Done:
    """Install a plugin."""
    store, by, source = daemon.toolset.plugins, call.principal.uid, absolute_path(params.path)
    found = await in_thread(lambda: store.install(source, digest=params.digest, by=by))
    _log.info("plugin installed", extra=_facts(found, by))
    return await _took_effect(daemon, found, "is installed")


async def approve_plugin(daemon: Daemon, params: wire.ApprovePlugin, call: Call) -> Done:
    """Approve a plugin as it is now."""
    store, by = daemon.toolset.plugins, call.principal.uid
    found = await in_thread(lambda: store.approve(params.name, digest=params.digest, by=by))
    _log.info("plugin approved", extra=_facts(found, by))
    return await _took_effect(daemon, found, "is approved")


async def remove_plugin(daemon: Daemon, params: wire.RemovePlugin, call: Call) -> Done:
    """Remove a plugin."""
    await in_thread(lambda: daemon.toolset.plugins.remove(params.name))
    await daemon.reload_tools()
    _log.info("plugin removed", extra={"plugin": params.name, "by": call.principal.uid})
    return Done(message=f"{params.name} is removed")


async def reload_plugins(daemon: Daemon, _params: wire.ReloadPlugins, _call: Call) -> Done:
    """Read plugins and external tools again."""
    await daemon.reload_tools()
    refused = sum(each.severity == "refused" for each in daemon.toolset.problems)
    added = sum(tool.source in {"plugin", "external"} for tool in daemon.registry.all())
    rest = f"; {refused} left out, see clawctl tool problems" if refused else ""
    return Done(message=f"{added} tools of plugins and manifests are loaded{rest}")


def _tools_at(daemon: Daemon, door: Door) -> list[Tool]:
    """Return the tools that a door has; over the socket a person may call every one."""
    registry = daemon.registry
    if door == "socket":
        return list(registry.all())
    return registry.allowed(daemon.tool_clients.settings().tools_allow(door))


def _offered_at(daemon: Daemon, door: Door) -> frozenset[str] | None:
    if door == "socket":
        return None
    return frozenset(tool.name for tool in _tools_at(daemon, door))


def _job_line(daemon: Daemon, job: Job) -> wire.JobLine:
    return job.line(daemon.redactor.text)


def _job(daemon: Daemon, identity: str, call: Call) -> Job:
    seen = daemon.jobs.seen_by(call.principal)
    found = next((job for job in seen if job.id == identity), None)
    if found is None:
        known = ", ".join(job.id for job in seen) or "none"
        raise NotFoundError(
            f"there is no job {shortened(identity, NAME_SHOWN)!r}; there are: {known}",
            hint="Jobs are known until the daemon ends. See: clawctl jobs list",
        )
    return found


def _tool_line(tool: Tool, offer: Offer) -> wire.ToolLine:
    return wire.ToolLine(
        name=tool.name,
        short=short_of(tool),
        description=tool.description or short_of(tool),
        parameters=tool.parameters,
        offered_as=offer.also_as(tool.name),
        aliases=aliases_of(tool),
        example=example_of(tool),
        source=tool.source,
    )


def _change_line(change: Change) -> wire.ChangeLine:
    before, after = change.file.before, change.file.after
    action: Literal["created", "changed", "removed"] = "changed"
    if before is None or after is None:
        action = "created" if before is None else "removed"
    return wire.ChangeLine(
        receipt_id=change.call.call_id,
        at=change.at,
        tool=change.call.tool,
        path=change.file.path,
        action=action,
        size_before=before.size if before is not None else 0,
        size_after=after.size if after is not None else 0,
        conversation_id=change.call.conversation_id,
        workspace=change.call.workspace,
    )


async def _took_effect(daemon: Daemon, found: Review, what: str) -> Done:
    await daemon.reload_tools()
    name = found.manifest.name
    wanted = {each.name for each in found.manifest.tools}
    loaded = {tool.name for tool in daemon.registry.all() if tool.source == "plugin"}
    text = f"{name} {found.manifest.version} {what}"
    if left := sorted(wanted - loaded):
        text += f"; not loaded: {', '.join(left)} (see clawctl tool problems)"
    return Done(message=text)


def _facts(found: Review, by: int) -> dict[str, object]:
    return {"plugin": found.manifest.name, "digest": found.digest, "by": by}


def _plugin_line(plugin: InstalledPlugin) -> wire.PluginLine:
    manifest = plugin.manifest
    return wire.PluginLine(
        name=plugin.name,
        state=plugin.state,
        version=manifest.version if manifest is not None else "",
        capabilities=manifest.capabilities if manifest is not None else (),
        tools=tuple(each.name for each in manifest.tools) if manifest is not None else (),
        digest=plugin.digest,
        approved_at=plugin.approved_at,
        reason=plugin.reason,
    )


def _review_shown(found: Review) -> wire.PluginReview:
    manifest = found.manifest
    return wire.PluginReview(
        name=manifest.name,
        version=manifest.version,
        description=manifest.description,
        digest=found.digest,
        tools=tuple(
            wire.PluginToolLine(
                name=each.name, risk=each.risk, description=first_line(each.description)
            )
            for each in manifest.tools
        ),
        files=tuple(
            wire.PluginFileLine(path=path, size_bytes=size, is_program=is_program)
            for path, size, is_program in found.files
        ),
        reach=found.reach,
        secrets=found.secrets,
        replaces=found.replaces,
        changes=found.changes,
    )
