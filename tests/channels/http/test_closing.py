"""Generations are closed whenever a request ends, also one whose client leaves at that moment."""

import asyncio
from collections.abc import AsyncIterator

from clawd.channels.http.answering import CLOSE_LIMIT_S, close_all
from clawd.channels.http.model_api import GatewayEvent
from tests.support.rows import each_row


class _Open:
    model = "m"
    conversation_id = ""

    def __init__(self, takes_s: float = 0.0) -> None:
        self.is_closed = False
        self._takes_s = takes_s

    def __aiter__(self) -> AsyncIterator[GatewayEvent]:
        raise AssertionError("nobody asks this one for its events")

    async def aclose(self) -> None:
        await asyncio.sleep(self._takes_s)
        self.is_closed = True


@each_row("steps", [0, 1, 2])
async def test_a_request_that_is_cancelled_while_it_ends_closes_what_it_opened(steps: int) -> None:
    opened = [_Open(), _Open()]
    ending = asyncio.create_task(close_all(opened))
    await asyncio.sleep(0)
    for _ in range(steps):
        await asyncio.sleep(0)
    was_over = ending.done()
    ending.cancel()
    (ended,) = await asyncio.gather(ending, return_exceptions=True)
    assert was_over or isinstance(ended, asyncio.CancelledError)
    assert [each.is_closed for each in opened] == [True, True]


async def test_what_takes_a_while_to_close_is_closed_to_its_end_all_the_same() -> None:
    assert CLOSE_LIMIT_S >= 2  # as long as it takes to delete a conversation on a busy machine
    opened = [_Open(takes_s=0.1)]
    ending = asyncio.create_task(close_all(opened))
    await asyncio.sleep(0)
    ending.cancel()
    (ended,) = await asyncio.gather(ending, return_exceptions=True)
    assert isinstance(ended, asyncio.CancelledError)
    assert opened[0].is_closed
