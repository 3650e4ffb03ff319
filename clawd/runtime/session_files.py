"""Session files in what the model is told: the list of them, and long messages by reference.

A message that does not fit a model's context is shown by its head and its tail:

    the beginning
    [… 91204 of 95300 bytes of this message are left out here. The whole is
    file+session://message-1.txt: read it with file_read, from offset=2730 on, before you answer …]
    the end
"""

import asyncio
import logging
from collections.abc import Callable

import msgspec

from clawd.errors import ClawError
from clawd.memory.session_files import FileNews, SessionFiles, described
from clawd.providers.base import ChatRequest, Message, Sampling
from clawd.runtime.compression import MIN_SHOWN_TOKENS, room_for_message
from clawd.runtime.compressor import ModelBook
from clawd.runtime.context_facts import Fact, FactScope
from clawd.runtime.conversation import ConversationBook, LiveConversation
from clawd.runtime.hub import DaemonEvent
from clawd.runtime.settings import RuntimeSettings
from clawd.runtime.summariser import Summariser
from clawd.runtime.transcript import FILE_SUMMARISER, file_request
from clawd.runtime.turn_plan import TurnPlan, request_of
from clawd.tools.session_files import SessionFile, SessionStore, line_of
from clawd.wire.events import Event, Notice, SessionFileChanged, SessionFileDeleted
from clawd.wire.references import SCHEME, reference

SHORTEST_CUT_BYTES = 2 * 1024  # shorter messages are never cut: little would be won
HEAD_SHARE = 2 / 3
LISTED = 20
MESSAGE_STEM = "message"
READER = "file_read"
# What is asked of a model about a file: shorter files are their own summary.
SUMMED_FROM_BYTES = 2 * 1024
SUMMED_HEAD_BYTES, SUMMED_TAIL_BYTES = 3 * 1024, 1024
MAX_SUMMARY_TOKENS = 48
MAX_THINKING_TOKENS = 512
SUMMARY_LIMIT_S = 60.0
MIN_SUMMARY_WORDS = 3
MAX_SEEN = 10_000

_log = logging.getLogger(__name__)


class SessionFilesFact:
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
        size_bytes = len(text.encode(errors="replace"))
        if size_bytes < SHORTEST_CUT_BYTES:
            return ""
        size = self._models.size(plan.provider, plan.model) or settings.compression.context_tokens
        if not size:
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
            shown_bytes=min(
                size_bytes * room.wanted // tokens, settings.limits.max_inline_message_bytes
            ),
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


class FileSummaries:
    """Has a model say in a line what each session file holds, while nothing else is asked of it.

    It begins when a turn has ended, one file after another, and breaks off as soon as a turn
    begins: what is left is done after that one. One of a daemon.

    Args:
        files: memory's.
        book: the conversations in use.
        summariser: asks models.
        is_wanted: whether models are asked at all.
    """

    def __init__(
        self,
        files: SessionFiles,
        book: ConversationBook,
        *,
        summariser: Summariser,
        is_wanted: Callable[[], bool],
    ) -> None:
        self._files = files
        self._book = book
        self._summariser = summariser
        self._is_wanted = is_wanted
        self._task: asyncio.Task[None] | None = None
        self._seen: dict[tuple[str, str], str] = {}
        self._is_closing = False

    @property
    def is_busy(self) -> bool:
        """Whether a summary is on its way."""
        return self._task is not None and not self._task.done()

    def begin(self, live: LiveConversation, plan: TurnPlan) -> None:
        """Begin to have the files of a conversation summed up whose turn has just ended."""
        others = self._book.busy_ids() - {live.record.id}
        is_busy = self._task is not None and not self._task.done()
        is_idle = not others and live.waiting <= 1 and not is_busy
        if not is_idle or self._is_closing or not self._is_wanted():
            return
        self._task = asyncio.create_task(self._sum_up(live, plan))

    def give_way(self) -> None:
        """Break off, because a turn begins."""
        if self._task is not None:
            self._task.cancel()

    async def close(self) -> None:
        """End what runs; the summaries stay as they are."""
        self._is_closing = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    async def _sum_up(self, live: LiveConversation, plan: TurnPlan) -> None:
        identity, owner = live.record.id, live.record.owner
        try:
            for file in await self._files.list(identity, owner=owner):
                key = (identity, file.name)
                if file.size < SUMMED_FROM_BYTES or self._seen.get(key) == file.updated_at:
                    continue
                await self._one(live, plan, file)
                if len(self._seen) >= MAX_SEEN:
                    self._seen.clear()
                self._seen[key] = file.updated_at
        except ClawError as error:
            _log.info("session files are not summed up: %s", error.code)
        except Exception as error:  # noqa: BLE001 - the outermost handler of the task
            _log.error("session files are not summed up", exc_info=error)

    async def _one(self, live: LiveConversation, plan: TurnPlan, file: SessionFile) -> None:
        """Have one file summed up, unless it was before; a summary that is none is not taken."""
        identity, owner = live.record.id, live.record.owner
        file, content = await self._files.load(identity, file.name, owner=owner)
        text_mime, first_words = described(
            file.name, content, is_text=file.is_kept and file.name.endswith(".txt")
        )
        if file.summary != first_words or first_words == "not text" or file.mime != text_mime:
            return
        request = ChatRequest(
            system=FILE_SUMMARISER,
            messages=(Message(role="user", content=file_request(file.name, _excerpt(content))),),
            model=plan.model,
            metadata=plan.hints | {"conversation_id": f"{identity}/files"},
            sampling=Sampling(max_tokens=MAX_SUMMARY_TOKENS + MAX_THINKING_TOKENS),
        )
        answer = await self._summariser.ask(
            plan.provider, request, limit_tokens=MAX_SUMMARY_TOKENS, limit_s=SUMMARY_LIMIT_S
        )
        line = next((each.strip() for each in answer.splitlines() if each.strip()), "")
        if len(set(line.split())) < MIN_SUMMARY_WORDS:
            _log.info("a summary of a session file says nothing and is not taken")
            return
        await self._files.summarise(identity, file, line, owner=owner)


def _excerpt(content: bytes) -> str:
    """Return the beginning and the end of a text."""
    if len(content) <= SUMMED_HEAD_BYTES + SUMMED_TAIL_BYTES:
        return content.decode(errors="replace")
    head = content[:SUMMED_HEAD_BYTES].decode(errors="ignore")
    tail = content[-SUMMED_TAIL_BYTES:].decode(errors="ignore")
    return f"{head}\n[…]\n{tail}"


def teller_of_files(book: ConversationBook) -> Callable[[FileNews], None]:
    """Return what reports session files to the followers of their conversation, or the daemon."""

    def tell(news: FileNews) -> None:
        event = _event_of(news)
        live = book.live(news.conversation_id)
        if live is not None:
            live.tell(event)
        else:
            book.hub.emit(
                DaemonEvent(event=event, owner=news.owner, conversation_id=news.conversation_id)
            )

    return tell


def _event_of(news: FileNews) -> Event:
    file = news.file
    if file is None:
        return SessionFileDeleted(name=news.name)
    return SessionFileChanged(
        name=file.name,
        mime=file.mime,
        summary=file.summary,
        size=file.size,
        is_by_model=news.is_by_model,
    )
