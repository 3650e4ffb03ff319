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
        hop_tokens: of a hop's answer, as long as a tool call.
        opening_words: of the message that a conversation of many hops begins with.
        hop_words: of each result that comes back to it; some 200 tokens.
        kept_words: of a first message that is kept over a restart; some 1,500 tokens are new.
        next_words: of the message after the restart; some 20 tokens are new.
        edit_tokens: of a text that is repeated with changes; the answer is as long.
        real_tokens: of the real model's answers; the first of eight must not end before the last
            has begun.
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
    hop_tokens: int
    opening_words: int
    hop_words: int
    kept_words: int
    next_words: int
    edit_tokens: int
    real_tokens: int


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
    hop_tokens=32,
    opening_words=100,
    hop_words=36,
    kept_words=270,
    next_words=2,
    edit_tokens=400,
    real_tokens=128,
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
    hop_tokens=16,
    opening_words=50,
    hop_words=20,
    kept_words=100,
    next_words=2,
    edit_tokens=200,
    real_tokens=64,
)
