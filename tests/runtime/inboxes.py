"""An inbox with real memory, receipts and dispatch, that can be closed and opened again."""

import asyncio
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import msgspec

from clawd.config.sections import ToolsSection
from clawd.providers.base import Provider
from clawd.runtime.approval_prompts import PersonAtDoor, Questions
from clawd.runtime.compressor import Compressor, ModelBook
from clawd.runtime.context_facts import Facts, FactSource
from clawd.runtime.conversation import ConversationBook
from clawd.runtime.housekeeping import Housekeeping
from clawd.runtime.inbox import Inbox, Ticket
from clawd.runtime.incoming import IncomingMessage
from clawd.runtime.preparation import Preparation
from clawd.runtime.session_files import FileSummaries, LongMessages, teller_of_files
from clawd.runtime.settings import RuntimeSettings
from clawd.runtime.summariser import Summariser
from clawd.runtime.turn import Turn
from clawd.runtime.turn_hooks import Care, Titler
from clawd.security.principal import Principal
from clawd.security.taint import FileOrigins, TaintBook
from clawd.tools.base import Tool
from clawd.wire.events import Event, TurnFinished
from tests.runtime.models import Hop, PlannedModel
from tests.security.fakes import ADA
from tests.support.dispatching import LIMIT_S, Bench, Probe


class House:
    """One daemon's runtime, without the daemon."""

    def __init__(self, bench: Bench, *hops: Hop, tools: list[Tool] | None = None) -> None:
        self.bench = bench
        self.model = PlannedModel(*hops, name="mock")
        self.tools: list[Tool] = tools if tools is not None else [Probe(), Probe("other")]
        self.now = datetime(2026, 11, 21, 8, 0, tzinfo=UTC)
        self.settings = RuntimeSettings(
            workspace=bench.workspace,
            workspace_roots=(),
            default_provider="mock",
            default_model="small",
            tools=ToolsSection(offer="all"),
        )
        self.person = PersonAtDoor(Questions())
        self.sources: list[FactSource] = []
        self.files = FileOrigins()
        self.sums_up_files = False
        self.inbox: Inbox
        self.book: ConversationBook
        self.restart()

    def restart(self) -> None:
        """Forget everything that is not in memory's file."""
        self.bench.taint = TaintBook(self.files)
        memory = self.bench.memory
        self.book = ConversationBook(memory, self.bench.taint)
        self.dispatcher = dispatcher = self.bench.dispatcher(self.tools)
        models = ModelBook()
        self.inbox = Inbox(
            self.book,
            begin=partial(Turn, dispatcher=dispatcher),
            preparation=Preparation(
                dispatcher.registry,
                providers=lambda: self.providers,
                settings=lambda: self.settings,
                person=self.person,
                facts=Facts(self.bench.taint, self.sources, clock=lambda: self.now),
                long_messages=LongMessages(memory.session_files, models),
            ),
            settings=lambda: self.settings,
        )
        summariser = Summariser(self.bench.redactor.text)
        self.compressor = Compressor(
            memory.checkpoints,
            memory.conversations,
            summariser=summariser,
            settings=lambda: self.settings.compression,
            models=models,
        )
        self.titler = Titler(
            memory.conversations,
            self.book,
            summariser=summariser,
            titles=lambda: self.settings.loop.titles,
        )
        self.summaries = FileSummaries(
            memory.session_files,
            self.book,
            summariser=summariser,
            is_wanted=lambda: self.sums_up_files,
        )
        memory.session_files.tell = teller_of_files(self.book)
        self.inbox.care = Care(self.compressor, self.titler, self.summaries)
        self.housekeeping = Housekeeping(self.inbox, memory, self.compressor)

    @property
    def providers(self) -> dict[str, Provider]:
        return {"mock": self.model}

    def change(self, **changes: Any) -> None:
        self.settings = msgspec.structs.replace(self.settings, **changes)

    def later(self, hours: int) -> None:
        self.now += timedelta(hours=hours)

    async def send(self, text: str, *, principal: Principal = ADA, **fields: Any) -> Ticket:
        return await self.inbox.submit(IncomingMessage(text=text, **fields), principal)

    async def say(self, text: str, conversation_id: str = "", **fields: Any) -> TurnFinished:
        """Send a message and wait for the end of its turn."""
        ticket = await self.send(text, conversation_id=conversation_id, **fields)
        async with asyncio.timeout(LIMIT_S):
            return await ticket.finished()


async def events_of(ticket: Ticket) -> list[Event]:
    async with asyncio.timeout(LIMIT_S):
        return [event async for event in ticket.events]
