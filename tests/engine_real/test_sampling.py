"""Samplers of llama.cpp as requests ask for them: seeds, bias, DRY, XTC, log probabilities."""

import math
from pathlib import Path

import pytest

from clawd.engine.protocol import ModelConfig, SamplingConfig, TokenLogprob, Tokens
from tests.engine_real.conftest import TEMPLATE, StartWorker
from tests.support.engine_worker import Answer
from tests.support.gguf_models import write_random_gguf

pytestmark = pytest.mark.real_model

GREEDY = SamplingConfig(temperature=0, max_tokens=12, logprobs=True, top_logprobs=3)


@pytest.fixture(scope="module")
def random_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that says anything."""
    path = tmp_path_factory.mktemp("model") / "random.gguf"
    return write_random_gguf(path, chat_template=TEMPLATE, chain=False)


def logprobs(answer: Answer) -> list[TokenLogprob]:
    return [one for event in answer.events if isinstance(event, Tokens) for one in event.logprobs]


def test_a_seed_reproduces_an_answer_and_another_does_not(
    start_worker: StartWorker, random_model: Path
) -> None:
    worker = start_worker(ModelConfig(path=str(random_model), n_ctx=2048))
    fields = {"temperature": 1.0, "top_k": 0, "xtc_probability": 0.5, "max_tokens": 30}
    texts = [
        worker.ask("go", SamplingConfig(**fields, seed=seed)).text  # type: ignore[arg-type]
        for seed in (1, 1, 2)
    ]
    assert texts[0] == texts[1] != texts[2]


def test_log_probabilities_are_the_models_and_greedy_takes_the_likeliest(
    start_worker: StartWorker, random_model: Path
) -> None:
    worker = start_worker(ModelConfig(path=str(random_model), n_ctx=2048))
    answer = worker.ask("go", GREEDY)
    found = logprobs(answer)
    assert len(found) == answer.done.completion_tokens == 12
    for one in found:
        assert one.top[0].token == one.token
        assert one.logprob == one.top[0].logprob <= 0
        assert one.top[0].logprob >= one.top[1].logprob >= one.top[2].logprob
        assert sum(math.exp(likely.logprob) for likely in one.top) <= 1
    text = b"".join(one.piece for one in found).decode(errors="replace")
    assert text == answer.text
    assert logprobs(worker.ask("go", SamplingConfig(temperature=0, max_tokens=3))) == []


def test_a_bias_forbids_and_forces(start_worker: StartWorker, random_model: Path) -> None:
    worker = start_worker(ModelConfig(path=str(random_model), n_ctx=2048))
    first = logprobs(worker.ask("go", GREEDY))[0]
    fields = {"temperature": 0.0, "max_tokens": 1, "logprobs": True}
    banned = SamplingConfig(**fields, logit_bias=((first.token, -math.inf),))  # type: ignore[arg-type]
    assert logprobs(worker.ask("go", banned))[0].token == first.top[1].token
    third = first.top[2].token
    forced = SamplingConfig(**fields, logit_bias=((third, 1000.0),))  # type: ignore[arg-type]
    assert logprobs(worker.ask("go", forced))[0].token == third
    failed = worker.ask("go", SamplingConfig(logit_bias=((10**9, 1.0),))).failed
    assert failed.code == "invalid_request"
    assert "1000000000" in failed.message


def test_dry_breaks_a_repetition_that_the_prompt_began(
    start_worker: StartWorker, endless_model: Path
) -> None:
    worker = start_worker(ModelConfig(path=str(endless_model), n_ctx=2048))
    plain = SamplingConfig(temperature=0, max_tokens=20)
    said = worker.ask("go", plain).text
    dry = SamplingConfig(temperature=0, max_tokens=20, dry_multiplier=5.0, dry_breakers=())
    assert worker.ask("go", dry).text == said
    assert worker.ask(f"{said} go", plain).text == said
    assert worker.ask(f"{said} go", dry).text != said


def test_xtc_leaves_the_likeliest_out(start_worker: StartWorker, random_model: Path) -> None:
    worker = start_worker(ModelConfig(path=str(random_model), n_ctx=2048))
    first = logprobs(worker.ask("go", GREEDY))[0]
    threshold = math.exp(first.top[1].logprob) * 0.99
    xtc = SamplingConfig(
        temperature=0.0005,
        top_k=0,
        top_p=1,
        min_p=0,
        seed=1,
        max_tokens=1,
        logprobs=True,
        xtc_probability=1.0,
        xtc_threshold=threshold,
    )
    assert logprobs(worker.ask("go", xtc))[0].token == first.top[1].token
