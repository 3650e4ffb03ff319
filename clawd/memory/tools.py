"""The tools of memory: one searches earlier conversations, seven curate what a model knows.

All work for the person that the model works for.

What a tainted conversation writes is marked so in the entry; one that sees text or names of such
an entry is tainted in turn. Risk is low for reads, and for writes of an untainted conversation.
"""

from abc import abstractmethod
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, ClassVar

import msgspec
from typing_extensions import override

from clawd.errors import ClawError, NotFoundError
from clawd.memory.knowledge.entries import Author, Card, EntryHit, FoundPage, Written
from clawd.memory.knowledge.keywords import entry_name, searched_keywords, wanted_entries
from clawd.memory.knowledge.store import Knowledge
from clawd.memory.search import MessageHit, Search
from clawd.security.risk import Assessment
from clawd.security.taint import TaintBook
from clawd.tools.base import Arguments, Tool, ToolContext, ToolResult, failed, succeeded
from clawd.wire.memory import KeywordCount, KnowledgeEntry
from clawd.wire.safe_text import paragraph, single_line

DEFAULT_LIMIT = 10
MAX_LIMIT = 50


class MemorySearch(Tool):
    """`memory_search(query, limit?)`: only the principal's own messages, an admin's too."""

    name: ClassVar[str] = "memory_search"
    short: ClassVar[str] = "Search earlier conversations for words or parts of words."
    description: ClassVar[str] = (
        "Search everything said in this person's conversations, newest and best matches first. "
        "`query` holds words or parts of words; case does not matter and there are no operators. "
        f"`limit` is 1 to {MAX_LIMIT}, {DEFAULT_LIMIT} when left out. Each line of the result "
        "gives conversation, date, role and the text around the match."
    )
    parameters: ClassVar[dict[str, Any]] = {
        "type": "object",
        "properties": {
            "query": {"type": "string", "description": "words or parts of words"},
            "limit": {"type": "integer", "minimum": 1, "maximum": MAX_LIMIT},
        },
        "required": ["query"],
        "additionalProperties": False,
    }

    def __init__(self, search: Search) -> None:
        self._search = search

    @override
    def risk(self, arguments: Arguments, context: ToolContext) -> Assessment:
        return Assessment(risk="low", reason="reads earlier conversations")

    @override
    async def invoke(self, arguments: Arguments, context: ToolContext) -> ToolResult:
        query = str(arguments["query"]).strip()
        if not query:
            return failed('the query is empty; give words to look for, e.g. {"query": "adapter"}')
        limit = int(arguments.get("limit", DEFAULT_LIMIT))
        try:
            asking = context.principal
            hits = await self._search.find(
                query,
                owner=asking.uid,
                made_by=asking.bound_to,
                limit=limit,
                asked_in=context.conversation_id,
            )
        except ClawError as error:
            return failed(f"{error.message}. {error.hint}".removesuffix(". "))
        if not hits:
            return succeeded(f"Nothing found for {query!r}.", count=0)
        origins = _origins(hits, context.conversation_id)
        return succeeded("\n".join(map(_line, hits)), count=len(hits), **origins)


def _origins(hits: list[MessageHit], conversation_id: str) -> dict[str, list[str]]:
    """Return where untrusted text in what was found came from, if there is any."""
    others = [hit for hit in hits if hit.conversation_id != conversation_id]
    sources = [
        source
        for hit in others
        if hit.untrusted_sources
        for source in (f"conversation {hit.conversation_id}", *hit.untrusted_sources)
    ]
    return {"untrusted_sources": list(dict.fromkeys(sources))} if sources else {}


def _line(hit: MessageHit) -> str:
    return f"{hit.conversation_id} {hit.timestamp[:10]} {hit.role}: {hit.snippet}"


# What the knowledge tools say: to the model as lines, to programs as entries. Pure.

_TOLD_BYTES = 48 * 1024

_SHOWN_SOURCES = 3


def _saved(written: Written, *, keeps_old: bool) -> str:
    """Return the answer to a save; `keeps_old` says whether there is a trash."""
    name = _told_name(written.file)
    if written.before is None:
        return f'created "{name}" ({written.after} B)' + _beside(written)
    if written.is_same:
        return f'"{name}" says that already ({written.after} B); nothing changed'
    marked = "; it is marked as untrusted text" if written.untrusted else ""
    old = "the old text is kept in the trash" if keeps_old else "the old text is gone"
    return (
        f'replaced "{name}" ({written.before} B → {written.after} B); {old}{marked}. '
        "To add to an entry use knowledge_append"
    )


def _deleted(file: str, *, keeps_old: bool) -> str:
    """Return the answer to a delete."""
    kept = "; its text is kept in the trash" if keeps_old else " for good"
    return f'deleted "{_told_name(file)}"{kept}'


def _appended(written: Written) -> str:
    """Return the answer to an append."""
    name = _told_name(written.file)
    if written.before is None:
        return f'created "{name}" ({written.after} B)' + _beside(written)
    return f'updated "{name}" (+{written.after - written.before} B → {written.after} B total)'


def _found_line(hit: EntryHit) -> str:
    """Return a line of a search: the name to load it by, and the beginning of its text."""
    return f"{_told_name(hit.card.file)}: {hit.text}{_mark(hit.card)}"


def _loaded(hits: tuple[EntryHit, ...], *, offset: int = 0) -> str:
    """Return entries whole, or so much of each that all of them fit, from a byte on."""
    share = _TOLD_BYTES // max(len(hits), 1)
    return "\n\n".join(_whole(hit, share, offset) for hit in hits)


def _absent(problem: str, others: str) -> str:
    """Return the answer to a delete of what is not there: nothing had to be done."""
    return f"{problem}, so nothing was deleted. {others}".strip()


def _listed_line(card: Card) -> str:
    """Return a line of a list."""
    about = [f"{card.size} B", _when(card)[:10]]
    if card.fixed:
        about.append("fixed")
    if not card.keywords:
        about.append("no keywords header: not searched")
    return f"{_told_name(card.file)}  ({', '.join(about)}){_mark(card)}"


def _told_name(file: str) -> str:
    """Return a file name as one line; a hand may have given it any."""
    return single_line(file)


def _when(card: Card) -> str:
    """Return when the file was changed last, UTC."""
    at = datetime.fromtimestamp(card.modified_ns // 1_000_000_000, UTC)
    return f"{at:%Y-%m-%dT%H:%M:%SZ}"


def _sources_of(cards: Iterable[Card]) -> tuple[str, ...]:
    """Return where untrusted text of the entries came from, the entries themselves first."""
    found = [
        source
        for card in cards
        if card.untrusted
        for source in (f"knowledge {_told_name(card.file)}", *card.untrusted)
    ]
    return tuple(dict.fromkeys(found))


def entries(hits: Iterable[EntryHit]) -> list[dict[str, Any]]:
    """Return entries for programs, as plain data."""
    return [
        msgspec.to_builtins(
            KnowledgeEntry(
                name=hit.card.file,
                keywords=hit.card.keywords,
                is_fixed=hit.card.fixed,
                size=hit.card.size,
                modified_at=_when(hit.card),
                created=hit.card.created,
                updated=hit.card.updated,
                untrusted_sources=hit.card.untrusted,
                text=hit.text,
            )
        )
        for hit in hits
    ]


def _beside(written: Written) -> str:
    name = written.fixed_beside
    return f'; the fixed entry "{_told_name(name)}" stands beside it' if name else ""


def _whole(hit: EntryHit, share: int, offset: int) -> str:
    card, data = hit.card, paragraph(hit.text).encode(errors="replace")
    name = _told_name(card.file)
    about = f"{len(data)} B, changed {_when(card)[:10]}"
    about += f", created {card.created}" if card.created else ""
    head = f"# {name} ({single_line(about)}){_mark(card)}"
    if offset and offset >= len(data):
        return f"{head}\n[there is nothing at offset {offset}: the text has {len(data)} bytes]"
    end = min(offset + share, len(data))
    while end < len(data) and _goes_on(data[end]):
        end -= 1
    body = data[offset:end].decode(errors="ignore")
    shown = f"bytes {offset} to {end} of {len(data)} are shown"
    if end < len(data):
        call = msgspec.json.encode({"keywords": name, "offset": end}).decode()
        body += f"\n[cut: {shown}; knowledge_load with {call} reads on]"
    elif offset:
        body += f"\n[the end: {shown}]"
    return f"{head}\n{body}"


def _goes_on(byte: int) -> bool:
    """Return whether a byte goes on with a character of UTF-8."""
    return byte & 0xC0 == 0x80


def _mark(card: Card) -> str:
    if not card.untrusted:
        return ""
    shown = ", ".join(card.untrusted[:_SHOWN_SOURCES])
    more = len(card.untrusted) - _SHOWN_SOURCES
    return f" [untrusted text from {shown}{f' and {more} more' if more > 0 else ''}]"


_PAGE = 10
_MAX_PAGE = 20
_LISTED = 50
_MAX_LISTED = 200
_COUNTED = 200
_MAX_COUNTED = 500
_MAX_PAGES = 100_000

_KEYWORDS: dict[str, Any] = {
    "type": "string",
    "description": "one or more words, as in: backup server",
}
_CONTENT: dict[str, Any] = {"type": "string", "description": "Markdown text"}


def knowledge_tools(knowledge: Knowledge, taint: TaintBook) -> list[Tool]:
    """Return one instance of each."""
    kinds: tuple[type[_KnowledgeTool], ...] = (
        _KnowledgeSave,
        _KnowledgeAppend,
        _KnowledgeSearch,
        _KnowledgeLoad,
        _KnowledgeList,
        _KnowledgeDelete,
        _KnowledgeKeywords,
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


class _KnowledgeTool(Tool):
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
        self, text: str, hits: Iterable[EntryHit], context: ToolContext, total: int
    ) -> ToolResult:
        """Return a result that shows entries, with where untrusted text in them came from."""
        shown = tuple(hits)
        folder = self._knowledge.folder(context.principal.uid)
        # The owner may have called some of these files untrusted, or all of the folder.
        marked = await self._taint.files.sources(tuple(folder / hit.card.file for hit in shown))
        sources = (*_sources_of(hit.card for hit in shown), *marked)
        facts: dict[str, Any] = {"entries": entries(shown), "total": total}
        if sources:
            facts["untrusted_sources"] = list(dict.fromkeys(sources))
        return succeeded(text, **facts)


class _KnowledgeSave(_KnowledgeTool):
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
        told = _saved(written, keeps_old=self._knowledge.keeps_old)
        return succeeded(told, file=written.file, bytes=written.after)


class _KnowledgeAppend(_KnowledgeTool):
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
        return succeeded(_appended(written), file=written.file, bytes=written.after)


class _KnowledgeSearch(_KnowledgeTool):
    """`knowledge_search(keywords, page?, max_results?)`: entries with any of the keywords."""

    name: ClassVar[str] = "knowledge_search"
    short: ClassVar[str] = "Find notes in the knowledge base by keywords."
    description: ClassVar[str] = (
        "Find the entries that have any of the keywords: those with most of them first, then the "
        f"newest. A page has {_PAGE} entries, or `max_results` up to {_MAX_PAGE}. Each line gives "
        "the name to load the entry by, and how its text begins."
    )
    parameters: ClassVar[dict[str, Any]] = _schema(
        {"keywords": _KEYWORDS, "page": _number(_MAX_PAGES), "max_results": _number(_MAX_PAGE)},
        "keywords",
    )

    @override
    async def _act(self, arguments: Arguments, context: ToolContext) -> ToolResult:
        keywords = searched_keywords(str(arguments["keywords"]))
        page = _within(arguments.get("page"), 1, _MAX_PAGES)
        size = _within(arguments.get("max_results"), _PAGE, _MAX_PAGE)
        found = await self._knowledge.search(
            keywords,
            uid=context.principal.uid,
            page=page,
            size=size,
            question=str(arguments["keywords"]),
        )
        text = _page_text(found, " ".join(keywords), page, -(-found.total // size))
        return await self._shown(text, found.hits, context, found.total)


def _page_text(found: FoundPage, keywords: str, page: int, pages: int) -> str:
    if not found.total:
        text = f'Nothing found for "{keywords}".'
        if found.suggestions:
            text += f" There are entries about: {', '.join(found.suggestions)}."
        return text
    if not found.hits:
        return f"There is no page {page}; the last one is {pages}."
    lines = [_found_line(hit) for hit in found.hits]
    if page < pages:
        lines.append(f'page {page} of {pages}; for the next: "page": {page + 1}')
    return "\n".join(lines)


class _KnowledgeLoad(_KnowledgeTool):
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
        text = _loaded(hits, offset=offset)
        if found.total > len(found.hits) and not offset:
            text += f"\n\n[{found.total - len(found.hits)} more entries have these keywords]"
        return await self._shown(text, hits, context, found.total)


class _KnowledgeList(_KnowledgeTool):
    """`knowledge_list(prefix?, max?)`: names of entries."""

    name: ClassVar[str] = "knowledge_list"
    short: ClassVar[str] = "List the notes of the knowledge base by name."
    description: ClassVar[str] = (
        "List the entries by file name, those that begin with `prefix`. "
        f"`max` is 1 to {_MAX_LISTED}, {_LISTED} when left out."
    )
    parameters: ClassVar[dict[str, Any]] = _schema(
        {"prefix": {"type": "string"}, "max": _number(_MAX_LISTED)}
    )

    @override
    async def _act(self, arguments: Arguments, context: ToolContext) -> ToolResult:
        prefix = str(arguments.get("prefix", "")).strip()
        most = _within(arguments.get("max"), _LISTED, _MAX_LISTED)
        cards = await self._knowledge.listed(prefix, uid=context.principal.uid)
        if not cards:
            text = f'No entry begins with "{prefix}".' if prefix else "There are no entries yet."
            return succeeded(text, entries=[], total=0)
        lines = [_listed_line(card) for card in cards[:most]]
        if len(cards) > most:
            lines.append(f"[{len(cards) - most} more entries; name a prefix or a higher max]")
        hits = (EntryHit(card=card, text="") for card in cards[:most])
        return await self._shown("\n".join(lines), hits, context, len(cards))


class _KnowledgeDelete(_KnowledgeTool):
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
            return succeeded(_absent(error.message, error.hint), deleted=False)
        return succeeded(_deleted(file, keeps_old=self._knowledge.keeps_old))


class _KnowledgeKeywords(_KnowledgeTool):
    """`knowledge_keywords(min_count?, max?)`: keywords and how many entries have them."""

    name: ClassVar[str] = "knowledge_keywords"
    short: ClassVar[str] = "List the keywords of the knowledge base, most used first."
    description: ClassVar[str] = (
        "List the keywords that at least `min_count` entries have (1 when left out), the most "
        f"used first. `max` is 1 to {_MAX_COUNTED}, {_COUNTED} when left out."
    )
    parameters: ClassVar[dict[str, Any]] = _schema(
        {"min_count": {"type": "integer", "minimum": 1}, "max": _number(_MAX_COUNTED)}
    )

    @override
    async def _act(self, arguments: Arguments, context: ToolContext) -> ToolResult:
        least = _within(arguments.get("min_count"), 1, _MAX_PAGES)
        most = _within(arguments.get("max"), _COUNTED, _MAX_COUNTED)
        known = await self._knowledge.keywords(uid=context.principal.uid)
        fitting = [use for use in known if use.count >= least]
        shown = fitting[:most]
        lines = [f"{use.keyword} ({use.count})" for use in shown] or ["There are no keywords yet."]
        if len(fitting) > most:
            lines.append(f"[{len(fitting) - most} more keywords]")
        counts = [KeywordCount(keyword=use.keyword, count=use.count) for use in shown]
        facts: dict[str, Any] = {"keywords": msgspec.to_builtins(counts), "total": len(fitting)}
        blamed = dict.fromkeys(file for use in shown for file in use.untrusted)
        if blamed:
            facts["untrusted_sources"] = [f"knowledge {file}" for file in blamed]
        return succeeded("\n".join(lines), **facts)
