"""A conversation in use: what memory holds of it, its context, and who follows it."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

from clawd.errors import ClawError, ForbiddenError, NotFoundError
from clawd.memory.checkpoints import Checkpoint, ModelView
from clawd.memory.rows import MADE_BY, TAINT, Conversation, NewMessage, check_shown, made_with
from clawd.memory.store import Memory
from clawd.runtime.context import (
    Context,
    TokensRead,
    shown_facts,
    shown_messages,
    speakers,
    tokens_read,
)
from clawd.runtime.hub import Broadcast, Hub
from clawd.runtime.prompt import Preamble
from clawd.runtime.settings import RuntimeSettings
from clawd.security.approvals import Approvals, Attendance
from clawd.security.policy import ModeBook, ModeChange
from clawd.security.principal import Principal
from clawd.security.risk import Autonomy
from clawd.security.taint import TaintBook
from clawd.wire.events import Event
from clawd.wire.safe_text import shortened, single_line

MAX_OPEN = 64
HINTS = "hints"
MODE = "mode"
CONFINED = "confined"
CLIENT = "client"
THINK = "think"
TITLE_LIMIT = 60

_log = logging.getLogger(__name__)


class LiveConversation:
    """One conversation that is loaded.

    Attributes:
        record: memory's row.
        context: what a model sees of it.
        broadcast: everybody who follows it.
        tell: takes what happens in it beside a turn: for its followers, and for who owns the turn
            that runs.
        attendance: those who follow it and can answer what its turns ask.
        lock: held by the turn that runs; first come, first served.
        waiting: turns that run or wait.
        calls: calls outside of turns that run or wait.
        hints: what its messages asked of a router, the newest word of each name. They stay with
            the conversation: what was said in private must not go elsewhere with the next message.
        think: whether its messages asked the model to think, or how much; "" for nothing said.
        is_think_checked: whether the model can be told so was looked at.
        read: who answered last, and how many tokens of it that model has read.
        was_read: that was since the start of the daemon, so that it may be in memory still.
        checkpoint: what stands for its beginning, None where nothing does.
        answered: how many turns were answered in it, as far as it matters: 0, 1 or more.
        no_summary_at: at how many messages a model gave no summary, 0 where none failed.
        shown: the facts as its messages showed them last.
        speakers: uids of those who spoke in it beside its owner.
        preamble: its system prompt, when one was made.
        seen: the files that its calls read or wrote since it was loaded.
    """

    def __init__(self, record: Conversation, found: ModelView, hub: Hub | None = None) -> None:
        self.record = record
        self.context = Context()
        self.broadcast = Broadcast(
            hub,
            owner=record.owner,
            conversation_id=record.id,
            made_by=str(record.metadata.get(MADE_BY, "")),
        )
        self.tell: Callable[[Event], None] = self.broadcast.emit
        self.attendance = Attendance()
        self.lock = asyncio.Lock()
        self.waiting = 0
        self.calls = 0
        self.hints: dict[str, str] = dict(record.metadata.get(HINTS, {}))
        self.think = str(record.metadata.get(THINK, ""))
        self.is_think_checked = bool(self.think)
        self.was_read = False
        self.answered = sum(stored.message.role == "assistant" for stored in found.messages)
        self.no_summary_at = 0
        self.speakers: frozenset[int] = frozenset()
        self.preamble: Preamble | None = None
        self.seen: set[Path] = set()
        self.checkpoint: Checkpoint | None = None
        self.read = TokensRead()
        self.shown: dict[str, str] = {}
        if found.messages or found.checkpoint is not None:
            self.show(found)

    @property
    def is_in_use(self) -> bool:
        """Whether something runs or waits in it, or somebody follows it."""
        return bool(self.waiting or self.calls) or bool(self.broadcast.followers)

    @property
    def mode(self) -> str:
        """The mode that was set for it, "" for as configured."""
        return str(self.record.metadata.get(MODE, ""))

    def show(self, found: ModelView) -> None:
        """Show a model these messages from now on, and no others."""
        self.context.replace(shown_messages(found))
        self.checkpoint = found.checkpoint
        self.read = tokens_read(found)
        # Facts are known as far as they are shown still: those that were cut away are news again.
        self.shown = shown_facts(found.messages)
        self.speakers |= speakers(found.messages)

    def known_tokens(self, provider: str, model: str) -> int:
        """Return how many tokens of it this model has read, 0 for none or unknown."""
        is_same = (self.read.provider, self.read.model) == (provider, model)
        return self.read.tokens if is_same else 0


class ConversationBook:
    """The conversations in use, loaded from memory when they are asked for.

    Args:
        memory: keeps them.
        taint: gets back what untrusted text a loaded conversation holds.
        hub: is told what happens in all of them.
        modes: how far a model may go in each; None leaves all as configured.
        approvals: takes the grants of those that are confined.

    Attributes:
        opened: how many new ones were opened so far.
        lapsed: their calls that nobody answered for in time.
        on_forget: told of each that was deleted.
    """

    def __init__(
        self,
        memory: Memory,
        taint: TaintBook,
        hub: Hub | None = None,
        modes: ModeBook | None = None,
        approvals: Approvals | None = None,
    ) -> None:
        self.hub = hub or Hub()
        self.opened = 0
        self.on_forget: Callable[[str], None] = lambda _conversation_id: None
        self.lapsed = memory.lapsed
        self._conversations = memory.conversations
        self._messages = memory.messages
        self._checkpoints = memory.checkpoints
        self._taint = taint
        self._modes = modes
        self._approvals = approvals
        self._live: dict[str, LiveConversation] = {}
        self._loading = asyncio.Lock()

    async def create(
        self,
        principal: Principal,
        settings: RuntimeSettings,
        *,
        workspace: str,
        agent: str,
        title: str = "",
        grants: tuple[str, ...] | None = None,
    ) -> LiveConversation:
        """Open a new conversation.

        With `grants`, patterns of calls that need no approval in it, it is confined: no standing
        rule allows anything there, now or later.

        Raises:
            ClawError: the workspace or the agent is not allowed or not there.
        """
        settings.agent(agent)
        folder = settings.resolve_workspace(workspace)
        record = await self._conversations.create(
            Conversation(
                owner=principal.uid,
                title=title,
                workspace=str(folder),
                provider=settings.default_provider,
                agent=agent,
                metadata=made_with(principal) | ({} if grants is None else {CONFINED: True}),
            )
        )
        live = LiveConversation(record, ModelView(messages=()), self.hub)
        if grants is not None:
            await self._confine(live, principal, grants)
        self.opened += 1
        self._keep(live)
        _log.info("conversation started", extra={"conversation": record.id, "owner": record.owner})
        return live

    async def _confine(
        self, live: LiveConversation, principal: Principal, grants: tuple[str, ...]
    ) -> None:
        if self._modes is None or self._approvals is None:
            raise ForbiddenError("nothing can be confined here")
        self._modes.confine(live.record.id)
        try:
            for pattern in grants:
                await self._approvals.grant(
                    pattern,
                    principal,
                    verdict="allow",
                    workspace=live.record.workspace,
                    conversation_id=live.record.id,
                    days=0,
                )
        except ClawError:
            await self.discard_unused(live)
            raise

    async def load(self, conversation_id: str, principal: Principal) -> LiveConversation:
        """Return a conversation of the principal's own.

        Raises:
            NotFoundError: there is none that the principal may see.
        """
        async with self._loading:
            owner = None if principal.is_admin else principal.uid
            found_record = await self._conversations.get(conversation_id, owner=owner)
            record = check_shown(found_record, principal)
            live = self._live.get(record.id)
            if live is None:
                found = await self._checkpoints.shown(record.id, owner=owner)
                live = LiveConversation(record, found, self.hub)
                for source in record.metadata.get(TAINT, []):
                    self._taint.mark(record.id, source)
                if self._modes is not None:
                    self._modes.restore(record.id, record.metadata.get(MODE, ""))
                    if record.metadata.get(CONFINED):
                        self._modes.confine(record.id)
            self._keep(live)
            return live

    @asynccontextmanager
    async def in_use(self, conversation_id: str, principal: Principal) -> AsyncIterator[None]:
        """Hold a conversation of the principal's own while a call runs in it outside of turns.

        What untrusted text the call brought in is written down at the end.

        Raises:
            NotFoundError: there is none that the principal may see.
        """
        live = await self.load(conversation_id, principal)
        live.calls += 1
        try:
            yield
        finally:
            try:
                with contextlib.suppress(NotFoundError):  # it was deleted meanwhile
                    await self.keep_taint(conversation_id, principal)
            finally:
                live.calls -= 1

    async def of_client(
        self, principal: Principal, settings: RuntimeSettings, label: str, lasting: str
    ) -> LiveConversation:
        """Return the conversation of a client that calls tools by itself.

        Args:
            principal: whose it is.
            settings: in force.
            label: what it is called when it is new.
            lasting: the name under which it is found again; "" always makes a new one.

        Raises:
            ClawError: the workspace is not allowed.
        """
        if lasting:
            found = await self._conversations.with_fact(CLIENT, lasting, owner=principal.uid)
            if found is not None:
                if facts := made_with(principal):  # one of before keys were noted is its by name
                    await self._conversations.note(found.id, owner=principal.uid, facts=facts)
                return await self.load(found.id, principal)
        live = await self.create(principal, settings, workspace="", agent="")
        live.record = await self._conversations.note(
            live.record.id, owner=principal.uid, facts={CLIENT: lasting}, title=label
        )
        return live

    async def keep_taint(self, conversation_id: str, principal: Principal) -> None:
        """Write down what untrusted text a conversation was given by calls outside of turns."""
        sources = list(self._taint.sources(conversation_id))
        live = self._live.get(conversation_id)
        if live is None or sources == live.record.metadata.get(TAINT, []):
            return
        owner = None if principal.is_admin else principal.uid
        live.record = await self._conversations.note(
            conversation_id, owner=owner, facts={TAINT: sources}
        )

    def check_mode(self, mode: Autonomy, principal: Principal) -> None:
        """Refuse a mode that the principal may not set.

        Raises:
            ForbiddenError: it goes further than the policy lets it.
        """
        if self._modes is not None:
            self._modes.check(mode, principal)

    async def set_mode(
        self, live: LiveConversation, mode: Autonomy | Literal[""], principal: Principal
    ) -> None:
        """Let a model go that far in a conversation from its next call on; "" is as configured.

        It is written down before more is allowed, and the user who sets it may not exceed what the
        policy lets him.

        Raises:
            ForbiddenError: the mode goes further.
            ClawError: it could not be kept.
        """
        before = live.mode
        if self._modes is None or mode == before:
            return
        if mode:
            self._modes.check(mode, principal)
        change = ModeChange(
            conversation_id=live.record.id,
            workspace=Path(live.record.workspace),
            before=before,
            mode=mode,
            by=principal,
        )
        await self._modes.change(change)
        live.record = await self._conversations.note(
            live.record.id, owner=live.record.owner, facts={MODE: mode}
        )

    def modes_for(
        self, live: LiveConversation, principal: Principal
    ) -> tuple[str, tuple[Autonomy, ...]]:
        """Return the mode of a conversation, and the others in which a model may work there."""
        if self._modes is None:
            return "as configured", ()
        mode = self._modes.policy(live.record.id, principal).autonomy
        others = (each for each in self._modes.open_to(principal) if each not in (mode, "readonly"))
        return mode, tuple(others)

    async def newest(self, principal: Principal, workspace: Path) -> LiveConversation | None:
        """Return the principal's last active conversation in this workspace, if any."""
        page = await self._conversations.list(
            owner=principal.uid, workspace=str(workspace), limit=1
        )
        for record in page.conversations:
            return await self.load(record.id, principal)
        return None

    async def store(
        self, live: LiveConversation, turn_id: str, messages: Sequence[NewMessage]
    ) -> None:
        """Keep committed messages, and the conversation's title and taint where they are news.

        The taint goes first: untrusted text without it must never be found on disk.
        """
        title = ""
        if not live.record.title:
            first = next((new.message for new in messages if new.message.role == "user"), None)
            title = title_of(first.content or "") if first else ""
        before = live.record.metadata
        sources = list(self._taint.sources(live.record.id))
        facts = {TAINT: sources, HINTS: dict(live.hints), THINK: live.think}
        nothing: dict[str, Any] = {TAINT: [], HINTS: {}, THINK: ""}
        is_news = any(facts[name] != before.get(name, nothing[name]) for name in facts)
        if title or is_news:
            live.record = await self._conversations.note(
                live.record.id, owner=live.record.owner, facts=facts if is_news else {}, title=title
            )
        await self._messages.append(
            live.record.id, messages, owner=live.record.owner, turn_id=turn_id
        )
        _log.info(
            "memory persisted",
            extra={"conversation": live.record.id, "turn": turn_id, "messages": len(messages)},
        )

    def refresh(self, record: Conversation) -> None:
        """Take over a changed row of a conversation, if it is in use."""
        live = self._live.get(record.id)
        if live is not None:
            live.record = record

    def inherit(self, source_id: str, fork_id: str) -> None:
        """Give a fork what is known of its source beyond its row: untrusted text is in both."""
        self._taint.copy(source_id, fork_id)
        if self._modes is not None:
            self._modes.copy(source_id, fork_id)

    def in_use_ids(self) -> frozenset[str]:
        """Return the ids of the conversations in which something runs or waits, or is followed."""
        return frozenset(key for key, live in self._live.items() if live.is_in_use)

    def live(self, conversation_id: str) -> LiveConversation | None:
        """Return a conversation if it is loaded."""
        return self._live.get(conversation_id)

    def busy_ids(self) -> frozenset[str]:
        """Return the ids of the conversations in which a turn or a call runs or waits."""
        return frozenset(key for key, live in self._live.items() if live.waiting or live.calls)

    def sources(self, conversation_id: str) -> tuple[str, ...]:
        """Return where the untrusted text of a conversation in use came from."""
        return self._taint.sources(conversation_id)

    def taint(self, conversation_id: str, sources: Iterable[str]) -> None:
        """Note that text from these sources is in a conversation; its next message keeps that."""
        for source in sources:
            self._taint.mark(conversation_id, source)

    async def taint_by(self, conversation_id: str, files: tuple[Path, ...]) -> None:
        """Note that what these files hold is shown in a conversation."""
        self.taint(conversation_id, await self._taint.files.sources(files))

    @contextlib.contextmanager
    def beside(self, conversation_id: str) -> Iterator[str]:
        """Lend an id for one call beside a conversation, which its owner named beforehand.

        It is judged in the furthest mode that its principal may set, with the untrusted sources
        of the conversation.
        """
        lent = f"{conversation_id}/result"
        self.taint(lent, self.sources(conversation_id))
        if self._modes is not None:
            self._modes.confine(lent)
            self._modes.restore(lent, "full")
        try:
            yield lent
        finally:
            self._taint.forget(lent)
            if self._modes is not None:
                self._modes.forget(lent)

    async def discard_unused(self, live: LiveConversation) -> bool:
        """Delete a conversation whose first message came to nothing; return whether it was so.

        One in which something else waits or runs, or that holds anything, stays.
        """
        if live.waiting > 1 or live.calls:
            return False
        return await self._conversations.delete_empty(live.record.id)

    def forget_owner(self, uid: int) -> None:
        """Drop the deleted conversations of an owner; those of others stay as they are."""
        for live in tuple(self._live.values()):
            if live.record.owner == uid:
                self.forget(live.record.id)

    def forget(self, conversation_id: str) -> None:
        """Drop a deleted conversation in which nothing runs: what runs needs its taint."""
        self.on_forget(conversation_id)
        live = self._live.get(conversation_id)
        if live is not None and not (live.waiting or live.calls):
            del self._live[conversation_id]
            self._taint.forget(conversation_id)
            if self._modes is not None:
                self._modes.forget(conversation_id)

    def _keep(self, live: LiveConversation) -> None:
        self._live.pop(live.record.id, None)
        self._live[live.record.id] = live
        if (spare := len(self._live) - MAX_OPEN) <= 0:
            return
        idle = [key for key, other in self._live.items() if not other.is_in_use]
        for key in idle[:spare]:
            if key != live.record.id:
                del self._live[key]


def title_of(text: str) -> str:
    """Return a title of at most 60 characters on one line; "conversation" for empty text."""
    words = " ".join(single_line(text, 1000).split())
    return shortened(words, TITLE_LIMIT) or "conversation"
