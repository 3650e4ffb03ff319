"""Tokens per second and time to first token, at one stream and at several, against the peer."""

from collections.abc import Callable, Iterator
from pathlib import Path

from tests.bench.engine_setup import EngineSetup, write_model
from tests.bench.llama_server import LlamaServer, running_server
from tests.bench.ours import Daemon, running_daemon
from tests.bench.report import Row, measured_in_turn, row_of
from tests.bench.scale import Scale
from tests.bench.streams import BenchError, Round, Side, ask_together, user_texts

STREAMS = (1, 4)
PEER = "llama_cpp.server"

Say = Callable[[str], None]


def rows(folder: Path, scale: Scale, say: Say, *, threads: int) -> Iterator[Row]:
    """Measure both engines on a model that is made for it."""
    say(f"writing a random model of {scale.layers} layers")
    model = write_model(folder / "random.gguf", layers=scale.layers)
    setup = EngineSetup(
        model=model, answer_tokens=scale.answer_tokens, streams=max(STREAMS), threads=threads
    )
    say(f"both engines: threads {threads}, context {setup.context_tokens} tokens")
    with (
        running_daemon(folder / "engine", setup) as ours,
        running_server(folder, setup) as peer,
    ):
        say(_with_equal_prompts(ours, peer, scale))
        for streams in STREAMS:
            yield from _rows_at(streams, ours, peer, scale, say)


def _with_equal_prompts(ours: Daemon, peer: LlamaServer, scale: Scale) -> str:
    """Load both models, make their prompts equally long and say how long they are."""
    first, text = user_texts(scale.prompt_words, 2, "warm-up")
    ask_together(ours, [first])
    (answer,) = ask_together(ours, [text]).answers
    theirs = peer.match_prompt(text, answer.prompt_tokens)
    if abs(theirs - answer.prompt_tokens) > 0.02 * answer.prompt_tokens:
        raise BenchError(f"the peer's prompt has {theirs} tokens, ours {answer.prompt_tokens}")
    return (
        f"a prompt of {scale.prompt_words} random words: ours {answer.prompt_tokens} tokens "
        f"({answer.cached_tokens} of them known from the prompt before), the peer's {theirs}"
    )


def _rows_at(
    streams: int, ours: Daemon, peer: LlamaServer, scale: Scale, say: Say
) -> Iterator[Row]:
    def measure(side: Side, name: str) -> Callable[[int], Round]:
        def one_round(number: int) -> Round:
            texts = user_texts(scale.prompt_words, streams, f"{streams} streams, {number}")
            result = ask_together(side, texts)
            say(
                f"streams: {streams}, pair {number + 1} of {scale.stream_pairs}, {name}: "
                f"{result.tokens_per_s:.1f} tok/s, first token {result.first_token_ms:.0f} ms"
            )
            return result

        return one_round

    pairs = measured_in_turn(measure(ours, "ours"), measure(peer, PEER), scale.stream_pairs)
    say(f"streams: {streams}, {_prompts([mine for mine, _ in pairs])}")
    noun = "1 stream" if streams == 1 else f"{streams} streams"
    rates = [(mine.tokens_per_s, theirs.tokens_per_s) for mine, theirs in pairs]
    yield row_of(f"tokens per second, {noun} ({PEER})", "tok/s", rates)
    waits = [(mine.first_token_ms, theirs.first_token_ms) for mine, theirs in pairs]
    yield row_of(f"time to first token, {noun} ({PEER})", "ms", waits)


def _prompts(rounds: list[Round]) -> str:
    answers = [answer for each in rounds for answer in each.answers]
    tokens = [answer.prompt_tokens for answer in answers]
    cached = [answer.cached_tokens for answer in answers]
    return (
        f"our prompts: {min(tokens)} to {max(tokens)} tokens, "
        f"{min(cached)} to {max(cached)} of them cached"
    )
