"""Turns that fail in every way: what is kept is whole, only grows, and is what disk holds."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator

from clawd.errors import ClawError, ProviderError
from clawd.providers.base import (
    CallDelta,
    Capabilities,
    ChatRequest,
    Delta,
    Failed,
    Finished,
    Message,
)
from clawd.runtime.context import repair_orphans
from clawd.runtime.inbox import Ticket
from clawd.tools.base import Arguments, ToolContext, ToolResult
from clawd.wire.events import TextDelta
from tests.runtime.inboxes import House
from tests.security.fakes import ADA
from tests.support.dispatching import LIMIT_S, Bench, Probe
from tests.support.rows import each_row

MESSAGES = 12
LOST = ProviderError("the line is dead", kind="network")


class Moody:
    """A model that answers, calls, breaks off, says nothing or hangs, as the dice fall."""

    def __init__(self, dice: random.Random) -> None:
        self._dice = dice
        self.hangs = asyncio.Event()
        self.requests: list[ChatRequest] = []
        self.moods: set[str] = set()

    def name(self) -> str:
        return "mock"

    def capabilities(self) -> Capabilities:
        return Capabilities()

    async def chat(self, request: ChatRequest) -> AsyncIterator[Delta]:
        self.requests.append(request)
        mood = self._dice.choice(["answer", "call", "call", "call", "fail", "break", "hang"])
        self.moods.add(mood)
        if mood != "fail":
            yield TextDelta(text=f"said {len(self.requests)}")
        match mood:
            case "answer":
                yield Finished(reason="stop")
            case "call":
                for index in range(self._dice.randint(1, 3)):
                    # Twice the same id in a conversation, broken JSON and no such tool among them.
                    name = self._dice.choice(["probe", "other", "none"])
                    yield CallDelta(index=index, id=f"id-{index}", name=name)
                    text = self._dice.choice(['{"text":"a"}', '{"text":', ""])
                    yield CallDelta(index=index, arguments=text)
                yield Finished(reason="tool_calls")
            case "fail" | "break":
                yield Failed(error=LOST, partial=mood == "break")
            case _:
                self.hangs.set()
                await asyncio.Event().wait()

    async def act(self, _arguments: Arguments, _context: ToolContext) -> ToolResult:
        """Do what its tool does: fail, or hang until somebody cancels."""
        if self._dice.random() < 0.5:
            raise ValueError("a defect of the tool")
        self.hangs.set()
        await asyncio.Event().wait()
        raise AssertionError

    async def check(self) -> str:
        return ""

    async def close(self) -> None:
        return


async def ended(ticket: Ticket, model: Moody) -> None:
    """Wait for the end of a turn; one that hangs is cancelled."""
    model.hangs.clear()
    turn = asyncio.create_task(ticket.finished())
    hung = asyncio.create_task(model.hangs.wait())
    async with asyncio.timeout(LIMIT_S):
        await asyncio.wait({turn, hung}, return_when=asyncio.FIRST_COMPLETED)
        if not turn.done():
            ticket.cancel()
        hung.cancel()
        with contextlib.suppress(ClawError):
            await turn


async def held(house: House, conversation_id: str) -> tuple[Message, ...]:
    return (await house.book.load(conversation_id, ADA)).context.messages


@each_row("seed", range(8), fresh=["bench"])
async def test_whatever_fails_the_last_whole_exchange_is_what_stays(
    seed: int, bench: Bench
) -> None:
    dice = random.Random(seed)
    model = Moody(dice)
    house = House(bench, [], tools=[Probe(), Probe("other", act=model.act)])
    house.model = model  # type: ignore[assignment]
    live = await house.inbox.open(ADA, workspace="")
    conversation_id, kept = live.record.id, tuple[Message, ...]()
    for number in range(MESSAGES):
        asked = len(model.requests)
        house.later(dice.randint(0, 2))
        await ended(await house.send(f"message {number}", conversation_id=conversation_id), model)
        for request in model.requests[asked:]:
            assert request.messages[: len(kept)] == kept
        now = await held(house, conversation_id)
        assert now[: len(kept)] == kept
        assert repair_orphans(now) == now
        house.restart()
        assert await held(house, conversation_id) == now
        kept = now
    assert len(kept) > MESSAGES
    assert len(model.moods) > 3
