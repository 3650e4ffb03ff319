"""What a turn has spent, hop by hop, and how much of its prompt the model has read before."""

import msgspec

from clawd.providers.base import Usage
from clawd.runtime.hop import HopResult
from clawd.wire.events import TurnUsage


class TurnMeter:
    """Adds up the hops of one turn, discarded attempts as well: they were paid for.

    Attributes:
        known_tokens: how many tokens the next prompt begins with that the model has read.
        last_hop: the tokens of the last hop.
        usage: the sums.
    """

    def __init__(self, known_tokens: int) -> None:
        self.known_tokens = known_tokens
        self.last_hop = Usage()
        self.usage = TurnUsage()

    def note_hop(self, result: HopResult) -> None:
        """Take one hop."""
        self.known_tokens = result.sequence_tokens or self.known_tokens
        self.last_hop = result.finished.usage if result.finished is not None else Usage()
        usage, finished, evaluated = self.usage, result.finished, result.evaluated
        changes: dict[str, float | int] = {}
        if finished is not None:
            changes = {
                "prompt_tokens": usage.prompt_tokens + finished.usage.prompt_tokens,
                "cached_tokens": usage.cached_tokens + finished.usage.cached_tokens,
                "completion_tokens": usage.completion_tokens + finished.usage.completion_tokens,
                "tokens_per_s": finished.tokens_per_s,
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
