"""The methods of the control socket about knowledge; see `wire.methods`.

Each one is a call of the tool of its name, for the caller and outside of conversations: through
the gate, with a receipt. `keywords` is one text, parted by blanks, commas, slashes or underscores;
the name of an entry's file is good as well. Reads ask nobody, so only writes stream approvals.
"""

from typing import ClassVar

from clawd.wire.knowledge_reports import KnowledgeOutcome
from clawd.wire.method import Method


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
