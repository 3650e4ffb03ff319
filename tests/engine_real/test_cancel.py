"""Cancel frees a place within one step: while it decodes, amid a long prompt, in the queue."""

import statistics
from collections.abc import Iterator

import pytest

from clawd.engine.protocol import PromptStep
from tests.engine_real.conftest import TEMPLATE
from tests.support.cancelling import BEFORE_CANCEL, Place, Streams
from tests.support.engine_worker import WorkerClient
from tests.support.gguf_models import write_random_gguf
from tests.support.rows import thorough

pytestmark = pytest.mark.real_model

ROUNDS = 3 if thorough() else 1
PREFILL_TOKENS = 8000


@pytest.fixture(scope="module")
def streams(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Streams]:
    """Endless answers of a model whose steps take long enough to be told from nothing."""
    path = write_random_gguf(
        tmp_path_factory.mktemp("model") / "steps.gguf",
        chat_template=TEMPLATE,
        n_embd=256,
        n_layer=6,
        n_ff=768,
        context_length=4 * PREFILL_TOKENS,
    )
    with WorkerClient() as worker:
        # In small pieces a prompt takes longer than anything that may hold a test up amid it.
        yield Streams(worker, path, prefill_chunk=32, prefill_tokens=PREFILL_TOKENS)


@pytest.mark.parametrize("place", ["decode", "prefill", "queue"])
def test_a_cancelled_generation_frees_its_place_within_one_step(
    place: Place, streams: Streams
) -> None:
    # Held until the cancel is there, the worker can at most finish the step that it was in.
    exact = streams.cancel(place, is_stopped=True)
    assert exact.done.reason == "cancelled"
    assert exact.steps(streams.running) <= 1
    if place != "queue":
        # The next step begins with the newcomer: nobody generates in between.
        assert exact.after == []
    if place == "prefill":
        assert exact.done.prompt_tokens >= PREFILL_TOKENS
        assert BEFORE_CANCEL < exact.processed < exact.done.prompt_tokens
        assert exact.done.completion_tokens == 0
        assert not [e for e in exact.before if isinstance(e, PromptStep)][1:]
    timed = [streams.cancel(place, is_stopped=False) for _ in range(ROUNDS)]
    cancel_ms = statistics.median(each.elapsed_ms for each in timed)
    step_ms = statistics.median(each.step_ms for each in timed)
    print(f"\ncancel_{place}_ms: {cancel_ms:.1f}, a step takes {step_ms:.1f} ms")
