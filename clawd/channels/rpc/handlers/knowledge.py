"""Handlers about knowledge: each is a call of the tool of its name, through the gate."""

from contextlib import AsyncExitStack
from typing import Any

import msgspec

from clawd.channels.rpc.connection import Call
from clawd.channels.rpc.handlers.parts import Handler, streaming
from clawd.errors import NotFoundError
from clawd.runtime.broadcast import Subscription
from clawd.runtime.calls import new_call_id
from clawd.tools.outcome import CallRequest
from clawd.wire.events import Event
from clawd.wire.knowledge_methods import (
    AppendKnowledge,
    DeleteKnowledge,
    ListKeywords,
    ListKnowledge,
    LoadKnowledge,
    SaveKnowledge,
    SearchKnowledge,
)
from clawd.wire.knowledge_reports import KeywordCount, KnowledgeEntry, KnowledgeOutcome
from clawd.wire.method import Method
from clawd.wire.reports import ToolOutcome


class _Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What the tools report beside their text; other facts are left aside."""

    entries: tuple[KnowledgeEntry, ...] = ()
    keywords: tuple[KeywordCount, ...] = ()
    total: int = 0


class KnowledgeHandlers(Handler):
    """Each method handles the wire method of its name."""

    async def save_knowledge(self, params: SaveKnowledge, call: Call) -> KnowledgeOutcome:
        """Make an entry, or replace it."""
        return await self._knowledge("knowledge_save", params, call)

    async def append_knowledge(self, params: AppendKnowledge, call: Call) -> KnowledgeOutcome:
        """Add to the end of an entry, or make it."""
        return await self._knowledge("knowledge_append", params, call)

    async def search_knowledge(self, params: SearchKnowledge, call: Call) -> KnowledgeOutcome:
        """Find the entries with any of the keywords."""
        return await self._knowledge("knowledge_search", params, call)

    async def load_knowledge(self, params: LoadKnowledge, call: Call) -> KnowledgeOutcome:
        """Return the entries with all of the keywords."""
        return await self._knowledge("knowledge_load", params, call)

    async def list_knowledge(self, params: ListKnowledge, call: Call) -> KnowledgeOutcome:
        """List entries by name."""
        return await self._knowledge("knowledge_list", params, call)

    async def delete_knowledge(self, params: DeleteKnowledge, call: Call) -> KnowledgeOutcome:
        """Delete the entry of just these keywords."""
        return await self._knowledge("knowledge_delete", params, call)

    async def list_keywords(self, params: ListKeywords, call: Call) -> KnowledgeOutcome:
        """List keywords and how many entries have them."""
        return await self._knowledge("knowledge_keywords", params, call)

    async def _knowledge(
        self, tool: str, params: Method[KnowledgeOutcome], call: Call
    ) -> KnowledgeOutcome:
        """Make the call; the fields of the method are the tool's arguments.

        Raises:
            NotFoundError: knowledge is switched off.
        """
        arguments: dict[str, Any] = msgspec.structs.asdict(params)
        interactive = bool(arguments.pop("interactive", False))
        events = Subscription()
        async with AsyncExitStack() as stack:
            if params.streams:
                call.on_answer = lambda answer: self.take_answer(answer, call.principal)
                await stack.enter_async_context(streaming(events, call))
            outcome = await self.parts.calls.run(
                CallRequest(
                    id=new_call_id(),
                    tool=tool,
                    arguments=msgspec.json.encode(arguments).decode(),
                ),
                call.principal,
                workspace="",
                interactive=interactive,
                emit=events.put if params.streams else _unseen,
            )
        if outcome.kind == "unknown_tool":
            raise NotFoundError(
                "knowledge is switched off", hint="Set enabled = true in [knowledge] of the config."
            )
        facts = msgspec.convert(outcome.metadata, _Facts)
        return KnowledgeOutcome(
            call=ToolOutcome(
                status=outcome.status,
                kind=outcome.kind,
                output=outcome.text,
                receipt_id=outcome.receipt_id,
                risk=outcome.risk,
                duration_ms=outcome.duration_ms,
                unanswered=outcome.kind == "unanswered",
            ),
            entries=facts.entries,
            keywords=facts.keywords,
            total=facts.total,
        )


def _unseen(_event: Event) -> None:
    """Take an event of a call that nobody follows."""
