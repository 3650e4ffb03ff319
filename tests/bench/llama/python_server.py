"""Eight streams against `python -m llama_cpp.server`, which answers one after the other."""

from collections.abc import Callable, Iterator, Sequence

from tests.bench.llama.aims import row
from tests.bench.llama.bench import Bench
from tests.bench.llama_server import running_server
from tests.bench.ours import running_daemon
from tests.bench.report import Row, measured_in_turn
from tests.bench.streams import Side, ask_together, user_texts

NAME = "llama_cpp_server_8"
ROWS = (NAME,)
PEER = "llama_cpp.server"
STREAMS = 8
CONTEXT_TOKENS = 4096


def rows(bench: Bench, _wanted: Sequence[str]) -> Iterator[Row]:
    """Measure tokens of all streams a second, their prompts included."""
    scale = bench.scale
    setup = bench.setup(
        answer_tokens=scale.answer_tokens, streams=STREAMS, context_tokens=CONTEXT_TOKENS
    )
    folder = bench.folder / NAME
    folder.mkdir()
    with (
        running_daemon(folder / "ours", setup) as ours,
        running_server(folder, setup) as peer,
    ):
        first, text = user_texts(scale.own_words, 2, f"warm-up of {NAME}")
        ask_together(ours, [first])
        (answer,) = ask_together(ours, [text]).answers
        theirs = peer.match_prompt(text, answer.prompt_tokens)
        bench.say(f"{NAME}: prompts of {answer.prompt_tokens} and {theirs} tokens")

        def measure(side: Side, name: str) -> Callable[[int], float]:
            def one_round(number: int) -> float:
                texts = user_texts(scale.own_words, STREAMS, f"{NAME} {number}")
                rate = ask_together(side, texts).tokens_per_s
                bench.say(f"{NAME}, pair {number + 1} of {scale.pairs}, {name}: {rate:.1f} tok/s")
                return rate

            return one_round

        yield row(NAME, measured_in_turn(measure(ours, "ours"), measure(peer, PEER), scale.pairs))
