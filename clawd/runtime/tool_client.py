"""A client from outside that calls tools by itself, as an MCP client does.

Its calls belong to a conversation of its own: what untrusted text it was given counts for what it
asks next, approvals for the conversation hold there, and its receipts can be found together.
"""

import asyncio
from collections.abc import Callable

import msgspec

from clawd.errors import NotFoundError
from clawd.runtime.calls import Calls, Visit, new_call_id
from clawd.runtime.conversation import ConversationBook
from clawd.runtime.settings import RuntimeSettings
from clawd.security.principal import Principal
from clawd.tools.offer import McpTool, Offer, descriptors
from clawd.tools.outcome import CallOutcome, CallRequest
from clawd.tools.registry import Registry
from clawd.wire.events import ApprovalRequested, Event, ToolProgress

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

    def listed(self) -> tuple[McpTool, ...]:
        """Return what may be called, by name."""
        offer = self._offer()
        return descriptors((*offer.shown, *offer.hidden))

    async def call(self, name: str, arguments: str, report: Callable[[str], None]) -> CallOutcome:
        """Make one call.

        Raises:
            ClawError: the trail cannot be written, or the conversation was deleted meanwhile.
        """
        offer = self._offer()
        visit = Visit(
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
        return Offer((each for each in allowed if each.name != ASK), settings.tool_mode)

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
