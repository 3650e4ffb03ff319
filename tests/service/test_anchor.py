"""The receipt log against the head that memory remembers, and the heads that the log is told."""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from clawd.memory.store import Memory
from clawd.receipts.chain import ReceiptChain
from clawd.receipts.verify import verify
from clawd.service.receipts import Anchor
from tests.receipts.samples import draft
from tests.security.fakes import ROOT
from tests.support.engines import eventually
from tests.support.rows import each_row

Lines = list[logging.LogRecord]


class Rig:
    """An open chain, its memory, and the anchor that held them together."""

    def __init__(self, memory: Memory, chain: ReceiptChain, anchor: Anchor) -> None:
        self.memory, self.chain, self.anchor = memory, chain, anchor

    async def call(self, count: int = 1) -> None:
        for _ in range(count):
            receipt = await self.chain.append(draft())
            await self.memory.ledger.record_head(receipt.seq, receipt.receipt_hash)

    async def remembered(self) -> int:
        head = await self.memory.ledger.last_head()
        return head[0] if head is not None else 0


@asynccontextmanager
async def started(folder: Path) -> AsyncIterator[Rig]:
    memory = await Memory.open(folder / "memory.sqlite")
    chain = await ReceiptChain.open(folder / "tool_receipts.log")
    anchor = Anchor(chain, memory.ledger)
    await anchor.start()
    yield Rig(memory, chain, anchor)
    await anchor.close()
    await chain.close()
    await memory.close()


@pytest.fixture
async def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a log of five receipts that memory knows, and that none signs: of a crash."""
    with monkeypatch.context() as patched:
        patched.setattr(ReceiptChain, "_end_with_checkpoint", ReceiptChain._release)
        async with started(tmp_path) as rig:
            await rig.call(5)
    return tmp_path / "tool_receipts.log"


def cut(log: Path, keep: int) -> None:
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join(lines[:keep]))


def heads(caplog: pytest.LogCaptureFixture) -> list[tuple[int, str]]:
    return [
        (record.__dict__["seq"], record.__dict__["hash"])
        for record in caplog.records
        if record.getMessage() == "receipt head"
    ]


async def test_the_log_that_memory_remembers_is_no_problem(log: Path) -> None:
    async with started(log.parent) as rig:
        assert rig.anchor.problem == ""
        await rig.call()
        assert await rig.remembered() == 6


async def test_a_log_that_went_on_after_the_last_head_is_no_problem(log: Path) -> None:
    async with started(log.parent) as rig:
        await rig.chain.append(draft())
    async with started(log.parent) as rig:
        assert rig.anchor.problem == ""
        assert (await rig.remembered(), rig.chain.head().seq) == (5, 6)


@each_row("keep", [0, 1, 4], fresh=["log"])
async def test_a_cut_log_is_told_and_the_head_stays_remembered(log: Path, keep: int) -> None:
    last = verify(log).head_hash
    cut(log, keep)
    for more in (0, 3, 3):  # a later start says so too, when the log is long again
        async with started(log.parent) as rig:
            assert rig.anchor.problem.startswith("the receipt log was cut or replaced: ")
            assert f"memory remembers receipt 5 with the hash {last}" in rig.anchor.problem
            await rig.call(more)
            assert await rig.remembered() == 5


async def test_a_missing_log_is_told(log: Path) -> None:
    log.unlink()
    async with started(log.parent) as rig:
        assert "the log ends at receipt 0" in rig.anchor.problem


async def test_a_log_written_anew_is_told(log: Path) -> None:
    log.unlink()
    async with started(log.parent) as rig:
        await rig.call(7)
    async with started(log.parent) as rig:
        assert "in the log it has the hash" in rig.anchor.problem


async def test_a_log_without_the_one_receipt_is_told(tmp_path: Path) -> None:
    async with started(tmp_path) as rig:
        await rig.call(5)
        await rig.chain.append(draft())
    log = tmp_path / "tool_receipts.log"
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join([*lines[:4], lines[5]]))
    (tmp_path / "checkpoint.key").unlink()  # it belongs to the checkpoint that is gone
    async with started(tmp_path) as rig:
        assert "and it is not there" in rig.anchor.problem


async def test_an_edited_receipt_that_keeps_its_hash_is_told(log: Path) -> None:
    async with started(log.parent) as rig:
        await rig.chain.append(draft())
    lines = log.read_bytes().splitlines(keepends=True)
    lines[4] = lines[4].replace(b'"status":"allowed"', b'"status":"denied"')
    log.write_bytes(b"".join(lines))
    async with started(log.parent) as rig:
        assert rig.anchor.problem


async def test_a_log_is_accepted_as_it_stands(log: Path, caplog: pytest.LogCaptureFixture) -> None:
    cut(log, 2)
    async with started(log.parent) as rig:
        await rig.call()
        assert await rig.anchor.accept(ROOT) == "the receipt log counts as it stands: 3 receipts"
        assert rig.anchor.problem == ""
        await rig.call()
        assert await rig.remembered() == 4
    async with started(log.parent) as rig:
        assert rig.anchor.problem == ""
    (told,) = [each for each in caplog.records if "accepted" in each.getMessage()]
    facts = {name: told.__dict__[name] for name in ("by", "seq", "remembered_seq")}
    assert facts == {"by": "uid 0", "seq": 3, "remembered_seq": 5}


async def test_a_log_that_memory_knows_nothing_of_is_told_as_such(
    log: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for path in log.parent.glob("memory.sqlite*"):
        path.unlink()
    async with started(log.parent) as rig:
        assert rig.anchor.problem == ""
    assert "memory remembers no head" in caplog.text


async def test_heads_are_logged_at_start_and_at_the_end(
    log: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    first = verify(log)
    async with started(log.parent) as rig:
        assert heads(caplog) == [(5, first.head_hash)]
        await rig.call(2)
    last = verify(log)
    assert heads(caplog) == [(5, first.head_hash), (7, last.head_hash)]


async def test_news_are_logged_every_hour(
    log: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr("clawd.service.receipts.NEWS_INTERVAL_S", 0.001)
    async with started(log.parent) as rig:
        await rig.call()
        await eventually(lambda: len(heads(caplog)) == 2)
    assert [seq for seq, _ in heads(caplog)] == [5, 6]
