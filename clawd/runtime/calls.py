"""One call outside a turn: `tool run` and later MCP and HTTP; the same gate, one receipt."""

import secrets
from collections.abc import Callable
from pathlib import Path

import msgspec

from clawd.runtime.doors import PersonAtDoor
from clawd.runtime.hub import Hub
from clawd.runtime.settings import RuntimeSettings
from clawd.security.policy import Allow, Ask, Deny
from clawd.security.principal import Principal
from clawd.security.risk import Assessment
from clawd.tools.dispatch import Dispatcher
from clawd.tools.facades import ToolMode
from clawd.tools.outcome import CallOutcome, CallRequest, CallScope
from clawd.wire.events import Event


class Visit(msgspec.Struct, frozen=True, kw_only=True):
    """How a client from outside makes a call.

    Attributes:
        conversation_id: what it belongs to; empty for a call outside a conversation.
        interactive: somebody may be asked, here or at another door.
        offered: the names of the flat tools that may be called; None for every tool.
        mode: how they are offered.
    """

    conversation_id: str = ""
    workspace: str = ""
    interactive: bool = False
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

    async def run(
        self,
        request: CallRequest,
        principal: Principal,
        *,
        workspace: str,
        interactive: bool,
        emit: Callable[[Event], None],
        conversation_id: str = "",
    ) -> CallOutcome:
        """Make one call; with a conversation (of the principal) it is a call of that one.

        Raises:
            ClawError: the workspace is not allowed, or the trail cannot be written.
        """
        visit = Visit(conversation_id=conversation_id, workspace=workspace, interactive=interactive)
        return await self.visit(request, principal, visit, emit)

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

        scope = self._scope(principal, visit.workspace, emit=both, reachable=visit.interactive)
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
        scope = self._scope(principal, workspace, emit=lambda _event: None, reachable=False)
        return self._dispatcher.explain(request, scope)

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
        reachable: bool,
    ) -> CallScope:
        return self._person.scope(
            conversation_id="",
            principal=principal,
            workspace=self.workspace(workspace),
            offered=None,
            emit=emit,
            reachable=reachable,
        )


def new_call_id() -> str:
    """Return an id for a call that no model named."""
    return f"call-{secrets.token_hex(8)}"
