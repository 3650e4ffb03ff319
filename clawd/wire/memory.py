"""Methods about memory and knowledge, and what they report."""

from typing import ClassVar

import msgspec

from clawd.wire.method import Done, Method
from clawd.wire.tools import ToolOutcome


class MemoryHit(msgspec.Struct, frozen=True, kw_only=True):
    """One message that matched."""

    conversation_id: str
    title: str
    message_id: int
    timestamp: str
    role: str
    snippet: str


class MemoryHits(msgspec.Struct, frozen=True, kw_only=True):
    """Matches, best first."""

    items: tuple[MemoryHit, ...]


class SearchMemory(Method[MemoryHits], frozen=True, kw_only=True):
    """Search the stored messages."""

    query: str
    limit: int = 20


class ClearMemory(Method[Done], frozen=True, kw_only=True):
    """Delete the caller's conversations: all, or the one named."""

    conversation_id: str = ""


class BackUpMemory(Method[Done], frozen=True, kw_only=True):
    """Write a copy of memory to a new file; `path` is absolute, as the daemon sees it."""

    admin: ClassVar[bool] = True
    path: str


class MemoryCheck(msgspec.Struct, frozen=True, kw_only=True):
    """What a check of memory found; no problems is a good memory."""

    path: str
    used_bytes: int
    problems: tuple[str, ...] = ()
    is_repaired: bool = False


class CheckMemory(Method[MemoryCheck], frozen=True, kw_only=True):
    """Check memory's file and its search indexes; `repair` makes bad indexes anew."""

    admin: ClassVar[bool] = True
    repair: bool = False


class KnowledgeEntry(msgspec.Struct, frozen=True, kw_only=True):
    """An entry.

    Attributes:
        name: of its file.
        keywords: sorted; empty for a file without a header, which no search finds.
        is_fixed: whether it may not be changed.
        size: of its text, in bytes.
        modified_at: UTC, as `2026-11-21T08:00:00Z`.
        created: when and by whom.
        updated: the same of the last change.
        untrusted_sources: where untrusted text in it came from.
        text: all of it when it was loaded, the beginning when it was found, else empty.
    """

    name: str
    keywords: tuple[str, ...]
    is_fixed: bool
    size: int
    modified_at: str
    created: str = ""
    updated: str = ""
    untrusted_sources: tuple[str, ...] = ()
    text: str = ""


class KeywordCount(msgspec.Struct, frozen=True, kw_only=True):
    """A keyword and how many entries have it."""

    keyword: str
    count: int


class KnowledgeOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a call about knowledge.

    Attributes:
        call: how it went, and what a model would be told.
        entries: those saved, found, loaded or listed.
        keywords: those counted.
        total: how many there are in all, on all pages.
    """

    call: ToolOutcome
    entries: tuple[KnowledgeEntry, ...] = ()
    keywords: tuple[KeywordCount, ...] = ()
    total: int = 0


# The methods of the control socket about knowledge; see `wire.methods`.
#
# Each one is a call of the tool of its name, for the caller and outside of conversations: through
# the gate, with a receipt. `keywords` is one text, parted by blanks, commas, slashes or
# underscores; the name of an entry's file is good as well. Reads ask nobody, so only writes stream
# approvals.
class SaveKnowledge(Method[KnowledgeOutcome], frozen=True, kw_only=True):
    """Make an entry, or replace it; `fix` makes one that may not be changed."""

    streams: ClassVar[bool] = True
    keywords: str
    content: str
    fix: bool = False
    interactive: bool = False


class AppendKnowledge(Method[KnowledgeOutcome], frozen=True, kw_only=True):
    """Add to the end of an entry, or make it."""

    streams: ClassVar[bool] = True
    keywords: str
    content: str
    interactive: bool = False


class SearchKnowledge(Method[KnowledgeOutcome], frozen=True, kw_only=True):
    """Find the entries with any of the keywords."""

    keywords: str
    page: int = 1
    max_results: int = 10


class LoadKnowledge(Method[KnowledgeOutcome], frozen=True, kw_only=True):
    """Return the entries with all of the keywords, whole, at most four."""

    keywords: str


class ListKnowledge(Method[KnowledgeOutcome], frozen=True, kw_only=True):
    """List the entries whose names begin with the prefix, by name."""

    prefix: str = ""
    max: int = 50


class DeleteKnowledge(Method[KnowledgeOutcome], frozen=True, kw_only=True):
    """Delete the entry of just these keywords."""

    streams: ClassVar[bool] = True
    keywords: str
    interactive: bool = False


class ListKeywords(Method[KnowledgeOutcome], frozen=True, kw_only=True):
    """List the keywords that at least so many entries have, the most used first."""

    min_count: int = 1
    max: int = 200
