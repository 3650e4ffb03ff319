"""Answers one request: whole or as a stream, with pings, errors and the client's leaving.

An error before the first event is an HTTP status, also for a stream; one after it is an event, and
then the stream ends. A silent beginning is waited for some seconds before the status goes out as
200; what is wrong with a request is known by then. A client that leaves ends the work at once,
wherever it is, and so does one that takes nothing of its answer for half a minute.
"""

import asyncio
import logging
from collections.abc import Iterable, Sequence

import msgspec
from aiohttp import web

from clawd.channels.http.app import GATEWAY
from clawd.channels.http.errors import error_response
from clawd.channels.http.exchange import Answered, Dialect, Folding, Generation
from clawd.channels.http.feed import Feed, Numbered
from clawd.channels.http.request_counts import COUNTS, WAS_TOLD
from clawd.channels.http.side_by_side import ManyDialect, One, close_all, feeding
from clawd.channels.http.steady import Steady, WholeEmoji
from clawd.errors import ClawError
from clawd.providers.base import CallDelta, Failed, Finished, Loading, Reasoning, Text
from clawd.wire.events import HopReset, Notice, PlanChanged

PING_S = 1.0
FIRST_S = 5.0
STALL_S = 30.0
# Pieces that come faster than this go out together: no eye sees it, and writing is what costs.
# Many streams at once share the loop, so each of them writes less often.
GATHER_S = 0.004
GATHER_PER_STREAM_S = 0.0002
GATHER_MOST_S = 0.05
MAX_BATCH = 256
CONVERSATION_HEADER = "X-Clawd-Conversation"

_log = logging.getLogger(__name__)
_STREAM_HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
# After these alone, an error is still one of a request that nothing came of.
_BEFORE_ANSWER = (Loading, Notice, PlanChanged, HopReset)
_CONTENT = (Text, Reasoning, CallDelta)


class Pace(msgspec.Struct, frozen=True, kw_only=True):
    """How long a stream waits for what.

    Attributes:
        ping_s: after that much silence comes a ping.
        first_s: the first event is waited for that long before the status goes out.
        stall_s: a client that takes nothing for that long is cut off.
    """

    ping_s: float = PING_S
    first_s: float = FIRST_S
    stall_s: float = STALL_S


async def answer(
    request: web.Request,
    generation: Generation,
    dialect: Dialect,
    *,
    stream: bool,
    pace: Pace | None = None,
) -> web.StreamResponse:
    """Answer a request with a generation, in a dialect."""
    return await answer_many(request, (generation,), One(dialect), stream=stream, pace=pace)


async def answer_many(
    request: web.Request,
    generations: Sequence[Generation],
    dialect: ManyDialect,
    *,
    stream: bool,
    pace: Pace | None = None,
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
    async with feeding(generations) as feed:
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
        pace: Pace,
    ) -> None:
        self._request = request
        self._generations = generations
        self._dialect = dialect
        self._pace = pace
        self._emoji = [WholeEmoji() for _ in generations]
        self._steady = [Steady() for _ in generations]
        self._running = len(generations)
        self._has_begun = False
        self._has_content = False
        self._is_over = False

    async def run(self) -> web.StreamResponse:
        async with feeding(self._generations) as feed:
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

    async def _opening(self, feed: Feed) -> list[Numbered]:
        """Return the events up to the first that is one of an answer, or of its failure."""
        events: list[Numbered] = []
        now = asyncio.get_running_loop().time
        deadline = now() + self._pace.first_s
        while not events or isinstance(events[-1][1], _BEFORE_ANSWER):
            left = deadline - now()
            if left <= 0:
                break
            await feed.wait(left)
            events += feed.take(1)
        return events

    async def _send(self, response: web.StreamResponse, feed: Feed, batch: list[Numbered]) -> None:
        """Send the events, everything that is at hand in one piece."""
        now = asyncio.get_running_loop().time
        while True:
            data = b"".join(self._told(batch)) if batch else self._dialect.ping
            if self._is_over:
                # In one piece with the end: there are clients that leave at the last event.
                await self._write(response, data, is_last=True)
                self._request[WAS_TOLD] = response.status
                return
            if data:
                await self._write(response, data)
            wrote_at = now()
            await feed.wait(self._pace.ping_s)
            # The first piece of content goes out at once, and so does one that comes late enough.
            early_s = wrote_at + self._gather_s() - now()
            if self._has_content and early_s > 0 and len(feed):
                await feed.wait(early_s, is_patient=True)
            batch = feed.take(MAX_BATCH)

    def _gather_s(self) -> float:
        """Return how far apart writes are to be."""
        counts = self._request.app.get(COUNTS)
        shared_s = GATHER_PER_STREAM_S * counts.streams if counts is not None else 0.0
        return min(max(GATHER_S, shared_s), GATHER_MOST_S)

    def _told(self, batch: list[Numbered]) -> Iterable[bytes]:
        whole = [
            (number, each) for number, event in batch for each in self._emoji[number].take(event)
        ]
        for number, event in whole:
            told = self._steady[number].take(event)
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
        """Write some bytes; whoever takes nothing is cut off.

        Raises:
            ConnectionError: the client is gone, or too slow.
        """
        try:
            async with asyncio.timeout(self._pace.stall_s):
                await (response.write_eof(data) if is_last else response.write(data))
        except TimeoutError:
            _log.info("a client took nothing of its answer for too long, and is cut off")
            if self._request.transport is not None:
                self._request.transport.abort()
            raise ConnectionAbortedError("the client takes nothing") from None


def _pace(request: web.Request) -> Pace:
    gateway = request.app.get(GATEWAY)
    return Pace(ping_s=gateway.ping_s()) if gateway is not None else Pace()


def _headers(generations: Sequence[Generation]) -> dict[str, str]:
    named = next((each.conversation_id for each in generations if each.conversation_id), "")
    return {CONVERSATION_HEADER: named} if named else {}
