"""A dispatcher with all of its real parts (chain, memory, gate, approvals) and tools that probe."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, ClassVar

import msgspec

from clawd.memory.store import Memory
from clawd.receipts.chain import ReceiptChain
from clawd.receipts.record import Receipt
from clawd.receipts.verify import BadLine, read_receipts, verify
from clawd.security.approval_rules import RuleBook
from clawd.security.approvals import Answer, Approvals, PendingApproval
from clawd.security.gate import Gate
from clawd.security.policy import PolicySettings
from clawd.security.principal import Principal
from clawd.security.redact import Redactor
from clawd.security.risk import Assessment, Risk
from clawd.security.sandbox.run import Sandbox, SandboxSettings
from clawd.security.taint import TaintBook
from clawd.tools.audit import DispatchSettings
from clawd.tools.base import Arguments, Tool, ToolContext, ToolResult, succeeded
from clawd.tools.call_hosts import ReachSettings
from clawd.tools.dispatch import Dispatcher
from clawd.tools.journal import Journal
from clawd.tools.outcome import CallOutcome, CallRequest, CallScope
from clawd.tools.pictures import Pictures
from clawd.tools.registry import Registry
from clawd.wire.events import Event
from tests.security.fakes import ADA, MemoryRuleStore, RuleReceipts, Stop

LIMIT_S = 60.0
SECRET = "correct-horse-battery"
Act = Callable[[Arguments, ToolContext], Awaitable[Any]]


async def say_ok(arguments: Arguments, _context: ToolContext) -> ToolResult:
    return succeeded(f"ok {arguments.get('text', '')}".strip())


class Probe(Tool):
    """A tool that does what the test wants, at the risk that the test wants."""

    name: ClassVar[str] = "probe"
    short: ClassVar[str] = "Probes."
    parameters: ClassVar[dict[str, Any]] = {
        "type": "object",
        "properties": {"text": {"type": "string"}, "number": {"type": "integer"}},
        "required": ["text"],
        "additionalProperties": False,
    }

    def __init__(
        self, name: str = "probe", *, risk: Risk = "low", act: Act = say_ok, timeout_s: float = 90.0
    ) -> None:
        self.name = name  # type: ignore[misc]
        self.timeout_s = timeout_s
        self.assessment = Assessment(risk=risk, reason=f"it is {risk}")
        self.act = act
        self.calls = 0

    def risk(self, arguments: Arguments, context: ToolContext) -> Assessment:
        return self.assessment

    async def invoke(self, arguments: Arguments, context: ToolContext) -> ToolResult:
        self.calls += 1
        result: ToolResult = await self.act(arguments, context)
        return result


class Held:
    """An act that begins, and ends when it is let go or cancelled."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.let_go = asyncio.Event()
        self.is_cancelled = False

    async def __call__(self, _arguments: Arguments, _context: ToolContext) -> ToolResult:
        self.begun.set()
        try:
            await self.let_go.wait()
        except asyncio.CancelledError:
            self.is_cancelled = True
            raise
        return succeeded("let go")

    async def has_begun(self) -> None:
        async with asyncio.timeout(LIMIT_S):
            await self.begun.wait()


class Bench:
    """A dispatcher and everything around it."""

    def __init__(self, memory: Memory, chain: ReceiptChain, log: Path) -> None:
        self.memory = memory
        self.chain = chain
        self.log = log
        self.workspace = log.parent
        self.stop = Stop()
        self.taint = TaintBook()
        self.policy = PolicySettings()
        self.rules = RuleBook(MemoryRuleStore(), record=RuleReceipts())
        self.approvals = Approvals(self.rules, estop=self.stop, timeout_s=LIMIT_S)
        self.redactor = Redactor([SECRET], b"k" * 32)
        self.events: list[Event] = []
        self.asked: asyncio.Queue[PendingApproval] = asyncio.Queue()
        self.is_reachable = True
        self.reach = ReachSettings()
        self.pictures = Pictures(Sandbox(SandboxSettings(home=log.parent)))

    def dispatcher(
        self,
        tools: Iterable[Tool],
        *,
        journal: Journal | None = None,
        limit_bytes: int = 64 * 1024,
        sandbox_level: str = "none",
        policy: PolicySettings | None = None,
        taint: TaintBook | None = None,
    ) -> Dispatcher:
        book = self.taint if taint is None else taint
        return Dispatcher(
            Registry(tools),
            gate=Gate(lambda: policy or self.policy, estop=self.stop, taint=book, rules=self.rules),
            approvals=self.approvals,
            journal=journal or Journal(self.chain, self.memory.ledger, self.redactor),
            taint=book,
            settings=DispatchSettings(
                sandbox_level=sandbox_level,
                output_limit_bytes=limit_bytes,
                sessions=self.memory.session_files,
                reach=self.reach,
                pictures=self.pictures,
            ),
        )

    def scope(
        self, *, principal: Principal = ADA, offered: Iterable[str] | None = None
    ) -> CallScope:
        async def deliver(pending: PendingApproval) -> bool:
            self.asked.put_nowait(pending)
            return self.is_reachable

        return CallScope(
            conversation_id="conv-1",
            principal=principal,
            workspace=self.workspace,
            offered=None if offered is None else frozenset(offered),
            emit=self.events.append,
            deliver=deliver,
        )

    async def answer(self, word: Answer) -> PendingApproval:
        """Wait for a question and answer it."""
        async with asyncio.timeout(LIMIT_S):
            pending = await self.asked.get()
        self.approvals.answer(pending.id, word, ADA, digest=pending.digest)
        return pending

    def receipts(self) -> list[Receipt]:
        """Return the chain, oldest first; it must be whole."""
        found: list[Receipt] = []
        for line in read_receipts(self.log):
            assert not isinstance(line, BadLine), line
            found.append(line)
        assert verify(self.log).ok
        return found

    async def only_receipt(self) -> Receipt:
        """Return the one receipt; no intent may be open beside it, and the head is known."""
        (receipt,) = self.receipts()
        assert await self.memory.ledger.open_intents() == []
        assert await self.memory.ledger.last_head() == (receipt.seq, receipt.receipt_hash)
        return receipt

    async def stored(self, receipt: Receipt) -> tuple[bytes | None, bytes | None]:
        """Return what memory keeps under the hashes of the receipt: arguments, result."""
        ledger = self.memory.ledger
        return (
            await ledger.load_content(receipt.args_hash),
            await ledger.load_content(receipt.result_hash),
        )

    async def called(
        self, tool: Tool, arguments: str = '{"text":"a"}', **options: Any
    ) -> CallOutcome:
        """Make one call to this tool."""
        call = request(tool.name, arguments)
        return await self.dispatcher([tool], **options).call(call, self.scope())


def request(tool: str, arguments: str = '{"text":"a"}', call_id: str = "call-1") -> CallRequest:
    """Return a call as a model makes it."""
    return CallRequest(id=call_id, tool=tool, arguments=arguments, by_model=True)


def blocked(tool: Probe, why: str) -> Probe:
    tool.assessment = msgspec.structs.replace(tool.assessment, blocked=why)
    return tool


@asynccontextmanager
async def bench_in(folder: Path) -> AsyncIterator[Bench]:
    memory = await Memory.open(folder / "memory.sqlite")
    chain = await ReceiptChain.open(folder / "tool_receipts.log")
    try:
        yield Bench(memory, chain, folder / "tool_receipts.log")
    finally:
        await chain.close()
        await memory.close()
