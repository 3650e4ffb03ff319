"""Sending events to the caller while work goes on: all arrive, and errors keep their kind."""

import asyncio

import pytest

from clawd.channels.rpc.connection import Call, Connection, Identity
from clawd.errors import NotFoundError
from clawd.runtime.hub import Subscription
from clawd.service.handlers.shared import streaming
from clawd.wire.events import Event, TextDelta
from tests.channels.rpc.rig import LIMIT_S
from tests.security.fakes import ADA


class Caller(Call):
    """A caller that keeps what it gets, or is gone."""

    def __init__(self, *, is_gone: bool = False) -> None:
        connection = Connection(
            asyncio.StreamReader(),
            None,  # type: ignore[arg-type]
            principal=ADA,
            identity=Identity(version="", pid=0, home=""),
            handlers={},
        )
        super().__init__(connection, 1, ADA)
        self.got: list[Event] = []
        self.is_gone = is_gone

    async def emit(self, event: Event) -> None:
        await asyncio.sleep(0)
        if self.is_gone:
            raise ConnectionResetError("broken pipe")
        self.got.append(event)


async def test_everything_is_sent_before_it_ends() -> None:
    events, caller = Subscription(), Caller()
    sent: list[Event] = [TextDelta(text=str(number)) for number in range(20)]
    async with streaming(events, caller):
        for event in sent:
            events.put(event)
    assert caller.got == sent


async def test_an_expected_error_of_the_body_stays_what_it_is() -> None:
    events, caller = Subscription(), Caller()
    with pytest.raises(NotFoundError, match="no such tool"):
        async with streaming(events, caller):
            events.put(TextDelta(text="a"))
            raise NotFoundError("no such tool")
    assert caller.got == [TextDelta(text="a")]


async def test_a_defect_of_the_body_stays_what_it_is() -> None:
    with pytest.raises(KeyError, match="odd"):
        async with streaming(Subscription(), Caller()):
            raise KeyError("odd")


async def test_a_caller_that_is_gone_ends_the_body() -> None:
    events, is_cancelled = Subscription(), False
    with pytest.raises(ConnectionAbortedError, match="the caller is gone"):
        async with asyncio.timeout(LIMIT_S), streaming(events, Caller(is_gone=True)):
            events.put(TextDelta(text="a"))
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                is_cancelled = True
                raise
    assert is_cancelled


async def test_a_cancelled_caller_is_cancelled() -> None:
    inside = asyncio.Event()

    async def work() -> None:
        async with streaming(Subscription(), Caller()):
            inside.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(work())
    await inside.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
