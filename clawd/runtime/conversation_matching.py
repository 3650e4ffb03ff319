"""Which conversation a message belongs to that comes with its whole history, as HTTP clients send.

Such a client knows no conversation: it tells all that was said each time. A digest of what it saw
leads back to the conversation it was said in:

    the end of a conversation       that one goes on: its tool rounds, its taint, its warm prefix
    an earlier place in one         a fork from there: the client asks again, or edited something
    nowhere                         a new one that begins with what the client brought

The end counts only with the same system prompt, and while nothing else runs there. What a model
or a tool is said to have told, and no conversation here did, is text from outside: it taints.
Where several conversations look the same to a client, the taint of each goes along.
"""

import asyncio
import hashlib
import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import msgspec

from clawd.errors import InvalidRequestError, NotFoundError
from clawd.kernel.concurrency import settled
from clawd.memory.checkpoints import Point
from clawd.memory.rows import TAINT, Conversation, NewMessage, check_shown, made_with
from clawd.memory.store import Memory
from clawd.providers.base import Message
from clawd.providers.presets import preset_word
from clawd.runtime.conversation import ConversationBook, title_of
from clawd.runtime.settings import RuntimeSettings
from clawd.security.principal import Principal

BROUGHT = "history brought by a client"
SEED = "seed"

_log = logging.getLogger(__name__)


class Brought(msgspec.Struct, frozen=True, kw_only=True):
    """What a client tells of a chat before its newest message.

    Attributes:
        history: as it tells it.
        shown: as a model is shown it, where that is something else.
        system: None for clawd's own.
    """

    history: tuple[Message, ...]
    shown: tuple[Message, ...] = ()
    system: str | None = None

    def shown_from(self, number: int) -> tuple[Message, ...]:
        """Return the history as a model is shown it, from this message on."""
        return (self.shown or self.history)[number:]


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where a message belongs.

    Attributes:
        conversation_id: empty for a new conversation without a history.
        is_new: it was made for this message.
        messages: how many it was made with.
        is_held: nobody else goes on there until it is released.
    """

    conversation_id: str = ""
    is_new: bool = False
    messages: int = 0
    is_held: bool = False


class Continuity:
    """Finds and makes the conversations of chats. One of a daemon.

    Args:
        memory: keeps conversations, and where clients saw them.
        book: those in use.
        settings: returns the settings in force.
    """

    def __init__(
        self, memory: Memory, book: ConversationBook, settings: Callable[[], RuntimeSettings]
    ) -> None:
        self._memory = memory
        self._book = book
        self._settings = settings
        self._held: set[str] = set()

    async def place(self, brought: Brought, principal: Principal, *, is_new: bool = False) -> Place:
        """Return where the next message of a chat belongs; `release` lets go of it.

        Args:
            brought: what the client tells.
            principal: who asks.
            is_new: a conversation of its own, whatever is known of the chat.

        Raises:
            ClawError: memory failed.
        """
        if not brought.history:
            return Place(is_new=True)
        if is_new:
            return await self._whole(self._made(brought.shown_from(0), principal), principal)
        chain = digests(brought.history)
        points = await self._memory.points.find(
            tuple(reversed(chain)), owner=principal.uid, made_by=principal.bound_to
        )
        if going_on := self._end_of(points, chain[-1], _digest(brought.system or "")):
            self._held.add(going_on)
            try:
                await self._book.load(going_on, principal)
            except BaseException:
                self._held.discard(going_on)
                raise
            self._book.taint(going_on, _sources(points))
            return Place(conversation_id=going_on, is_held=True)
        best = _best(points, chain, _digest(brought.system or ""))
        if best is not None:
            known = chain.index(best.history) + 1
            try:
                rest = brought.shown_from(known)
                forking = self._forked(best, rest, _sources(points), principal)
                return await self._whole(forking, principal)
            except (NotFoundError, InvalidRequestError) as error:
                _log.info("a place in a conversation is gone: %s", error.message)
        return await self._whole(self._made(brought.shown_from(0), principal), principal)

    async def named(self, conversation_id: str, principal: Principal) -> Place:
        """Return a conversation of the principal's own.

        Raises:
            NotFoundError: it has none of this name; those of others count as none, for everybody.
        """
        record = await self._memory.conversations.get(conversation_id, owner=principal.uid)
        return Place(conversation_id=check_shown(record, principal).id)

    async def note(self, conversation_id: str, seen: Brought, principal: Principal) -> None:
        """Note what a client has seen of a conversation as it stands now.

        Raises:
            StorageError: memory failed.
        """
        await self._memory.points.add(
            conversation_id,
            owner=principal.uid,
            history=digests(seen.history)[-1],
            system=_digest(seen.system or ""),
            sources=self._book.sources(conversation_id),
        )

    def release(self, place: Place) -> None:
        """Let go of a place, when the turn in it has ended."""
        if place.is_held:
            self._held.discard(place.conversation_id)

    async def discard(self, place: Place, conversation_id: str, principal: Principal) -> None:
        """Delete a conversation that was made for a message of which nothing was kept.

        Raises:
            StorageError: memory failed.
        """
        if not place.is_new:
            return
        counts = await self._memory.messages.counts([conversation_id])
        if counts.get(conversation_id, 0) > place.messages:
            return
        if conversation_id in self._book.in_use_ids():
            return
        await self.forget(conversation_id, principal)

    async def forget(self, conversation_id: str, principal: Principal) -> None:
        """Delete a conversation of which nothing is to be kept.

        Raises:
            StorageError: memory failed.
        """
        try:
            await self._memory.conversations.delete(conversation_id, owner=principal.uid)
        except NotFoundError:
            return
        self._book.forget(conversation_id)

    def _end_of(self, points: Sequence[Point], history: str, system: str) -> str:
        """Return the conversation whose end this is and in which nothing runs, or ""."""
        busy = self._held | self._book.busy_ids()
        for point in points:
            is_same = point.is_end and (point.history, point.system) == (history, system)
            if is_same and point.conversation_id not in busy:
                return point.conversation_id
        return ""

    async def _whole(self, making: Coroutine[Any, Any, Place], principal: Principal) -> Place:
        """Return a new place; when nobody waits for it any more, take it back.

        Raises:
            ClawError: it could not be made.
            CancelledError: nobody waits; nothing of it is left.
        """
        place, is_cancelled = await settled(making)
        if is_cancelled:
            await self.discard(place, place.conversation_id, principal)
            raise asyncio.CancelledError
        return place

    async def _forked(
        self, point: Point, rest: tuple[Message, ...], others: Sequence[str], principal: Principal
    ) -> Place:
        """Return a copy of a conversation up to a place, with what the client says came then.

        Raises:
            ClawError: the conversation or its message is gone, or memory failed.
        """
        # Loaded, so that its taint is known; nothing of it may be lost on the way.
        await self._book.load(point.conversation_id, principal)
        forked = await self._memory.forks.fork(
            point.conversation_id, owner=principal.uid, upto=point.message_id
        )
        self._book.inherit(point.conversation_id, forked.id)
        sources = [*forked.metadata.get(TAINT, []), *self._book.sources(forked.id), *others]
        if _is_foreign(rest):
            sources.append(BROUGHT)
        if sources:
            facts = {TAINT: list(dict.fromkeys(sources))}
            await self._memory.conversations.note(forked.id, owner=forked.owner, facts=facts)
        await self._append(forked, rest, principal)
        counts = await self._memory.messages.counts([forked.id])
        return Place(conversation_id=forked.id, is_new=True, messages=counts.get(forked.id, 0))

    async def _made(self, history: tuple[Message, ...], principal: Principal) -> Place:
        """Return a new conversation that begins with what the client brought.

        Raises:
            ClawError: the workspace is not to be had, or memory failed.
        """
        settings = self._settings()
        first = next((each for each in history if each.role == "user"), None)
        made = await self._memory.conversations.create(
            Conversation(
                owner=principal.uid,
                workspace=str(settings.resolve_workspace("")),
                provider=settings.default_provider,
                title=title_of(first.content or "") if first else "",
                metadata=made_with(principal)
                | ({TAINT: [BROUGHT]} if _is_foreign(history) else {}),
            )
        )
        await self._append(made, history, principal)
        return Place(conversation_id=made.id, is_new=True, messages=len(history))

    async def _append(
        self, made: Conversation, messages: Sequence[Message], principal: Principal
    ) -> None:
        if messages:
            rows = [NewMessage(message=message) for message in messages]
            await self._memory.messages.append(made.id, rows, owner=principal.uid, turn_id=SEED)


def as_shown(message: Message) -> Message:
    """Return a message of a client's as a model is shown it: without a preset's name in front."""
    if message.role != "user":
        return message
    text = message.content or ""
    return msgspec.structs.replace(message, content=preset_word(text).text)


def digests(history: Sequence[Message]) -> list[str]:
    """Return the digest of every beginning of a history, the shortest first.

    Space around a text does not count: clients trim what they show. Nor do ids of calls.
    """
    found: list[str] = []
    before = ""
    for message in history:
        calls = [(call.name, call.arguments) for call in message.tool_calls]
        said = (before, message.role, (message.content or "").strip(), calls)
        seen = "".join(each.sha256 for each in message.pictures)
        before = _digest(msgspec.json.encode(_encodable(said)) + seen.encode())
        found.append(before)
    return found


def _encodable(said: tuple[str, str, str, list[tuple[str, str]]]) -> object:
    """Return what JSON can hold: text of clients may have halves of surrogate pairs in it."""
    before, role, text, calls = said
    return (
        before,
        role,
        text.encode(errors="surrogatepass"),
        [
            (name.encode(errors="surrogatepass"), arguments.encode(errors="surrogatepass"))
            for name, arguments in calls
        ],
    )


def _digest(text: str | bytes) -> str:
    data = text if isinstance(text, bytes) else text.encode(errors="surrogatepass")
    return hashlib.sha256(data).hexdigest()


def _best(points: Sequence[Point], chain: Sequence[str], system: str) -> Point | None:
    """Return the place that most of a history leads to, with the same system prompt if there is."""
    places = {history: number for number, history in enumerate(chain)}
    return max(
        points,
        key=lambda point: (places[point.history], point.system == system, point.is_end),
        default=None,
    )


def _sources(points: Sequence[Point]) -> tuple[str, ...]:
    """Return all sources of what was seen at places that look the same: it may be any of them."""
    return tuple(dict.fromkeys(source for point in points for source in point.sources))


def _is_foreign(messages: Sequence[Message]) -> bool:
    """Return whether a model or a tool is said to have told something in these messages."""
    return any(message.role != "user" for message in messages)
