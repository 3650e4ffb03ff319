"""Runs requests to models: one pass to a provider, or a turn of clawd's own loop.

One pass, as a model alone would answer, where the client brings tools, wants the plain model (log
probabilities, several choices, no tools, nothing injected, a raw prompt), wants an answer of a
given form (a call of a tool has another), goes on with something else than a message of the user,
or shows a key that may not chat with clawd's own tools. Else a turn.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence

import msgspec

from clawd.channels.http.catalogue import Catalogue, Choice
from clawd.channels.http.chat_check import checked
from clawd.channels.http.errors import nothing_starts
from clawd.channels.http.exchange import PRESET_WORDS, Caller, Generation, ModelRequest
from clawd.channels.http.forwarded import (
    Forwarded,
    chat_request,
    hints_of,
    preset_word_of,
    wishes_of,
)
from clawd.channels.http.looped import Looped, Telling
from clawd.errors import ForbiddenError, InvalidRequestError
from clawd.providers.abilities import Serving, Tokenizing, able
from clawd.providers.base import ChatRequest, Message
from clawd.providers.ledger import TokenCounter, estimated
from clawd.runtime.activity import DeltaMeter, ModelCounts
from clawd.runtime.context import with_block
from clawd.runtime.continuity import Brought, Continuity, Place, as_shown
from clawd.runtime.inbox import Inbox
from clawd.runtime.incoming import IncomingMessage
from clawd.runtime.settings import RuntimeSettings
from clawd.security.principal import Principal
from clawd.tools.settle import settled

LOOP_SCOPES = frozenset({"chat", "tools"})


class ModelGenerations:
    """Runs requests with the providers and the loop of a daemon.

    Args:
        catalogue: knows which models there are.
        inbox: runs turns.
        continuity: knows which conversation a chat is.
        settings: returns the settings in force.
        counts: of what is forwarded; turns are counted by their events.
        is_stopped: returns whether the emergency stop is set.
    """

    def __init__(
        self,
        catalogue: Catalogue,
        inbox: Inbox,
        continuity: Continuity,
        settings: Callable[[], RuntimeSettings],
        counts: ModelCounts,
        *,
        is_stopped: Callable[[], bool] = lambda: False,
    ) -> None:
        self._catalogue = catalogue
        self._inbox = inbox
        self._continuity = continuity
        self._settings = settings
        self._counts = counts
        self._is_stopped = is_stopped
        self._passes: set[Forwarded] = set()

    async def open(self, request: ModelRequest, caller: Caller) -> Generation:
        """Check a request and begin it.

        A model of this machine is loaded first, so that what is wrong with it is told in time.

        Raises:
            ClawError: it cannot be answered; nothing has begun.
        """
        request = checked(request)
        choice = await self._catalogue.find(request.model)
        if self._is_one_pass(request, caller):
            if request.conversation_id:
                raise ForbiddenError(
                    "a conversation can be named only where clawd's own loop answers",
                    hint="Send no tools and no format, end with a message of the user, and use a "
                    "key with the scopes chat and tools.",
                )
            return await self._forward(request, choice, caller)
        return await self._run_turn(request, choice, caller)

    async def count(self, request: ModelRequest, caller: Caller) -> int:
        """Return how many tokens the prompt of a request has, or about how many.

        Raises:
            ClawError: it cannot be answered.
        """
        request = checked(request)
        choice = await self._catalogue.find(request.model)
        if self._is_one_pass(request, caller):
            asked = chat_request(request, choice, caller, self._settings().prompt)
        else:
            asked = await self._looped_request(request, choice, caller.principal)
        found = able(choice.provider, Tokenizing, choice.model)  # type: ignore[type-abstract]
        if found is not None:
            tokenizing, model = found
            return (await tokenizing.render(msgspec.structs.replace(asked, model=model))).tokens
        if isinstance(choice.provider, TokenCounter):
            return sum((await choice.provider.count_parts(asked)).counts)
        return sum(estimated(asked).counts)

    def _is_one_pass(self, request: ModelRequest, caller: Caller) -> bool:
        return is_one_pass(request, caller, has_agent=self._settings().http_agent)

    def stop(self) -> None:
        """End every pass because of the emergency stop; turns are the inbox's."""
        for running in tuple(self._passes):
            running.stop()

    async def _forward(self, request: ModelRequest, choice: Choice, caller: Caller) -> Generation:
        asked = chat_request(request, choice, caller, self._settings().prompt)
        await self._ready(choice)
        forwarded = Forwarded(
            choice.provider,
            asked,
            model=choice.name,
            ended=self._passes.discard,
            meter=DeltaMeter(self._counts, choice.provider.name()),
        )
        self._passes.add(forwarded)
        return forwarded

    async def _ready(self, choice: Choice) -> None:
        """Load a model of this machine, so that only its answer is waited for afterwards.

        Raises:
            StoppedError: the emergency stop is set; also where that was while the model loaded.
            ClawError: it cannot be loaded.
        """
        if not self._is_stopped() and isinstance(choice.provider, Serving):
            await choice.provider.describe(choice.model)
        if self._is_stopped():
            raise nothing_starts()

    async def _run_turn(self, request: ModelRequest, choice: Choice, caller: Caller) -> Generation:
        principal = caller.principal
        incoming = _incoming(request, choice)
        await self._ready(choice)
        keeps = request.is_kept and self._settings().http_keeps
        shown = tuple(_shown(request, request.messages[:-1]))
        brought = Brought(history=request.messages[:-1], shown=shown, system=request.system)
        place = await self._place(request, brought, principal, keeps=keeps)
        try:
            # Who leaves meanwhile must not leave an empty conversation behind.
            ticket, is_cancelled = await settled(
                self._inbox.submit(
                    msgspec.structs.replace(incoming, conversation_id=place.conversation_id),
                    principal,
                )
            )
        except BaseException:
            await self._let_go(place, place.conversation_id, principal)
            raise

        async def told(text: str) -> None:
            if keeps and not request.conversation_id:
                seen = (*request.messages, Message(role="assistant", content=text))
                await self._continuity.note(
                    ticket.conversation_id,
                    Brought(history=seen, system=request.system),
                    principal,
                )

        async def closed(is_answered: bool) -> None:  # noqa: FBT001 - a callback's signature
            if not keeps:
                await self._continuity.forget(ticket.conversation_id, principal)
            gone = "" if is_answered else ticket.conversation_id
            await self._let_go(place, gone, principal)

        looped = Looped(
            ticket,
            model=choice.name,
            told=told,
            closed=closed,
            telling=Telling(tells_waiting=request.tells_waiting),
        )
        if not keeps:
            looped.conversation_id = ""  # nobody finds it again
        if is_cancelled:
            await looped.aclose()
            raise asyncio.CancelledError
        return looped

    async def _place(
        self, request: ModelRequest, brought: Brought, principal: Principal, *, keeps: bool
    ) -> Place:
        """Return the conversation that a message belongs to.

        Raises:
            ClawError: the one that is named is not to be had, or is not to be kept.
        """
        if not request.conversation_id:
            return await self._continuity.place(brought, principal, is_new=not keeps)
        if not keeps:
            raise InvalidRequestError(
                "a message of a conversation that is kept cannot be left out of memory",
                hint="Name no conversation, or send it without store: false.",
            )
        return await self._continuity.named(request.conversation_id, principal)

    async def _let_go(self, place: Place, unused: str, principal: Principal) -> None:
        """Release a place; delete the conversation that was made for nothing."""
        self._continuity.release(place)
        if unused:
            await self._continuity.discard(place, unused, principal)

    async def _looped_request(
        self, request: ModelRequest, choice: Choice, principal: Principal
    ) -> ChatRequest:
        """Return what a turn would ask first, in a new conversation."""
        preview = await self._inbox.preparation.preview(
            None, principal, agent="", workspace="", door="http"
        )
        *history, last = request.messages
        text = with_block(preview.block, preset_word_of(request).text)
        return ChatRequest(
            messages=(*_shown(request, history), msgspec.structs.replace(last, content=text)),
            system=preview.system if request.system is None else request.system,
            tools=preview.specs if choice.provider.capabilities().tools else (),
            model=choice.model,
        )


def is_one_pass(request: ModelRequest, caller: Caller, *, has_agent: bool = True) -> bool:
    """Return whether a request is forwarded to the model as it is.

    `has_agent` says whether clawd's own loop answers over HTTP at all.
    """
    return bool(
        not has_agent
        or request.tools
        or request.is_plain
        or request.response_format is not None
        or request.tool_choice == "none"
        or not request.inject
        or request.prompt is not None
        or request.messages[-1].role != "user"
        or not caller.scopes >= LOOP_SCOPES
    )


def _shown(request: ModelRequest, messages: Sequence[Message]) -> Iterator[Message]:
    """Return messages as a model is shown them."""
    return map(as_shown, messages) if request.preset == PRESET_WORDS else iter(messages)


def _incoming(request: ModelRequest, choice: Choice) -> IncomingMessage:
    return IncomingMessage(
        text=preset_word_of(request).text,
        provider=choice.provider.name(),
        model=choice.model,
        # Nobody sits at this door; approvals are answered from elsewhere, as for a detached turn.
        detach=True,
        hints=hints_of(request),
        door="http",
        system=request.system,
        sampling=wishes_of(request),
        tool_choice=request.tool_choice,
    )
