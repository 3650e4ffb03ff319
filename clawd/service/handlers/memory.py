"""Handlers about memory and knowledge."""

from pathlib import Path
from typing import Any

import msgspec

from clawd.channels.rpc.connection import Call
from clawd.errors import NotFoundError
from clawd.memory.rows import visible_to
from clawd.runtime.calls import ClientCall, new_call_id
from clawd.service.build import Daemon
from clawd.service.handlers.shared import call_tool, forget_conversation, outcome_report
from clawd.tools.outcome import CallRequest
from clawd.wire.codec import mirror
from clawd.wire.memory import (
    AppendKnowledge,
    BackUpMemory,
    CheckMemory,
    ClearMemory,
    DeleteKnowledge,
    KeywordCount,
    KnowledgeEntry,
    KnowledgeOutcome,
    ListKeywords,
    ListKnowledge,
    LoadKnowledge,
    MemoryCheck,
    MemoryHit,
    MemoryHits,
    SaveKnowledge,
    SearchKnowledge,
    SearchMemory,
)
from clawd.wire.method import Done, Method


async def search_memory(daemon: Daemon, params: SearchMemory, call: Call) -> MemoryHits:
    """Search the stored messages."""
    hits = await daemon.memory.search.find(
        params.query,
        owner=visible_to(call.principal),
        made_by=call.principal.bound_to,
        limit=params.limit,
    )
    return MemoryHits(items=tuple(mirror(MemoryHit, hit) for hit in hits))


async def clear_memory(daemon: Daemon, params: ClearMemory, call: Call) -> Done:
    """Delete the caller's own conversations: all, or the one named."""
    conversations, book = daemon.memory.conversations, daemon.inbox.book
    if params.conversation_id:
        return await forget_conversation(daemon, params.conversation_id, call)
    daemon.inbox.cancel_owner(call.principal.uid)
    gone = await conversations.clear(owner=call.principal.uid)
    book.forget_owner(call.principal.uid)
    return Done(message=f"deleted {gone.conversations} conversations, {gone.messages} messages")


async def save_knowledge(daemon: Daemon, params: SaveKnowledge, call: Call) -> KnowledgeOutcome:
    """Make an entry, or replace it."""
    return await _knowledge(daemon, "knowledge_save", params, call)


async def append_knowledge(daemon: Daemon, params: AppendKnowledge, call: Call) -> KnowledgeOutcome:
    """Add to the end of an entry, or make it."""
    return await _knowledge(daemon, "knowledge_append", params, call)


async def search_knowledge(daemon: Daemon, params: SearchKnowledge, call: Call) -> KnowledgeOutcome:
    """Find the entries with any of the keywords."""
    return await _knowledge(daemon, "knowledge_search", params, call)


async def load_knowledge(daemon: Daemon, params: LoadKnowledge, call: Call) -> KnowledgeOutcome:
    """Return the entries with all of the keywords."""
    return await _knowledge(daemon, "knowledge_load", params, call)


async def list_knowledge(daemon: Daemon, params: ListKnowledge, call: Call) -> KnowledgeOutcome:
    """List entries by name."""
    return await _knowledge(daemon, "knowledge_list", params, call)


async def delete_knowledge(daemon: Daemon, params: DeleteKnowledge, call: Call) -> KnowledgeOutcome:
    """Delete the entry of just these keywords."""
    return await _knowledge(daemon, "knowledge_delete", params, call)


async def list_keywords(daemon: Daemon, params: ListKeywords, call: Call) -> KnowledgeOutcome:
    """List keywords and how many entries have them."""
    return await _knowledge(daemon, "knowledge_keywords", params, call)


async def back_up_memory(daemon: Daemon, params: BackUpMemory, _call: Call) -> Done:
    """Write a copy of memory."""
    size = await daemon.memory.upkeep.backup(Path(params.path))
    return Done(message=f"{params.path} ({size} bytes)")


async def check_memory(daemon: Daemon, params: CheckMemory, _call: Call) -> MemoryCheck:
    """Check memory, and make bad search indexes anew if asked to."""
    upkeep = daemon.memory.upkeep
    problems = await upkeep.check()
    is_repaired = False
    if problems and params.repair:
        await upkeep.rebuild_indexes()
        problems = await upkeep.check()
        is_repaired = not problems
    return MemoryCheck(
        path=str(daemon.memory.path),
        used_bytes=await upkeep.size(),
        problems=problems,
        is_repaired=is_repaired,
    )


async def _knowledge(
    daemon: Daemon, tool: str, params: Method[KnowledgeOutcome], call: Call
) -> KnowledgeOutcome:
    """Make the call; the fields of the method are the tool's arguments.

    Raises:
        NotFoundError: knowledge is switched off.
    """
    arguments: dict[str, Any] = msgspec.structs.asdict(params)
    interactive = bool(arguments.pop("interactive", False))
    request = CallRequest(
        id=new_call_id(), tool=tool, arguments=msgspec.json.encode(arguments).decode()
    )
    visit = ClientCall(interactive=interactive)
    outcome = await call_tool(daemon, request, visit, call, streams=params.streams)
    if outcome.kind == "unknown_tool":
        raise NotFoundError(
            "knowledge is switched off", hint="Set enabled = true in [knowledge] of the config."
        )
    facts = msgspec.convert(outcome.metadata, _Facts)
    return KnowledgeOutcome(
        call=outcome_report(outcome),
        entries=facts.entries,
        keywords=facts.keywords,
        total=facts.total,
    )


class _Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What the tools report beside their text; other facts are left aside."""

    entries: tuple[KnowledgeEntry, ...] = ()
    keywords: tuple[KeywordCount, ...] = ()
    total: int = 0
