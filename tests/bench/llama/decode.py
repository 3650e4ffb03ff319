"""Tokens per second of 1, 4 and 8 streams, alone in the KV memory and beside idle conversations.

A stream opens a conversation with a message that begins like its message of the round before, so
that both engines put it where that one was and only a few prompt tokens are computed: what is in
the memory beside it stays, and the round measures decoding. What the processes take in RAM is read
after each round of eight streams beside idle conversations.
"""

from collections.abc import Iterator, Sequence

import msgspec

from tests.bench.llama.aims import row
from tests.bench.llama.bench import Bench, Pair
from tests.bench.llama.talk import Heard, Side, decode_rate, say_together, words
from tests.bench.report import Row

STREAMS = (1, 4, 8)
FRESH = {f"decode_{streams}_fresh": streams for streams in STREAMS}
LONG_LIVED = {f"decode_{streams}_longlived": streams for streams in STREAMS}
MEMORY = "memory_rss"
# The long-lived row whose rounds show the memory, too.
MEMORY_AFTER = "decode_8_longlived"
ROWS = (*FRESH, *LONG_LIVED, MEMORY)
CONTEXT_TOKENS = 8192


class _Round(msgspec.Struct, frozen=True, kw_only=True):
    """The answers of all streams, and what the side took in RAM after them."""

    answers: tuple[Heard, ...]
    memory_mb: float


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
                yield _rate(name, _measured(name, streams, pair, bench))
    chosen = {
        name: streams
        for name, streams in LONG_LIVED.items()
        if name in wanted or (name == MEMORY_AFTER and MEMORY in wanted)
    }
    if not chosen:
        return
    with bench.both("longlived", setup) as pair:
        bench.say(f"filling the KV memory with {scale.idle_count} conversations")
        texts = [words(scale.idle_words, f"idle {number}") for number in range(scale.idle_count)]
        pair.each(lambda side: say_together(side, texts))
        for name, streams in chosen.items():
            pairs = _measured(name, streams, pair, bench)
            if name in wanted:
                yield _rate(name, pairs)
            if name == MEMORY_AFTER and MEMORY in wanted:
                yield row(MEMORY, [(ours.memory_mb, peer.memory_mb) for ours, peer in pairs])


def _rate(name: str, pairs: Sequence[tuple[_Round, _Round]]) -> Row:
    return row(
        name, [(decode_rate(ours.answers), decode_rate(peer.answers)) for ours, peer in pairs]
    )


def _measured(name: str, streams: int, pair: Pair, bench: Bench) -> list[tuple[_Round, _Round]]:
    def one_round(side: Side, seed: str) -> _Round:
        texts = [_message(bench, stream, seed) for stream in range(streams)]
        return _Round(answers=say_together(side, texts), memory_mb=side.memory_mb())

    pair.each(lambda side: one_round(side, "first"))
    return pair.rounds(name, one_round, _told)


def _message(bench: Bench, stream: int, seed: str) -> str:
    own = words(bench.scale.own_words, f"stream {stream}")
    return f"{own} {words(bench.scale.new_words, f'{seed} {stream}')}"


def _told(found: _Round) -> str:
    prompt = max(answer.prompt_tokens - answer.cached_tokens for answer in found.answers)
    whole_s = max(each.ended_at for each in found.answers) - min(
        each.sent_at for each in found.answers
    )
    return (
        f"{decode_rate(found.answers):.1f} tok/s (at most {prompt} prompt tokens computed), "
        f"{whole_s:.2f} s with prompts, {found.memory_mb:.0f} MB"
    )
