"""What a turn has spent, hop by hop, and how much of its prompt the model has read before."""

import asyncio

import msgspec

from clawd.providers.base import ChatRequest, Provider
from clawd.providers.ledger import PartTokens, TokenCounter, estimated, tokens_by_kind
from clawd.runtime.model_request import HopResult
from clawd.wire.events import HopUsage, TokenLedger, TokenPart, TurnUsage


class TurnMeter:
    """Adds up the hops of one turn, discarded attempts as well: they were paid for.

    Attributes:
        known_tokens: how many tokens the next prompt begins with that the model has read.
        last_hop: the tokens of the last hop.
        usage: the sums.
    """

    def __init__(self, known_tokens: int) -> None:
        self.known_tokens = known_tokens
        self.last_hop = HopUsage()
        self.usage = TurnUsage()

    def note_hop(self, result: HopResult) -> None:
        """Take one hop."""
        self.known_tokens = result.sequence_tokens or self.known_tokens
        self.last_hop = result.finished.usage if result.finished is not None else HopUsage()
        usage, finished, evaluated = self.usage, result.finished, result.evaluated
        changes: dict[str, float | int] = {}
        if finished is not None:
            changes = {
                "prompt_tokens": usage.prompt_tokens + finished.usage.prompt_tokens,
                "cached_tokens": usage.cached_tokens + finished.usage.cached_tokens,
                "completion_tokens": usage.completion_tokens + finished.usage.completion_tokens,
                "tokens_per_s": finished.usage.tokens_per_s,
            }
        if evaluated is not None:
            generated = finished.usage.completion_tokens if finished else 0
            changes["context_used"] = evaluated.context_used + generated
            changes["context_size"] = evaluated.context_size
        self.usage = msgspec.structs.replace(usage, **changes)

    def forget_answer(self) -> None:
        """Note that the last answer is in no later prompt; its prompt was read all the same."""
        self.known_tokens = self.last_hop.prompt_tokens

    def note_round(self, calls: int) -> None:
        """Take one round of calls."""
        self.usage = msgspec.structs.replace(
            self.usage, rounds=self.usage.rounds + 1, tool_calls=self.usage.tool_calls + calls
        )


# What fills the context of a turn, by part; counted while the model answers, not before.
#
# The tokens of a request's texts are counted in a task of its own that begins when the prompt is
# evaluated: the worker counts between two tokens of the answer, and nobody waits for it but the
# turn's end, and that not for long.

PATIENCE_S = 2.0


class TurnLedger:
    """Counts the requests of one turn, the last of which is reported."""

    def __init__(self, provider: Provider, *, patience_s: float = PATIENCE_S) -> None:
        self._provider = provider
        self._patience_s = patience_s
        self._request: ChatRequest | None = None
        self._counting: asyncio.Task[PartTokens] | None = None

    def begin(self, request: ChatRequest) -> None:
        """Begin to count a request; what was counted of the one before is remembered."""
        self.close()
        self._request = request
        if isinstance(self._provider, TokenCounter):
            self._counting = asyncio.create_task(_count(self._provider, request))

    async def report(self, usage: HopUsage, *, used: int, size: int) -> TokenLedger:
        """Return the ledger of the request begun last, with the answer to it.

        Args:
            usage: of the hop that answered; zero tokens where the provider reports none.
            used: tokens of the context in use after it.
            size: of the context, 0 for unknown.
        """
        if self._request is None:
            return TokenLedger()
        return ledger_of(await self._counted(self._request), usage, used=used, size=size)

    def close(self) -> None:
        """Stop counting; idempotent."""
        if self._counting is not None:
            self._counting.cancel()
            self._counting = None

    async def _counted(self, request: ChatRequest) -> PartTokens:
        if self._counting is None:
            return estimated(request)
        done, _ = await asyncio.wait({self._counting}, timeout=self._patience_s)
        return self._counting.result() if done else estimated(request)


async def _count(counter: TokenCounter, request: ChatRequest) -> PartTokens:
    return await counter.count_parts(request)


def ledger_of(tokens: PartTokens, usage: HopUsage, *, used: int, size: int) -> TokenLedger:
    """Return the ledger of a request and the answer to it.

    Estimates are scaled so that they add up to the prompt, where the provider says how long it is.
    """
    sums = tokens_by_kind(tokens)
    counted = sum(sums.values())
    if tokens.is_estimate and counted and usage.prompt_tokens:
        sums = {kind: count * usage.prompt_tokens // counted for kind, count in sums.items()}
        counted = sum(sums.values())
    if usage.completion_tokens:
        sums["history"] = sums.get("history", 0) + usage.completion_tokens
    parts = [TokenPart(name=kind, tokens=count) for kind, count in sums.items()]
    around = usage.prompt_tokens - counted
    if around > 0 and not tokens.is_estimate:
        parts.append(TokenPart(name="template", tokens=around))
    used = used or counted + usage.completion_tokens
    return TokenLedger(
        parts=tuple(parts),
        free=max(size - used, 0),
        context_size=size,
        is_estimate=tokens.is_estimate,
    )
