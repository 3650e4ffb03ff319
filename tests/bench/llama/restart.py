"""The first token of a conversation's next turn after the server was ended and started again.

Loading the model is left out on both sides: a short message of another conversation comes before
the turn that is measured. It leaves the system prompt in either side's memory. Ours keeps
conversations on disk; llama-server keeps nothing by itself, so its turn is computed anew.
"""

from collections.abc import Iterator, Sequence

import msgspec

from tests.bench.llama.aims import row
from tests.bench.llama.bench import Bench
from tests.bench.llama.talk import Heard, Side, words
from tests.bench.report import Row
from tests.bench.streams import BenchError

PEER, OWN_COLD = "restart_ttft", "restart_own_cold"
ROWS = (PEER, OWN_COLD)
SLOTS = 4
CONTEXT_TOKENS = 8192
ANSWER_TOKENS = 16
DISK_MB = 1024
# Of a kept conversation, our side computes nothing again but its last token.
MAX_AGAIN = 1


class _Restart(msgspec.Struct, frozen=True, kw_only=True):
    """One conversation: its first turn, and the next one after a restart."""

    cold: Heard
    resumed: Heard


def rows(bench: Bench, wanted: Sequence[str]) -> Iterator[Row]:
    """Measure both rows on the same restarts."""
    scale = bench.scale
    setup = bench.setup(answer_tokens=ANSWER_TOKENS, streams=SLOTS, context_tokens=CONTEXT_TOKENS)
    setup = msgspec.structs.replace(setup, prefix_cache_disk_mb=DISK_MB)

    def one_round(side: Side, seed: str) -> _Restart:
        with side.talk() as talk:
            cold = talk.say(words(scale.kept_words, f"{seed} first"))
        side.restart()
        with side.talk() as other:
            other.say(words(scale.new_words, f"{seed} other"))
        with talk.resumed() as again:
            return _Restart(cold=cold, resumed=again.say(words(scale.next_words, f"{seed} next")))

    with bench.both("restart", setup) as pair:
        pairs = pair.rounds("restart", one_round, _told)
    for ours, _ in pairs:
        _check_kept(ours)
    if PEER in wanted:
        waits = [(ours.resumed.first_token_ms, peer.resumed.first_token_ms) for ours, peer in pairs]
        yield row(PEER, waits)
    if OWN_COLD in wanted:
        own = [(ours.resumed.first_token_ms, ours.cold.first_token_ms) for ours, _ in pairs]
        yield row(OWN_COLD, own)


def _check_kept(found: _Restart) -> None:
    before = found.cold.prompt_tokens + ANSWER_TOKENS
    if found.resumed.cached_tokens < before - MAX_AGAIN:
        raise BenchError(
            f"after a restart {found.resumed.cached_tokens} of {before} tokens were kept, "
            f"expected at least {before - MAX_AGAIN}"
        )


def _told(found: _Restart) -> str:
    cold, resumed = found.cold, found.resumed
    return (
        f"cold {cold.first_token_ms:.0f} ms ({cold.prompt_tokens} tokens, {cold.cached_tokens} "
        f"cached), after a restart {resumed.first_token_ms:.0f} ms ({resumed.prompt_tokens} "
        f"tokens, {resumed.cached_tokens} cached)"
    )
