"""The tool `delegate`: a part of a task for a helper, a conversation of its own that only looks.

A helper has no more than the turn that it works for: its principal, its workspace, those of its
tools that look, what narrows it, and mode readonly at most. Nobody is asked for it. It ends with
the call: when the turn is cancelled, or the emergency stop is set.
"""

import asyncio
from typing import Any, ClassVar

from typing_extensions import override

from clawd.errors import ClawError
from clawd.runtime.inbox import Inbox, Ticket
from clawd.security.risk import Assessment
from clawd.tools.base import Arguments, Tool, ToolContext, ToolResult, Traits, failed, succeeded
from clawd.tools.outcome import DELEGATE
from clawd.wire.events import ToolRequested
from clawd.wire.safe_text import single_line

_SHOWN = 120
_LIMIT_S = 1_800.0


class Helpers:
    """Where helpers work.

    Attributes:
        inbox: takes what they are to do; None until the daemon has one.
    """

    def __init__(self) -> None:
        self.inbox: Inbox | None = None


class Delegate(Tool):
    """`delegate(task, agent?, tools?)`: returns what the helper answered."""

    name: ClassVar[str] = DELEGATE
    short: ClassVar[str] = "Let a helper look into a part of the task, and return what it found."
    description: ClassVar[str] = (
        "`task` is all that the helper knows of the conversation, so say in it what to find out "
        "and what the answer is to hold. It reads with the tools that only look, or with those of "
        "`tools`, and changes nothing. Calls that stand in one answer run side by side. `agent` is "
        "a configured agent."
    )
    parameters: ClassVar[dict[str, Any]] = {
        "type": "object",
        "properties": {
            "task": {"type": "string", "description": "what to find out"},
            "agent": {"type": "string", "description": "the agent that does it"},
            "tools": {"type": "array", "items": {"type": "string"}},
        },
        "required": ["task"],
        "additionalProperties": False,
    }
    traits: ClassVar[Traits | None] = Traits(effect="looks", example={"task": "Find the tests."})
    outward: ClassVar[bool | None] = False

    def __init__(self, helpers: Helpers, most: int) -> None:
        self._helpers = helpers
        self._most = most
        self.timeout_s = _LIMIT_S

    @override
    def risk(self, arguments: Arguments, context: ToolContext) -> Assessment:
        return Assessment(risk="low", reason="a helper looks; each of its calls is judged")

    @override
    async def invoke(self, arguments: Arguments, context: ToolContext) -> ToolResult:
        inbox = self._helpers.inbox
        if inbox is None:
            return failed("helpers work for a turn of a conversation")
        wanted = arguments.get("tools")
        try:
            ticket = await inbox.delegate(
                context.conversation_id,
                str(arguments["task"]),
                agent=str(arguments.get("agent", "")),
                tools=None if wanted is None else frozenset(map(str, wanted)),
                most=self._most,
            )
        except ClawError as error:
            return failed(error.message)
        try:
            async for event in ticket.events:
                if isinstance(event, ToolRequested):
                    context.report(single_line(f"{event.tool} {event.arguments}", _SHOWN) + "\n")
            finished = await ticket.finished()
        except ClawError as error:
            return failed(f"helper {ticket.conversation_id}: {error.message}")
        finally:
            await _ended(ticket)
            # What it read stands in what it answered.
            inbox.book.taint(context.conversation_id, inbox.book.sources(ticket.conversation_id))
        about = f"helper {ticket.conversation_id}, {finished.usage.rounds} rounds"
        return succeeded(f"{about}\n\n{finished.text}", conversation=ticket.conversation_id)


async def _ended(ticket: Ticket) -> None:
    """End a helper's turn, and wait for that; a second cancellation does not cut the wait."""
    ticket.cancel()
    while ticket.task is not None and not ticket.task.done():
        try:
            await asyncio.wait({ticket.task})
        except asyncio.CancelledError:
            continue
