"""What a crash cut off gets its receipt at the next start, once."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from clawd.memory.approvals import LapsedCall
from clawd.memory.rows import Conversation
from clawd.providers.base import ToolCall
from clawd.receipts.record import Approval, Intent, new_id, sha256_hex
from clawd.service.receipts import close_interrupted
from clawd.wire.events import ApprovalRequested
from tests.security.fakes import ADA
from tests.support.dispatching import Bench, bench_in

ARGUMENTS = b'{"path":"a.md"}'
STARTED = "2026-11-21T08:00:00Z"
TEXT = b"error: interrupted: clawd ended before this call did"


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    async with bench_in(tmp_path) as made:
        yield made


def intent(tool: str = "file_write") -> Intent:
    return Intent(
        id=new_id(),
        timestamp=STARTED,
        conversation_id="conv-1",
        tool=tool,
        args_hash=sha256_hex(ARGUMENTS),
        risk="medium",
        uid=1000,
        workspace="/home/ada/w",
        approval="user",
        approved_by="uid 1000",
        reason="writes a file",
        sandbox="bwrap",
    )


async def recover(bench: Bench) -> int:
    return sum(await close_interrupted(bench.chain, bench.memory.ledger, bench.log))


async def test_an_open_intent_becomes_a_failed_receipt(bench: Bench) -> None:
    open_one = intent()
    await bench.memory.ledger.open_intent(open_one, ARGUMENTS)
    assert await recover(bench) == 1
    receipt = await bench.only_receipt()
    assert (receipt.id, receipt.status, receipt.reason) == (open_one.id, "failed", "interrupted")
    assert (receipt.tool, receipt.risk, receipt.uid, receipt.workspace, receipt.sandbox) == (
        "file_write", "medium", 1000, "/home/ada/w", "bwrap",
    )  # fmt: skip
    assert (receipt.approval, receipt.approved_by, receipt.timestamp) == (
        "user", "uid 1000", STARTED,
    )  # fmt: skip
    assert await bench.stored(receipt) == (ARGUMENTS, TEXT)


async def test_it_happens_once(bench: Bench) -> None:
    await bench.memory.ledger.open_intent(intent(), ARGUMENTS)
    assert await recover(bench) == 1
    assert await recover(bench) == 0
    assert len(bench.receipts()) == 1


async def test_an_intent_whose_receipt_was_written_is_only_removed(bench: Bench) -> None:
    done = intent()
    await bench.memory.ledger.open_intent(done, ARGUMENTS)
    await bench.chain.append(done.receipt("allowed", sha256_hex(b"ok")))
    assert await recover(bench) == 0
    (receipt,) = bench.receipts()
    assert (receipt.id, receipt.status) == (done.id, "allowed")
    assert await bench.memory.ledger.open_intents() == []
    assert await bench.memory.ledger.last_head() == (receipt.seq, receipt.receipt_hash)


async def test_several_are_closed_in_the_order_they_began(bench: Bench) -> None:
    intents = [intent(f"tool_{number}") for number in range(4)]
    for each in intents:
        await bench.memory.ledger.open_intent(each, ARGUMENTS)
    assert await recover(bench) == 4
    assert [receipt.id for receipt in bench.receipts()] == [each.id for each in intents]
    assert await bench.memory.ledger.last_head() == (4, bench.receipts()[-1].receipt_hash)


async def test_nothing_open_writes_nothing(bench: Bench) -> None:
    assert await recover(bench) == 0
    assert bench.receipts() == []


async def test_of_questions_that_were_open_those_that_nobody_answered_may_be_answered_late(
    bench: Bench,
) -> None:
    lapsed = bench.memory.lapsed
    rows: dict[str, tuple[Approval, bool, bool]] = {
        "asked": ("none", True, True),
        "answered": ("user", True, False),
        "no intent and no receipt": ("none", False, False),
    }
    expected = []
    for name, (approval, has_intent, stays) in rows.items():
        record = await bench.memory.conversations.create(
            Conversation(owner=1000, workspace="/home/ada/w")
        )
        each = msgspec.structs.replace(
            intent(), approval=approval, conversation_id=record.id, approved_by=""
        )
        if has_intent:
            await bench.memory.ledger.open_intent(each, ARGUMENTS)
        await lapsed.add(question(f"approval-{name}", record.id, each.id))
        expected += [f"approval-{name}"] if stays else []
    assert len(await lapsed.held()) == len(rows)
    for _ in range(2):
        await close_interrupted(bench.chain, bench.memory.ledger, bench.log, lapsed=lapsed)
        assert await lapsed.held() == []
        ids = [f"approval-{name}" for name in rows]
        assert [each for each in ids if await lapsed.find(each) is not None] == expected
    reasons = [receipt.reason for receipt in bench.receipts()]
    assert reasons == ["interrupted; approval-asked can still be answered", "interrupted"]


def question(approval_id: str, conversation_id: str, receipt_id: str) -> LapsedCall:
    now = datetime.now(UTC).isoformat()
    return LapsedCall(
        shown=ApprovalRequested(
            approval_id=approval_id, digest="d", call_id="c", tool="file_write", arguments="{}",
            risk="medium", reason="writes a file", workspace="/home/ada/w",
        ),
        conversation_id=conversation_id,
        receipt_id=receipt_id,
        call=ToolCall(id="c", name="file_write", arguments="{}"),
        principal=ADA,
        asked_at=now,
        lapsed_at=now,
        is_held=True,
    )  # fmt: skip
