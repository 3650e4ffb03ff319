"""Handlers about what was kept: memory and receipts."""

import asyncio
import itertools
from collections.abc import Iterator

import msgspec

from clawd.channels.rpc.connection import Call
from clawd.channels.rpc.handlers.parts import Handler, cursor_number
from clawd.errors import InvalidRequestError, NotFoundError, ReceiptError
from clawd.memory.rows import visible_to
from clawd.receipts.record import Receipt
from clawd.receipts.verify import (
    BadLine,
    Verification,
    parse_anchor,
    parse_public_key,
    read_head,
    read_receipts,
    verify,
)
from clawd.security.principal import Principal
from clawd.wire.methods import (
    PAGE_LIMIT,
    ClearMemory,
    HeadOfReceipts,
    ListReceipts,
    SearchMemory,
    ShowReceipt,
    VerifyReceipts,
)
from clawd.wire.reports import (
    Done,
    MemoryHit,
    MemoryHits,
    ReceiptDetail,
    ReceiptHead,
    ReceiptLine,
    ReceiptPage,
    ReceiptVerdict,
)

SHOWN_CONTENT_BYTES = 1024 * 1024


class RecordHandlers(Handler):
    """Each method handles the wire method of its name."""

    async def search_memory(self, params: SearchMemory, call: Call) -> MemoryHits:
        """Search the stored messages."""
        hits = await self.parts.memory.search.find(
            params.query, owner=visible_to(call.principal), limit=params.limit
        )
        return MemoryHits(
            items=tuple(
                MemoryHit(
                    conversation_id=hit.conversation_id,
                    title=hit.title,
                    message_id=hit.message_id,
                    timestamp=hit.timestamp,
                    role=hit.role,
                    snippet=hit.snippet,
                )
                for hit in hits
            )
        )

    async def clear_memory(self, params: ClearMemory, call: Call) -> Done:
        """Delete the caller's own conversations: all, or the one named."""
        conversations, book = self.parts.memory.conversations, self.parts.inbox.book
        if params.conversation_id:
            owner = visible_to(call.principal)
            record = await conversations.match(params.conversation_id, owner=owner)
            self.parts.inbox.cancel_conversation(record.id)
            await conversations.delete(record.id, owner=owner)
            book.forget(record.id)
            self.parts.rules.end_conversation(record.id)
            return Done(message=f"deleted {record.id}")
        self.parts.inbox.cancel_owner(call.principal.uid)
        gone = await conversations.clear(owner=call.principal.uid)
        book.forget("")
        return Done(message=f"deleted {gone.conversations} conversations, {gone.messages} messages")

    async def list_receipts(self, params: ListReceipts, call: Call) -> ReceiptPage:
        """List receipts, newest first; the cursor is the number to go on below."""
        if not 1 <= params.limit <= PAGE_LIMIT:
            raise InvalidRequestError(f"limit is {params.limit}; it must be 1 to {PAGE_LIMIT}")
        found = await asyncio.to_thread(self._page, params, call.principal)
        more = len(found) > params.limit
        shown = found[: params.limit]
        return ReceiptPage(
            items=tuple(_line(receipt) for receipt in shown),
            cursor=str(shown[-1].seq) if more else "",
        )

    async def show_receipt(self, params: ShowReceipt, call: Call) -> ReceiptDetail:
        """Show one receipt and what it hashed."""
        receipt = await asyncio.to_thread(self._find, params.receipt_id, call.principal)
        ledger = self.parts.memory.ledger
        arguments = await ledger.load_content(receipt.args_hash)
        result = await ledger.load_content(receipt.result_hash)
        return ReceiptDetail(
            receipt=msgspec.structs.asdict(receipt),
            arguments=_shown(arguments),
            result=_shown(result),
        )

    async def verify_receipts(self, params: VerifyReceipts, _call: Call) -> ReceiptVerdict:
        """Verify the chain against the head that memory remembers, and what else is known."""
        try:
            public_key = parse_public_key(params.public_key) if params.public_key else None
            anchor = parse_anchor(params.anchor) if params.anchor else None
        except ReceiptError as error:
            raise InvalidRequestError(error.message, hint=error.hint) from error
        remembered = await self.parts.memory.ledger.last_head()
        found = await asyncio.to_thread(self._verified, remembered, anchor, public_key)
        return ReceiptVerdict(
            ok=found.ok,
            receipts=found.receipts,
            level=found.level,
            message=found.message,
            head_seq=found.head_seq,
            head_hash=found.head_hash,
            first_bad=found.first_bad,
            kind=found.kind or "",
            signed=found.signed,
            signatures=found.signatures,
        )

    async def head_of_receipts(self, _params: HeadOfReceipts, _call: Call) -> ReceiptHead:
        """Show the end of the chain and its first public key."""
        parts = self.parts
        head = await asyncio.to_thread(
            read_head, parts.receipts_path, first_public_key_path=parts.first_public_key_path
        )
        return ReceiptHead(
            seq=head.seq,
            receipt_hash=head.receipt_hash,
            first_public_key=head.first_public_key,
            signed=head.signed,
            signed_at=head.signed_at,
        )

    def _verified(
        self,
        remembered: tuple[int, str] | None,
        given: tuple[int, str] | None,
        public_key: str | None,
    ) -> Verification:
        found = verify(self.parts.receipts_path, anchor=remembered, public_key=public_key)
        if given is None or not found.ok:
            return found
        return verify(self.parts.receipts_path, anchor=given, public_key=public_key)

    def _page(self, params: ListReceipts, principal: Principal) -> list[Receipt]:
        below = cursor_number(params.cursor)
        wanted = (
            receipt
            for receipt in self._receipts(principal)
            if (below is None or receipt.seq < below)
            and params.conversation_id in {"", receipt.conversation_id}
        )
        return list(itertools.islice(wanted, params.limit + 1))

    def _find(self, wanted: str, principal: Principal) -> Receipt:
        """Return the receipt of this number, id, or beginning or end of an id."""
        key = wanted.strip()
        matches = [
            receipt
            for receipt in self._receipts(principal)
            if key == str(receipt.seq) or (len(key) >= 4 and _is_part(key, receipt.id))
        ]
        exact = [receipt for receipt in matches if key in {receipt.id, str(receipt.seq)}]
        found = exact or matches
        if len(found) != 1:
            what = "no receipt" if not found else f"{len(found)} receipts"
            raise NotFoundError(
                f"{what} for {wanted!r}", hint="clawctl receipt list shows numbers and ids."
            )
        return found[0]

    def _receipts(self, principal: Principal) -> Iterator[Receipt]:
        for line in read_receipts(self.parts.receipts_path, newest_first=True):
            if not isinstance(line, BadLine) and principal.may_see(line.uid):
                yield line


def _is_part(key: str, receipt_id: str) -> bool:
    return receipt_id.startswith(key) or receipt_id.endswith(key.upper())


def _shown(content: bytes | None) -> str:
    if content is None:
        return ""
    return content[:SHOWN_CONTENT_BYTES].decode(errors="replace")


def _line(receipt: Receipt) -> ReceiptLine:
    return ReceiptLine(
        seq=receipt.seq,
        id=receipt.id,
        timestamp=receipt.timestamp,
        conversation_id=receipt.conversation_id,
        tool=receipt.tool,
        status=receipt.status,
        risk=receipt.risk,
        approval=receipt.approval,
        reason=receipt.reason,
        duration_ms=receipt.duration_ms,
        receipt_hash=receipt.receipt_hash,
    )
