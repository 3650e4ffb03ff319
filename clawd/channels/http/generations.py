"""Runs requests to models: one pass to a provider, or a turn of clawd's own loop.

One pass, as a model alone would answer, where the client brings tools, wants the plain model (log
probabilities, several choices, no tools, nothing injected, a raw prompt), wants an answer of a
given form (a call of a tool has another), goes on with something else than a message of the user,
helps a program that brings tools elsewhere, or shows a key that may not chat with clawd's own
tools. Else a turn.
"""

import asyncio
import hashlib
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from typing import Any

import msgspec

from clawd.channels.http.catalogue import ModelCatalogue, ModelChoice
from clawd.channels.http.errors import nothing_starts
from clawd.channels.http.model_api import (
    PRESET_WORDS,
    Caller,
    GatewayEvent,
    Generation,
    ModelRequest,
)
from clawd.channels.http.turn_stream import Telling, TurnStream
from clawd.config.schema import ProviderLabels
from clawd.errors import ForbiddenError, InvalidRequestError, StoppedError
from clawd.kernel.concurrency import settled
from clawd.providers.base import (
    CallDelta,
    ChatRequest,
    Delta,
    Failed,
    Finished,
    Message,
    Provider,
    Sampling,
    Serving,
    Tokenizing,
    able,
)
from clawd.providers.ledger import TokenCounter, estimated
from clawd.providers.presets import PresetWord, preset_word
from clawd.providers.router import check_hints
from clawd.runtime.activity import DeltaMeter, ModelCounts
from clawd.runtime.context import open_calls, repair_orphans, with_block
from clawd.runtime.conversation_matching import Brought, Continuity, Place, as_shown
from clawd.runtime.inbox import Inbox
from clawd.runtime.incoming import IncomingMessage, hints_for
from clawd.runtime.prompt import PromptSettings, system_prompt
from clawd.runtime.settings import RuntimeSettings
from clawd.security.principal import Principal
from clawd.tools.offer import RequestTools

# One pass to a provider: what is asked, and the answer on its way.

_HINTS = frozenset(ProviderLabels.model_fields)


class Forwarded:
    """One pass to a provider.

    Args:
        provider: who answers.
        request: what it is asked.
        model: the name to answer with.
        ended: told when it is closed.
        meter: takes note of what comes.
    """

    def __init__(
        self,
        provider: Provider,
        request: ChatRequest,
        *,
        model: str,
        ended: Callable[["Forwarded"], None],
        meter: DeltaMeter,
    ) -> None:
        self.model = model
        self.conversation_id = ""
        self._is_stopped = False
        self._waiting: asyncio.Task[Any] | None = None  # for the provider
        self._ended = ended
        self._meter = meter
        self._events = self._run(provider, request)

    def __aiter__(self) -> AsyncIterator[GatewayEvent]:
        """Return the events."""
        return self._events

    def stop(self) -> None:
        """End it because of the emergency stop; its last event says so."""
        waiting = self._waiting if not self._is_stopped else None
        self._is_stopped = True
        if waiting is not None:
            waiting.cancel()

    async def aclose(self) -> None:
        """Stop the work; idempotent."""
        try:
            await self._events.aclose()
        finally:
            self._ended(self)

    async def _run(
        self, provider: Provider, request: ChatRequest
    ) -> AsyncGenerator[GatewayEvent, None]:
        deltas = provider.chat(request)
        offered = Offered(request)
        task = asyncio.current_task()
        assert task is not None
        try:
            while not self._is_stopped:
                self._waiting = task
                try:
                    delta = await anext(deltas)
                except StopAsyncIteration:
                    return
                except asyncio.CancelledError:
                    if not self._is_stopped or task.uncancel():
                        raise
                    break
                finally:
                    self._waiting = None
                self._meter.note(delta)
                told = offered.told(delta)
                if told is not None:
                    yield told
                if isinstance(delta, Finished | Failed):
                    return
        finally:
            close = getattr(deltas, "aclose", None)
            if close is not None:
                await close()
        ending = Failed(error=_stopped())
        self._meter.note(ending)
        yield ending


class Offered:
    """Leaves out the calls of tools that a client did not offer: it has none to run them with.

    Remote models name any tool, and so do local ones in calls that no grammar holds: in clawd's own
    loop the model is told what is wrong with it. Those that are left get numbers without a gap.
    """

    def __init__(self, request: ChatRequest) -> None:
        self._names = frozenset(tool.name for tool in request.tools)
        self._numbers: dict[int, int | None] = {}
        self._kept = 0

    def told(self, delta: Delta) -> Delta | None:
        """Return what the client is told of a delta; None for nothing."""
        if isinstance(delta, CallDelta):
            if delta.index not in self._numbers:
                is_offered = delta.name in self._names
                self._numbers[delta.index] = self._kept if is_offered else None
                self._kept += is_offered
            number = self._numbers[delta.index]
            return None if number is None else msgspec.structs.replace(delta, index=number)
        if isinstance(delta, Finished) and delta.reason == "tool_calls" and not self._kept:
            return msgspec.structs.replace(delta, reason="stop")
        return delta


def _stopped() -> StoppedError:
    """Return the error of an answer that the emergency stop ended."""
    return StoppedError(
        "the emergency stop was set while the model was answering",
        hint="an admin clears it with: clawctl estop --clear",
    )


def chat_request(
    request: ModelRequest, choice: ModelChoice, caller: Caller, prompt: PromptSettings
) -> ChatRequest:
    """Return what a provider is asked in one pass.

    Raises:
        InvalidRequestError: it has hints, and the provider is no router.
    """
    messages = request.messages
    if request.preset == PRESET_WORDS:
        messages = tuple(map(as_shown, messages))
    hints = hints_for(choice.provider, {}, _hints_of(request))
    if choice.provider.capabilities().heeds_hints:
        hints["conversation_id"] = _chat_id(request, caller)
    is_raw = request.prompt is not None
    return ChatRequest(
        messages=messages,
        system="" if is_raw else _system_of(request, prompt),
        tools=request.tools,
        model=choice.model,
        metadata=hints,
        sampling=_wishes_of(request),
        tool_choice=request.tool_choice if request.tools else "auto",
        response_format=request.response_format,
        prompt=request.prompt,
        parallel_calls=request.parallel_calls,
        streams_calls=bool(request.tools),
    )


def _system_of(request: ModelRequest, prompt: PromptSettings) -> str:
    """Return the client's system prompt, else clawd's base and the operator's text."""
    if request.system is not None:
        return request.system
    if not request.inject:
        return ""
    kept = {"base": prompt.parts.base, "operator": prompt.parts.operator, "agent": False}
    parts = prompt.parts.without_built_in_text().model_copy(update=kept)
    settings = msgspec.structs.replace(prompt, parts=parts)
    return system_prompt(settings, RequestTools(tools=()))


def _preset_word_of(request: ModelRequest) -> PresetWord:
    """Return the last message of the user, and the preset that it begins with where it may."""
    said = [each.content or "" for each in request.messages if each.role == "user"]
    last = said[-1] if said else ""
    if request.preset == PRESET_WORDS:
        return preset_word(last)
    return PresetWord(text=last)


def _hints_of(request: ModelRequest) -> dict[str, str]:
    """Return what of a request's metadata is for routers; ids of end users and the like are not.

    Raises:
        InvalidRequestError: a hint is too long.
    """
    hints = {name: value for name, value in request.metadata.items() if name in _HINTS}
    check_hints(hints)
    return hints


def _chat_id(request: ModelRequest, caller: Caller) -> str:
    """Return one name for all requests of a chat, so that a router finds its cache again."""
    first = next((each for each in request.messages if each.role == "user"), Message(role="user"))
    said = f"{caller.principal.uid}\0{request.system or ''}\0{first.content or ''}"
    return f"chat-{hashlib.sha256(said.encode(errors='replace')).hexdigest()[:24]}"


def _wishes_of(request: ModelRequest) -> Sampling:
    """Return the sampling of a request, with the preset that it asks for."""
    if request.preset == PRESET_WORDS:
        return _preset_word_of(request).over(request.sampling)
    return msgspec.structs.replace(request.sampling, preset=request.preset)


# Whether the messages of a client can be answered, and as what a model is shown them. Pure.

_MAX_MESSAGES = 20_000


def checked(request: ModelRequest) -> ModelRequest:
    """Return the request with messages that a template can render.

    The results of a round of calls stand in the order of its calls. A call that was never answered
    gets a result that says so, unless the messages end with it.

    Raises:
        InvalidRequestError: the messages cannot be meant; the error's data names the field.
    """
    if request.prompt is not None:
        if request.messages or request.tools:
            raise _bad("prompt", "a raw prompt goes with neither messages nor tools")
        return request
    messages = request.messages
    if not messages:
        raise _bad("messages", "expected at least one message")
    if len(messages) > _MAX_MESSAGES:
        raise _bad("messages", f"{len(messages)} messages; the limit is {_MAX_MESSAGES}")
    _check_roles(messages)
    _check_results(messages)
    if open_calls(messages):
        names = ", ".join(call.name for call in open_calls(messages))
        if messages[-1].role in {"assistant", "tool"}:
            raise _bad("messages", f"the calls of {names} have no results")
    return msgspec.structs.replace(request, messages=repair_orphans(_in_order(messages)))


def _check_roles(messages: Sequence[Message]) -> None:
    for number, message in enumerate(messages):
        if message.role == "system":
            raise _bad(f"messages[{number}]", "a system message stands apart from the others")
    if len(messages) > 1 and messages[-1].role == messages[-2].role == "assistant":
        raise _bad("messages", "the last two are both of the assistant; one can be gone on with")


def _check_results(messages: Sequence[Message]) -> None:
    """Refuse results of calls that no assistant message right before them made."""
    waiting: set[str] = set()
    for number, message in enumerate(messages):
        if message.role != "tool":
            waiting = {call.id for call in message.tool_calls}
        elif message.tool_call_id not in waiting:
            named = message.tool_call_id or "no call at all"
            raise _bad(
                f"messages[{number}]",
                f"it is the result of {named}, which no assistant message before it asked for",
            )
        else:
            waiting.discard(message.tool_call_id)


def _in_order(messages: Sequence[Message]) -> list[Message]:
    """Return the messages with the results of every round in the order of its calls."""
    ordered: list[Message] = []
    places: dict[str, int] = {}
    results: list[Message] = []
    for message in messages:
        if message.role == "tool":
            results.append(message)
            continue
        ordered += sorted(results, key=lambda result: places[result.tool_call_id])
        results = []
        places = {call.id: place for place, call in enumerate(message.tool_calls)}
        ordered.append(message)
    return ordered + sorted(results, key=lambda result: places[result.tool_call_id])


def _bad(where: str, problem: str) -> InvalidRequestError:
    return InvalidRequestError(f"{where}: {problem}", data={"param": where})


_LOOP_SCOPES = frozenset({"chat", "tools"})
AGENT_S = 600.0
MAX_AGENTS = 1_024


class Agents:
    """Remembers which programs brought tools of late: agents, whose other requests help them.

    Titles, summaries and the like come beside the work, without tools but with a system prompt of
    their own; clawd's own agent is not meant by them, nor is its memory.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seen: dict[tuple[str, int, str], float] = {}

    def note(self, request: ModelRequest, caller: Caller) -> None:
        """Take note of a request."""
        if request.tools and request.program:
            who = _program(request, caller)
            self._seen.pop(who, None)
            self._seen[who] = self._clock()
            if len(self._seen) > MAX_AGENTS:
                self._seen.pop(next(iter(self._seen)))

    def is_helped_by(self, request: ModelRequest, caller: Caller) -> bool:
        """Return whether a request without tools is one that helps a program which brings them."""
        if request.tools or request.system is None or request.conversation_id:
            return False
        seen_at = self._seen.get(_program(request, caller))
        return seen_at is not None and self._clock() - seen_at < AGENT_S


def _program(request: ModelRequest, caller: Caller) -> tuple[str, int, str]:
    return caller.key_id, caller.principal.uid, request.program


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
        catalogue: ModelCatalogue,
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
        self._agents = Agents()

    async def open(self, request: ModelRequest, caller: Caller) -> Generation:
        """Check a request and begin it.

        A model of this machine is loaded first, so that what is wrong with it is told in time.

        Raises:
            ClawError: it cannot be answered; nothing has begun.
        """
        request = checked(request)
        choice = await self._catalogue.find(request.model)
        self._agents.note(request, caller)
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
        if self._agents.is_helped_by(request, caller):
            return True
        return is_one_pass(request, caller, has_agent=self._settings().channels.http.agent)

    def stop(self) -> None:
        """End every pass because of the emergency stop; turns are the inbox's."""
        for running in tuple(self._passes):
            running.stop()

    async def _forward(
        self, request: ModelRequest, choice: ModelChoice, caller: Caller
    ) -> Generation:
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

    async def _ready(self, choice: ModelChoice) -> None:
        """Load a model of this machine, so that only its answer is waited for afterwards.

        Raises:
            StoppedError: the emergency stop is set; also where that was while the model loaded.
            ClawError: it cannot be loaded.
        """
        if not self._is_stopped() and isinstance(choice.provider, Serving):
            await choice.provider.describe(choice.model)
        if self._is_stopped():
            raise nothing_starts()

    async def _run_turn(
        self, request: ModelRequest, choice: ModelChoice, caller: Caller
    ) -> Generation:
        principal = caller.principal
        incoming = _incoming(request, choice)
        await self._ready(choice)
        keeps = request.is_kept and self._settings().channels.http.keep_conversations
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
            # An agent's title is asked for in the same moment as its first answer, or before.
            is_help = place.is_new and self._agents.is_helped_by(request, caller)
            if not keeps or is_help:
                await self._continuity.forget(ticket.conversation_id, principal)
            gone = "" if is_answered else ticket.conversation_id
            await self._let_go(place, gone, principal)

        stream = TurnStream(
            ticket,
            model=choice.name,
            told=told,
            closed=closed,
            telling=Telling(tells_waiting=request.tells_waiting),
        )
        if not keeps:
            stream.conversation_id = ""  # nobody finds it again
        if is_cancelled:
            await stream.aclose()
            raise asyncio.CancelledError
        return stream

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
        self, request: ModelRequest, choice: ModelChoice, principal: Principal
    ) -> ChatRequest:
        """Return what a turn would ask first, in a new conversation."""
        preview = await self._inbox.preparation.preview(
            None, principal, agent="", workspace="", door="http"
        )
        *history, last = request.messages
        text = with_block(preview.block, _preset_word_of(request).text)
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
        or not caller.scopes >= _LOOP_SCOPES
    )


def _shown(request: ModelRequest, messages: Sequence[Message]) -> Iterator[Message]:
    """Return messages as a model is shown them."""
    return map(as_shown, messages) if request.preset == PRESET_WORDS else iter(messages)


def _incoming(request: ModelRequest, choice: ModelChoice) -> IncomingMessage:
    return IncomingMessage(
        text=_preset_word_of(request).text,
        pictures=request.messages[-1].pictures,
        provider=choice.provider.name(),
        model=choice.model,
        # Nobody sits at this door; approvals are answered from elsewhere, as for a detached turn.
        detach=True,
        hints=_hints_of(request),
        door="http",
        client="http",
        system=request.system,
        sampling=_wishes_of(request),
        tool_choice=request.tool_choice,
        max_rounds=request.max_rounds,
    )
