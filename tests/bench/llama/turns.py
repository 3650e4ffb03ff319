"""A long first message, cold, and the first token of the turn after it.

Every pair is a conversation of its own in a memory that is full of the ones before.
"""

from collections.abc import Iterator, Sequence
from functools import partial

from tests.bench.llama.aims import row
from tests.bench.llama.bench import Bench
from tests.bench.llama.talk import Heard, Side, words
from tests.bench.report import Row

COLD, SECOND = "prefill_cold", "second_turn_ttft"
ROWS = (COLD, SECOND)
SLOTS = 4
CONTEXT_TOKENS = 8192

_Turns = tuple[Heard, Heard]


def rows(bench: Bench, wanted: Sequence[str]) -> Iterator[Row]:
    """Measure both rows, because the second turn needs the first."""
    scale = bench.scale
    setup = bench.setup(
        answer_tokens=scale.answer_tokens, streams=SLOTS, context_tokens=CONTEXT_TOKENS
    )

    def one_round(side: Side, seed: str) -> _Turns:
        with side.talk() as talk:
            cold = talk.say(words(scale.long_words, f"cold {seed}"))
            return cold, talk.say(words(scale.new_words, f"second {seed}"))

    with bench.both("turns", setup) as pair:
        bench.say(f"filling the KV memory with {SLOTS - 1} conversations")
        for number in range(SLOTS - 1):
            pair.each(partial(one_round, seed=f"before {number}"))
        pairs = pair.rounds("turns", one_round, _told)
    if COLD in wanted:
        yield row(COLD, [(ours[0].prefill_rate, peer[0].prefill_rate) for ours, peer in pairs])
    if SECOND in wanted:
        waits = [(ours[1].first_token_ms, peer[1].first_token_ms) for ours, peer in pairs]
        yield row(SECOND, waits)


def _told(turns: _Turns) -> str:
    return "; ".join(
        f"{heard.prompt_tokens} prompt tokens, {heard.cached_tokens} cached, "
        f"first token {heard.first_token_ms:.0f} ms"
        for heard in turns
    )
