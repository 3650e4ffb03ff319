"""Several generations that answer one request: several choices, or several prompts."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Protocol

from clawd.channels.http.exchange import (
    Answered,
    Caller,
    Dialect,
    GatewayEvent,
    Generation,
    Generations,
    ModelRequest,
)
from clawd.channels.http.feed import Feed
from clawd.errors import InvalidRequestError, ProviderError
from clawd.providers.base import Failed, Finished

MAX_SIDE_BY_SIDE = 128
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
    if not 1 <= len(requests) <= MAX_SIDE_BY_SIDE:
        raise InvalidRequestError(
            f"{len(requests)} answers were asked for at once; 1 to {MAX_SIDE_BY_SIDE} can be had"
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
async def feeding(generations: Sequence[Generation]) -> AsyncIterator[Feed]:
    """Put the events of generations into one bounded feed while the body takes them out.

    Each ends with one `Finished` or `Failed`. When nobody takes them, nobody asks for more.
    """
    feed = Feed()
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


async def _pump(number: int, generation: Generation, feed: Feed) -> None:
    try:
        async for event in generation:
            await feed.put(number, event)
            if isinstance(event, Finished | Failed):
                return
        error: Exception = ProviderError("the answer ended before it was whole", kind="network")
    except Exception as broken:  # noqa: BLE001 - whoever takes the events tells it
        error = broken
    await feed.put(number, Failed(error=error))
