"""Tools that get ready while their intent is being written, and act when it is on disk."""

import asyncio

import pytest

from clawd.errors import SandboxUnavailableError, StorageError
from clawd.memory.store import MemoryLedger
from clawd.receipts.record import Intent
from clawd.tools.base import Arguments, ToolContext, ToolResult, succeeded
from clawd.tools.journal import Journal
from clawd.tools.outcome import CallOutcome
from clawd.wire.events import ToolFinished, ToolStarted
from tests.support.dispatching import LIMIT_S, Bench, Probe, request


class SlowLedger(MemoryLedger):
    """Memory's ledger that writes an intent when the disk works, or fails to."""

    def __init__(self, bench: Bench) -> None:
        super().__init__(bench.memory._database)
        self.disk_works = asyncio.Event()
        self.fails = False

    async def open_intent(self, intent: Intent, arguments: bytes) -> None:
        await self.disk_works.wait()
        if self.fails:
            raise StorageError("no room for an intent")
        await super().open_intent(intent, arguments)


class Ready(Probe):
    """A tool that is ready at once and acts when it is cleared."""

    holds_until_cleared = True

    def __init__(self, bench: Bench) -> None:
        super().__init__(act=self.get_ready)
        self.bench = bench
        self.is_ready = asyncio.Event()
        self.seen: list[str] = []

    async def get_ready(self, _arguments: Arguments, context: ToolContext) -> ToolResult:
        self.seen.append(f"ready, intents {len(await self.bench.memory.ledger.open_intents())}")
        self.is_ready.set()
        await context.cleared()
        await context.cleared()
        self.seen.append(f"acts, intents {len(await self.bench.memory.ledger.open_intents())}")
        return succeeded("done")


class Desk:
    """One call to a tool that gets ready, with a disk that is slow."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.ledger = SlowLedger(bench)
        self.tool = Ready(bench)
        journal = Journal(bench.chain, self.ledger, bench.redactor)
        self.dispatcher = bench.dispatcher([self.tool], journal=journal)

    async def begun(self) -> "asyncio.Task[CallOutcome]":
        """Make the call; return when the tool is ready."""
        task = asyncio.create_task(self.dispatcher.call(request("probe"), self.bench.scope()))
        async with asyncio.timeout(LIMIT_S):
            await self.tool.is_ready.wait()
        return task


@pytest.fixture
def desk(bench: Bench) -> Desk:
    return Desk(bench)


READY = "ready, intents 0"


async def test_it_acts_when_its_intent_is_on_disk(bench: Bench, desk: Desk) -> None:
    calling = await desk.begun()
    assert bench.events == []
    desk.ledger.disk_works.set()
    assert (await calling).kind == "ok"
    assert desk.tool.seen == [READY, "acts, intents 1"]
    assert [type(event) for event in bench.events] == [ToolStarted, ToolFinished]
    assert (await bench.only_receipt()).status == "allowed"


async def test_without_an_intent_on_disk_it_never_acts(bench: Bench, desk: Desk) -> None:
    calling = await desk.begun()
    desk.ledger.fails = True
    desk.ledger.disk_works.set()
    with pytest.raises(StorageError, match="no room for an intent"):
        await calling
    assert desk.tool.seen == [READY]
    assert bench.events == []
    assert bench.receipts() == []


async def test_a_stop_while_it_gets_ready_denies_it(bench: Bench, desk: Desk) -> None:
    calling = await desk.begun()
    bench.stop.value = True
    desk.ledger.disk_works.set()
    outcome = await calling
    assert (outcome.kind, outcome.status) == ("stopped", "denied")
    assert outcome.text == "denied: emergency stop is set"
    assert desk.tool.seen == [READY]
    assert [type(event) for event in bench.events] == [ToolFinished]
    receipt = await bench.only_receipt()
    assert (receipt.approval, receipt.reason) == ("none", "emergency stop is set")


async def test_a_stop_that_ends_it_before_it_is_cleared_denies_it(bench: Bench, desk: Desk) -> None:
    calling = await desk.begun()
    assert desk.dispatcher.stop_all() == 1
    await asyncio.sleep(0)
    desk.ledger.disk_works.set()
    outcome = await calling
    assert (outcome.kind, outcome.status) == ("stopped", "denied")
    assert desk.tool.seen == [READY]
    assert (await bench.only_receipt()).reason == "emergency stop is set"


async def test_a_cancel_while_it_gets_ready_leaves_a_receipt_and_no_act(
    bench: Bench, desk: Desk
) -> None:
    calling = await desk.begun()
    calling.cancel()
    await asyncio.sleep(0)
    desk.ledger.disk_works.set()
    with pytest.raises(asyncio.CancelledError):
        await calling
    assert desk.tool.seen == [READY]
    receipt = await bench.only_receipt()
    assert (receipt.status, receipt.reason) == ("denied", "cancelled")


async def test_one_that_cannot_get_ready_has_failed(bench: Bench, desk: Desk) -> None:
    async def breaks(_arguments: Arguments, _context: ToolContext) -> ToolResult:
        desk.tool.is_ready.set()
        raise SandboxUnavailableError("no sandbox")

    desk.tool.act = breaks
    calling = await desk.begun()
    desk.ledger.disk_works.set()
    outcome = await calling
    assert (outcome.kind, outcome.status, outcome.text) == ("failed", "failed", "error: no sandbox")
    assert [type(event) for event in bench.events] == [ToolFinished]
    assert (await bench.only_receipt()).status == "failed"


async def test_one_that_does_not_wait_has_failed_whatever_it_says(bench: Bench, desk: Desk) -> None:
    async def hasty(_arguments: Arguments, _context: ToolContext) -> ToolResult:
        return succeeded("done already")

    desk.tool.act = hasty
    desk.ledger.disk_works.set()
    outcome = await desk.dispatcher.call(request("probe"), bench.scope())
    assert (outcome.kind, outcome.status) == ("failed", "failed")
    assert outcome.text == "error: it did not wait until it was cleared"
    assert (await bench.only_receipt()).status == "failed"
