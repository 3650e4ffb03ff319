"""One pass to a provider: what is asked, and the answer on its way."""

import asyncio
import contextlib
import hashlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable

import msgspec

from clawd.channels.http.catalogue import Choice
from clawd.channels.http.exchange import PRESET_WORDS, Caller, GatewayEvent, ModelRequest
from clawd.errors import StoppedError
from clawd.providers.base import (
    CallDelta,
    ChatRequest,
    Delta,
    Evaluated,
    Failed,
    Finished,
    Message,
    Provider,
    Sampling,
)
from clawd.providers.preset_words import PresetWord, preset_word
from clawd.providers.routing import Labels, check_hints
from clawd.runtime.activity import DeltaMeter
from clawd.runtime.continuity import as_shown
from clawd.runtime.hints import hints_for
from clawd.runtime.prompt import PreambleOptions, PromptSettings, system_prompt
from clawd.wire.events import Notice

_HINTS = frozenset(Labels.__struct_fields__)


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
        self._limit: asyncio.Timeout | None = None
        self._ended = ended
        self._meter = meter
        self._events = self._run(provider, request)

    def __aiter__(self) -> AsyncIterator[GatewayEvent]:
        """Return the events."""
        return self._events

    def stop(self) -> None:
        """End it because of the emergency stop; its last event says so."""
        self._is_stopped = True
        if self._limit is not None:
            with contextlib.suppress(RuntimeError):  # nobody waits for an event just now
                self._limit.reschedule(asyncio.get_running_loop().time())

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
        try:
            while not self._is_stopped:
                try:
                    async with asyncio.timeout(None) as self._limit:
                        delta = await anext(deltas)
                except StopAsyncIteration:
                    return
                except TimeoutError:
                    if not self._is_stopped:
                        raise
                    break
                self._meter.note(delta)
                for note in delta.notes if isinstance(delta, Evaluated) else ():
                    yield Notice(level="warning", text=note)
                told = offered.told(delta)
                if told is not None:
                    yield told
                if isinstance(delta, Finished | Failed):
                    return
        finally:
            close = getattr(deltas, "aclose", None)
            if close is not None:
                await close()
        ending = Failed(error=stopped())
        self._meter.note(ending)
        yield ending


class Offered:
    """Leaves out the calls of tools that a client did not offer: it has none to run them with.

    Local models are free to name any tool, as clawd's own loop tells them what is wrong with it.
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


def stopped() -> StoppedError:
    """Return the error of an answer that the emergency stop ended."""
    return StoppedError(
        "the emergency stop was set while the model was answering",
        hint="an admin clears it with: clawctl estop --clear",
    )


def chat_request(
    request: ModelRequest, choice: Choice, caller: Caller, prompt: PromptSettings
) -> ChatRequest:
    """Return what a provider is asked in one pass.

    Raises:
        InvalidRequestError: it has hints, and the provider is no router.
    """
    messages = request.messages
    if request.preset == PRESET_WORDS:
        messages = tuple(map(as_shown, messages))
    hints = hints_for(choice.provider, {}, hints_of(request))
    if choice.provider.capabilities().heeds_hints:
        hints["conversation_id"] = _chat_id(request, caller)
    is_raw = request.prompt is not None
    return ChatRequest(
        messages=messages,
        system="" if is_raw else system_of(request, prompt),
        tools=request.tools,
        model=choice.model,
        metadata=hints,
        sampling=wishes_of(request),
        tool_choice=request.tool_choice if request.tools else "auto",
        response_format=request.response_format,
        prompt=request.prompt,
        parallel_calls=request.parallel_calls,
        streams_calls=bool(request.tools),
    )


def system_of(request: ModelRequest, prompt: PromptSettings) -> str:
    """Return the client's system prompt, else clawd's base and the operator's text."""
    if request.system is not None:
        return request.system
    if not request.inject:
        return ""
    options = PreambleOptions.own_text_only()
    options = msgspec.structs.replace(
        options, base=prompt.options.base, operator=prompt.options.operator, agent=False
    )
    settings = msgspec.structs.replace(prompt, options=options)
    return system_prompt(settings, (), workspace="")


def preset_word_of(request: ModelRequest) -> PresetWord:
    """Return the last message of the user, and the preset that it begins with where it may."""
    said = [each.content or "" for each in request.messages if each.role == "user"]
    last = said[-1] if said else ""
    if request.preset == PRESET_WORDS:
        return preset_word(last)
    return PresetWord(text=last)


def hints_of(request: ModelRequest) -> dict[str, str]:
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


def wishes_of(request: ModelRequest) -> Sampling:
    """Return the sampling of a request, with the preset that it asks for."""
    if request.preset == PRESET_WORDS:
        return preset_word_of(request).over(request.sampling)
    return msgspec.structs.replace(request.sampling, preset=request.preset)
