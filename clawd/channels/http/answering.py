"""Answers one request: whole or as a stream, with pings, errors and the client's leaving.

An error before the first event is an HTTP status, also for a stream; one after it is an event, and
then the stream ends. A silent beginning is waited for some seconds before the status goes out as
200; what is wrong with a request is known by then. A client that leaves ends the work at once,
wherever it is, and so does one that takes nothing of its answer for half a minute.
"""

import asyncio
import logging
import re
from collections import deque
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Protocol

import msgspec
from aiohttp import web

from clawd.channels.http.app import COUNTS, GATEWAY, WAS_TOLD
from clawd.channels.http.errors import error_response
from clawd.channels.http.model_api import (
    Answered,
    Caller,
    Dialect,
    Folding,
    GatewayEvent,
    Generation,
    Generations,
    ModelRequest,
)
from clawd.errors import ClawError, InvalidRequestError, ProviderError
from clawd.providers.base import CallDelta, Failed, Finished
from clawd.wire import events as wire

# Keeps what a stream has shown true and whole: what was sent cannot be taken back.
#
# When a hop is asked again, its answer is followed silently as long as it repeats what was sent.
# One that says something else breaks the stream off: two half answers would look like one.

# What goes on with an emoji: a joiner, selectors, skin tones, tags, the frame of a key.
_EXTENDS = re.compile("[\u200d\ufe0e\ufe0f\u20e3\U0001f3fb-\U0001f3ff\U000e0020-\U000e007f]+\\Z")
_EMOJI = re.compile("[\u00a9\u00ae\u203c-\u3299\U0001f000-\U0001faff]\\Z")
_FLAGS = re.compile("[\U0001f1e6-\U0001f1ff]+\\Z")
_JOINER = "\u200d"
_MOST_PARTS = 8


class WholeEmoji:
    """Holds an emoji at the end of a text back until it is known that nothing more belongs to it.

    Models write one in several tokens: a family is four people and three joiners, and a client that
    draws each piece as it comes shows all of them one after the other.
    """

    def __init__(self) -> None:
        self._held = ""

    def take(self, event: GatewayEvent) -> list[GatewayEvent]:
        """Return what can be shown with an event: of a text all but an emoji at its end."""
        held, self._held = self._held, ""
        if type(event) is not wire.TextDelta:  # what tokens are reported of stays as it is
            return [wire.TextDelta(text=held), event] if held else [event]
        text = held + event.text
        if text.isascii():  # as nearly every token of most languages: no emoji, no piece made
            return [event]
        self._held = text[_open_from(text) :]
        shown = text[: len(text) - len(self._held)]
        return [event if shown == event.text else wire.TextDelta(text=shown)] if shown else []


def _open_from(text: str) -> int:
    """Return where the emoji at the end of a text begins; its length where there is none."""
    if flags := _FLAGS.search(text):
        return len(text) - (flags.end() - flags.start()) % 2  # two letters are a flag
    at = len(text)
    for _ in range(_MOST_PARTS):
        extended = _EXTENDS.search(text, 0, at)
        begin = extended.start() if extended else at
        if _EMOJI.search(text, 0, begin) is None:
            return at
        at = begin - 1
        if not text.endswith(_JOINER, 0, at):
            return at
    return at


class ReplayGuard:
    """The events of one generation as they can be sent."""

    def __init__(self) -> None:
        self._sent: list[str] = []  # of the running hop
        self._again = ""  # what of it is to be repeated

    def take(self, event: GatewayEvent) -> GatewayEvent | None:
        """Return what to send of an event, None for nothing; a `Failed` ends the stream."""
        match event:
            case wire.TextDelta():
                return self._text(event)
            case wire.HopReset():
                self._again = "".join(self._sent)
                return event
            case (
                Finished()
                | wire.ToolRequested()
                | wire.ApprovalRequested()
                | wire.ApprovalResolved()
                | wire.QuestionAsked()
            ):
                if self._again:
                    return _diverged()
                self._sent.clear()
                return event
            case _:
                return event

    def _text(self, event: wire.TextDelta) -> GatewayEvent | None:
        if not self._again:
            self._sent.append(event.text)
            return event
        if self._again.startswith(event.text):
            self._again = self._again[len(event.text) :]
            return None
        if not event.text.startswith(self._again):
            return _diverged()
        rest = event.text[len(self._again) :]
        self._again = ""
        self._sent.append(rest)
        return wire.TextDelta(text=rest)


def _diverged() -> Failed:
    error = ProviderError(
        "the answer broke off, and the next attempt at it said something else",
        kind="network",
        hint="Ask again.",
    )
    return Failed(error=error, partial=True)


# The events of generations on their way to who writes them: bounded, taken in handfuls.
#
# Waking up, encoding and sending cost more than an event does. So who writes may wait a moment for
# more of them; an ending, or many, end that wait.

_FEED_EVENTS = 512

_Numbered = tuple[int, GatewayEvent]
"""An event, and the number of the generation that it is of."""


class _EventBuffer:
    """Events of several generations, for one taker; too many wait until some are taken."""

    def __init__(self) -> None:
        self._events: deque[_Numbered] = deque()
        self._has_ending = False
        self._taker: asyncio.Future[None] | None = None
        self._is_patient = False
        self._timer: asyncio.TimerHandle | None = None
        self._until: float | None = None
        self._room = asyncio.Event()
        self._room.set()

    def __len__(self) -> int:
        """Return how many events are at hand."""
        return len(self._events)

    async def put(self, number: int, event: GatewayEvent) -> None:
        """Put an event in; waits while there are too many."""
        while len(self._events) >= _FEED_EVENTS:
            self._room.clear()
            await self._room.wait()
        self._events.append((number, event))
        if isinstance(event, Finished | Failed):
            self._has_ending = True
        if self._taker is not None and self._is_enough(is_patient=self._is_patient):
            self._wake()

    def take(self, most: int = _FEED_EVENTS) -> list[_Numbered]:
        """Return what is at hand, oldest first; nothing where there is nothing."""
        count = min(most, len(self._events))
        taken = [self._events.popleft() for _ in range(count)]
        self._has_ending = self._has_ending and bool(self._events)
        self._room.set()
        return taken

    async def wait(self, limit_s: float | None = None, *, is_patient: bool = False) -> None:
        """Wait for an event, or until that time is over; one taker at a time.

        Args:
            limit_s: the longest wait; None waits without end.
            is_patient: wait for an ending, or for half of what fits, instead of any event.
        """
        if self._is_enough(is_patient=is_patient):
            return
        loop = asyncio.get_running_loop()
        self._taker, self._is_patient = loop.create_future(), is_patient
        self._until = loop.time() + limit_s if limit_s is not None else None
        self._set_timer()
        try:
            await self._taker
        finally:
            self._taker = None

    def _is_enough(self, *, is_patient: bool) -> bool:
        if is_patient:
            return self._has_ending or 2 * len(self._events) >= _FEED_EVENTS
        return bool(self._events)

    def _wake(self) -> None:
        if self._taker is not None and not self._taker.done():
            self._taker.set_result(None)

    def _set_timer(self) -> None:
        """Have `_look` called when the taker's time is over, or before that.

        Most waits end before their time, so the timer of one is left to the next.
        """
        if self._until is None or (self._timer is not None and self._timer.when() <= self._until):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_at(self._until, self._look)

    def _look(self) -> None:
        timer, self._timer = self._timer, None
        if self._taker is None or self._until is None or timer is None:
            return
        if timer.when() >= self._until:
            self._wake()
        else:
            self._set_timer()


# Several generations that answer one request: several choices, or several prompts.

_MAX_CHOICES = 128
CLOSE_LIMIT_S = 5.0


class ManyDialect(Protocol):
    """Writes several answers to one request in a client's own words, as `Dialect` writes one."""

    content_type: str
    ping: bytes

    def begin(self, generations: Sequence[Generation]) -> Iterable[bytes]:
        """Return what opens a stream; called once, with the first event at hand."""
        ...

    def take(self, number: int, event: GatewayEvent) -> Iterable[bytes]:
        """Return what an event of a generation becomes in the stream."""
        ...

    def end(self) -> Iterable[bytes]:
        """Return what closes a stream, when the last generation has finished."""
        ...

    def broken(self, error: Exception) -> Iterable[bytes]:
        """Return what tells an error after the stream began; all generations end with it."""
        ...

    def whole(self, generations: Sequence[Generation], answers: Sequence[Answered]) -> Any:
        """Return the JSON value of the whole answers, in the order of the generations."""
        ...


class One:
    """A dialect for one answer as one for several."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self.content_type = dialect.content_type
        self.ping = dialect.ping

    def begin(self, generations: Sequence[Generation]) -> Iterable[bytes]:
        """Return what opens a stream."""
        return self._dialect.begin(generations[0])

    def take(self, number: int, event: GatewayEvent) -> Iterable[bytes]:  # noqa: ARG002
        """Return what an event becomes."""
        return self._dialect.take(event)

    def end(self) -> Iterable[bytes]:
        """Return nothing: `Finished` has closed the stream."""
        return ()

    def broken(self, error: Exception) -> Iterable[bytes]:
        """Return what tells an error."""
        return self._dialect.broken(error)

    def whole(self, generations: Sequence[Generation], answers: Sequence[Answered]) -> Any:
        """Return the JSON value of the answer."""
        return self._dialect.whole(generations[0], answers[0])


async def open_many(
    generations: Generations, requests: Sequence[ModelRequest], caller: Caller
) -> tuple[Generation, ...]:
    """Begin several requests; all of them, or none.

    Raises:
        InvalidRequestError: they are none, or too many.
        ClawError: one of them cannot be answered.
    """
    if not 1 <= len(requests) <= _MAX_CHOICES:
        raise InvalidRequestError(
            f"{len(requests)} answers were asked for at once; 1 to {_MAX_CHOICES} can be had"
        )
    opened: list[Generation] = []
    try:
        for request in requests:
            opened.append(await generations.open(request, caller))  # noqa: PERF401 - kept on failure
    except BaseException:
        await close_all(opened)
        raise
    return tuple(opened)


async def close_all(generations: Sequence[Generation]) -> None:
    """Stop generations, all of them, and wait for that; a cancel leaves them a moment for it.

    Clients close their connection as soon as they have read the end of an answer, which cancels
    the request just here.
    """
    closing = asyncio.gather(*(each.aclose() for each in generations), return_exceptions=True)
    try:
        found = await asyncio.shield(closing)
    except asyncio.CancelledError:
        await asyncio.wait({closing}, timeout=CLOSE_LIMIT_S)
        closing.cancel()
        raise
    for ended in found:
        if isinstance(ended, Exception):
            raise ended


@asynccontextmanager
async def _feeding(generations: Sequence[Generation]) -> AsyncIterator[_EventBuffer]:
    """Put the events of generations into one bounded feed while the body takes them out.

    Each ends with one `Finished` or `Failed`. When nobody takes them, nobody asks for more.
    """
    feed = _EventBuffer()
    pumps = [
        asyncio.create_task(_pump(number, generation, feed))
        for number, generation in enumerate(generations)
    ]
    try:
        yield feed
    finally:
        for pump in pumps:
            pump.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)


async def _pump(number: int, generation: Generation, feed: _EventBuffer) -> None:
    try:
        async for event in generation:
            await feed.put(number, event)
            if isinstance(event, Finished | Failed):
                return
        error: Exception = ProviderError("the answer ended before it was whole", kind="network")
    except Exception as broken:  # noqa: BLE001 - the reader of the events reports it
        error = broken
    await feed.put(number, Failed(error=error))


_PING_S = 1.0
_FIRST_S = 0.25
_STALL_S = 30.0
# Pieces that come faster than this go out together: no eye sees it, and writing is what costs.
# Many streams at once share the loop, so each of them writes less often.
_GATHER_S = 0.004
_GATHER_PER_STREAM_S = 0.0002
_GATHER_MOST_S = 0.05
_MAX_BATCH = 256
# So many bytes that are not sent yet stop nobody: half of what a transport of asyncio takes.
_TAKEN_BYTES = 32 * 1024
CONVERSATION_HEADER = "X-Clawd-Conversation"

_log = logging.getLogger(__name__)
_STREAM_HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
# After these alone, an error is still one of a request that nothing came of.
_BEFORE_ANSWER = (wire.ModelLoading, wire.Notice, wire.PlanChanged, wire.HopReset)
_CONTENT = (wire.TextDelta, wire.ReasoningDelta, CallDelta)


class StreamTimes(msgspec.Struct, frozen=True, kw_only=True):
    """How long a stream waits for what.

    Attributes:
        ping_s: after that much silence comes a ping.
        first_s: the first event is waited for that long before the status goes out.
        stall_s: a client that takes nothing for that long is cut off.
    """

    ping_s: float = _PING_S
    first_s: float = _FIRST_S
    stall_s: float = _STALL_S


async def answer(
    request: web.Request,
    generation: Generation,
    dialect: Dialect,
    *,
    stream: bool,
    pace: StreamTimes | None = None,
) -> web.StreamResponse:
    """Answer a request with a generation, in a dialect."""
    return await answer_many(request, (generation,), One(dialect), stream=stream, pace=pace)


async def answer_many(
    request: web.Request,
    generations: Sequence[Generation],
    dialect: ManyDialect,
    *,
    stream: bool,
    pace: StreamTimes | None = None,
) -> web.StreamResponse:
    """Answer a request with several generations; when one of them fails, the answer does."""
    try:
        if stream:
            return await _Stream(request, generations, dialect, pace or _pace(request)).run()
        return await _whole(generations, dialect)
    finally:
        await close_all(generations)


async def _whole(generations: Sequence[Generation], dialect: ManyDialect) -> web.StreamResponse:
    foldings = [Folding() for _ in generations]
    answers: dict[int, Answered] = {}
    async with _feeding(generations) as feed:
        while len(answers) < len(generations):
            await feed.wait(is_patient=True)
            for number, event in feed.take():
                answered = foldings[number].add(event)
                if answered is not None:
                    answers[number] = answered
    ordered = [answers[number] for number in range(len(generations))]
    data = msgspec.json.encode(dialect.whole(generations, ordered))
    return web.Response(body=data, content_type="application/json", headers=_headers(generations))


class _Stream:
    """One streamed answer."""

    def __init__(
        self,
        request: web.Request,
        generations: Sequence[Generation],
        dialect: ManyDialect,
        pace: StreamTimes,
    ) -> None:
        self._request = request
        self._generations = generations
        self._dialect = dialect
        self._pace = pace
        self._emoji = [WholeEmoji() for _ in generations]
        self._replay_guards = [ReplayGuard() for _ in generations]
        self._running = len(generations)
        self._has_begun = False
        self._has_content = False
        self._is_over = False

    async def run(self) -> web.StreamResponse:
        async with _feeding(self._generations) as feed:
            opening = await self._opening(feed)
            failed = next((each for _, each in opening if isinstance(each, Failed)), None)
            if failed is not None:
                return self._refusal(failed.error)
            response = web.StreamResponse(headers=_headers(self._generations) | _STREAM_HEADERS)
            response.content_type = self._dialect.content_type
            try:
                await response.prepare(self._request)
                await self._send(response, feed, opening)
            except ConnectionError:
                _log.debug("the client left in the middle of an answer")
            return response

    def _refusal(self, error: Exception) -> web.StreamResponse:
        if not isinstance(error, ClawError):
            raise error
        return error_response(self._request.path, error)

    async def _opening(self, feed: _EventBuffer) -> list[_Numbered]:
        """Return the events up to the first that is one of an answer, or of its failure."""
        events: list[_Numbered] = []
        now = asyncio.get_running_loop().time
        deadline = now() + self._pace.first_s
        while not events or isinstance(events[-1][1], _BEFORE_ANSWER):
            left = deadline - now()
            if left <= 0:
                break
            await feed.wait(left)
            events += feed.take(1)
        return events

    async def _send(
        self, response: web.StreamResponse, feed: _EventBuffer, batch: list[_Numbered]
    ) -> None:
        """Send the events, everything that is at hand in one piece."""
        now, has_written = asyncio.get_running_loop().time, False
        while True:
            data = b"".join(self._told(batch)) if batch else self._dialect.ping
            if not data and not has_written:
                data = self._dialect.ping  # the head goes out with it, and says that we are there
            if self._is_over:
                # In one piece with the end: there are clients that leave at the last event.
                await self._write(response, data, is_last=True)
                self._request[WAS_TOLD] = response.status
                return
            if data:
                has_written = True
                await self._write(response, data)
            wrote_at = now()
            await feed.wait(self._pace.ping_s)
            # The first piece of content goes out at once, and so does one that comes late enough.
            early_s = wrote_at + self._gather_s() - now()
            if self._has_content and early_s > 0 and len(feed):
                await feed.wait(early_s, is_patient=True)
            batch = feed.take(_MAX_BATCH)

    def _gather_s(self) -> float:
        """Return how far apart writes are to be."""
        counts = self._request.app.get(COUNTS)
        shared_s = _GATHER_PER_STREAM_S * counts.streams if counts is not None else 0.0
        return min(max(_GATHER_S, shared_s), _GATHER_MOST_S)

    def _told(self, batch: list[_Numbered]) -> Iterable[bytes]:
        whole = [
            (number, each) for number, event in batch for each in self._emoji[number].take(event)
        ]
        for number, event in whole:
            told = self._replay_guards[number].take(event)
            if isinstance(told, Failed):
                self._is_over = True
                if not isinstance(told.error, ClawError):
                    _log.error("an answer broke off with a defect", exc_info=told.error)
                yield from self._dialect.broken(told.error)
                return
            if told is None:
                continue
            if not self._has_begun:
                self._has_begun = True
                yield from self._dialect.begin(self._generations)
            self._has_content = self._has_content or isinstance(told, _CONTENT)
            yield from self._dialect.take(number, told)
            if isinstance(told, Finished):
                self._running -= 1
        if not self._running:
            self._is_over = True
            yield from self._dialect.end()

    async def _write(
        self, response: web.StreamResponse, data: bytes, *, is_last: bool = False
    ) -> None:
        """Write some bytes; a client that takes nothing is cut off.

        Raises:
            ConnectionError: the client is gone, or too slow.
        """
        write = response.write_eof if is_last else response.write
        transport = self._request.transport
        if transport is not None and transport.get_write_buffer_size() + len(data) < _TAKEN_BYTES:
            await write(data)  # which cannot wait: a timer for each token would cost more than it
            return
        try:
            async with asyncio.timeout(self._pace.stall_s):
                await write(data)
        except TimeoutError:
            _log.info("a client took nothing of its answer for too long, and is cut off")
            if self._request.transport is not None:
                self._request.transport.abort()
            raise ConnectionAbortedError("the client takes nothing") from None


def _pace(request: web.Request) -> StreamTimes:
    gateway = request.app.get(GATEWAY)
    return StreamTimes(ping_s=gateway.ping_s()) if gateway is not None else StreamTimes()


def _headers(generations: Sequence[Generation]) -> dict[str, str]:
    named = next((each.conversation_id for each in generations if each.conversation_id), "")
    return {CONVERSATION_HEADER: named} if named else {}
