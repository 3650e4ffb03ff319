"""The seven tools with which a model curates what it knows, for the person it works for.

What a tainted conversation writes is marked so in the entry; whoever is shown text or names of
such an entry is tainted in turn. Risk is low for reads, and for writes of an untainted
conversation.
"""

from abc import abstractmethod
from collections.abc import Iterable
from typing import Any, ClassVar

import msgspec
from typing_extensions import override

from clawd.errors import ClawError, NotFoundError
from clawd.memory.knowledge import telling
from clawd.memory.knowledge.keywords import entry_name, searched_keywords, wanted_entries
from clawd.memory.knowledge.shelf import Author, Found, Hit
from clawd.memory.knowledge.store import Knowledge
from clawd.security.risk import Assessment
from clawd.security.taint import TaintBook
from clawd.tools.base import Arguments, Tool, ToolContext, ToolResult, failed, succeeded
from clawd.wire.knowledge_reports import KeywordCount

PAGE = 10
MAX_PAGE = 20
LISTED = 50
MAX_LISTED = 200
COUNTED = 200
MAX_COUNTED = 500
MAX_PAGES = 100_000

_KEYWORDS: dict[str, Any] = {
    "type": "string",
    "description": "one or more words, as in: backup server",
}
_CONTENT: dict[str, Any] = {"type": "string", "description": "Markdown text"}


def knowledge_tools(knowledge: Knowledge, taint: TaintBook) -> list[Tool]:
    """Return one instance of each."""
    kinds: tuple[type[KnowledgeTool], ...] = (
        KnowledgeSave,
        KnowledgeAppend,
        KnowledgeSearch,
        KnowledgeLoad,
        KnowledgeList,
        KnowledgeDelete,
        KnowledgeKeywords,
    )
    return [kind(knowledge, taint) for kind in kinds]


def _schema(properties: dict[str, Any], *required: str) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


def _number(most: int) -> dict[str, Any]:
    return {"type": "integer", "minimum": 1, "maximum": most}


def _within(given: object, default: int, most: int) -> int:
    """Return a number that was asked for, brought within 1 and the most there can be."""
    return max(1, min(int(str(given)) if given is not None else default, most))


class KnowledgeTool(Tool):
    """A tool on the principal's own entries, an admin's too."""

    outward: ClassVar[bool | None] = False

    def __init__(self, knowledge: Knowledge, taint: TaintBook) -> None:
        self._knowledge = knowledge
        self._taint = taint

    @override
    def risk(self, arguments: Arguments, context: ToolContext) -> Assessment:
        return Assessment(risk="low", reason="reads knowledge")

    @override
    async def invoke(self, arguments: Arguments, context: ToolContext) -> ToolResult:
        try:
            return await self._act(arguments, context)
        except ClawError as error:
            return failed(f"{error.message}. {error.hint}".removesuffix(". "))

    @abstractmethod
    async def _act(self, arguments: Arguments, context: ToolContext) -> ToolResult:
        """Do it; ClawErrors become results."""

    def _author(self, context: ToolContext) -> Author:
        conversation_id = context.conversation_id
        sources = self._taint.sources(conversation_id) if conversation_id else ()
        return Author(uid=context.principal.uid, conversation_id=conversation_id, untrusted=sources)

    def _writing(self, context: ToolContext, what: str) -> Assessment:
        """Assess a write; what untrusted text might have asked for is not done unasked."""
        if context.conversation_id and self._taint.is_tainted(context.conversation_id):
            reason = f"{what} from a conversation with untrusted text"
            return Assessment(risk="medium", reason=reason, outward=False)
        return Assessment(risk="low", reason=what, outward=False)

    async def _shown(
        self, text: str, hits: Iterable[Hit], context: ToolContext, total: int
    ) -> ToolResult:
        """Return a result that shows entries, with where untrusted text in them came from."""
        shown = tuple(hits)
        folder = self._knowledge.folder(context.principal.uid)
        # The owner may have called some of these files untrusted, or all of the folder.
        marked = await self._taint.files.sources(tuple(folder / hit.card.file for hit in shown))
        sources = (*telling.sources_of(hit.card for hit in shown), *marked)
        facts: dict[str, Any] = {"entries": telling.entries(shown), "total": total}
        if sources:
            facts["untrusted_sources"] = list(dict.fromkeys(sources))
        return succeeded(text, **facts)


class KnowledgeSave(KnowledgeTool):
    """`knowledge_save(keywords, content, fix?)`: makes or replaces an entry."""

    name: ClassVar[str] = "knowledge_save"
    short: ClassVar[str] = "Save a note in the knowledge base under a few keywords."
    description: ClassVar[str] = (
        "Save Markdown text as the entry of these keywords. An entry with the same keywords is "
        "replaced (its old text is kept in the trash); to add to it use knowledge_append. Choose "
        "one to three plain words that somebody would look for. `fix`: true makes a fixed entry, "
        "which nobody can change or delete through the tools of a conversation. An entry holds "
        "256 KiB at most."
    )
    parameters: ClassVar[dict[str, Any]] = _schema(
        {
            "keywords": _KEYWORDS,
            "content": _CONTENT,
            "fix": {"type": "boolean", "description": "true: may never be changed"},
        },
        "keywords",
        "content",
    )

    @override
    def risk(self, arguments: Arguments, context: ToolContext) -> Assessment:
        return self._writing(context, "saves knowledge")

    @override
    async def _act(self, arguments: Arguments, context: ToolContext) -> ToolResult:
        name = entry_name(str(arguments["keywords"]), fixed=bool(arguments.get("fix", False)))
        author = self._author(context)
        written = await self._knowledge.save(name, str(arguments["content"]), author)
        told = telling.saved(written, keeps_old=self._knowledge.keeps_old)
        return succeeded(told, file=written.file, bytes=written.after)


class KnowledgeAppend(KnowledgeTool):
    """`knowledge_append(keywords, content)`: adds to an entry, or makes it."""

    name: ClassVar[str] = "knowledge_append"
    short: ClassVar[str] = "Add text to the end of a note in the knowledge base."
    description: ClassVar[str] = (
        "Add Markdown text to the end of the entry of these keywords, after a line ---, or make "
        "the entry when there is none. What is there stays as it is."
    )
    parameters: ClassVar[dict[str, Any]] = _schema(
        {"keywords": _KEYWORDS, "content": _CONTENT}, "keywords", "content"
    )

    @override
    def risk(self, arguments: Arguments, context: ToolContext) -> Assessment:
        return self._writing(context, "adds to knowledge")

    @override
    async def _act(self, arguments: Arguments, context: ToolContext) -> ToolResult:
        name = entry_name(str(arguments["keywords"]))
        author = self._author(context)
        written = await self._knowledge.append(name, str(arguments["content"]), author)
        return succeeded(telling.appended(written), file=written.file, bytes=written.after)


class KnowledgeSearch(KnowledgeTool):
    """`knowledge_search(keywords, page?, max_results?)`: entries with any of the keywords."""

    name: ClassVar[str] = "knowledge_search"
    short: ClassVar[str] = "Find notes in the knowledge base by keywords."
    description: ClassVar[str] = (
        "Find the entries that have any of the keywords: those with most of them first, then the "
        f"newest. A page has {PAGE} entries, or `max_results` up to {MAX_PAGE}. Each line gives "
        "the name to load the entry by, and how its text begins."
    )
    parameters: ClassVar[dict[str, Any]] = _schema(
        {"keywords": _KEYWORDS, "page": _number(MAX_PAGES), "max_results": _number(MAX_PAGE)},
        "keywords",
    )

    @override
    async def _act(self, arguments: Arguments, context: ToolContext) -> ToolResult:
        keywords = searched_keywords(str(arguments["keywords"]))
        page = _within(arguments.get("page"), 1, MAX_PAGES)
        size = _within(arguments.get("max_results"), PAGE, MAX_PAGE)
        found = await self._knowledge.search(
            keywords, uid=context.principal.uid, page=page, size=size
        )
        text = _page_text(found, " ".join(keywords), page, -(-found.total // size))
        return await self._shown(text, found.hits, context, found.total)


def _page_text(found: Found, keywords: str, page: int, pages: int) -> str:
    if not found.total:
        text = f'Nothing found for "{keywords}".'
        if found.suggestions:
            text += f" There are entries about: {', '.join(found.suggestions)}."
        return text
    if not found.hits:
        return f"There is no page {page}; the last one is {pages}."
    lines = [telling.found_line(hit) for hit in found.hits]
    if page < pages:
        lines.append(f'page {page} of {pages}; for the next: "page": {page + 1}')
    return "\n".join(lines)


class KnowledgeLoad(KnowledgeTool):
    """`knowledge_load(keywords, offset?)`: the entries with all of the keywords, whole."""

    name: ClassVar[str] = "knowledge_load"
    short: ClassVar[str] = "Read notes of the knowledge base in full."
    description: ClassVar[str] = (
        "Read the entries that have all of the keywords, at most four, the one with just these "
        "first. A file name from knowledge_search or knowledge_list is good as well. Of a long "
        "text the beginning is shown; `offset` reads on in the first entry, from that byte."
    )
    parameters: ClassVar[dict[str, Any]] = _schema(
        {"keywords": _KEYWORDS, "offset": {"type": "integer", "minimum": 0}}, "keywords"
    )

    @override
    async def _act(self, arguments: Arguments, context: ToolContext) -> ToolResult:
        wanted = wanted_entries(str(arguments["keywords"]))
        found = await self._knowledge.load(wanted, uid=context.principal.uid)
        if not found.hits:
            near = ", ".join(f'"{name}"' for name in found.suggestions)
            more = f" Entries with some of them: {near}." if near else ""
            words = " ".join(wanted.keywords)
            return failed(
                f'there is no entry with all of "{words}".{more} knowledge_search finds entries '
                "by any of the keywords"
            )
        offset = max(int(arguments.get("offset") or 0), 0)
        hits = found.hits[:1] if offset else found.hits
        text = telling.loaded(hits, offset=offset)
        if found.total > len(found.hits) and not offset:
            text += f"\n\n[{found.total - len(found.hits)} more entries have these keywords]"
        return await self._shown(text, hits, context, found.total)


class KnowledgeList(KnowledgeTool):
    """`knowledge_list(prefix?, max?)`: names of entries."""

    name: ClassVar[str] = "knowledge_list"
    short: ClassVar[str] = "List the notes of the knowledge base by name."
    description: ClassVar[str] = (
        "List the entries by file name, those that begin with `prefix`. "
        f"`max` is 1 to {MAX_LISTED}, {LISTED} when left out."
    )
    parameters: ClassVar[dict[str, Any]] = _schema(
        {"prefix": {"type": "string"}, "max": _number(MAX_LISTED)}
    )

    @override
    async def _act(self, arguments: Arguments, context: ToolContext) -> ToolResult:
        prefix = str(arguments.get("prefix", "")).strip()
        most = _within(arguments.get("max"), LISTED, MAX_LISTED)
        cards = await self._knowledge.listed(prefix, uid=context.principal.uid)
        if not cards:
            text = f'No entry begins with "{prefix}".' if prefix else "There are no entries yet."
            return succeeded(text, entries=[], total=0)
        lines = [telling.listed_line(card) for card in cards[:most]]
        if len(cards) > most:
            lines.append(f"[{len(cards) - most} more entries; name a prefix or a higher max]")
        hits = (Hit(card=card, text="") for card in cards[:most])
        return await self._shown("\n".join(lines), hits, context, len(cards))


class KnowledgeDelete(KnowledgeTool):
    """`knowledge_delete(keywords)`: moves an entry to the trash."""

    name: ClassVar[str] = "knowledge_delete"
    short: ClassVar[str] = "Delete one note of the knowledge base."
    description: ClassVar[str] = (
        "Delete the entry of just these keywords; where there is none, nothing has to be done. "
        "Its text is kept in the trash for a while. "
        "Fixed entries are deleted by a person only, not from a conversation."
    )
    parameters: ClassVar[dict[str, Any]] = _schema({"keywords": _KEYWORDS}, "keywords")

    @override
    def risk(self, arguments: Arguments, context: ToolContext) -> Assessment:
        assessment = self._writing(context, "deletes knowledge")
        if assessment.risk != "low":
            return msgspec.structs.replace(assessment, outward=True)
        try:
            is_fixed = wanted_entries(str(arguments["keywords"])).fixed
        except ClawError:
            is_fixed = False  # it is refused when it runs
        if is_fixed:
            return Assessment(risk="medium", reason="deletes a fixed entry of knowledge")
        return assessment

    @override
    async def _act(self, arguments: Arguments, context: ToolContext) -> ToolResult:
        wanted = wanted_entries(str(arguments["keywords"]))
        try:
            file = await self._knowledge.delete(
                wanted,
                uid=context.principal.uid,
                # A person at a door, who is no model: neither in a conversation nor unattended.
                may_be_fixed=not context.conversation_id and context.ask is not None,
            )
        except NotFoundError as error:
            return succeeded(telling.absent(error.message, error.hint), deleted=False)
        return succeeded(telling.deleted(file, keeps_old=self._knowledge.keeps_old))


class KnowledgeKeywords(KnowledgeTool):
    """`knowledge_keywords(min_count?, max?)`: keywords and how many entries have them."""

    name: ClassVar[str] = "knowledge_keywords"
    short: ClassVar[str] = "List the keywords of the knowledge base, most used first."
    description: ClassVar[str] = (
        "List the keywords that at least `min_count` entries have (1 when left out), the most "
        f"used first. `max` is 1 to {MAX_COUNTED}, {COUNTED} when left out."
    )
    parameters: ClassVar[dict[str, Any]] = _schema(
        {"min_count": {"type": "integer", "minimum": 1}, "max": _number(MAX_COUNTED)}
    )

    @override
    async def _act(self, arguments: Arguments, context: ToolContext) -> ToolResult:
        least = _within(arguments.get("min_count"), 1, MAX_PAGES)
        most = _within(arguments.get("max"), COUNTED, MAX_COUNTED)
        known = await self._knowledge.keywords(uid=context.principal.uid)
        fitting = [use for use in known if use.count >= least]
        shown = fitting[:most]
        lines = [f"{use.keyword} ({use.count})" for use in shown] or ["There are no keywords yet."]
        if len(fitting) > most:
            lines.append(f"[{len(fitting) - most} more keywords]")
        counts = [KeywordCount(keyword=use.keyword, count=use.count) for use in shown]
        facts: dict[str, Any] = {
            "keywords": msgspec.to_builtins(counts),
            "total": len(fitting),
        }
        blamed = dict.fromkeys(file for use in shown for file in use.untrusted)
        if blamed:
            facts["untrusted_sources"] = [f"knowledge {file}" for file in blamed]
        return succeeded("\n".join(lines), **facts)
