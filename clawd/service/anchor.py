"""Holds the receipt log against the head that memory remembers, and logs heads as they come.

A log that was cut or replaced is only reported: clawd goes on and records what it does, but the
remembered head stays as it is, so that every later start and verification says so too, until an
admin takes the log as it stands (`accept`).
"""

import asyncio
import logging
from pathlib import Path

from clawd.memory.ledger import MemoryLedger
from clawd.receipts.chain import ReceiptChain
from clawd.receipts.record import Receipt, compute_hash
from clawd.receipts.verify import read_receipts
from clawd.security.principal import Principal
from clawd.service.background import Watch

NEWS_INTERVAL_S = 3600.0

_log = logging.getLogger(__name__)


class Anchor:
    """Compares at start and after a reopen, and tells heads. One of a daemon that records.

    Attributes:
        problem: what is wrong with the log; empty while it is the one that memory remembers.
        ledger: what memory keeps beside the log.
    """

    def __init__(self, chain: ReceiptChain, ledger: MemoryLedger) -> None:
        self.problem = ""
        self._chain = chain
        self.ledger = self._ledger = ledger
        self._told = 0
        self._telling: asyncio.Task[None] | None = None

    async def start(self, watch: Watch | None = None) -> None:
        """Compare, before anything is appended, and begin to tell heads.

        `watch` is told of the task that does so and its name.

        Raises:
            ReceiptError: the log cannot be read.
            StorageError: memory cannot be read.
        """
        await self.compare()
        self._tell()
        self._telling = asyncio.create_task(self._keep_telling())
        if watch is not None:
            watch(self._telling, "the telling of receipt heads")

    async def compare(self) -> None:
        """Hold the log, as it was opened last, against the remembered head.

        Raises:
            ReceiptError: the log cannot be read.
            StorageError: memory cannot be read.
        """
        remembered = await self._ledger.last_head()
        head = self._chain.head()
        if remembered is None:
            if head.seq:
                _log.warning(
                    "memory remembers no head of this receipt log, so a cut end would not show",
                    extra={"receipts": head.seq},
                )
        else:
            seq, receipt_hash = remembered
            self.problem = await asyncio.to_thread(_compare, self._chain.path, seq, receipt_hash)
        if self.problem:
            self._ledger.hold_head()
            _log.error(self.problem, extra={"log_seq": head.seq, "log_hash": head.receipt_hash})

    async def accept(self, by: Principal) -> str:
        """Take the log as it stands for the right one; return what to tell.

        Raises:
            StorageError: memory cannot be read or written.
        """
        old = await self._ledger.last_head()
        head = self._chain.head()
        await self._ledger.adopt_head(head.seq, head.receipt_hash)
        told = f"the receipt log counts as it stands: {head.seq} receipts"
        _log.warning(
            "the receipt log was accepted as it stands",
            extra={
                "by": f"uid {by.uid}",
                "seq": head.seq,
                "hash": head.receipt_hash,
                "remembered_seq": old[0] if old else 0,
                "remembered_hash": old[1] if old else "-",
            },
        )
        self.problem = ""
        return told

    async def close(self) -> None:
        """Tell the last head."""
        if self._telling is not None:
            self._telling.cancel()
            await asyncio.gather(self._telling, return_exceptions=True)
        self._tell()

    async def _keep_telling(self) -> None:
        while True:
            await asyncio.sleep(NEWS_INTERVAL_S)
            self._tell()

    def _tell(self) -> None:
        head = self._chain.head()
        if head.seq != self._told:
            self._told = head.seq
            _log.info("receipt head", extra={"seq": head.seq, "hash": head.receipt_hash})


def _compare(path: Path, seq: int, receipt_hash: str) -> str:
    """Return what is wrong with a log that should hold this receipt; empty for nothing."""
    remembered = f"memory remembers receipt {seq} with the hash {receipt_hash}"
    cut = f"the receipt log was cut or replaced: {remembered}, "
    last = 0
    for line in read_receipts(path, newest_first=True):
        if not isinstance(line, Receipt):
            continue
        if line.seq == seq:
            if line.receipt_hash == receipt_hash == compute_hash(line):
                return ""
            return f"{cut}and in the log it has the hash {line.receipt_hash}"
        last = max(last, line.seq)
        if line.seq < seq:
            break
    return cut + (f"and the log ends at receipt {last}" if last < seq else "and it is not there")
