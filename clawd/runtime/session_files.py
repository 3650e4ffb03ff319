"""Session files in what the model is told: the list of them, and long messages by reference.

A message that does not fit a model's context is shown by its head and its tail:

    the beginning
    [… 91204 of 95300 bytes of this message are left out here. The whole is
    file+session://message-1.txt: read it with file_read, from offset=2730 on, before you answer …]
    the end
"""

import logging

import msgspec

from clawd.errors import ClawError
from clawd.runtime.compression import MIN_SHOWN_TOKENS, room_for_message
from clawd.runtime.counting import ModelBook
from clawd.runtime.facts import Fact, FactScope
from clawd.runtime.settings import RuntimeSettings
from clawd.runtime.turn_plan import TurnPlan, request_of
from clawd.tools.session_files import SessionStore, line_of
from clawd.wire.events import Notice
from clawd.wire.references import SCHEME, reference

SHORTEST_CUT_BYTES = 2 * 1024  # shorter messages are never cut: little would be won
HEAD_SHARE = 2 / 3
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


class CutMessage(msgspec.Struct, frozen=True, kw_only=True):
    """What stands for a message that is too long.

    Attributes:
        text: its head, what is left out and where that is, its tail.
        file: the session file that holds the whole.
        left_out: how many bytes are left out.
        size: how many the message has.
    """

    text: str
    file: str
    left_out: int
    size: int


class LongMessages:
    """Keeps messages that fit no context, and says what stands for them.

    Args:
        store: where they are kept.
        models: knows how large the models' contexts are.
    """

    def __init__(self, store: SessionStore, models: ModelBook) -> None:
        self._store = store
        self._models = models

    async def shortened(self, plan: TurnPlan, settings: RuntimeSettings, *, owner: int) -> str:
        """Return what stands for a turn's message if it fits no context; "" if it fits.

        The conversation's older messages do not count: they give way by themselves. A message
        that cannot be kept is left as it is: nothing that a person says is lost.
        """
        text = plan.message.content or ""
        size = self._models.size(plan.provider, plan.model) or settings.compression.context_tokens
        size_bytes = len(text.encode(errors="replace"))
        if not size or size_bytes < SHORTEST_CUT_BYTES:
            return ""
        count = await self._models.count(plan.provider, request_of(plan, (plan.message,)), 0)
        tokens = count.total - count.fixed
        room = room_for_message(settings.compression, size, fixed_tokens=count.fixed)
        is_hopeless = room.largest < MIN_SHOWN_TOKENS  # whatever is left out
        if is_hopeless or tokens <= room.largest:
            return ""
        name = await self._kept(text, plan.scope.conversation_id, owner=owner)
        if not name:
            return ""
        cut = cut_message(
            text,
            shown_bytes=min(size_bytes * room.wanted // tokens, settings.max_inline_message_bytes),
            file=name,
            is_readable=plan.calls_tools and READER in (plan.scope.offered or ()),
        )
        model = plan.model or plan.provider.name()
        plan.scope.emit(Notice(level="warning", text=_cut_notice(cut, model, size)))
        return cut.text

    async def _kept(self, text: str, conversation_id: str, *, owner: int) -> str:
        """Keep a message as a session file and return its name; "" where it cannot be kept."""
        data = text.encode(errors="replace")
        try:
            file = await self._store.keep(conversation_id, MESSAGE_STEM, data, owner=owner)
        except ClawError as error:
            _log.warning("a long message is not kept", extra={"why": error.message})
            return ""
        return file.name


def cut_message(text: str, *, shown_bytes: int, file: str, is_readable: bool) -> CutMessage:
    """Return the head and the tail of a message, about so many bytes, with the cut marked.

    Args:
        text: the message.
        shown_bytes: of head and tail together.
        file: the session file that holds the whole.
        is_readable: the model has a tool that reads it.
    """
    data = text.encode(errors="replace")
    head = data[: int(shown_bytes * HEAD_SHARE)].decode(errors="ignore")
    tail = data[len(data) - int(shown_bytes * (1 - HEAD_SHARE)) :].decode(errors="ignore")
    offset = len(head.encode())
    left_out = len(data) - offset - len(tail.encode())
    where = f"The whole is {reference(file)}"
    way = (
        f"{where}: read it with {READER}, from offset={offset} on, before you answer"
        if is_readable
        else f"{where}, which you cannot read: say so where it matters"
    )
    mark = f"[… {left_out} of {len(data)} bytes of this message are left out here. {way} …]"
    return CutMessage(text=f"{head}\n{mark}\n{tail}", file=file, left_out=left_out, size=len(data))


def _cut_notice(cut: CutMessage, model: str, size: int) -> str:
    return (
        f"the message has {cut.size} bytes, which do not fit the context of {model} ({size} "
        f"tokens): the model is shown its beginning and its end, {cut.left_out} bytes are left "
        f"out; the whole is {reference(cut.file)}"
    )
