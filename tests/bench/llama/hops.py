"""An agent's turn of six hops: a message, an answer as long as a tool call, its result, and so on.

The random model calls no tool, so a result comes as a message of its size. Each hop's prompt is all
that was before, the side's own answers included, and a new end. On either side the conversations of
the rounds before are in memory, and the system prompt with them.
"""

from collections.abc import Iterator, Sequence

import msgspec

from tests.bench.llama.aims import row
from tests.bench.llama.bench import Bench
from tests.bench.llama.talk import Heard, Side, words
from tests.bench.report import Row
from tests.bench.streams import BenchError

NAME = "hops_6_total"
ROWS = (NAME,)
HOPS = 6
SLOTS = 4
CONTEXT_TOKENS = 8192
# The system prompts may be a token or two apart; more means that the texts are not the same.
ALLOWED_DIFFERENCE = 8


class _Hops(msgspec.Struct, frozen=True, kw_only=True):
    """One conversation."""

    answers: tuple[Heard, ...]

    @property
    def total_ms(self) -> float:
        """From the first message to the end of the last answer."""
        return 1000 * (self.answers[-1].ended_at - self.answers[0].sent_at)


def rows(bench: Bench, _wanted: Sequence[str]) -> Iterator[Row]:
    """Measure the whole conversation, its cold opening included."""
    scale = bench.scale
    setup = bench.setup(
        answer_tokens=scale.hop_tokens, streams=SLOTS, context_tokens=CONTEXT_TOKENS
    )

    def one_round(side: Side, seed: str) -> _Hops:
        texts = [words(scale.opening_words, f"{seed} opening")]
        texts += [words(scale.hop_words, f"{seed} hop {hop}") for hop in range(1, HOPS)]
        with side.talk() as talk:
            return _Hops(answers=tuple(talk.say(text) for text in texts))

    with bench.both(NAME, setup) as pair:
        pair.each(lambda side: one_round(side, "first"))
        pairs = pair.rounds(NAME, one_round, _told)
    for ours, peer in pairs:
        _check_alike(ours, peer)
    yield row(NAME, [(ours.total_ms, peer.total_ms) for ours, peer in pairs])


def _check_alike(ours: _Hops, peer: _Hops) -> None:
    """Refuse a pair whose prompts do not have the same length at every hop."""
    for one, other in zip(ours.answers, peer.answers, strict=True):
        if abs(one.prompt_tokens - other.prompt_tokens) > ALLOWED_DIFFERENCE:
            raise BenchError(
                f"a hop's prompt has {one.prompt_tokens} tokens on our side, "
                f"{other.prompt_tokens} on the peer's"
            )


def _told(hops: _Hops) -> str:
    computed = [answer.prompt_tokens - answer.cached_tokens for answer in hops.answers]
    return (
        f"{hops.total_ms:.0f} ms, {hops.answers[-1].prompt_tokens} tokens in the last prompt, "
        f"computed at each hop: {', '.join(str(count) for count in computed)}"
    )
