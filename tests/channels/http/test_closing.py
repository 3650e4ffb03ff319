"""Generations are closed whenever a request ends, also one whose client leaves at that moment."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from clawd.channels.http.exchange import GatewayEvent
from clawd.channels.http.side_by_side import close_all


class _Open:
    model = "m"
    conversation_id = ""

    def __init__(self) -> None:
        self.is_closed = False

    def __aiter__(self) -> AsyncIterator[GatewayEvent]:
        raise AssertionError("nobody asks this one for its events")

    async def aclose(self) -> None:
        await asyncio.sleep(0)
        self.is_closed = True


@pytest.mark.parametrize("steps", [0, 1, 2])
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
