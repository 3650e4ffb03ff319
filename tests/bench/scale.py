"""How much is measured: everything, or just enough to see that the benchmark works."""

import msgspec


class Scale(msgspec.Struct, frozen=True, kw_only=True):
    """Sizes and counts of one run.

    Attributes:
        layers: of the model; 10 make 116 million parameters.
        prompt_words: random words of a user's message.
        answer_tokens: of every answer.
        stream_pairs: rounds on each side, for every number of streams.
        command_pairs: starts of each command.
        rpc_pairs: bursts of calls on each side.
        rpc_calls: calls of one burst.
        receipts: length of the chain.
        short_receipts: length of the one whose memory that is held against.
        receipt_pairs: readings of the chain on each side.
        schedule_starts: jobs that begin, one a second.
    """

    layers: int
    prompt_words: int
    answer_tokens: int
    stream_pairs: int
    command_pairs: int
    rpc_pairs: int
    rpc_calls: int
    receipts: int
    short_receipts: int
    receipt_pairs: int
    schedule_starts: int


FULL = Scale(
    layers=10,
    prompt_words=50,
    answer_tokens=64,
    stream_pairs=15,
    command_pairs=25,
    rpc_pairs=25,
    rpc_calls=500,
    receipts=1_000_000,
    short_receipts=10_000,
    receipt_pairs=5,
    schedule_starts=120,
)
QUICK = Scale(
    layers=2,
    prompt_words=20,
    answer_tokens=24,
    stream_pairs=2,
    command_pairs=3,
    rpc_pairs=3,
    rpc_calls=100,
    receipts=5_000,
    short_receipts=500,
    receipt_pairs=2,
    schedule_starts=3,
)
