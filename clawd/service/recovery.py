"""What is put right at start: calls that a crash cut off get their receipt, then work begins."""

import logging
from collections.abc import Collection
from pathlib import Path

from clawd.receipts.chain import ReceiptChain
from clawd.receipts.ledger import Intent, Ledger
from clawd.receipts.record import ReceiptDraft, sha256_hex
from clawd.receipts.verify import find_receipt

INTERRUPTED = "interrupted"
TEXT = "error: interrupted: clawd ended before this call did"
TEXT_WAITING = "denied: interrupted: clawd ended before anybody approved this call"

_log = logging.getLogger(__name__)


async def close_interrupted(
    chain: ReceiptChain, ledger: Ledger, log: Path, *, only: Collection[str] | None = None
) -> tuple[int, int]:
    """Write an `interrupted` receipt for every intent without one; return how many failed, denied.

    What may have run has failed, what waited for an approval is denied. An intent whose receipt
    was written just before the crash is only removed. With `only`, no other intents are looked at:
    their calls may still run.
    """
    failed = denied = 0
    for intent in await ledger.open_intents():
        if only is not None and intent.id not in only:
            continue
        content = (TEXT if _was_let_through(intent) else TEXT_WAITING).encode()
        receipt = find_receipt(log, intent.id)
        if receipt is None:
            receipt = await chain.append(_draft(intent, sha256_hex(content)))
            if _was_let_through(intent):
                failed += 1
            else:
                denied += 1
            _log.warning(
                "a call was cut off by a crash",
                extra={"tool": intent.tool, "receipt": intent.id},
            )
        await ledger.record_head(receipt.seq, receipt.receipt_hash)
        await ledger.close_intent(intent.id, content=content, content_hash=sha256_hex(content))
    return failed, denied


def _was_let_through(intent: Intent) -> bool:
    """Tell whether the call may have run; one that waited for an approval has not."""
    return intent.approval != "none"


def _draft(intent: Intent, result_hash: str) -> ReceiptDraft:
    called = (
        f"{intent.reason.partition('; ')[0]}; " if intent.reason.startswith("called as ") else ""
    )
    return ReceiptDraft(
        id=intent.id,
        timestamp=intent.timestamp,
        conversation_id=intent.conversation_id,
        tool=intent.tool,
        args_hash=intent.args_hash,
        result_hash=result_hash,
        status="failed" if _was_let_through(intent) else "denied",
        risk=intent.risk,
        uid=intent.uid,
        workspace=intent.workspace,
        approval=intent.approval,
        approved_by=intent.approved_by,
        reason=f"{called}{INTERRUPTED}",
        sandbox=intent.sandbox,
        key=intent.key,
    )
