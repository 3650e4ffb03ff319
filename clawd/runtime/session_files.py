"""Session files in what the model is told: the list of them, and long messages by reference."""

import logging

from clawd.errors import ClawError
from clawd.runtime.facts import Fact, FactScope
from clawd.tools.session_files import SessionStore, line_of
from clawd.wire.references import SCHEME, reference

MESSAGE_HEAD_BYTES = 2 * 1024
LISTED = 20
MESSAGE_STEM = "message"
READER = "file_read"

_log = logging.getLogger(__name__)


class SessionFileList:
    """The fact `files`: the session files of the conversation, the last changed first.

    Args:
        store: keeps them.
    """

    names: tuple[str, ...] = ("files",)

    def __init__(self, store: SessionStore) -> None:
        self._store = store

    async def facts(self, scope: FactScope) -> dict[str, Fact]:
        """Return the list; nothing where there are none, or no tool reads them."""
        if not scope.conversation_id or READER not in scope.offered:
            return {}
        found = await self._store.list(scope.conversation_id, owner=scope.owner)
        if not found:
            return {}
        lines = [f"of this conversation, each read as {SCHEME}NAME", *map(line_of, found[:LISTED])]
        if len(found) > LISTED:
            lines.append(f"and {len(found) - LISTED} more: file_list with path {SCHEME}")
        return {self.names[0]: Fact(text="\n".join(lines))}


async def shortened_message(
    text: str, store: SessionStore, conversation_id: str, *, owner: int | None
) -> str:
    """Keep a message that is too long as a session file; return its head and where the whole is.

    Where it cannot be kept, the whole text is returned: nothing that a person says is lost.
    """
    data = text.encode(errors="replace")
    try:
        file = await store.keep(conversation_id, MESSAGE_STEM, data, owner=owner)
    except ClawError as error:
        _log.warning("a long message is not kept as a session file", extra={"why": error.message})
        return text
    head = data[:MESSAGE_HEAD_BYTES].decode(errors="ignore")
    offset = len(head.encode())
    return (
        f"{head}\n[cut: the whole message, {len(data)} bytes, is {reference(file.name)}; read it "
        f"with file_read, from offset={offset} on, before you answer]"
    )
