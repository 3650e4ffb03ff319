"""The trail of a call: its intent on disk before it runs, its receipt after, both by one id.

Secrets are replaced before anything is hashed or stored, so what is stored is what was hashed.
"""

import asyncio
import logging
import time
from typing import Protocol

import msgspec

from clawd.receipts.chain import ReceiptChain
from clawd.receipts.record import (
    Approval,
    Intent,
    Status,
    new_id,
    sha256_hex,
    utc_timestamp,
)
from clawd.security.approval_rules import ApprovalRule, RuleAct
from clawd.security.approvals import LateAnswer
from clawd.security.policy import ModeChange
from clawd.security.redact import Redactor
from clawd.security.risk import Risk
from clawd.tools.outcome import SopAnswer
from clawd.wire.events import FileDiff
from clawd.wire.safe_text import shortened

HEAD_TOLD_EVERY = 256
NAME_IN_RECEIPT = 64
_ENDINGS = frozenset({"revoked", "gone", "still_kept"})

_log = logging.getLogger(__name__)
CANONICAL = msgspec.json.Encoder(order="sorted")


class Entry(msgspec.Struct, kw_only=True):
    """What is known of a call so far; dispatch fills it in as the call goes on.

    Attributes:
        asked: the name that was called, where a tool of another name was understood.
        edited_by: who wrote the arguments in place of the model; empty for nobody.
        changed_by: the hook that changed them; empty for none.
        remarks: what hooks add to what the model is told.
        key: id of the key of the HTTP gateway that the call came with; empty without one.
        contacted: the hosts that it reached, as its receipt lists them.
        refused: the hosts that it was refused.
        late: the late answer by which it is made; None for a call that was asked about now.
        changes: what it is to make of files, where that was computed.
        helps: the conversation that it helps; empty for none.
    """

    id: str = msgspec.field(default_factory=new_id)
    conversation_id: str
    tool: str
    arguments: bytes
    uid: int
    workspace: str
    risk: Risk = "low"
    approval: Approval = "none"
    approved_by: str = ""
    reason: str = ""
    asked: str = ""
    edited_by: str = ""
    changed_by: str = ""
    remarks: tuple[str, ...] = ()
    sandbox: str = ""
    key: str = ""
    contacted: str = ""
    refused: str = ""
    late: LateAnswer | None = None
    changes: tuple[FileDiff, ...] = ()
    helps: str = ""
    has_intent: bool = False
    started_at: float = msgspec.field(default_factory=time.monotonic)
    duration_ms: int = 0

    @property
    def full_reason(self) -> str:
        """The reason, for whom it helps, how the tool was called, who edited the arguments."""
        parts = (
            f"helper of {self.helps}" if self.helps else "",
            f"called as {self.asked!r}" if self.asked else "",
            f"late answer to {self.late.approval_id} of {self.late.receipt_id}"
            if self.late
            else "",
            f"arguments edited by {self.edited_by}" if self.edited_by else "",
            f"arguments changed by the hook {self.changed_by}" if self.changed_by else "",
            self.reason,
        )
        return "; ".join(filter(None, parts))


class Ledger(Protocol):
    """What the trail keeps in memory beside the chain: intents, contents by hash, the head.

    An intent is on disk when `open_intent` returns.

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


class Journal:
    """Writes intents and receipts. One of a daemon.

    Args:
        chain: the receipt chain; None when receipts are switched off.
        ledger: where intents and contents are kept.
        redactor: replaces secrets.

    Attributes:
        is_recording: receipts are written at all.
        without_secrets: the redactor's; cut a text after that, or half of a secret may stay.
        json_without_secrets: likewise, for JSON as a receipt's arguments have it.
    """

    def __init__(self, chain: ReceiptChain | None, ledger: Ledger, redactor: Redactor) -> None:
        self._chain = chain
        self.is_recording = chain is not None
        self._ledger = ledger
        self._redactor = redactor
        self.without_secrets = redactor.text
        self.json_without_secrets = redactor.json

    def name_of(self, called: str) -> str:
        """Return the name that was called as a receipt can hold it, which others read, too."""
        text = called.encode("utf-8", "replace").decode()
        return shortened(self.without_secrets(text), NAME_IN_RECEIPT)

    async def begin(self, entry: Entry) -> None:
        """Put the intent on disk.

        Raises:
            StorageError: it cannot be written; the call must not run.
            ReceiptError: no receipt could follow; likewise.
        """
        if self._chain is None:
            return
        self._chain.check_writable()
        stored = self._redactor.json(entry.arguments)
        intent = self._intent(entry, stored)
        await self._ledger.open_intent(intent, stored)
        entry.has_intent = True

    async def finish(
        self, entry: Entry, status: Status, result: str, *, exit_code: int | None = None
    ) -> str:
        """Write the receipt and return its id; "" when receipts are switched off.

        Raises:
            ReceiptError: it cannot be written; the result must not reach the model.
            StorageError: likewise.
        """
        entry.duration_ms = int((time.monotonic() - entry.started_at) * 1000)
        if self._chain is None:
            return ""
        arguments = self._redactor.json(entry.arguments)
        content = self._redactor.text(result.encode(errors="replace").decode()).encode()
        receipt = self._intent(entry, arguments).receipt(
            status,
            sha256_hex(content),
            duration_ms=entry.duration_ms,
            exit_code=exit_code,
            contacted=self._redactor.text(entry.contacted),
            refused=self._redactor.text(entry.refused),
        )
        # Before the receipt: after a crash in between, no receipt stands without what it hashed.
        if not entry.has_intent:
            await self._ledger.store_content(arguments, receipt.args_hash)
        await self._ledger.store_content(content, receipt.result_hash)
        receipt = await self._chain.append(receipt)
        _log.info("receipt written", extra={"seq": receipt.seq, "receipt": receipt.id})
        if receipt.seq % HEAD_TOLD_EVERY == 0:
            told = {"seq": receipt.seq, "hash": receipt.receipt_hash}
            _log.info("receipt head", extra=told)
        # What belongs to a receipt that is on disk; together, so that it is one write.
        writes = [self._ledger.record_head(receipt.seq, receipt.receipt_hash)]
        if entry.has_intent:
            hashed = receipt.result_hash
            writes.append(self._ledger.close_intent(entry.id, content=content, content_hash=hashed))
        await asyncio.gather(*writes)
        return receipt.id

    def _intent(self, entry: Entry, arguments: bytes) -> Intent:
        """Return what is known of the call without its secrets; the arguments have none."""
        return Intent(
            id=entry.id,
            timestamp=utc_timestamp(),
            conversation_id=entry.conversation_id,
            tool=self._redactor.text(entry.tool),
            args_hash=sha256_hex(arguments),
            risk=entry.risk,
            uid=entry.uid,
            workspace=self._redactor.text(entry.workspace),
            approval=entry.approval,
            approved_by=entry.approved_by,
            reason=self._redactor.text(entry.full_reason),
            sandbox=entry.sandbox,
            key=entry.key,
            answers=_answered(entry.late, entry) if entry.late is not None else "",
        )

    async def record_rule(self, act: RuleAct, rule: ApprovalRule, by: str) -> str:
        """Write the receipt of what became of a standing rule; returns its id.

        Its arguments are the rule.

        Raises:
            ReceiptError, StorageError: it cannot be written.
        """
        entry = Entry(
            conversation_id=rule.conversation_id,
            tool="approval_rule",
            arguments=CANONICAL.encode(rule),
            uid=rule.owner,
            workspace=rule.workspace,
            risk=rule.max_risk,
            approval="user" if by else "none",
            approved_by=by,
            reason=f"{act.replace('_', ' ')}: {rule.id} for {rule.tool}, by {by or 'nobody known'}"
            + (
                f", in answer to {rule.approval_id}"
                if act == "granted" and rule.approval_id
                else ""
            )
            + (", in the file of rules" if act == "found" else "")
            + (f", granted by {rule.receipt_id}" if act in _ENDINGS and rule.receipt_id else ""),
        )
        status: Status = "failed" if act in {"not_kept", "still_kept"} else "allowed"
        return await self.finish(entry, status, rule.pattern)

    async def record_mode(self, change: ModeChange) -> str:
        """Write the receipt of another mode of a conversation; returns its id.

        Raises:
            ReceiptError, StorageError: it cannot be written.
        """
        words = {"before": change.before or "as configured", "mode": change.mode or "as configured"}
        entry = Entry(
            conversation_id=change.conversation_id,
            tool="conversation_mode",
            arguments=CANONICAL.encode(words),
            uid=change.by.uid,
            workspace=str(change.workspace),
            risk=_MODE_RISKS.get(change.mode, "low"),
            approval="user",
            approved_by=f"uid {change.by.uid}",
            reason=f"mode {words['mode']}, before {words['before']}",
            key=change.by.key_id,
        )
        return await self.finish(entry, "allowed", change.mode)

    async def record_sop_answer(self, answer: SopAnswer) -> str:
        """Write the receipt of what a person answered to a procedure; returns its id.

        Raises:
            ReceiptError, StorageError: it cannot be written.
        """
        granted = answer.word != "deny"
        facts = {"run": answer.run, "step": answer.step, "asked": answer.asked, "said": answer.word}
        entry = Entry(
            conversation_id=answer.conversation_id,
            tool="sop_answer",
            arguments=CANONICAL.encode(facts),
            uid=answer.by.uid,
            workspace=answer.workspace,
            risk="medium",
            approval="user" if granted else "none",
            approved_by=f"uid {answer.by.uid}",
            reason=f"{answer.word}: step {answer.step}",
            key=answer.by.key_id,
        )
        return await self.finish(entry, "allowed" if granted else "denied", answer.word)


def _answered(late: LateAnswer, entry: Entry) -> str:
    """Return the approval whose late answer lets the call run; an edited call has another one."""
    return "" if late.edited or entry.approval != "user" else late.approval_id


_MODE_RISKS: dict[str, Risk] = {"full": "high", "edits": "medium"}
