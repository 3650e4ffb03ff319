"""Tokens per second of 1, 4 and 8 streams, alone in the KV memory and beside idle conversations.

A stream opens a conversation with a message that begins like its message of the round before, so
that both engines put it where that one was and only a few prompt tokens are computed: what is in
the memory beside it stays, and the round measures decoding.
"""

from collections.abc import Iterator, Sequence

from tests.bench.llama.aims import row
from tests.bench.llama.bench import Bench, Pair
from tests.bench.llama.talk import Heard, Side, decode_rate, say_together, words
from tests.bench.report import Row

STREAMS = (1, 4, 8)
FRESH = {f"decode_{streams}_fresh": streams for streams in STREAMS}
LONG_LIVED = {f"decode_{streams}_longlived": streams for streams in STREAMS}
ROWS = (*FRESH, *LONG_LIVED)
CONTEXT_TOKENS = 8192


def rows(bench: Bench, wanted: Sequence[str]) -> Iterator[Row]:
    """Measure the wanted rows; each fresh one on processes of its own."""
    scale = bench.scale
    setup = bench.setup(
        answer_tokens=scale.answer_tokens,
        streams=max(STREAMS) + scale.idle_count,
        context_tokens=CONTEXT_TOKENS,
    )
    for name, streams in FRESH.items():
        if name in wanted:
            with bench.both(name, setup) as pair:
                yield _measured(name, streams, pair, bench)
    chosen = {name: streams for name, streams in LONG_LIVED.items() if name in wanted}
    if not chosen:
        return
    with bench.both("longlived", setup) as pair:
        bench.say(f"filling the KV memory with {scale.idle_count} conversations")
        texts = [words(scale.idle_words, f"idle {number}") for number in range(scale.idle_count)]
        pair.each(lambda side: say_together(side, texts))
        for name, streams in chosen.items():
            yield _measured(name, streams, pair, bench)


def _measured(name: str, streams: int, pair: Pair, bench: Bench) -> Row:
    def one_round(side: Side, seed: str) -> tuple[Heard, ...]:
        texts = [_message(bench, stream, seed) for stream in range(streams)]
        return say_together(side, texts)

    pair.each(lambda side: one_round(side, "first"))
    pairs = pair.rounds(name, one_round, _told)
    return row(name, [(decode_rate(ours), decode_rate(peer)) for ours, peer in pairs])


def _message(bench: Bench, stream: int, seed: str) -> str:
    own = words(bench.scale.own_words, f"stream {stream}")
    return f"{own} {words(bench.scale.new_words, f'{seed} {stream}')}"


def _told(answers: tuple[Heard, ...]) -> str:
    prompt = max(answer.prompt_tokens - answer.cached_tokens for answer in answers)
    return f"{decode_rate(answers):.1f} tok/s (at most {prompt} prompt tokens computed)"
