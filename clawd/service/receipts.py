"""The receipt chain of a daemon: opened with it, and again after a failed write."""

import asyncio
import logging
import time
from collections.abc import Collection
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from clawd.config.load import Loaded
from clawd.errors import ClawError, ReceiptError
from clawd.memory.approvals import LapsedCall, LapsedCalls
from clawd.memory.store import Memory, MemoryLedger
from clawd.receipts.chain import ReceiptChain
from clawd.receipts.record import Intent, Receipt, Status, compute_hash, sha256_hex
from clawd.receipts.verify import find_receipt, read_receipts, verify
from clawd.security.approvals import may_come_late
from clawd.security.principal import Principal
from clawd.service.home import LastRun
from clawd.service.upkeep import Watch

# What is put right at start: calls that a crash cut off get their receipt, then work begins.

_INTERRUPTED = "interrupted"
_TEXT = "error: interrupted: clawd ended before this call did"
_TEXT_WAITING = "denied: interrupted: clawd ended before anybody approved this call"

_log = logging.getLogger(__name__)


async def close_interrupted(
    chain: ReceiptChain,
    ledger: MemoryLedger,
    log: Path,
    *,
    only: Collection[str] | None = None,
    lapsed: LapsedCalls | None = None,
) -> tuple[int, int]:
    """Write an `interrupted` receipt for every intent without one; return how many failed, denied.

    What may have run has failed, what waited for an approval is denied; where its question is among
    `lapsed` it may be answered late. An intent whose receipt was written just before the crash is
    only removed. With `only`, no other intents are looked at: their calls may still run.
    """
    failed = denied = 0
    held = {each.receipt_id: each for each in await lapsed.held()} if lapsed is not None else {}
    for intent in await ledger.open_intents():
        if only is not None and intent.id not in only:
            continue
        content = (_TEXT if _was_let_through(intent) else _TEXT_WAITING).encode()
        receipt = find_receipt(log, intent.id)
        if receipt is None:
            question = None if _was_let_through(intent) else held.get(intent.id)
            reason = _INTERRUPTED if question is None else may_come_late(_INTERRUPTED, question.id)
            receipt = await chain.append(_receipt(intent, sha256_hex(content), reason))
            if _was_let_through(intent):
                failed += 1
            else:
                denied += 1
            _log.warning(
                "a call was cut off by a crash", extra={"tool": intent.tool, "receipt": intent.id}
            )
        await ledger.record_head(receipt.seq, receipt.receipt_hash)
        await ledger.close_intent(intent.id, content=content, content_hash=sha256_hex(content))
    if lapsed is not None:
        for each in held.values():
            await _let_lapse(each, lapsed, log)
    return failed, denied


async def _let_lapse(call: LapsedCall, lapsed: LapsedCalls, log: Path) -> None:
    """Let a call be answered late whose question was open; one that was answered is forgotten."""
    receipt = find_receipt(log, call.receipt_id)
    if receipt is None or receipt.status != "denied" or call.id not in receipt.reason:
        await lapsed.drop(call.id)
        return
    now = datetime.now(UTC).isoformat()
    await lapsed.add(msgspec.structs.replace(call, is_held=False, lapsed_at=now))
    _log.warning(
        "a question was cut off by a crash; it can be answered late", extra={"approval": call.id}
    )


def _was_let_through(intent: Intent) -> bool:
    """Return whether the call may have run; one that waited for an approval has not."""
    return intent.approval != "none"


def _receipt(intent: Intent, result_hash: str, reason: str) -> Receipt:
    if intent.reason.startswith("called as "):
        reason = f"{intent.reason.partition('; ')[0]}; {reason}"
    status: Status = "failed" if _was_let_through(intent) else "denied"
    return msgspec.structs.replace(intent, reason=reason).receipt(status, result_hash)


# Holds the receipt log against the head that memory remembers, and logs heads as they come.
#
# A log that was cut or replaced is only reported: clawd goes on and records what it does, but the
# remembered head stays as it is, so that every later start and verification says so too, until an
# admin takes the log as it stands (`accept`).

NEWS_INTERVAL_S = 3600.0


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


async def open_receipts(
    loaded: Loaded, memory: Memory, stack: AsyncExitStack, last_run: LastRun, watch: Watch
) -> tuple[ReceiptChain | None, Anchor | None]:
    """Open the chain and its anchor, and close what a crash left open; nothing where it is off.

    Raises:
        ReceiptError: the chain cannot be written.
    """
    config = loaded.config.receipts
    if not config.enabled:
        _log.warning("receipts are switched off: nothing is recorded, only low risk runs")
        return None, None
    chain = await ReceiptChain.open(config.path, key_path=loaded.layout.checkpoint_key)
    stack.push_async_callback(chain.close)
    anchor = Anchor(chain, memory.ledger)
    await anchor.start(watch)
    stack.push_async_callback(anchor.close)
    failed, denied = await close_interrupted(
        chain, memory.ledger, config.path, lapsed=memory.lapsed
    )
    last_run.tell_of_receipts(chain, failed=failed, denied=denied)
    return chain, anchor


async def reopen_receipts(chain: ReceiptChain | None, anchor: Anchor | None) -> str:
    """Take receipts again after a failed write; return what to tell.

    Raises:
        ReceiptError: they still cannot be written.
    """
    if chain is None or anchor is None or not chain.failure:
        return ""
    try:
        await chain.reopen()
        await anchor.compare()
    except ReceiptError as error:
        raise ReceiptError(
            f"the config was reloaded, but receipts still cannot be written: {error.message}",
            hint=error.hint,
        ) from error
    # These calls ran, or were refused, when no receipt could be written; nobody was told more.
    unwritten = frozenset(chain.unwritten)
    closed = sum(await close_interrupted(chain, anchor.ledger, chain.path, only=unwritten))
    chain.unwritten -= unwritten
    told = {"path": str(chain.path), "closed": closed}
    _log.warning("receipts are written again", extra=told)
    return "receipts are written again" + (anchor.problem and f", but {anchor.problem}")


# Whether the receipt log verifies, for a client that looks every few seconds.

AT_ONCE_BYTES = 4 * 1024 * 1024
INTERVAL_S = 300.0

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
