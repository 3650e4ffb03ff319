"""How long a cancel takes to free a place, against one step of the engine at that moment.

Four streams run on a worker; a fifth generation is cancelled while it decodes, amid a prompt of
4,000 tokens, or while it waits. There is no peer: a step cannot be interrupted, so nothing that
keeps the others running can be sure to be faster than one step.
"""

import statistics
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.bench.engine_setup import write_model
from tests.bench.report import Row, row_of
from tests.bench.scale import Scale
from tests.support.cancelling import STREAMS, Place, Streams
from tests.support.engine_worker import WorkerClient

PLACES: tuple[Place, ...] = ("decode", "prefill", "queue")


def rows(folder: Path, scale: Scale, say: Callable[[str], None], *, threads: int) -> Iterator[Row]:
    """Measure each place on one worker."""
    model = write_model(folder / "cancel.gguf", layers=scale.layers)
    with WorkerClient() as worker:
        streams = Streams(worker, model, threads=threads)
        for place in PLACES:
            yield _row(place, streams, scale.stream_pairs, say)


def _row(place: Place, streams: Streams, count: int, say: Callable[[str], None]) -> Row:
    cancelled = [streams.cancel(place, is_stopped=False) for _ in range(count)]
    pairs = [(each.elapsed_ms, each.step_ms) for each in cancelled]
    say(
        f"cancel in {place} beside {STREAMS} streams, {count} times: "
        f"{statistics.median(ours for ours, _ in pairs):.1f} ms, "
        f"a step {statistics.median(step for _, step in pairs):.1f} ms"
    )
    return row_of(f"cancel_{place}_ms", "ms", pairs)
