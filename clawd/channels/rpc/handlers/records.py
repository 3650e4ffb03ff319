"""Handlers about what was kept: memory, knowledge and receipts."""

import asyncio
import fnmatch
import itertools
import re
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from typing import Any, get_args

import msgspec

from clawd.channels.rpc.connection import Call
from clawd.channels.rpc.handlers.parts import Handler, attending, cursor_number, streaming
from clawd.errors import InvalidRequestError, NotFoundError, ReceiptError, StorageError
from clawd.memory.rows import visible_to
from clawd.receipts.record import Receipt, Status
from clawd.receipts.verify import (
    parse_anchor,
    parse_public_key,
    read_head,
    read_receipts,
    verify,
)
from clawd.runtime.calls import ClientCall, new_call_id
from clawd.runtime.hub import Subscription
from clawd.security.principal import Principal
from clawd.tools.outcome import CallRequest
from clawd.wire.events import Event
from clawd.wire.memory import (
    AppendKnowledge,
    ClearMemory,
    DeleteKnowledge,
    KeywordCount,
    KnowledgeEntry,
    KnowledgeOutcome,
    ListKeywords,
    ListKnowledge,
    LoadKnowledge,
    MemoryHit,
    MemoryHits,
    SaveKnowledge,
    SearchKnowledge,
    SearchMemory,
)
from clawd.wire.method import PAGE_LIMIT, Done, Method
from clawd.wire.receipts import (
    HeadOfReceipts,
    ListReceipts,
    ReceiptDetail,
    ReceiptHead,
    ReceiptLine,
    ReceiptPage,
    ShowReceipt,
    Verification,
    VerifyReceipts,
)
from clawd.wire.tools import ToolOutcome

SHOWN_CONTENT_BYTES = 1024 * 1024
MIN_KEY = 4
STATUSES: tuple[str, ...] = get_args(Status)

_TIMESTAMP = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z")


class RecordHandlers(Handler):
    """Each method handles the wire method of its name."""

    async def search_memory(self, params: SearchMemory, call: Call) -> MemoryHits:
        """Search the stored messages."""
        hits = await self.parts.memory.search.find(
            params.query,
            owner=visible_to(call.principal),
            made_by=call.principal.bound_to,
            limit=params.limit,
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
            return await self.forget_conversation(params.conversation_id, call)
        self.parts.inbox.cancel_owner(call.principal.uid)
        gone = await conversations.clear(owner=call.principal.uid)
        book.forget_owner(call.principal.uid)
        return Done(message=f"deleted {gone.conversations} conversations, {gone.messages} messages")

    async def list_receipts(self, params: ListReceipts, call: Call) -> ReceiptPage:
        """List receipts, newest first; the cursor is the number to go on below."""
        if not 1 <= params.limit <= PAGE_LIMIT:
            raise InvalidRequestError(f"limit is {params.limit}; it must be 1 to {PAGE_LIMIT}")
        wanted = _wanted(params)
        found = await asyncio.to_thread(self._page, wanted, params, call.principal)
        more = len(found) > params.limit
        shown = found[: params.limit]
        return ReceiptPage(
            items=msgspec.convert(shown, tuple[ReceiptLine, ...], from_attributes=True),
            cursor=str(shown[-1].seq) if more else "",
        )

    async def show_receipt(self, params: ShowReceipt, call: Call) -> ReceiptDetail:
        """Show one receipt, its place in the chain and what it hashed."""
        found = await asyncio.to_thread(self._find, params.receipt_id, call.principal)
        receipt, ledger = found.receipt, self.parts.memory.ledger
        arguments = await ledger.load_content(receipt.args_hash)
        result = await ledger.load_content(receipt.result_hash)
        return ReceiptDetail(
            receipt=msgspec.structs.asdict(receipt),
            arguments=_shown(arguments),
            result=_shown(result),
            arguments_bytes=None if arguments is None else len(arguments),
            result_bytes=None if result is None else len(result),
            next_hash=found.next_hash,
            head_seq=found.head_seq,
        )

    async def verify_receipts(self, params: VerifyReceipts, _call: Call) -> Verification:
        """Verify the chain against the head that memory remembers, and what else is known."""
        try:
            public_key = parse_public_key(params.public_key) if params.public_key else None
            anchor = parse_anchor(params.anchor) if params.anchor else None
        except ReceiptError as error:
            raise InvalidRequestError(error.message, hint=error.hint) from error
        remembered, unread = None, ""
        try:
            remembered = await self.parts.memory.ledger.last_head()
        except StorageError as error:  # the log stands by itself; so much less is known of its end
            unread = f"; it was not held against memory: {error.message}"
        found = await asyncio.to_thread(self._verified, remembered, anchor, public_key)
        return msgspec.structs.replace(found, message=found.message + unread)

    async def head_of_receipts(self, _params: HeadOfReceipts, _call: Call) -> ReceiptHead:
        """Show the end of the chain and its first public key."""
        parts = self.parts
        return await asyncio.to_thread(
            read_head, parts.receipts_path, first_public_key_path=parts.first_public_key_path
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

    def _page(self, wanted: "_Wanted", params: ListReceipts, principal: Principal) -> list[Receipt]:
        below = cursor_number(params.cursor)
        fitting = (
            receipt
            for receipt in self._receipts()
            if (below is None or receipt.seq < below)
            and principal.may_see(receipt.uid, receipt.key)
            and wanted(receipt)
        )
        return list(itertools.islice(fitting, params.limit + 1))

    def _find(self, wanted: str, principal: Principal) -> "_Found":
        """Return the receipt of this number, id, or beginning or end of an id."""
        key = wanted.strip()
        matches: list[_Found] = []
        head_seq, next_hash = 0, ""
        for receipt in self._receipts():
            head_seq = head_seq or receipt.seq
            is_exact = key in {receipt.id, str(receipt.seq)}
            if is_exact or (len(key) >= MIN_KEY and _is_part(key, receipt.id)):
                found = _Found(receipt=receipt, next_hash=next_hash, head_seq=head_seq)
                if principal.may_see(receipt.uid, receipt.key):
                    matches = [found] if is_exact else [*matches, found]
                if is_exact:
                    break
            next_hash = receipt.receipt_hash
        if len(matches) != 1:
            what = "no receipt" if not matches else f"{len(matches)} receipts"
            raise NotFoundError(
                f"{what} for {wanted!r}", hint="clawctl receipt list shows numbers and ids."
            )
        return matches[0]

    def _receipts(self) -> Iterator[Receipt]:
        for line in read_receipts(self.parts.receipts_path, newest_first=True):
            if isinstance(line, Receipt):
                yield line

    async def save_knowledge(self, params: SaveKnowledge, call: Call) -> KnowledgeOutcome:
        """Make an entry, or replace it."""
        return await self._knowledge("knowledge_save", params, call)

    async def append_knowledge(self, params: AppendKnowledge, call: Call) -> KnowledgeOutcome:
        """Add to the end of an entry, or make it."""
        return await self._knowledge("knowledge_append", params, call)

    async def search_knowledge(self, params: SearchKnowledge, call: Call) -> KnowledgeOutcome:
        """Find the entries with any of the keywords."""
        return await self._knowledge("knowledge_search", params, call)

    async def load_knowledge(self, params: LoadKnowledge, call: Call) -> KnowledgeOutcome:
        """Return the entries with all of the keywords."""
        return await self._knowledge("knowledge_load", params, call)

    async def list_knowledge(self, params: ListKnowledge, call: Call) -> KnowledgeOutcome:
        """List entries by name."""
        return await self._knowledge("knowledge_list", params, call)

    async def delete_knowledge(self, params: DeleteKnowledge, call: Call) -> KnowledgeOutcome:
        """Delete the entry of just these keywords."""
        return await self._knowledge("knowledge_delete", params, call)

    async def list_keywords(self, params: ListKeywords, call: Call) -> KnowledgeOutcome:
        """List keywords and how many entries have them."""
        return await self._knowledge("knowledge_keywords", params, call)

    async def _knowledge(
        self, tool: str, params: Method[KnowledgeOutcome], call: Call
    ) -> KnowledgeOutcome:
        """Make the call; the fields of the method are the tool's arguments.

        Raises:
            NotFoundError: knowledge is switched off.
        """
        arguments: dict[str, Any] = msgspec.structs.asdict(params)
        interactive = bool(arguments.pop("interactive", False))
        events, visit = Subscription(), ClientCall(interactive=interactive)
        async with AsyncExitStack() as stack:
            if params.streams:
                call.on_answer = lambda answer: self.take_answer(answer, call.principal)
                stack.enter_context(attending(visit.attendance, call, interactive=interactive))
                await stack.enter_async_context(streaming(events, call))
            outcome = await self.parts.calls.visit(
                CallRequest(
                    id=new_call_id(),
                    tool=tool,
                    arguments=msgspec.json.encode(arguments).decode(),
                ),
                call.principal,
                visit,
                events.put if params.streams else _unseen,
            )
        if outcome.kind == "unknown_tool":
            raise NotFoundError(
                "knowledge is switched off", hint="Set enabled = true in [knowledge] of the config."
            )
        facts = msgspec.convert(outcome.metadata, _Facts)
        return KnowledgeOutcome(
            call=ToolOutcome(
                status=outcome.status,
                kind=outcome.kind,
                output=outcome.text,
                receipt_id=outcome.receipt_id,
                risk=outcome.risk,
                duration_ms=outcome.duration_ms,
                unanswered=outcome.kind == "unanswered",
            ),
            entries=facts.entries,
            keywords=facts.keywords,
            total=facts.total,
        )


class _Found(msgspec.Struct, frozen=True, kw_only=True):
    receipt: Receipt
    next_hash: str
    head_seq: int


_Wanted = Callable[[Receipt], bool]


def _wanted(params: ListReceipts) -> _Wanted:
    """Return the test of what a list asks for.

    Raises:
        InvalidRequestError: it asks for what no receipt has.
    """
    if params.status and params.status not in STATUSES:
        raise InvalidRequestError(
            f"status is {params.status!r}; it is one of {', '.join(STATUSES)}"
        )
    for name, time in (("since", params.since), ("until", params.until)):
        if time and _TIMESTAMP.fullmatch(time) is None:
            raise InvalidRequestError(
                f"{name} is {time[:32]!r}; it is a time in UTC as in 2026-11-21T08:00:00Z"
            )
    tool = re.compile(fnmatch.translate(params.tool or "*"))

    def fits(receipt: Receipt) -> bool:
        return (
            params.conversation_id in {"", receipt.conversation_id}
            and params.status in {"", receipt.status}
            and params.since <= receipt.timestamp
            and (not params.until or receipt.timestamp < params.until)
            and tool.match(receipt.tool) is not None
        )

    return fits


def _is_part(key: str, receipt_id: str) -> bool:
    return receipt_id.startswith(key) or receipt_id.endswith(key.upper())


def _shown(content: bytes | None) -> str:
    if content is None:
        return ""
    return content[:SHOWN_CONTENT_BYTES].decode(errors="replace")


class _Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What the tools report beside their text; other facts are left aside."""

    entries: tuple[KnowledgeEntry, ...] = ()
    keywords: tuple[KeywordCount, ...] = ()
    total: int = 0


def _unseen(_event: Event) -> None:
    """Take an event of a call that nobody follows."""
