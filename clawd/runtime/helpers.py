"""The tool `delegate`: a part of a task for a helper, a conversation of its own that only looks.

A helper has no more than the turn that it works for: its principal, its workspace, those of its
tools that look, what narrows it, and mode readonly at most. Nobody is asked for it. It ends with
the call: when the turn is cancelled, or the emergency stop is set.
"""

import asyncio
from pathlib import Path
from typing import Any, ClassVar

import msgspec
from typing_extensions import override

from clawd.config.schema import AgentProfile
from clawd.errors import ClawError, NotFoundError
from clawd.runtime.inbox import Inbox, Ticket
from clawd.runtime.incoming import HelperTask
from clawd.security.risk import Assessment
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
from clawd.tools.narrowing import Narrowing
from clawd.tools.outcome import DELEGATE
from clawd.wire.events import ToolRequested
from clawd.wire.safe_text import single_line

_SHOWN = 120
_LIMIT_S = 1_800.0


class Helpers:
    """Where helpers work, and which agents they may be beside those of the config.

    Args:
        agents: those that a file defines; None for none.

    Attributes:
        inbox: takes what they are to do; None until the daemon has one.
    """

    def __init__(self, agents: SkillStore | None = None) -> None:
        self.inbox: Inbox | None = None
        self._agents = agents

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
        return AgentProfile(system_prompt=about.body), (by,) if by.tools else ()


class Delegate(Tool):
    """`delegate(task, agent?, tools?, budget?)`: returns what the helper answered.

    Args:
        helpers: where they work.
        most: so many helpers one turn may have.
        tokens: so many one of them may use.
    """

    name: ClassVar[str] = DELEGATE
    short: ClassVar[str] = "Let a helper look into a part of the task, and return what it found."
    description: ClassVar[str] = (
        "`task` is all that the helper knows of the conversation, so say in it what to find out "
        "and what the answer is to hold. It reads with the tools that only look, or with those of "
        "`tools`, and changes nothing. Calls that stand in one answer run side by side. `agent` is "
        "one of those that the context lists. `budget` is how many tokens it may use."
    )
    parameters: ClassVar[dict[str, Any]] = {
        "type": "object",
        "properties": {
            "task": {"type": "string", "description": "what to find out"},
            "agent": {"type": "string", "description": "the agent that does it"},
            "tools": {"type": "array", "items": {"type": "string"}},
            "budget": {"type": "integer", "minimum": 1},
        },
        "required": ["task"],
        "additionalProperties": False,
    }
    traits: ClassVar[Traits | None] = Traits(effect="looks", example={"task": "Find the tests."})
    outward: ClassVar[bool | None] = False

    def __init__(self, helpers: Helpers, most: int, tokens: int) -> None:
        self._helpers = helpers
        self._most = most
        self._tokens = tokens
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
        inbox = self._helpers.inbox
        if inbox is None:
            return failed("helpers work for a turn of a conversation")
        try:
            task = await self._task(inbox, arguments, context)
            ticket = await inbox.delegate(context.conversation_id, task)
        except ClawError as error:
            return failed(f"{error.message}. {error.hint}".removesuffix(". "))
        label = _agent_of(arguments) or "helper"
        try:
            async for event in ticket.events:
                if isinstance(event, ToolRequested):
                    row = single_line(f"{label}: {event.tool} {event.arguments}", _SHOWN)
                    context.report(f"{row}\n")
            finished = await ticket.finished()
        except ClawError as error:
            return failed(f"helper {ticket.conversation_id}: {error.message}")
        finally:
            await _ended(ticket)
            # What it read stands in what it answered.
            inbox.book.taint(context.conversation_id, inbox.book.sources(ticket.conversation_id))
        usage = finished.usage
        tokens = usage.prompt_tokens + usage.completion_tokens
        context.report(f"{label}: {usage.rounds} rounds, {tokens} tokens\n")
        about = f"helper {ticket.conversation_id}, {usage.rounds} rounds"
        return succeeded(f"{about}\n\n{finished.text}", conversation=ticket.conversation_id)

    async def _task(self, inbox: Inbox, arguments: Arguments, context: ToolContext) -> HelperTask:
        """Return what a call asks for; never more than its turn may give.

        Raises:
            ClawError: the agent is not to be had.
        """
        agent, tools = _agent_of(arguments), arguments.get("tools")
        narrowed = (Narrowing(by="the call", tools=tuple(map(str, tools))),) if tools else ()
        task = HelperTask(
            text=str(arguments["task"]),
            narrowed=narrowed,
            max_tokens=min(int(arguments.get("budget", self._tokens)), self._tokens),
            most=self._most,
        )
        if not agent or agent in inbox.agents:
            return msgspec.structs.replace(task, agent=agent)
        profile, own = await in_thread(lambda: self._helpers.defined(agent, context.workspace))
        return msgspec.structs.replace(task, profile=profile, narrowed=(*narrowed, *own))


def _agent_of(arguments: Arguments) -> str:
    return str(arguments.get("agent", "")).strip()


async def _ended(ticket: Ticket) -> None:
    """End a helper's turn, and wait for that; a second cancellation does not cut the wait."""
    ticket.cancel()
    while ticket.task is not None and not ticket.task.done():
        try:
            await asyncio.wait({ticket.task})
        except asyncio.CancelledError:
            continue
