"""Answers one request: whole or as a stream, with pings, errors and the client's leaving.

An error before the first event is an HTTP status, also for a stream; one after it is an event, and
then the stream ends. A client that leaves ends the work at once, wherever it is.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Iterable

import msgspec
from aiohttp import web

from clawd.channels.http.errors import error_response
from clawd.channels.http.exchange import Dialect, Folding, GatewayEvent, Generation
from clawd.errors import ProviderError
from clawd.providers.base import Failed, Finished

PING_S = 1.0
CONVERSATION_HEADER = "X-Clawd-Conversation"

_log = logging.getLogger(__name__)
_STREAM_HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}


async def answer(
    request: web.Request, generation: Generation, dialect: Dialect, *, stream: bool
) -> web.StreamResponse:
    """Answer a request with a generation, in a dialect."""
    try:
        if stream:
            return await _stream(request, generation, dialect)
        return await _whole(generation, dialect)
    finally:
        await generation.aclose()


async def _whole(generation: Generation, dialect: Dialect) -> web.StreamResponse:
    folding = Folding()
    async for event in generation:
        answered = folding.add(event)
        if answered is not None:
            data = msgspec.json.encode(dialect.whole(generation, answered))
            return web.Response(
                body=data, content_type="application/json", headers=_headers(generation)
            )
    raise ProviderError("the answer ended before it was complete", kind="network")


async def _stream(
    request: web.Request, generation: Generation, dialect: Dialect
) -> web.StreamResponse:
    events = _with_silences(aiter(generation), PING_S)
    first = await anext(events)
    if isinstance(first, Failed):
        return error_response(request.path, first.error)
    response = web.StreamResponse(headers=_headers(generation) | _STREAM_HEADERS)
    response.content_type = dialect.content_type
    await response.prepare(request)
    try:
        await _write(response, dialect.begin(generation))
        await _write(response, _told(first, dialect))
        async for event in events:
            await _write(response, _told(event, dialect))
            if isinstance(event, Finished | Failed):
                break
        await response.write_eof()
    except ConnectionError:
        _log.debug("the client left in the middle of an answer")
    return response


def _told(event: GatewayEvent | None, dialect: Dialect) -> Iterable[bytes]:
    if event is None:
        return (dialect.ping,) if dialect.ping else ()
    if isinstance(event, Failed):
        return dialect.broken(event.error)
    return dialect.take(event)


async def _write(response: web.StreamResponse, pieces: Iterable[bytes]) -> None:
    data = b"".join(pieces)
    if data:
        await response.write(data)


async def _with_silences(
    events: AsyncIterator[GatewayEvent], silence_s: float
) -> AsyncIterator[GatewayEvent | None]:
    """Yield the events, and None whenever nothing came for that long."""
    waiting: asyncio.Task[GatewayEvent] | None = None
    try:
        while True:
            if waiting is None:
                waiting = asyncio.create_task(_next(events))
            done, _ = await asyncio.wait({waiting}, timeout=silence_s)
            if not done:
                yield None
                continue
            try:
                event = waiting.result()
            except StopAsyncIteration:
                return
            waiting = None
            yield event
    finally:
        if waiting is not None:
            waiting.cancel()
            with contextlib.suppress(asyncio.CancelledError, StopAsyncIteration):
                await waiting


async def _next(events: AsyncIterator[GatewayEvent]) -> GatewayEvent:
    return await anext(events)


def _headers(generation: Generation) -> dict[str, str]:
    named = generation.conversation_id
    return {CONVERSATION_HEADER: named} if named else {}
