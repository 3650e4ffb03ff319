"""What only a real model does: it falls into loops, and writes tables that are none."""

import math
from collections.abc import Iterator
from typing import cast

import numpy as np
import pytest

from clawd.engine.protocol import LOOP_TOKENS, ChatMessage, ModelConfig, Sampling
from clawd.engine.worker.guidance import Matcher
from clawd.engine.worker.llama import lib
from clawd.engine.worker.model import LlamaModel
from clawd.engine.worker.sampler import LlamaPicker, plan_stages, reach_of
from tests.engine_real.conftest import one_worker
from tests.support.engine_worker import WorkerClient
from tests.support.smollm2 import SMOLLM2

pytestmark = [pytest.mark.real_model, pytest.mark.smollm2]

LIMIT_S = 110.0
# It is gone on with, and the model finds no way out of it.
BEGUN = "I love you. " * 12


@pytest.fixture(scope="module")
def worker() -> Iterator[WorkerClient]:
    config = ModelConfig(path=str(SMOLLM2), n_ctx=2048, n_parallel=1, n_threads=1)
    with one_worker(config) as client:
        yield client


@pytest.mark.long
def test_r10_a_real_model_that_loops_at_temperature_0_is_ended_and_it_is_said(
    worker: WorkerClient,
) -> None:
    messages = (
        ChatMessage(role="user", content="Say it for ever."),
        ChatMessage(role="assistant", content=BEGUN),
    )
    number = worker.start(messages, Sampling(temperature=0))
    answer = worker.finish(number, LIMIT_S)
    assert (answer.done.reason, answer.done.is_loop) == ("stop", True), answer.text
    assert answer.done.completion_tokens <= LOOP_TOKENS
    assert answer.text.count("I love you.") > 50


def test_r10_an_answer_is_drawn_as_llama_cpp_draws_whatever_samplers_do() -> None:
    model = LlamaModel(ModelConfig(path=str(SMOLLM2), n_ctx=512, n_parallel=1, n_threads=1))
    prompt = model.tokenize("The capital of France is", parse_special=False)
    row = model.add_prompt(prompt, 0, 0, last_output=True)
    model.decode()
    flat: dict[str, object] = {"temperature": 1.5, "top_p": 1.0, "min_p": 0.0, "top_k": 60}
    likely = int(np.argmax(model._handle.logits(row)))
    banned = dict.fromkeys((*range(17), likely), -math.inf)
    cases: dict[str, dict[str, object]] = {
        "greedy": {"temperature": 0.0},
        "as people do": {},
        "flat": flat,
        "the first are dropped": flat | {"xtc_probability": 0.9, "xtc_threshold": 0.001},
        "biased": flat | {"logit_bias": banned | {40_000: 30.0}},
        "greedy and biased": {"temperature": 0.0, "logit_bias": banned},
        "penalised": flat | {"repeat_penalty": 1.3, "presence_penalty": 0.5},
        "greedy and penalised": {"temperature": 0.0, "repeat_penalty": 1.3},
        "the unlikely are raised": flat | {"frequency_penalty": -1.0},
        "nothing is dropped": flat | {"top_k": 0},
        "all but a few are kept": flat | {"top_k": 40_000},
        "without repetition": flat | {"dry_multiplier": 2.0, "dry_allowed_length": 0},
    }
    for name, fields in cases.items():
        config = Sampling(**fields, seed=3)  # type: ignore[arg-type]
        held, free, theirs = (model.new_sampler(config, prompt) for _ in range(3))
        # As for a vocabulary so large that the likeliest are looked for first.
        held.chain._reach = free.chain._reach = reach_of(plan_stages(config))
        # A grammar asks it for a token; none is forbidden here.
        picker = LlamaPicker(held.chain, cast("Matcher", None))
        for _ in range(30):
            token = picker.pick(row)
            picker.remember(token)
            drawn = lib.llama_sampler_sample(theirs.chain.raw, model._context, row)
            assert (token, free.sample(row)) == (drawn, drawn), name
        for sampler in (held, free, theirs):
            sampler.close()
    model.close()
