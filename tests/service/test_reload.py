"""A reload after a failed write: receipts are taken again, or it says why not."""

from pathlib import Path

import pytest

from clawd.errors import ReceiptError
from clawd.receipts.verify import verify
from tests.receipts.samples import draft
from tests.support.inprocess import Inside, daemon_in


async def _failed(inside: Inside, log: Path) -> Path:
    """Write a receipt, then move the log away, so that the next one fails."""
    daemon = inside.daemon
    assert daemon.chain is not None
    receipt = await daemon.chain.append(draft())
    await daemon.memory.ledger.record_head(receipt.seq, receipt.receipt_hash)
    away = log.rename(log.with_name("away"))
    with pytest.raises(ReceiptError, match="cannot write the receipt"):
        await daemon.chain.append(draft())
    assert "receipts cannot be written" in daemon.problem
    return away


async def test_a_reload_takes_receipts_again(tmp_path: Path) -> None:
    async with daemon_in(tmp_path) as inside:
        daemon = inside.daemon
        assert daemon.chain is not None
        log = daemon.chain.path
        (await _failed(inside, log)).rename(log)
        assert (await daemon.reload()).endswith("; receipts are written again")
        assert (await daemon.chain.append(draft())).seq == 2
        assert daemon.problem == ""
        assert (await daemon.reload()).endswith("config.toml")
    assert verify(log).ok


async def test_a_reload_that_cannot_open_the_log_says_so_and_the_next_one_can(
    tmp_path: Path,
) -> None:
    async with daemon_in(tmp_path) as inside:
        daemon = inside.daemon
        assert daemon.chain is not None
        log = daemon.chain.path
        away = await _failed(inside, log)
        log.mkdir()
        for _ in range(2):
            with pytest.raises(ReceiptError, match="config was reloaded, but receipts still"):
                await daemon.reload()
            with pytest.raises(ReceiptError, match="takes nothing since a write failed"):
                await daemon.chain.append(draft())
        log.rmdir()
        away.rename(log)
        await daemon.reload()
        assert (await daemon.chain.append(draft())).seq == 2


async def test_a_reload_that_finds_another_log_tells_it(tmp_path: Path) -> None:
    async with daemon_in(tmp_path) as inside:
        daemon = inside.daemon
        assert daemon.chain is not None
        await _failed(inside, daemon.chain.path)
        assert "cut or replaced" in await daemon.reload()
        assert daemon.anchor is not None
        assert "cut or replaced" in daemon.anchor.problem
