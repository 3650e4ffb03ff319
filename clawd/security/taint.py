"""Which untrusted sources have spoken in a conversation. Pure bookkeeping, no disk."""

from clawd.security.origins import UNKNOWN, FileOrigins

MAX_CONVERSATIONS = 10_000
MAX_SOURCES = 50
_OVERFLOW = "more sources"


class TaintBook:
    """The untrusted sources (`web_fetch example.org`, `mcp files`) by conversation.

    Taint is only ever added while a conversation lives; `forget` is for conversations that were
    deleted. A restart restores it with `mark` from what memory kept. Beyond `max_conversations`
    nothing is forgotten either: a conversation that finds no room counts as tainted.

    Args:
        files: the files that carry untrusted text from one conversation to another.
        max_conversations: how many are told apart.

    Attributes:
        files: the same.
    """

    def __init__(
        self, files: FileOrigins | None = None, *, max_conversations: int = MAX_CONVERSATIONS
    ) -> None:
        self.files = files or FileOrigins()
        self._max = max_conversations
        self._sources: dict[str, tuple[str, ...]] = {}
        self._is_full = False

    def mark(self, conversation_id: str, source: str) -> bool:
        """Add a source; returns whether it was news."""
        known = self._sources.get(conversation_id, ())
        if source in known:
            return False
        if not known and len(self._sources) >= self._max:
            self._is_full = True
            return True
        if len(known) >= MAX_SOURCES:
            source = _OVERFLOW
            if source in known:
                return False
        self._sources[conversation_id] = (*known, source)
        return True

    def sources(self, conversation_id: str) -> tuple[str, ...]:
        """Return the sources in the order they came; empty for an untainted conversation."""
        known = self._sources.get(conversation_id, ())
        if not known and self._is_full:
            return (UNKNOWN,)
        return known

    def is_tainted(self, conversation_id: str) -> bool:
        """Tell whether untrusted text has entered the conversation."""
        return bool(self.sources(conversation_id))

    def copy(self, from_id: str, to_id: str) -> None:
        """Give a fork the taint of what it was forked from."""
        for source in self.sources(from_id):
            self.mark(to_id, source)

    def forget(self, conversation_id: str) -> None:
        """Drop what is known about a deleted conversation."""
        self._sources.pop(conversation_id, None)
