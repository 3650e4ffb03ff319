"""What the methods about knowledge give; see `wire.knowledge_methods`."""

import msgspec

from clawd.wire.reports import ToolOutcome


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
