"""How much is measured: everything, or just enough to see that the benchmark works."""

import msgspec

from tests.bench.llama.aims import MIN_PAIRS


class Scale(msgspec.Struct, frozen=True, kw_only=True):
    """Sizes and counts of one run.

    A word is five to six tokens, and some 230 of a system prompt stand before every message.

    Attributes:
        layers: of the model; 10 make 116 million parameters.
        pairs: rounds on each side, for every row.
        answer_tokens: of every answer.
        stall_tokens: of answers that must outlast a long prompt.
        own_words: of a stream's message, the same in all its rounds.
        new_words: at the end of that message, new in every round.
        idle_words: of a conversation that fills the KV memory.
        idle_count: conversations that fill it.
        long_words: of a long first message; its prompt has some 1,500 tokens.
        arriving_words: of a message that comes beside running streams; its prompt has some 2,000.
    """

    layers: int
    pairs: int
    answer_tokens: int
    stall_tokens: int
    own_words: int
    new_words: int
    idle_words: int
    idle_count: int
    long_words: int
    arriving_words: int


FULL = Scale(
    layers=10,
    pairs=MIN_PAIRS,
    answer_tokens=64,
    stall_tokens=128,
    own_words=25,
    new_words=5,
    idle_words=115,
    idle_count=8,
    long_words=225,
    arriving_words=320,
)
QUICK = Scale(
    layers=2,
    pairs=2,
    answer_tokens=24,
    stall_tokens=64,
    own_words=25,
    new_words=5,
    idle_words=40,
    idle_count=8,
    long_words=100,
    arriving_words=250,
)
