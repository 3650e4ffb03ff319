"""Several answers side by side as one generation: choices, and lists of prompts."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from typing import cast

import msgspec

from clawd.channels.http.exchange import (
    Answered,
    Caller,
    Folding,
    GatewayEvent,
    Generation,
    Generations,
    ModelRequest,
)
from clawd.providers.base import Failed, Finished, Usage


class OfChoice(msgspec.Struct, frozen=True, kw_only=True):
    """An event of one of several answers."""

    index: int
    event: GatewayEvent


class Several:
    """Answers that run side by side.

    Every event but the last is an `OfChoice`; the last is a `Finished` with the usage of all, or
    the first failure, which ends the others.
    """

    def __init__(self, generations: Sequence[Generation]) -> None:
        self.model = generations[0].model
        self.conversation_id = ""
        self._generations = tuple(generations)
        self._events = self._run()

    def __aiter__(self) -> AsyncIterator[GatewayEvent]:
        """Return the events."""
        return self._events

    async def aclose(self) -> None:
        """Stop all of them."""
        await self._events.aclose()
        for generation in self._generations:
            await generation.aclose()

    async def _run(self) -> AsyncGenerator[GatewayEvent, None]:
        sources = [aiter(generation) for generation in self._generations]
        waiting = {_start(source): index for index, source in enumerate(sources)}
        finished: dict[int, Finished] = {}
        try:
            while waiting:
                done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                for task in sorted(done, key=waiting.__getitem__):
                    index = waiting.pop(task)
                    event = task.result()
                    if isinstance(event, Failed):
                        yield event
                        return
                    if isinstance(event, Finished):
                        finished[index] = event
                    else:
                        waiting[_start(sources[index])] = index
                    yield cast(GatewayEvent, OfChoice(index=index, event=event))
            yield _together([finished[index] for index in sorted(finished)])
        finally:
            for task in waiting:
                task.cancel()
            for task in waiting:
                with contextlib.suppress(asyncio.CancelledError, StopAsyncIteration):
                    await task


async def open_several(
    generations: Generations, requests: Sequence[ModelRequest], caller: Caller
) -> Generation:
    """Begin one request, or several that are answered side by side.

    Raises:
        ClawError: one of them cannot be answered; none runs then.
    """
    if len(requests) == 1:
        return await generations.open(requests[0], caller)
    opened: list[Generation] = []
    try:
        for request in requests:
            generation = await generations.open(request, caller)
            opened.append(generation)
    except BaseException:
        for generation in opened:
            await generation.aclose()
        raise
    return Several(opened)


def repeated(request: ModelRequest, count: int) -> list[ModelRequest]:
    """Return a request so often; each has a seed of its own where the request has one."""
    seed = request.sampling.seed
    if count == 1:
        return [request]
    return [
        msgspec.structs.replace(
            request,
            is_plain=True,
            sampling=msgspec.structs.replace(
                request.sampling, seed=None if seed is None else seed + number
            ),
        )
        for number in range(count)
    ]


def choice_of(event: GatewayEvent) -> tuple[int, GatewayEvent]:
    """Return which answer an event belongs to, and the event."""
    if isinstance(event, OfChoice):
        return event.index, event.event
    return 0, event


def answers_of(answered: Answered) -> list[Answered]:
    """Return the whole answers of a generation, in the order of their choices."""
    folds: dict[int, Folding] = {}
    found: dict[int, Answered] = {}
    for event in answered.side:
        if isinstance(event, OfChoice):
            whole = folds.setdefault(event.index, Folding()).add(event.event)
            if whole is not None:
                found[event.index] = whole
    return [found[index] for index in sorted(found)] if found else [answered]


def _start(source: AsyncIterator[GatewayEvent]) -> asyncio.Task[GatewayEvent]:
    return asyncio.create_task(_next(source))


async def _next(source: AsyncIterator[GatewayEvent]) -> GatewayEvent:
    return await anext(source)


def _together(finished: list[Finished]) -> Finished:
    usage = Usage(
        prompt_tokens=sum(each.usage.prompt_tokens for each in finished),
        cached_tokens=sum(each.usage.cached_tokens for each in finished),
        completion_tokens=sum(each.usage.completion_tokens for each in finished),
    )
    return Finished(reason="stop", usage=usage)
