"""Tokens per second of answers held to a schema against free ones, on the real model, one stream.

Both are ours: one worker, the same words asked, sampling as people use it, in turn. The free answer
ends when the model wants, the other one when its list is long enough; rates are per token.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import psutil

from clawd.engine.protocol import Grammar, ModelConfig, ModelReady, Sampling
from tests.bench.llama.aims import row
from tests.bench.llama.bench import Bench
from tests.bench.report import Row
from tests.bench.streams import BenchError
from tests.support.engine_worker import WorkerClient

WHOLE, CPU = "constrained_whole", "constrained_cpu"
ROWS = (WHOLE, CPU)
REAL_MODEL = Path(__file__).parents[3] / ".setup/models/SmolLM2-135M-Instruct.Q4_1.gguf"
CONTEXT_TOKENS = 2048
TOKENS_PER_ANSWER = 2
ASKED = (
    "Write a JSON list of thirty notes about animals with title, summary, tags, score, day, kind."
)
NOTE: dict[str, Any] = {
    "type": "object",
    "properties": {
        "title": {"type": "string"},
        "summary": {"type": "string"},
        "tags": {"type": "array", "items": {"type": "string"}, "minItems": 3},
        "score": {"type": "number", "minimum": 0, "maximum": 10},
        "day": {"type": "string", "format": "date"},
        "kind": {"enum": ["note", "task", "event"]},
    },
    "required": ["title", "summary", "tags", "score", "day", "kind"],
    "additionalProperties": False,
}
SCHEMA = {"type": "array", "items": NOTE, "minItems": 30}


class Rates(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens per second by the clock, and by what its processes took of a processor."""

    whole: float
    cpu: float


def rows(bench: Bench, wanted: Sequence[str]) -> Iterator[Row]:
    """Measure the wanted rows.

    Raises:
        BenchError: the real model is not there.
    """
    if not REAL_MODEL.is_file():
        raise BenchError(f"the real model is not at {REAL_MODEL}; make test fetches it")
    config = ModelConfig(
        path=str(REAL_MODEL), n_ctx=CONTEXT_TOKENS, n_threads=bench.threads, speculation="off"
    )
    with WorkerClient() as worker:
        loaded = worker.load(config)
        if not isinstance(loaded, ModelReady):
            raise BenchError(f"the real model did not load: {loaded.message}")
        count = bench.scale.answer_tokens * TOKENS_PER_ANSWER
        held = Grammar(kind="json_schema", schema=SCHEMA)
        ask = _asking(worker, count)
        ask(held, 0), ask(Grammar(), 0)
        pairs = []
        for number in range(bench.scale.pairs):
            ours, free = ask(held, number), ask(Grammar(), number)
            bench.say(
                f"constrained, pair {number + 1} of {bench.scale.pairs}: held {ours.whole:.1f} "
                f"tok/s, free {free.whole:.1f} tok/s"
            )
            pairs.append((ours, free))
    found = {
        WHOLE: [(ours.whole, free.whole) for ours, free in pairs],
        CPU: [(ours.cpu, free.cpu) for ours, free in pairs],
    }
    for name in ROWS:
        if name in wanted:
            yield row(name, found[name])


def _asking(worker: WorkerClient, count: int) -> Callable[[Grammar, int], Rates]:
    process = psutil.Process(worker.process.pid)

    def ask(grammar: Grammar, seed: int) -> Rates:
        before = process.cpu_times()
        answer = worker.ask(ASKED, Sampling(seed=seed, max_tokens=count), grammar)
        after = process.cpu_times()
        if not answer.done.completion_tokens:
            raise BenchError("the real model said nothing")
        took = after.user + after.system - before.user - before.system
        tokens = answer.done.completion_tokens
        return Rates(whole=tokens / (answer.done.elapsed_ms / 1000), cpu=tokens / max(took, 0.01))

    return ask
