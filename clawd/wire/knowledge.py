"""Methods about knowledge, and what they report; see `wire.methods`."""

from typing import ClassVar

import msgspec

from clawd.wire.method import Method
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
