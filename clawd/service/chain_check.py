"""Whether the receipt log verifies, for whoever looks at it every few seconds."""

import asyncio
import logging
import time
from contextlib import AsyncExitStack
from pathlib import Path

from clawd.errors import ClawError
from clawd.memory.ledger import MemoryLedger
from clawd.receipts.chain import ReceiptChain
from clawd.receipts.verify import verify
from clawd.service.anchor import Anchor

AT_ONCE_BYTES = 4 * 1024 * 1024
INTERVAL_S = 300.0

_log = logging.getLogger(__name__)
_Mark = tuple[int, int, int]


class ChainCheck:
    """Verifies the log when it changed: a short one at once, a long one behind the back.

    Args:
        chain: writes the log.
        anchor: knows whether it is the one that memory remembers.
        ledger: remembers its head.
    """

    def __init__(self, chain: ReceiptChain, anchor: Anchor, ledger: MemoryLedger) -> None:
        self._path = chain.path
        self._chain = chain
        self._anchor = anchor
        self._ledger = ledger
        self._is_valid: bool | None = None
        self._mark: _Mark | None = None
        self._checked_at = 0.0
        self._running: asyncio.Task[None] | None = None

    async def is_valid(self) -> bool | None:
        """Return whether the log verified when it was last looked at; None before that."""
        if self._chain.failure or self._anchor.problem:
            return False
        mark = await asyncio.to_thread(_mark_of, self._path)
        if mark is None:
            return None if self._is_valid is None else False
        if mark != self._mark and (self._running is None or self._running.done()):
            is_short = mark[1] <= AT_ONCE_BYTES
            if is_short or not self._checked_at or self._age_s() > INTERVAL_S:
                self._running = asyncio.create_task(self._check(mark))
                self._running.add_done_callback(self._ended)
            if is_short and self._running is not None:
                await asyncio.wait([self._running])
        return self._is_valid

    async def close(self) -> None:
        """End a check that runs."""
        if self._running is not None:
            self._running.cancel()
            await asyncio.wait([self._running])

    def _age_s(self) -> float:
        return time.monotonic() - self._checked_at

    async def _check(self, mark: _Mark) -> None:
        try:
            remembered = await self._ledger.last_head()
            found = await asyncio.to_thread(verify, self._path, anchor=remembered)
        except (ClawError, OSError) as error:
            _log.warning("the receipt log could not be verified: %s", error)
            self._is_valid = False
        else:
            self._is_valid = found.ok
        self._mark, self._checked_at = mark, time.monotonic()

    def _ended(self, done: asyncio.Task[None]) -> None:
        """Count a log as invalid that could not be verified by a defect: nobody knows better."""
        if not done.cancelled() and (error := done.exception()) is not None:
            _log.error("the check of the receipt log failed by a defect", exc_info=error)
            self._is_valid = False


def check_of(
    chain: ReceiptChain | None, anchor: Anchor | None, ledger: MemoryLedger, stack: AsyncExitStack
) -> ChainCheck | None:
    """Return the check of a daemon's log, ended with the stack; None where nothing is recorded."""
    if chain is None or anchor is None:
        return None
    check = ChainCheck(chain, anchor, ledger)
    stack.push_async_callback(check.close)
    return check


def _mark_of(path: Path) -> _Mark | None:
    """Return by what a file is told from its own past; None where there is none."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns
