"""The tool `delegate`: a part of a task for a helper, a conversation of its own.

A helper has no more than the turn that it works for: its principal, its workspace, those of its
tools that look, what narrows it, and mode readonly at most. Nobody is asked for it. It ends with
the call: when the turn is cancelled, or the emergency stop is set.

One that may change files does so in a copy of the workspace, which is gone when the call ends. What
it changed there is merged by a call of `helper_merge` in the turn's own conversation.
"""

import asyncio
import threading
from pathlib import Path
from typing import Any, ClassVar, Literal

import msgspec
from typing_extensions import override

from clawd.config.schema import AgentProfile
from clawd.errors import ClawError, ForbiddenError, InvalidRequestError, NotFoundError
from clawd.kernel.concurrency import cancel_is_wanted, settled
from clawd.runtime.calls import Calls, new_call_id
from clawd.runtime.inbox import Inbox, Ticket
from clawd.runtime.incoming import HelperTask
from clawd.security.copies import (
    Copies,
    Copy,
    CopyChanges,
    MergeConflict,
    conflict_error,
    content_of,
)
from clawd.security.file_content import FileChange
from clawd.security.risk import Assessment
from clawd.security.snapshot import Tree, TreeStep
from clawd.skills.store import SkillStore
from clawd.tools.base import (
    Arguments,
    Tool,
    ToolContext,
    ToolResult,
    Touched,
    Traits,
    failed,
    in_thread,
    succeeded,
)
from clawd.tools.jobs import Jobs
from clawd.tools.narrowing import Narrowing
from clawd.tools.outcome import DELEGATE, HELPER_MERGE, CallRequest
from clawd.tools.preview import diffs_of_kept
from clawd.wire.events import ToolRequested, TurnFinished
from clawd.wire.safe_text import shown_name, single_line

_SHOWN = 120
_LIMIT_S = 1_800.0
_LEFT_OUT_TOLD = 5
_CONFLICTS_TOLD = 5
_LINES_TOLD = 40


class Helpers:
    """Where helpers work, and which agents they may be beside those of the config.

    Args:
        agents: those that a file defines; None for none.
        copies: makes the copies in which they change files; None makes none.
        jobs: their commands that take long.

    Attributes:
        inbox: takes what they are to do; None until the daemon has one.
        calls: makes the calls that merge; None until then.
        pending: what became of copies that are being merged, by the helper's conversation, with
            the one that it works for.
    """

    def __init__(
        self,
        agents: SkillStore | None = None,
        copies: Copies | None = None,
        jobs: Jobs | None = None,
    ) -> None:
        self.inbox: Inbox | None = None
        self.calls: Calls | None = None
        self.pending: dict[str, tuple[str, CopyChanges]] = {}
        self.copies = copies
        self._jobs = jobs
        self._agents = agents

    async def copied(self, context: ToolContext) -> Copy:
        """Return a copy of the workspace of a call.

        Raises:
            ClawError: there is to be none, or it cannot be made.
        """
        copies, stop = self.copies, threading.Event()
        scope = self.inbox.scope(context.conversation_id) if self.inbox is not None else None
        if copies is None or self.calls is None or scope is None:
            raise InvalidRequestError("nothing is copied here")
        if scope.at_most:
            raise ForbiddenError("helpers of a turn that only looks change nothing")
        if copies.original(scope.workspace) is not None:
            raise ForbiddenError("a helper that works in a copy gives no copy away")
        making = asyncio.create_task(in_thread(lambda: copies.make(scope.workspace, stop)))
        try:
            return await asyncio.shield(making)
        except asyncio.CancelledError:
            stop.set()
            await asyncio.wait([making])
            if making.exception() is None:
                await self.removed(making.result())
            raise

    async def removed(self, copy: Copy) -> None:
        """Remove a copy; a second cancellation does not cut the wait."""
        copies = self.copies
        assert copies is not None
        await settled(in_thread(lambda: copies.remove(copy)))

    async def ended(self, ticket: Ticket) -> None:
        """End a helper's turn and what runs of it, and wait for that."""
        await _ended(ticket)
        if self._jobs is not None:
            await settled(self._jobs.stop_of(ticket.conversation_id, "the end of its helper"))

    def defined_in(self, name: str, workspace: Path) -> Path | None:
        """Return the file that defines an agent. Blocks."""
        try:
            return self._agents.folder(name, workspace)[0] if self._agents is not None else None
        except NotFoundError:
            return None

    def defined(self, name: str, workspace: Path) -> tuple[AgentProfile, tuple[Narrowing, ...]]:
        """Return an agent that a file defines, and what narrows it. Blocks.

        Raises:
            NotFoundError: there is none of this name.
            ForbiddenError: it is untrusted, was changed, or is broken.
        """
        if self._agents is None:
            raise NotFoundError(f"there is no agent {name!r}")
        about = self._agents.read(name, workspace)[0].about
        by = Narrowing(by=f"the agent {name}", tools=about.allowed_tools)
        view: Literal["read", "copy"] = "copy" if about.workspace == "copy" else "read"
        profile = AgentProfile(system_prompt=about.body, workspace=view)
        return profile, (by,) if by.tools else ()


class Delegate(Tool):
    """`delegate(task, agent?, tools?, budget?, workspace?)`: returns what the helper answered.

    Args:
        helpers: where they work.
        most: so many helpers one turn may have.
        tokens: so many one of them may use.
        gives_copies: whether a call may give any of them a copy of the workspace.
    """

    name: ClassVar[str] = DELEGATE
    short: ClassVar[str] = "Let a helper do a part of the task, and return what it found."
    description: ClassVar[str] = (
        "`task` is all that the helper knows of the conversation, so say in it what to find out "
        "and what the answer is to hold. It reads with the tools that only look, or with those of "
        "`tools`, and changes nothing. Calls that stand in one answer run side by side. `agent` is "
        "one of those that the context lists. `budget` is how many tokens it may use. With "
        '`workspace` "copy", where the user allows it, and as some agents, it changes files in a '
        "copy of the workspace. When it has ended, the user is asked about what it changed, as "
        "about your own changes; all of it is merged or nothing, and the result says which."
    )
    parameters: ClassVar[dict[str, Any]] = {
        "type": "object",
        "properties": {
            "task": {"type": "string", "description": "what to find out, or to change"},
            "agent": {"type": "string", "description": "the agent that does it"},
            "tools": {"type": "array", "items": {"type": "string"}},
            "budget": {"type": "integer", "minimum": 1},
            "workspace": {"type": "string", "enum": ["read", "copy"]},
        },
        "required": ["task"],
        "additionalProperties": False,
    }
    traits: ClassVar[Traits | None] = Traits(effect="looks", example={"task": "Find the tests."})
    outward: ClassVar[bool | None] = False
    waits_for_person: ClassVar[bool] = True  # the helper's own time is limited

    def __init__(
        self, helpers: Helpers, most: int, tokens: int, *, gives_copies: bool = False
    ) -> None:
        self._helpers = helpers
        self._most = most
        self._tokens = tokens
        self._gives_copies = gives_copies
        self.timeout_s = _LIMIT_S

    @override
    def risk(self, arguments: Arguments, context: ToolContext) -> Assessment:
        return Assessment(risk="low", reason="a helper looks; each of its calls is judged")

    @override
    def touches(self, arguments: Arguments, context: ToolContext) -> Touched:
        file = self._helpers.defined_in(_agent_of(arguments), context.workspace)
        return Touched(reads=(file,)) if file is not None else Touched()

    @override
    async def invoke(self, arguments: Arguments, context: ToolContext) -> ToolResult:
        inbox, copy = self._helpers.inbox, None
        if inbox is None:
            return failed("helpers work for a turn of a conversation")
        try:
            task, is_copied = await self._task(inbox, arguments, context)
            if is_copied:
                copy = await self._helpers.copied(context)
                task = msgspec.structs.replace(task, works_in=str(copy.tree))
            ticket = await inbox.delegate(context.conversation_id, task)
            return await self._helped(inbox, ticket, _agent_of(arguments), copy, context)
        except ClawError as error:
            return failed(f"{error.message}. {error.hint}".removesuffix(". "))
        finally:
            if copy is not None:
                await self._helpers.removed(copy)

    async def _helped(
        self, inbox: Inbox, ticket: Ticket, agent: str, copy: Copy | None, context: ToolContext
    ) -> ToolResult:
        """Return what a helper answered, and what became of its copy."""
        label = agent or "helper"
        try:
            async with asyncio.timeout(_LIMIT_S):
                async for event in ticket.events:
                    if isinstance(event, ToolRequested):
                        row = single_line(f"{label}: {event.tool} {event.arguments}", _SHOWN)
                        context.report(f"{row}\n")
                finished = await ticket.finished()
        except ClawError as error:
            return failed(f"helper {ticket.conversation_id}: {error.message}")
        except TimeoutError:
            why = f"it took longer than {_LIMIT_S:g} s and was stopped"
            return failed(f"helper {ticket.conversation_id}: {why}")
        finally:
            await self._helpers.ended(ticket)
            # What it read stands in what it answered, and in what it changed.
            inbox.book.taint(context.conversation_id, inbox.book.sources(ticket.conversation_id))
        if cancel_is_wanted():  # that came while the helper and its jobs were ended
            raise asyncio.CancelledError
        usage = finished.usage
        tokens = usage.prompt_tokens + usage.completion_tokens
        context.report(f"{label}: {usage.rounds} rounds, {tokens} tokens\n")
        told = [f"helper {ticket.conversation_id}, {usage.rounds} rounds"]
        facts: dict[str, Any] = {}
        if copy is not None:
            merged, facts = await self._merged(ticket.conversation_id, copy, finished, context)
            told.append(merged)
        text = "\n".join((*told, "", finished.text))
        return succeeded(text, conversation=ticket.conversation_id, **facts)

    async def _merged(
        self, helper: str, copy: Copy, finished: TurnFinished, context: ToolContext
    ) -> tuple[str, dict[str, Any]]:
        """Have what became of a copy merged; return what is told of it, and facts."""
        helpers, copies = self._helpers, self._helpers.copies
        scope = helpers.inbox.scope(context.conversation_id) if helpers.inbox is not None else None
        assert copies is not None
        if finished.stop_reason != "stop" or scope is None or helpers.calls is None:
            return "nothing was merged: it did not come to an end by itself", {}
        try:
            found = await in_thread(lambda: copies.changes(copy))
            if not found.changes:
                return "\n".join(("nothing to merge: no file was changed", *_beside(found))), {}
            if sides := await self._sides(found, context):
                return "\n".join((sides, *_beside(found))), {}
        except ClawError as error:
            return f"nothing was merged: {error.message}", {}
        helpers.pending[helper] = (context.conversation_id, found)
        try:
            offered = None if scope.offered is None else scope.offered | {HELPER_MERGE}
            within = msgspec.structs.replace(
                scope, emit=context.emit, offered=offered, is_resumable=False, hold=None
            )
            arguments = msgspec.json.encode({"helper": helper}).decode()
            request = CallRequest(id=new_call_id(), tool=HELPER_MERGE, arguments=arguments)
            outcome = await helpers.calls.within(request, within)
        finally:
            del helpers.pending[helper]
        said = outcome.text
        if outcome.status != "allowed" and not copies.is_cut_off(copy):
            # Another helper's merge may have come before, or a person's change.
            sides = await self._sides(found, context)
            said = sides or f"nothing was merged: {said}"
        told = "\n".join((said, f"receipt {outcome.receipt_id}", *_beside(found)))
        return told, {name: outcome.metadata.get(name, []) for name in ("merged", "removed")}

    async def _sides(self, found: CopyChanges, context: ToolContext) -> str:
        """Return what is in the way of a merge, with both sides of each file; "" for nothing.

        Raises:
            ClawError: it cannot be told.
        """
        copies, inbox = self._helpers.copies, self._helpers.inbox
        assert copies is not None and inbox is not None
        text, paths = await in_thread(lambda: _conflicts(copies, found))
        places = tuple(found.copy.original / each for each in paths)
        await inbox.book.taint_by(context.conversation_id, places)
        return text

    async def _task(
        self, inbox: Inbox, arguments: Arguments, context: ToolContext
    ) -> tuple[HelperTask, bool]:
        """Return what a call asks for, never more than its turn may give, and if it has a copy.

        Raises:
            ClawError: the agent is not to be had, or no copy.
        """
        agent, tools = _agent_of(arguments), arguments.get("tools")
        asked = arguments.get("workspace", "")
        narrowed = (Narrowing(by="the call", tools=tuple(map(str, tools))),) if tools else ()
        task = HelperTask(
            text=str(arguments["task"]),
            narrowed=narrowed,
            max_tokens=min(int(arguments.get("budget", self._tokens)), self._tokens),
            most=self._most,
        )
        if not agent or agent in inbox.agents:
            task, profile = msgspec.structs.replace(task, agent=agent), inbox.agents.get(agent)
        else:
            profile, own = await in_thread(lambda: self._helpers.defined(agent, context.workspace))
            task = msgspec.structs.replace(task, profile=profile, narrowed=(*narrowed, *own))
        is_given = profile is not None and profile.workspace == "copy"
        if asked == "copy" and not (is_given or self._gives_copies):
            raise ForbiddenError(
                "a helper changes files only as an agent that is given a copy",
                hint="helper_copies in [agent] of the config lets any have one.",
            )
        return task, asked == "copy" or (is_given and asked != "read")


def _agent_of(arguments: Arguments) -> str:
    return str(arguments.get("agent", "")).strip()


def _conflicts(copies: Copies, found: CopyChanges) -> tuple[str, list[str]]:
    """Return what is in the way of a merge, and which files of the workspace it shows. Blocks.

    Raises:
        ClawError: it cannot be told.
    """
    with copies.workspace(found.copy) as tree, Tree(found.copy.tree) as copied:
        _steps, conflicts = copies.plan(found, tree)
        if not conflicts:
            return "", []
        sides = [_both_sides(each, tree, copied) for each in conflicts[:_CONFLICTS_TOLD]]
    text = "\n\n".join((conflict_error(conflicts).message, *sides))
    return text, [each.change.name for each in conflicts[:_CONFLICTS_TOLD]]


def _both_sides(conflict: MergeConflict, tree: Tree, copied: Tree) -> str:
    """Return how what a helper made of a file differs from what stands there now."""
    now, after = conflict.now, conflict.change.after
    step = TreeStep(path=conflict.change.name, now=now, target=after)
    lines: list[str] = []
    try:
        new = content_of(copied, step) if after is not None and after.kind == "file" else None
        old = tree.opened(step.path) if now is not None and now.kind == "file" else None
    except ClawError as error:
        return f"{shown_name(conflict.change.path)}: {error.message}"
    for diff in diffs_of_kept([(FileChange.of(step.path, now, after), old, new)]):
        lines = [f"{line.mark}{line.text}" for line in diff.lines[:_LINES_TOLD]]
        if diff.is_binary or diff.note:
            lines = [diff.note or "it is no text"]
        if len(diff.lines) > _LINES_TOLD:
            lines.append(f"[{len(diff.lines) - _LINES_TOLD} more lines]")
    title = f"{shown_name(conflict.change.path)} (- the workspace now, + the helper)"
    return "\n".join((title, *lines))


def _beside(found: CopyChanges) -> list[str]:
    """Return what of a copy is not merged, and what was not in it, a line each."""
    lines = [f"not merged: {', '.join(found.unmerged)}"] if found.unmerged else []
    left_out = found.copy.left_out
    if left_out:
        more = len(left_out) - _LEFT_OUT_TOLD
        shown = [*left_out[:_LEFT_OUT_TOLD], *([f"{more} more"] if more > 0 else [])]
        lines.append(f"not in the copy: {', '.join(shown)}")
    return lines


async def _ended(ticket: Ticket) -> None:
    """End a helper's turn, and wait for that; a second cancellation does not cut the wait."""
    ticket.cancel()
    while ticket.task is not None and not ticket.task.done():
        try:
            await asyncio.wait({ticket.task})
        except asyncio.CancelledError:
            continue
