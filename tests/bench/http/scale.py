"""How much is measured: everything, or just enough to see that the benchmark works."""

import msgspec

from tests.bench.llama.aims import MIN_PAIRS


class Scale(msgspec.Struct, frozen=True, kw_only=True):
    """Sizes and counts of one run.

    Attributes:
        pairs: of each row.
        echo_words: of an answer of the scripted provider; each is a piece of its own.
        streams: at the same time on the scripted provider.
        stream_rounds: of that many streams, on either side.
        layers: of the random model that both servers answer with; 10 make 116 million parameters.
        prompt_words: of a prompt to it, five to six tokens each.
        answer_tokens: of its answers.
    """

    pairs: int
    echo_words: int
    streams: int
    stream_rounds: int
    layers: int
    prompt_words: int
    answer_tokens: int


FULL = Scale(
    pairs=MIN_PAIRS,
    echo_words=400,
    streams=200,
    stream_rounds=MIN_PAIRS,
    layers=10,
    prompt_words=60,
    answer_tokens=48,
)
QUICK = Scale(
    pairs=2,
    echo_words=40,
    streams=20,
    stream_rounds=2,
    layers=2,
    prompt_words=20,
    answer_tokens=16,
)
