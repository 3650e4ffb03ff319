"""One call outside a turn: `tool run` and later MCP and HTTP; the same gate, one receipt."""

import secrets
from collections.abc import Callable
from pathlib import Path

import msgspec

from clawd.runtime.doors import PersonAtDoor
from clawd.runtime.hub import Hub
from clawd.runtime.settings import RuntimeSettings
from clawd.security.approvals import Attendance
from clawd.security.policy import Allow, Ask, Deny
from clawd.security.principal import Principal
from clawd.security.risk import Assessment
from clawd.tools.dispatch import Dispatcher
from clawd.tools.outcome import CallOutcome, CallRequest, CallScope
from clawd.tools.registry import ToolMode
from clawd.wire.events import Event


class Visit(msgspec.Struct, frozen=True, kw_only=True):
    """How a client from outside makes a call.

    Attributes:
        conversation_id: what it belongs to; empty for a call outside a conversation.
        interactive: somebody may be asked, here or at another door.
        attendance: who is there to answer; while somebody is, questions wait without end.
        offered: the names of the flat tools that may be called; None for every tool.
        mode: how they are offered.
    """

    conversation_id: str = ""
    workspace: str = ""
    interactive: bool = False
    attendance: Attendance = msgspec.field(default_factory=Attendance)
    offered: frozenset[str] | None = None
    mode: ToolMode = "split"


class Calls:
    """Makes single calls for people and programs."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        person: PersonAtDoor,
        settings: Callable[[], RuntimeSettings],
        hub: Hub | None = None,
    ) -> None:
        self._dispatcher = dispatcher
        self._person = person
        self._settings = settings
        self._hub = hub or Hub()

    async def visit(
        self,
        request: CallRequest,
        principal: Principal,
        visit: Visit,
        emit: Callable[[Event], None],
    ) -> CallOutcome:
        """Make one call as a client from outside.

        Raises:
            ClawError: the workspace is not allowed, or the trail cannot be written.
        """
        tell = self._hub.teller(
            owner=principal.uid,
            conversation_id=visit.conversation_id,
            made_by=principal.key_id,
        )

        def both(event: Event) -> None:
            tell(event)
            emit(event)

        there = visit.attendance if visit.interactive else None
        scope = self._scope(principal, visit.workspace, emit=both, attendance=there)
        scope = msgspec.structs.replace(
            scope,
            conversation_id=visit.conversation_id,
            offered=visit.offered,
            mode=visit.mode,
        )
        return await self._dispatcher.call(request, scope)

    def explain(
        self, request: CallRequest, principal: Principal, *, workspace: str
    ) -> tuple[Assessment, Allow | Ask | Deny]:
        """Say what the gate would answer, without making the call.

        Raises:
            ClawError: no such tool, arguments that cannot be meant, a workspace not allowed.
        """
        scope = self._scope(principal, workspace, emit=lambda _event: None, attendance=None)
        return self._dispatcher.explain(request, scope)

    def hooks_for(self, tool: str) -> tuple[str, ...]:
        """Return the owner's hooks that are told of calls of a tool, in words."""
        return self._dispatcher.hooks_for(tool)

    def workspace(self, asked: str) -> Path:
        """Return the folder that a call works in; an empty one means the configured one.

        Raises:
            ClawError: it is not allowed.
        """
        return self._settings().resolve_workspace(asked)

    def tool_mode(self) -> ToolMode:
        """Return how tools are offered to models."""
        return self._settings().tool_mode

    def _scope(
        self,
        principal: Principal,
        workspace: str,
        *,
        emit: Callable[[Event], None],
        attendance: Attendance | None,
    ) -> CallScope:
        return self._person.scope(
            conversation_id="",
            principal=principal,
            workspace=self.workspace(workspace),
            offered=None,
            emit=emit,
            attendance=attendance,
        )


def new_call_id() -> str:
    """Return an id for a call that no model named."""
    return f"call-{secrets.token_hex(8)}"
