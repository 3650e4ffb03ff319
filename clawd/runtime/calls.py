"""One call outside a turn: `tool run` and later MCP and HTTP; the same gate, one receipt."""

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec

from clawd.errors import NotFoundError
from clawd.runtime.approval_prompts import PersonAtDoor
from clawd.runtime.conversation import ConversationBook
from clawd.runtime.hub import Broadcast, Hub
from clawd.runtime.settings import RuntimeSettings
from clawd.security.approvals import Attendance
from clawd.security.policy import Allow, Ask, Deny
from clawd.security.principal import Principal
from clawd.security.risk import Assessment
from clawd.tools.dispatch import Dispatcher
from clawd.tools.narrowing import Narrowing
from clawd.tools.offer import ListedTool, Offer, descriptors
from clawd.tools.outcome import CallOutcome, CallRequest, CallScope
from clawd.tools.registry import Registry, ToolMode
from clawd.wire.events import ApprovalRequested, Event, ToolProgress, ToolRequested


class ClientCall(msgspec.Struct, frozen=True, kw_only=True):
    """How a client from outside makes a call.

    Attributes:
        conversation_id: what it belongs to; empty for a call outside a conversation.
        interactive: somebody may be asked, here or at another door.
        attendance: who is there to answer; while somebody is, questions wait without end.
        offered: the names of the flat tools that may be called; None for every tool.
        mode: how they are offered.
        narrowed: a call that one of these does not name is asked about.
        keep_taint: writes down what untrusted text the conversation holds, before the receipt.
    """

    conversation_id: str = ""
    workspace: str = ""
    interactive: bool = False
    attendance: Attendance = msgspec.field(default_factory=Attendance)
    offered: frozenset[str] | None = None
    mode: ToolMode = "split"
    narrowed: tuple[Narrowing, ...] = ()
    keep_taint: Callable[[], Awaitable[None]] | None = None


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
        visit: ClientCall,
        emit: Callable[[Event], None],
    ) -> CallOutcome:
        """Make one call as a client from outside.

        Raises:
            ClawError: the workspace is not allowed, or the trail cannot be written.
        """
        everybody = Broadcast(
            self._hub,
            owner=principal.uid,
            conversation_id=visit.conversation_id,
            made_by=principal.key_id,
        )

        def both(event: Event) -> None:
            everybody.emit(event)
            emit(event)

        there = visit.attendance if visit.interactive else None
        scope = self._scope(principal, visit.workspace, emit=both, attendance=there)
        scope = msgspec.structs.replace(
            scope,
            conversation_id=visit.conversation_id,
            offered=visit.offered,
            mode=visit.mode,
            narrowed=visit.narrowed,
            keep_taint=visit.keep_taint,
        )
        return await self._dispatcher.call(request, scope)

    async def within(self, request: CallRequest, scope: CallScope) -> CallOutcome:
        """Make one call in the scope of a turn that runs, as a part of one of its calls.

        Raises:
            ClawError: the trail cannot be written.
        """
        called = ToolRequested(call_id=request.id, tool=request.tool, arguments=request.arguments)
        scope.emit(called)
        return await self._dispatcher.call(request, scope)

    def explain(
        self,
        request: CallRequest,
        principal: Principal,
        *,
        workspace: str,
        conversation_id: str = "",
    ) -> tuple[Assessment, Allow | Ask | Deny]:
        """Say what the gate would answer, in a conversation or outside, without making the call.

        Raises:
            ClawError: no such tool, arguments that cannot be meant, a workspace not allowed.
        """
        scope = self._scope(principal, workspace, emit=lambda _event: None, attendance=None)
        there = msgspec.structs.replace(scope, conversation_id=conversation_id)
        return self._dispatcher.explain(request, there)

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
        return self._settings().tools.mode

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


# A client from outside that calls tools by itself, as an MCP client does.
#
# Its calls belong to a conversation of its own: what untrusted text it was given counts for what it
# asks next, approvals for the conversation hold there, and its receipts can be found together.

ASK = "ask_user"


class ClientKind(msgspec.Struct, frozen=True, kw_only=True):
    """What clients of one door have in common.

    Attributes:
        label: what their conversations are called, for people.
        patterns: returns which tools they are offered.
    """

    label: str
    patterns: Callable[[], tuple[str, ...]]


class ToolClients:
    """Makes the doors of clients that call tools.

    Args:
        registry: the tools.
        calls: makes the calls.
        book: the conversations that calls belong to.
        settings: returns the settings in force.
    """

    def __init__(
        self,
        registry: Registry,
        *,
        calls: Calls,
        book: ConversationBook,
        settings: Callable[[], RuntimeSettings],
    ) -> None:
        self.registry = registry
        self.calls = calls
        self.book = book
        self.settings = settings

    def door(self, principal: Principal, kind: ClientKind, *, lasting: str = "") -> "ClientDoor":
        """Return the door of one client.

        Args:
            principal: for whom it calls.
            kind: what it is.
            lasting: a name under which its conversation is found again, also after a restart;
                "" for a client that comes once.
        """
        return ClientDoor(self, principal, kind, lasting)


class ClientDoor:
    """The tools as one client is offered them."""

    def __init__(
        self, clients: ToolClients, principal: Principal, kind: ClientKind, lasting: str
    ) -> None:
        self._clients = clients
        self._principal = principal
        self._kind = kind
        self._lasting = lasting
        self._conversation_id = ""
        self._opening = asyncio.Lock()

    def listed(self) -> tuple[ListedTool, ...]:
        """Return what may be called, by name."""
        offer = self._offer()
        return descriptors((*offer.shown, *offer.hidden))

    async def call(self, name: str, arguments: str, report: Callable[[str], None]) -> CallOutcome:
        """Make one call.

        Raises:
            ClawError: the trail cannot be written, or the conversation was deleted meanwhile.
        """
        offer = self._offer()
        visit = ClientCall(
            conversation_id=await self._conversation(),
            interactive=True,
            offered=offer.names,
            mode=offer.mode,
        )

        def emit(event: Event) -> None:
            if isinstance(event, ToolProgress):
                report(event.text)
            elif isinstance(event, ApprovalRequested):
                report(
                    f"waiting for an approval: clawctl approval approve {event.approval_id} "
                    f"({event.tool}: {event.reason})"
                )

        request = CallRequest(id=new_call_id(), tool=name, arguments=arguments)
        book = self._clients.book
        async with book.in_use(visit.conversation_id, self._principal):
            return await self._clients.calls.visit(request, self._principal, visit, emit)

    def _offer(self) -> Offer:
        settings = self._clients.settings()
        allowed = self._clients.registry.allowed(self._kind.patterns())
        # Behind a program there is nobody who could answer a question.
        return Offer((each for each in allowed if each.name != ASK), settings.tools.mode)

    async def _conversation(self) -> str:
        """Return the conversation of the client; one that was deleted is made anew."""
        book = self._clients.book
        async with self._opening:
            if self._conversation_id:
                try:
                    await book.load(self._conversation_id, self._principal)
                except NotFoundError:
                    self._conversation_id = ""
            if not self._conversation_id:
                live = await book.of_client(
                    self._principal, self._clients.settings(), self._kind.label, self._lasting
                )
                self._conversation_id = live.record.id
        return self._conversation_id
