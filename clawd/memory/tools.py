"""The tool with which a model searches earlier conversations of the person it works for."""

from typing import Any, ClassVar

from typing_extensions import override

from clawd.errors import ClawError
from clawd.memory.search import MessageHit, Search
from clawd.security.risk import Assessment
from clawd.tools.base import Arguments, Tool, ToolContext, ToolResult, failed, succeeded

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
