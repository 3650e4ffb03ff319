"""Running streams while a long prompt arrives: their gaps, and the newcomer's first token."""

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import msgspec

from tests.bench.llama.aims import row
from tests.bench.llama.bench import Bench
from tests.bench.llama.talk import Heard, Side, Talk, gaps_within, words
from tests.bench.llama_server import ANSWER_LIMIT_S
from tests.bench.report import Row, quantile
from tests.bench.streams import BenchError

GAP, NEWCOMER = "stall_p95", "stall_newcomer_ttft"
ROWS = (GAP, NEWCOMER)
RUNNING = 3
CONTEXT_TOKENS = 8192
# A stream runs when it has said that much.
SETTLED_PIECES = 8


class _Stall(msgspec.Struct, frozen=True, kw_only=True):
    """One round: what was heard of the running streams until the newcomer's first text."""

    running: tuple[Heard, ...]
    newcomer: Heard

    @property
    def gap_p95_ms(self) -> float:
        newcomer = self.newcomer
        gaps = gaps_within(self.running, newcomer.sent_at, newcomer.heard_at[0])
        return 1000 * quantile(gaps, 0.95)


def rows(bench: Bench, wanted: Sequence[str]) -> Iterator[Row]:
    """Measure both rows, which are two views of one round."""
    scale = bench.scale
    setup = bench.setup(
        answer_tokens=scale.stall_tokens, streams=RUNNING + 1, context_tokens=CONTEXT_TOKENS
    )

    def one_round(side: Side, seed: str) -> _Stall:
        texts = [words(scale.own_words, f"{seed} running {place}") for place in range(RUNNING)]
        return _stall(side, texts, words(scale.arriving_words, f"{seed} arriving"))

    with bench.both("stall", setup) as pair:
        pair.each(lambda side: one_round(side, "first"))
        pairs = pair.rounds("stall", one_round, _told)
    if GAP in wanted:
        yield row(GAP, [(ours.gap_p95_ms, peer.gap_p95_ms) for ours, peer in pairs])
    if NEWCOMER in wanted:
        waits = [
            (ours.newcomer.first_token_ms, peer.newcomer.first_token_ms) for ours, peer in pairs
        ]
        yield row(NEWCOMER, waits)


def _stall(side: Side, texts: Sequence[str], arriving: str) -> _Stall:
    """Start the streams, let the newcomer come when all run, and end all at its first text."""
    settled = threading.Semaphore(0)
    is_over = threading.Event()

    def is_enough(pieces: int) -> bool:
        if pieces == SETTLED_PIECES:
            settled.release()
        return is_over.is_set()

    def run(talk: Talk, text: str) -> Heard:
        return talk.say(text, is_enough)

    with ExitStack() as stack, ThreadPoolExecutor(len(texts)) as pool:
        talks = [stack.enter_context(side.talk()) for _ in texts]
        newcomer = stack.enter_context(side.talk())
        futures = [pool.submit(run, *pair) for pair in zip(talks, texts, strict=True)]
        try:
            for _ in texts:
                if not settled.acquire(timeout=ANSWER_LIMIT_S):
                    raise BenchError("a stream did not begin to answer")
            heard = newcomer.say(arriving, lambda pieces: pieces == 1)
        finally:
            is_over.set()
        running = tuple(future.result(ANSWER_LIMIT_S) for future in futures)
    return _Stall(running=running, newcomer=heard)


def _told(stall: _Stall) -> str:
    return (
        f"gap p95 {stall.gap_p95_ms:.0f} ms, newcomer's first token "
        f"{stall.newcomer.first_token_ms:.0f} ms"
    )
