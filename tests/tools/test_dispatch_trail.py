"""The trail of a call: what is on disk when, what never is, and what happens when it cannot be."""

import asyncio
import sqlite3
from collections.abc import Callable

import msgspec
import pytest

from clawd.errors import ReceiptError, StorageError
from clawd.memory.store import MemoryLedger
from clawd.receipts.record import Intent, Receipt, sha256_hex
from clawd.receipts.verify import find_receipt
from clawd.security.approval_rules import ApprovalRule, RuleAct, RuleBook
from clawd.security.approvals import Approvals
from clawd.security.policy import PolicySettings
from clawd.tools.base import Arguments, ToolContext, ToolResult, failed, succeeded
from clawd.tools.journal import Journal
from clawd.tools.outcome import CallScope
from clawd.wire.events import Event, ToolFinished, ToolStarted
from tests.security.fakes import ADA, MemoryRuleStore
from tests.support.dispatching import LIMIT_S, SECRET, Bench, Probe, request
from tests.support.rows import each_row


def on_disk(bench: Bench, query: str) -> list[tuple[object, ...]]:
    """Return what another process would find in memory."""
    with sqlite3.connect(f"file:{bench.memory.path}?mode=ro", uri=True) as connection:
        rows = connection.execute(query).fetchall()
    connection.close()
    return rows


def with_emit(scope: CallScope, emit: object) -> CallScope:
    return msgspec.structs.replace(scope, emit=emit)


class HookedLedger(MemoryLedger):
    """Memory's ledger that does something right after an intent is on disk."""

    def __init__(self, bench: Bench) -> None:
        super().__init__(bench.memory._database)
        self.bench = bench
        self.after_intent: Callable[[], object] = lambda: None
        self.fails = ""

    async def open_intent(self, intent: Intent, arguments: bytes) -> None:
        if self.fails == "open":
            raise StorageError("no room for an intent")
        await super().open_intent(intent, arguments)
        self.after_intent()

    async def close_intent(self, intent_id: str, *, content: bytes, content_hash: str) -> None:
        if self.fails == "close":
            raise StorageError("no room for a result")
        await super().close_intent(intent_id, content=content, content_hash=content_hash)


def hooked(bench: Bench) -> tuple[HookedLedger, Journal]:
    ledger = HookedLedger(bench)
    return ledger, Journal(bench.chain, ledger, bench.redactor)


async def test_the_intent_is_on_disk_before_the_act(bench: Bench) -> None:
    found: list[tuple[object, ...]] = []

    async def act(_arguments: Arguments, _context: ToolContext) -> ToolResult:
        found.extend(on_disk(bench, "SELECT id, intent FROM intents"))
        assert bench.receipts() == []
        return succeeded("done")

    outcome = await bench.called(Probe(act=act))
    ((intent_id, text),) = found
    assert intent_id == outcome.receipt_id
    intent = msgspec.json.decode(str(text), type=Intent)
    assert intent.args_hash == sha256_hex(b'{"text":"a"}')
    assert (intent.tool, intent.approval, intent.risk, intent.uid) == ("probe", "auto", "low", 1000)
    assert on_disk(bench, "SELECT id FROM intents") == []


async def test_the_receipt_is_on_disk_before_anybody_is_told(bench: Bench) -> None:
    seen: list[str] = []

    def emit(event: Event) -> None:
        if isinstance(event, ToolStarted):
            seen.append(f"started {len(bench.receipts())}")
        if isinstance(event, ToolFinished):
            receipt = find_receipt(bench.log, event.receipt_id)
            assert receipt is not None
            assert receipt.result_hash == sha256_hex(event.output.encode())
            seen.append("finished")

    outcome = await bench.dispatcher([Probe()]).call(
        request("probe"), with_emit(bench.scope(), emit)
    )
    assert outcome.kind == "ok"
    assert seen == ["started 0", "finished"]


async def test_the_stop_between_the_yes_and_the_start_denies(bench: Bench) -> None:
    ledger, journal = hooked(bench)
    ledger.after_intent = lambda: setattr(bench.stop, "value", True)
    tool = Probe()
    outcome = await bench.called(tool, journal=journal)
    assert (outcome.kind, outcome.status, tool.calls) == ("stopped", "denied", 0)
    receipt = await bench.only_receipt()
    assert (receipt.approval, receipt.reason) == ("none", "emergency stop is set")
    assert [type(event) for event in bench.events] == [ToolFinished]


async def test_the_stop_while_a_person_thinks_denies(bench: Bench) -> None:
    tool = Probe(risk="medium")
    async with asyncio.TaskGroup() as tasks:
        calling = tasks.create_task(bench.called(tool))
        pending = await bench.asked.get()
        bench.stop.value = True
        bench.approvals.answer(pending.id, "once", bench.scope().principal, digest=pending.digest)
    assert (calling.result().status, tool.calls) == ("denied", 0)
    assert (await bench.only_receipt()).reason == "emergency stop is set"


async def test_a_policy_that_changed_while_a_person_thought_counts(bench: Bench) -> None:
    tool = Probe(risk="medium")
    async with asyncio.TaskGroup() as tasks:
        calling = tasks.create_task(bench.called(tool))
        pending = await bench.asked.get()
        bench.policy = PolicySettings(autonomy="readonly")
        bench.approvals.answer(pending.id, "once", bench.scope().principal, digest=pending.digest)
    assert (calling.result().status, tool.calls) == ("denied", 0)
    assert (await bench.only_receipt()).status == "denied"


async def test_a_cancel_while_the_intent_is_written_leaves_a_receipt_and_no_act(
    bench: Bench,
) -> None:
    ledger, journal = hooked(bench)
    tool = Probe()
    calling = asyncio.create_task(bench.called(tool, journal=journal))
    ledger.after_intent = calling.cancel
    with pytest.raises(asyncio.CancelledError):
        await calling
    assert tool.calls == 0
    receipt = await bench.only_receipt()
    assert (receipt.status, receipt.reason) == ("denied", "cancelled")


async def test_without_an_intent_on_disk_nothing_runs(bench: Bench) -> None:
    ledger, journal = hooked(bench)
    ledger.fails = "open"
    tool = Probe()
    with pytest.raises(StorageError, match="no room for an intent"):
        await bench.called(tool, journal=journal)
    assert tool.calls == 0
    assert bench.events == []


async def test_without_a_receipt_on_disk_nothing_is_told(bench: Bench) -> None:
    tool = Probe()
    await bench.chain.close()
    with pytest.raises(ReceiptError):
        await bench.called(tool)
    assert tool.calls == 1
    assert [type(event) for event in bench.events] == [ToolStarted]
    (intent,) = await bench.memory.ledger.open_intents()
    assert intent.tool == "probe"


async def test_a_result_that_memory_cannot_keep_is_not_told(bench: Bench) -> None:
    ledger, journal = hooked(bench)
    ledger.fails = "close"
    with pytest.raises(StorageError, match="no room for a result"):
        await bench.called(Probe(), journal=journal)
    assert [type(event) for event in bench.events] == [ToolStarted]
    assert len(bench.receipts()) == 1


async def test_without_receipts_only_low_risk_runs(bench: Bench) -> None:
    bench.policy = PolicySettings(autonomy="full")
    off = Journal(None, bench.memory.ledger, bench.redactor)
    low = await bench.called(Probe(), journal=off)
    assert (low.kind, low.receipt_id) == ("ok", "")
    for tool in (Probe(risk="medium"), Probe(risk="high")):
        outcome = await bench.called(tool, journal=off)
        assert (outcome.kind, outcome.receipt_id, tool.calls) == ("denied", "", 0)
        assert outcome.text == "denied: receipts are switched off, so only low-risk tools run"
    assert bench.receipts() == []
    assert on_disk(bench, "SELECT count(*) FROM contents") == [(0,)]


async def test_a_process_tool_without_a_sandbox_is_denied_and_with_one_recorded(
    bench: Bench,
) -> None:
    class Starter(Probe):
        starts_process = True

    tool = Starter()
    assert (await bench.called(tool)).kind == "denied"
    assert tool.calls == 0
    assert (await bench.called(tool, sandbox_level="bwrap")).kind == "ok"
    assert [receipt.sandbox for receipt in bench.receipts()] == ["none", "bwrap"]


async def test_secrets_are_nowhere_on_disk(bench: Bench) -> None:
    """In arguments, output, errors, unknown names, bad arguments, rules and open intents."""
    seen: list[tuple[object, ...]] = []

    async def act(arguments: Arguments, _context: ToolContext) -> ToolResult:
        seen.extend(on_disk(bench, "SELECT intent FROM intents"))
        assert arguments["text"] == SECRET
        return failed(f"{SECRET} is wrong", output=f"tried {SECRET}")

    tool = Probe(act=act, risk="medium")
    secret = msgspec.json.encode({"text": SECRET}).decode()
    async with asyncio.TaskGroup() as tasks:
        calling = tasks.create_task(bench.called(tool, secret))
        pending = await bench.answer("conversation")
    assert SECRET in pending.question.action.arguments.decode()
    assert SECRET in calling.result().text
    assert (await bench.called(tool, secret)).kind == "failed"
    await bench.called(tool, f'{{"text": {SECRET}')
    await bench.dispatcher([]).call(request(f"tool-{SECRET}", secret), bench.scope())
    receipts = bench.receipts()
    assert [receipt.approval for receipt in receipts] == ["user", "rule", "none", "none"]
    assert len(seen) == 2
    assert SECRET not in repr(seen)
    assert SECRET.encode() not in bench.log.read_bytes()
    for receipt in receipts:
        arguments, result = await bench.stored(receipt)
        assert arguments is not None
        assert result is not None
        assert b"[secret:" in arguments
        assert SECRET.encode() not in arguments + result


async def test_what_an_approval_shows_is_canonical_and_what_runs(bench: Bench) -> None:
    got: list[Arguments] = []

    async def act(arguments: Arguments, _context: ToolContext) -> ToolResult:
        got.append(arguments)
        return succeeded("done")

    tool = Probe(act=act, risk="medium")
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(bench.called(tool, ' {"text": "b", "number": "7", "note": 1} '))
        pending = await bench.answer("once")
    assert pending.question.action.arguments == b'{"number":7,"text":"b"}'
    assert got == [{"text": "b", "number": 7}]
    receipt = await bench.only_receipt()
    assert receipt.args_hash == sha256_hex(b'{"number":7,"text":"b"}')


async def test_a_number_that_no_machine_word_holds_leaves_a_receipt_too(bench: Bench) -> None:
    outcome = await bench.called(Probe(), f'{{"text": "a", "number": {10**60}}}')
    assert outcome.kind in {"ok", "bad_arguments"}
    assert (await bench.only_receipt()).id == outcome.receipt_id


async def test_many_calls_at_once_leave_one_whole_chain(bench: Bench) -> None:
    dispatcher = bench.dispatcher([Probe(), Probe("other", risk="high")])
    calls = [
        dispatcher.call(request("probe" if n % 2 else "other", call_id=f"c{n}"), bench.scope())
        for n in range(60)
    ]
    outcomes = await asyncio.gather(*calls)
    receipts = bench.receipts()
    assert {receipt.id for receipt in receipts} == {outcome.receipt_id for outcome in outcomes}
    assert len(receipts) == 60
    assert await bench.memory.ledger.open_intents() == []
    assert await bench.memory.ledger.last_head() == (60, receipts[-1].receipt_hash)


async def test_now_and_then_the_head_is_logged_whole(
    bench: Bench, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level("INFO")
    monkeypatch.setattr("clawd.tools.journal.HEAD_TOLD_EVERY", 2)
    for _ in range(5):
        await bench.called(Probe())
    told = [each.__dict__ for each in caplog.records if each.getMessage() == "receipt head"]
    receipts = bench.receipts()
    assert [(each["seq"], each["hash"]) for each in told] == [
        (2, receipts[1].receipt_hash),
        (4, receipts[3].receipt_hash),
    ]


@each_row("tool", ["probe", "unknown"], fresh=["bench"])
async def test_contents_are_kept_before_the_receipt_that_hashes_them(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, tool: str
) -> None:
    append = bench.chain.append
    found: list[bool] = []

    async def looking(draft: Receipt) -> Receipt:
        hashes = {row[0] for row in on_disk(bench, "SELECT hash FROM contents")}
        found.append({draft.args_hash, draft.result_hash} <= hashes)
        return await append(draft)

    monkeypatch.setattr(bench.chain, "append", looking)
    await bench.dispatcher([Probe()]).call(request(tool), bench.scope())
    assert found == [True]


async def test_s12_granting_and_revoking_a_standing_rule_leave_receipts_that_the_rule_names(
    bench: Bench,
) -> None:
    store = MemoryRuleStore()
    journal = Journal(bench.chain, bench.memory.ledger, bench.redactor)
    bench.rules = RuleBook(store, record=journal.record_rule)
    bench.approvals = Approvals(bench.rules, estop=bench.stop, timeout_s=LIMIT_S)
    dispatcher = bench.dispatcher([Probe(risk="medium")], journal=journal)
    calling = asyncio.create_task(dispatcher.call(request("probe"), bench.scope()))
    pending = await bench.answer("always")
    assert (await calling).status == "allowed"
    assert (await dispatcher.call(request("probe"), bench.scope())).status == "allowed"
    (rule,) = store.rules
    await bench.rules.revoke(rule.id, ADA)
    granted, asked, by_rule, revoked = bench.receipts()
    assert (rule.granted_by, rule.approval_id) == (f"uid {ADA.uid}", pending.id)
    assert rule.receipt_id == granted.id
    assert [each.tool for each in (granted, revoked)] == ["approval_rule", "approval_rule"]
    assert [each.approved_by for each in (granted, revoked)] == [f"uid {ADA.uid}"] * 2
    assert granted.reason == (
        f"granted: {rule.id} for probe, by uid {ADA.uid}, in answer to {pending.id}"
    )
    assert revoked.reason == (
        f"revoked: {rule.id} for probe, by uid {ADA.uid}, granted by {granted.id}"
    )
    arguments, result = await bench.stored(granted)
    assert rule.id.encode() in (arguments or b"")
    assert result == rule.pattern.encode()
    assert (asked.approval, by_rule.approval, by_rule.approved_by) == ("user", "rule", rule.id)


async def test_s12_a_rule_without_its_receipt_is_not_in_force(bench: Bench) -> None:
    async def refuse(_act: RuleAct, _rule: ApprovalRule, _by: str) -> str:
        raise ReceiptError("no disk")

    store = MemoryRuleStore()
    bench.rules = RuleBook(store, record=refuse)
    bench.approvals = Approvals(bench.rules, estop=bench.stop, timeout_s=LIMIT_S)
    calling = asyncio.create_task(bench.called(Probe(risk="medium")))
    await bench.answer("always")
    assert (await calling).status == "allowed", "this once"
    assert (store.rules, bench.rules.rules(ADA)) == ((), [])
