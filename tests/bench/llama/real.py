"""A real model: the same requests to the gateway and to llama-server, and what a step costs us.

Everything a person would set is the same on both sides: threads, slots, context of a slot, batch,
sampling. Each answer has the same length, as the tokens that could end one are banned.
"""

import json
import math
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import msgspec

from clawd.engine.protocol import ChatMessage, Generate, Load, ModelConfig, Sampling
from clawd.engine.worker.llama import lib
from clawd.engine.worker.loop import LoadedEngine, load_model
from tests.bench.engine_setup import EngineSetup
from tests.bench.http.client import Connection, request_bytes
from tests.bench.http.daemon import INJECT_OFF, running_gateway
from tests.bench.http.dialects import CHAT, Asked, Told, told
from tests.bench.llama.aims import is_reached, row
from tests.bench.llama.bench import Bench
from tests.bench.llama.peer import running_peer
from tests.bench.memory import cpu_s, family_of
from tests.bench.report import Row
from tests.bench.streams import BenchError, now
from tests.support.gguf_models import write_random_gguf

STREAMS = (1, 4, 8)
FACTS = ("whole", "all", "ttft", "cpu", "greedy")
PREFILL, SMALL, LARGE = "real_prefill_cold", "step_outside_49k", "step_outside_152k"
ROWS = (
    *(f"real_{streams}_{fact}" for streams in STREAMS for fact in FACTS),
    PREFILL,
    SMALL,
    LARGE,
)
CONTEXT_TOKENS = 2048
MANY_TOKENS = 152_064
SAMPLED = {"temperature": 0.8, "top_k": 40, "top_p": 0.95, "min_p": 0.05}
GREEDY = {"temperature": 0.0}
# Every special token of SmolLM2, among them all that end an answer.
BANNED = [[token, False] for token in range(17)]
PROVIDER = "bench"
TEXT = Path(__file__).parents[3] / "docs" / "configuration.md"
WORDS, LONG_WORDS = 60, 700
STEPS = 128


def rows(bench: Bench, wanted: Sequence[str]) -> Iterator[Row]:
    """Measure the wanted rows; those of the real model not where it could not be fetched."""
    if bench.real is None:
        bench.say("the real model is not there; its rows are left out")
    else:
        if any(name.startswith("real_") for name in wanted):
            yield from _beside_the_peer(bench, bench.real, wanted)
        if SMALL in wanted:
            yield row(SMALL, _steps(bench, bench.real))
    if LARGE in wanted:
        bench.say(f"writing a random model with {MANY_TOKENS} tokens of vocabulary")
        model = write_random_gguf(
            bench.folder / "many.gguf",
            n_embd=512,
            n_layer=8,
            n_ff=1536,
            chain=False,
            vocabulary=MANY_TOKENS,
        )
        yield row(LARGE, _steps(bench, model))


class _Round(msgspec.Struct, frozen=True, kw_only=True):
    """Answers that ran together, and the processor time that they took."""

    answers: tuple[Told, ...]
    cpu_s: float
    # Of the server's first process, which on our side computes nothing itself.
    first_s: float

    @property
    def tokens(self) -> int:
        return sum(answer.counts[1] for answer in self.answers)

    @property
    def whole(self) -> float:
        began = min(answer.sent_at for answer in self.answers)
        return self.tokens / (max(answer.ended_at for answer in self.answers) - began)

    @property
    def all(self) -> float:
        """Tokens a second from when the last has begun until the first ends."""
        began = max(answer.text_at[0] for answer in self.answers)
        ended = min(answer.text_at[-1] for answer in self.answers)
        if ended <= began:
            raise BenchError("an answer ended before another began: answers are too short")
        heard = sum(
            sum(began < at <= ended for at in answer.text_at)
            * answer.counts[1]
            / len(answer.text_at)
            for answer in self.answers
        )
        return heard / (ended - began)

    @property
    def ttft(self) -> float:
        return statistics.mean(answer.first_ms for answer in self.answers)

    @property
    def cpu(self) -> float:
        return self.tokens / self.cpu_s


class _Side:
    """One of the two servers."""

    def __init__(self, port: int, pid: int, answer_tokens: int, headers: Sequence[str]) -> None:
        self._port = port
        self._pid = pid
        self._answer_tokens = answer_tokens
        self._headers = headers

    def round(self, texts: Sequence[str], sampling: dict[str, Any], seed: int) -> _Round:
        """Ask everything at once."""
        before, first = cpu_s(family_of(self._pid)), cpu_s([self._pid])
        with ThreadPoolExecutor(len(texts)) as pool:
            bodies = [sampling | {"seed": seed + place} for place in range(len(texts))]
            answers = tuple(pool.map(self._ask, texts, bodies))
        return _Round(
            answers=answers,
            cpu_s=cpu_s(family_of(self._pid)) - before,
            first_s=cpu_s([self._pid]) - first,
        )

    def _ask(self, text: str, sampling: dict[str, Any]) -> Told:
        tokens = self._answer_tokens
        asked = Asked(text=text, model=PROVIDER, stream=True, tokens=tokens)
        body = CHAT.body(asked) | sampling | {"logit_bias": BANNED}
        with closing(Connection(self._port)) as connection:
            request = request_bytes(self._port, CHAT.path, body, self._headers)
            answer = told(CHAT, connection.ask(request), stream=True)
        if answer.counts[1] != tokens:
            raise BenchError(f"an answer has {answer.counts[1]} tokens, expected {tokens}")
        return answer


def _beside_the_peer(bench: Bench, model: Path, wanted: Sequence[str]) -> Iterator[Row]:
    folder = bench.folder / "real"
    folder.mkdir()
    setup = EngineSetup(
        model=model,
        answer_tokens=bench.scale.real_tokens,
        streams=max(STREAMS),
        threads=bench.threads,
        context_tokens=CONTEXT_TOKENS,
        kv_unified=False,
    )
    with (
        running_gateway(folder / "ours", provider=PROVIDER, tables=_tables(setup)) as gateway,
        running_peer(bench.binaries, folder, setup) as server,
    ):
        tokens = setup.answer_tokens
        ours = _Side(gateway.port, gateway.pid, tokens, INJECT_OFF)
        peer = _Side(server.port, server.pid, tokens, ())
        for side in (ours, peer):
            side.round(_texts(max(STREAMS), WORDS, "before"), SAMPLED, 1)
        for streams in STREAMS:
            found = list(_of_streams(bench, (ours, peer), streams, wanted))
            yield from found
            missed = [each.name for each in found if not is_reached(each)]
            if missed:
                bench.say(f"{', '.join(missed)}: not reached; what our engine does alone:")
                bench.say(_profile(bench, model, streams))
        if PREFILL in wanted:
            yield row(PREFILL, _prefill(bench, (ours, peer)))


def _of_streams(
    bench: Bench, sides: tuple[_Side, _Side], streams: int, wanted: Sequence[str]
) -> Iterator[Row]:
    sampled: list[tuple[_Round, ...]] = []
    greedy: list[tuple[_Round, ...]] = []
    named = {fact: f"real_{streams}_{fact}" for fact in FACTS}
    wants_greedy = named["greedy"] in wanted
    wants_sampled = any(named[fact] in wanted for fact in FACTS[:-1])
    for number in range(bench.scale.pairs):
        if wants_sampled:
            texts = _texts(streams, WORDS, f"sampled {number}")
            sampled.append(tuple(side.round(texts, SAMPLED, 100 * number) for side in sides))
            told = " and ".join(f"{each.whole:.1f} tok/s" for each in sampled[-1])
            bench.say(f"real, {streams} streams, pair {number + 1}: {told}")
        if wants_greedy:
            texts = _texts(streams, WORDS, f"greedy {number}")
            greedy.append(tuple(side.round(texts, GREEDY, 0) for side in sides))
    if sampled:
        shares = [one.first_s / one.cpu_s for one, _ in sampled]
        bench.say(
            f"real, {streams} streams: {statistics.median(shares):.1%} of our processor time is "
            "the daemon's, the rest its worker's"
        )
    for fact in FACTS[:-1]:
        if named[fact] in wanted:
            yield row(
                named[fact], [(getattr(one, fact), getattr(two, fact)) for one, two in sampled]
            )
    if wants_greedy:
        yield row(named["greedy"], [(one.whole, two.whole) for one, two in greedy])


def _prefill(bench: Bench, sides: tuple[_Side, _Side]) -> list[tuple[float, float]]:
    pairs: list[tuple[float, float]] = []
    for number in range(bench.scale.pairs):
        texts = _texts(1, LONG_WORDS, f"cold {number}")
        one, two = (side.round(texts, GREEDY, 0).answers[0] for side in sides)
        pairs.append((1000 * one.counts[0] / one.first_ms, 1000 * two.counts[0] / two.first_ms))
    return pairs


def _steps(bench: Bench, model: Path) -> list[tuple[float, float]]:
    """Return pairs of time outside llama_decode and time in all, of steps that only decode."""
    engine = _engine(bench, model, streams=4)
    with _timed_decodes() as inside:
        return [_of_steps(engine, number, inside) for number in range(bench.scale.pairs)]


def _engine(bench: Bench, model: Path, *, streams: int) -> LoadedEngine:
    options = ModelConfig(
        path=str(model),
        n_ctx=CONTEXT_TOKENS,
        n_parallel=streams,
        n_threads=bench.threads,
        speculation="off",
    )
    return load_model(Load(config=options))


@contextmanager
def _timed_decodes(clock: Callable[[], float] = now) -> Iterator[list[tuple[int, float]]]:
    """Note how many tokens each llama_decode has, and how long it takes."""
    inside: list[tuple[int, float]] = []
    decode = lib.llama_decode

    def timed(context: Any, batch: Any) -> int:
        began = clock()
        try:
            return int(decode(context, batch))
        finally:
            inside.append((int(batch.n_tokens), clock() - began))

    lib.llama_decode = timed
    try:
        yield inside
    finally:
        lib.llama_decode = decode


def _profile(bench: Bench, model: Path, streams: int) -> str:
    """Return where a round's processor time goes: in this process, after one to learn from."""
    engine = _engine(bench, model, streams=max(STREAMS))
    whole_s = 0.0
    with _timed_decodes(time.process_time) as inside:
        for number in range(2):
            inside.clear()
            began = time.process_time()
            for place, text in enumerate(_texts(streams, WORDS, f"profile {number}")):
                limit = bench.scale.real_tokens
                engine.generate(_asked(1 + number * streams + place, text, max_tokens=limit))
            while engine.has_work:
                for event in engine.step():
                    msgspec.msgpack.encode(event)
            whole_s = time.process_time() - began
    decoded_s = sum(taken for _, taken in inside)
    lines = [f"  {decoded_s / whole_s:.1%} of the processor time inside llama_decode"]
    for size in sorted({min(count, streams + 1) for count, _ in inside}):
        steps = [each for each in inside if min(each[0], streams + 1) == size]
        tokens, taken_s = sum(count for count, _ in steps), sum(taken for _, taken in steps)
        what = f"{size} answers" if size <= streams else "prompts"
        each_ms = 1000 * taken_s / tokens
        lines.append(f"  {what}: {len(steps)} calls, {tokens} tokens, {each_ms:.2f} ms a token")
    return "\n".join(lines)


def _asked(number: int, text: str, *, max_tokens: int = 0) -> Generate:
    """Return a request as the peers get it, sampled as SAMPLED, which is the default."""
    banned = dict.fromkeys(range(len(BANNED)), -math.inf)
    sampling = Sampling(seed=number, logit_bias=banned, max_tokens=max_tokens)
    message = ChatMessage(role="user", content=text)
    return Generate(id=number, messages=(message,), sampling=sampling)


def _of_steps(
    engine: LoadedEngine, number: int, inside: list[tuple[int, float]]
) -> tuple[float, float]:
    """Let one answer go on for some steps, and encode what it says as for the daemon."""
    (text,) = _texts(1, WORDS, f"step {number}")
    engine.generate(_asked(number + 1, text))
    for _ in range(8):  # the prompt, and what is done once
        engine.step()
    inside.clear()
    began = now()
    for _ in range(STEPS):
        for event in engine.step():
            msgspec.msgpack.encode(event)
    whole_s = now() - began
    decoded_s = sum(taken for _, taken in inside)
    engine.cancel(number + 1)
    return 1000 * (whole_s - decoded_s) / STEPS, 1000 * whole_s / STEPS


def _texts(count: int, words: int, seed: str) -> list[str]:
    """Return questions about passages of a page of these docs, none like another."""
    page = TEXT.read_text("utf-8").split()
    texts = []
    for place in range(count):
        begin = hash_of(f"{seed} {place}") % (len(page) - words)
        passage = " ".join(page[begin : begin + words])
        texts.append(f"{seed} {place}. Explain in detail what this says: {passage}")
    return texts


def hash_of(text: str) -> int:
    """Return a number that is the same in every run."""
    return sum(number * (place + 7) ** 3 for place, number in enumerate(text.encode()))


def _tables(setup: EngineSetup) -> str:
    return f"""
[providers.models.{PROVIDER}]
kind = "local"
model = {json.dumps(str(setup.model))}

[engine]
keep_alive_s = 0
ctx_size = {setup.context_tokens}
n_parallel = {setup.streams}
n_batch = {setup.batch_tokens}
n_ubatch = {setup.batch_tokens}
n_threads = {setup.threads}
flash_attn = "on"
"""
