"""The ledger of a turn: exact, estimated, scaled, late, and never in the way."""

import asyncio

from clawd.providers.base import ChatRequest, Message
from clawd.providers.ledger import PartTokens, RequestPart
from clawd.runtime.model_request import TurnLedger, ledger_of
from clawd.wire.events import HopUsage, TokenLedger, TokenPart
from tests.runtime.models import Hop, PlannedModel, says
from tests.support.dispatching import LIMIT_S

REQUEST = ChatRequest(system="s" * 40, messages=(Message(role="user", content="u" * 20),))
USAGE = HopUsage(prompt_tokens=30, cached_tokens=5, completion_tokens=7)


class CountingModel(PlannedModel):
    """A model with a tokenizer: every part has ten tokens."""

    def __init__(self, *hops: Hop) -> None:
        super().__init__(*hops)
        self.may_count = asyncio.Event()
        self.cancelled = 0

    async def count_parts(self, request: ChatRequest) -> PartTokens:
        try:
            await self.may_count.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        parts = (
            RequestPart(kind="system", name="system prompt", text=request.system),
            RequestPart(kind="history", name="message 1 (user)", text="u"),
        )
        return PartTokens(parts=parts, counts=(10, 10))


def parts(**tokens: int) -> tuple[TokenPart, ...]:
    return tuple(TokenPart(name=name, tokens=count) for name, count in tokens.items())


async def test_counts_of_the_tokenizer_add_up_to_what_is_used() -> None:
    model = CountingModel(says("x"))
    model.may_count.set()
    ledger = TurnLedger(model, patience_s=LIMIT_S)
    ledger.begin(REQUEST)
    assert await ledger.report(USAGE, used=37, size=100) == TokenLedger(
        parts=parts(system=10, history=17, template=10), free=63, context_size=100
    )


async def test_without_a_tokenizer_an_estimate_is_scaled_to_the_prompt_and_marked() -> None:
    ledger = TurnLedger(PlannedModel(says("x")))
    assert await ledger.report(USAGE, used=0, size=0) == TokenLedger()
    ledger.begin(REQUEST)
    assert await ledger.report(USAGE, used=0, size=0) == TokenLedger(
        parts=parts(system=20, history=17), is_estimate=True
    )
    assert await ledger.report(HopUsage(), used=0, size=100) == TokenLedger(
        parts=parts(system=10, history=5), free=85, context_size=100, is_estimate=True
    )


async def test_a_count_that_is_late_is_replaced_by_an_estimate() -> None:
    model = CountingModel(says("x"))
    ledger = TurnLedger(model, patience_s=0.01)
    ledger.begin(REQUEST)
    found = await ledger.report(USAGE, used=37, size=100)
    assert found.is_estimate
    assert found.free == 63
    ledger.close()
    await asyncio.sleep(0)
    assert model.cancelled == 1


async def test_only_the_last_request_is_counted_to_its_end() -> None:
    model = CountingModel(says("x"))
    ledger = TurnLedger(model, patience_s=LIMIT_S)
    ledger.begin(REQUEST)
    await asyncio.sleep(0)
    ledger.begin(REQUEST)
    await asyncio.sleep(0)
    model.may_count.set()
    assert not (await ledger.report(USAGE, used=37, size=100)).is_estimate
    assert model.cancelled == 1


def test_a_template_that_leaves_things_out_takes_nothing() -> None:
    tokens = PartTokens(parts=(RequestPart(kind="history", name="m", text="x"),), counts=(90,))
    assert ledger_of(tokens, USAGE, used=37, size=100) == TokenLedger(
        parts=parts(history=97), free=63, context_size=100
    )
