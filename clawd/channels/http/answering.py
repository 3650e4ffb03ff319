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
from clawd.channels.http.request_counts import WAS_TOLD
from clawd.channels.http.side_by_side import (
    ManyDialect,
    Numbered,
    One,
    close_all,
    feeding,
)
from clawd.channels.http.steady import Steady
from clawd.errors import ClawError
from clawd.providers.base import Failed, Finished
from clawd.wire.events import HopReset, Notice, PlanChanged

PING_S = 1.0
FIRST_S = 5.0
STALL_S = 30.0
MAX_BATCH = 256
CONVERSATION_HEADER = "X-Clawd-Conversation"

_log = logging.getLogger(__name__)
_STREAM_HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
# After these alone, an error is still one of a request that nothing came of.
_BEFORE_ANSWER = (Notice, PlanChanged, HopReset)


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
    async with feeding(generations) as queue:
        while len(answers) < len(generations):
            number, event = await queue.get()
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
        self._steady = [Steady() for _ in generations]
        self._running = len(generations)
        self._has_begun = False
        self._is_over = False

    async def run(self) -> web.StreamResponse:
        async with feeding(self._generations) as queue:
            opening = await self._opening(queue)
            failed = next((each for _, each in opening if isinstance(each, Failed)), None)
            if failed is not None:
                return self._refusal(failed.error)
            response = web.StreamResponse(headers=_headers(self._generations) | _STREAM_HEADERS)
            response.content_type = self._dialect.content_type
            try:
                await response.prepare(self._request)
                await self._send(response, queue, opening)
            except ConnectionError:
                _log.debug("the client left in the middle of an answer")
            return response

    def _refusal(self, error: Exception) -> web.StreamResponse:
        if not isinstance(error, ClawError):
            raise error
        return error_response(self._request.path, error)

    async def _opening(self, queue: asyncio.Queue[Numbered]) -> list[Numbered]:
        """Return the events up to the first that is one of an answer, or of its failure."""
        events: list[Numbered] = []
        try:
            async with asyncio.timeout(self._pace.first_s):
                while not events or isinstance(events[-1][1], _BEFORE_ANSWER):
                    events.append(await queue.get())
        except TimeoutError:
            pass
        return events

    async def _send(
        self, response: web.StreamResponse, queue: asyncio.Queue[Numbered], batch: list[Numbered]
    ) -> None:
        """Send the events, everything that is at hand in one piece."""
        while True:
            pieces = list(self._told(batch)) if batch else [self._dialect.ping]
            data = b"".join(pieces)
            if self._is_over:
                # In one piece with the end: there are clients that leave at the last event.
                await self._write(response, data, is_last=True)
                self._request[WAS_TOLD] = response.status
                return
            if data:
                await self._write(response, data)
            batch = await self._batch(queue)

    async def _batch(self, queue: asyncio.Queue[Numbered]) -> list[Numbered]:
        """Return what is at hand, at least one event, or nothing after a silence."""
        if queue.empty():
            try:
                async with asyncio.timeout(self._pace.ping_s):
                    batch = [await queue.get()]
            except TimeoutError:
                return []
        else:
            batch = [queue.get_nowait()]
        while not queue.empty() and len(batch) < MAX_BATCH:
            batch.append(queue.get_nowait())
        return batch

    def _told(self, batch: list[Numbered]) -> Iterable[bytes]:
        for number, event in batch:
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
