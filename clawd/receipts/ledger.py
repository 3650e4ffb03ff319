"""What the receipt chain needs from memory: intents before the act, contents by hash, the head.

Dispatch knows only this protocol; memory implements it and service/build connects the two.
"""

from typing import Protocol

import msgspec

from clawd.receipts.record import Approval, RiskWord


class Intent(msgspec.Struct, frozen=True, kw_only=True):
    """A call that is about to run; on disk before it does, closed by its receipt.

    Attributes:
        id: the id of the receipt to come (`receipt-` and a ULID).
        timestamp: UTC, seconds, `2026-11-21T08:00:00Z`.
        args_hash: SHA-256 of the stored (redacted, canonical) arguments, lower-case hex.
        risk: low, medium or high.
        approval: auto, user, rule or none, and `approved_by` whom.
        sandbox: the level in force: `bwrap`, `none`, … (empty for a tool that starts nothing).
        key: id of the key of the HTTP gateway that it came with; empty without one.
        answers: the approval that was answered late by it; the same write takes that from those
            that can be answered, so that a call runs once.
    """

    id: str
    timestamp: str
    conversation_id: str
    tool: str
    args_hash: str
    risk: RiskWord
    uid: int
    workspace: str
    approval: Approval
    approved_by: str = ""
    reason: str = ""
    sandbox: str = ""
    key: str = ""
    answers: str = ""


class Ledger(Protocol):
    """Memory beside the chain. An intent is on disk when `open_intent` returns.

    What the other methods write survives a crash of the daemon; a power cut may take it back.

    Raises:
        StorageError: from every method, when memory cannot be written or read.
    """

    async def open_intent(self, intent: Intent, arguments: bytes) -> None:
        """Store the intent and its arguments (by their hash); one of the same id is replaced.

        Raises:
            NotFoundError: what it answers was answered before; nothing was stored.
        """
        ...

    async def close_intent(self, intent_id: str, *, content: bytes, content_hash: str) -> None:
        """Remove the intent and store the result by its hash."""
        ...

    async def store_content(self, content: bytes, content_hash: str) -> None:
        """Store bytes by their hash (for calls that had no intent: denied, unknown)."""
        ...

    async def open_intents(self) -> list[Intent]:
        """Return the intents that no receipt closed, oldest first."""
        ...

    async def load_content(self, content_hash: str) -> bytes | None:
        """Return the bytes stored under the hash."""
        ...

    async def record_head(self, seq: int, receipt_hash: str) -> None:
        """Remember the chain's head."""
        ...

    async def last_head(self) -> tuple[int, str] | None:
        """Return the remembered head (seq, hash)."""
        ...
