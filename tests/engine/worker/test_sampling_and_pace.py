"""Sampler stages in order, seeds, and how much of a prompt fits a step."""

import pytest

from clawd.engine.protocol import Sampling
from clawd.engine.worker.planner import MIN_CHUNK, SHARED_STEP_LIMIT_S, PromptRate
from clawd.engine.worker.sampler import (
    MAX_LOOK_BACK,
    Draw,
    Dry,
    Greedy,
    LogitBias,
    MinP,
    Penalties,
    SampledTokens,
    Temperature,
    TopK,
    TopP,
    Typical,
    Xtc,
    plan_stages,
    reach_of,
    remembered_tokens,
)
from tests.support.rows import each_row


def test_all_stages_come_in_llama_cpps_order() -> None:
    config = Sampling(
        temperature=0.7,
        top_k=20,
        top_p=0.9,
        min_p=0.1,
        typical_p=0.8,
        repeat_penalty=1.1,
        seed=5,
        dry_multiplier=0.8,
        xtc_probability=0.5,
        logit_bias={3: -1.5},
    )
    assert plan_stages(config) == (
        LogitBias(biases=((3, -1.5),)),
        Penalties(last_n=64, repeat=1.1, frequency=0.0, presence=0.0),
        Dry(
            multiplier=0.8,
            base=1.75,
            allowed_length=2,
            last_n=-1,
            breakers=("\n", ":", '"', "*"),
        ),
        TopK(k=20),
        Typical(p=0.8),
        TopP(p=0.9),
        MinP(p=0.1),
        Xtc(probability=0.5, threshold=0.1, seed=5),
        Temperature(t=0.7),
        Draw(seed=5),
    )


def test_neutral_values_leave_their_stage_out() -> None:
    config = Sampling(temperature=1, top_k=0, top_p=1, min_p=0, typical_p=1, seed=1)
    assert plan_stages(config) == (Draw(seed=1),)


def test_temperature_zero_is_greedy_with_penalties_kept() -> None:
    config = Sampling(temperature=0, presence_penalty=0.5)
    kinds = [type(stage) for stage in plan_stages(config)]
    assert kinds == [Penalties, Greedy]


def test_penalties_over_no_tokens_are_none() -> None:
    config = Sampling(temperature=0, repeat_penalty=1.5, penalty_last_n=0)
    assert plan_stages(config) == (Greedy(),)


BIASED = {5: -1.0, 3: 2.0, 9: 1.0}


@each_row(
    ("config", "reach"),
    [
        (Sampling(), SampledTokens(count=40)),
        (Sampling(temperature=0), SampledTokens(count=1)),
        (Sampling(logit_bias=BIASED), SampledTokens(count=43, raised=(3, 9))),
        (Sampling(temperature=0, logit_bias=BIASED), SampledTokens(count=4, raised=(3, 9))),
        (Sampling(repeat_penalty=1.1), SampledTokens(count=104)),
        (Sampling(temperature=0, presence_penalty=0.5), SampledTokens(count=65)),
        # What may rise from anywhere, or fall without a bound, can be any token.
        (Sampling(repeat_penalty=0.9), None),
        (Sampling(frequency_penalty=-0.1), None),
        (Sampling(dry_multiplier=1), None),
        (Sampling(top_k=0), None),
        (Sampling(top_k=0, top_p=1, min_p=0, typical_p=1), None),
    ],
)
def test_only_the_likeliest_and_what_is_raised_can_be_picked(
    config: Sampling, reach: SampledTokens | None
) -> None:
    assert reach_of(plan_stages(config)) == reach


@each_row(
    ("config", "count"),
    [
        (Sampling(), 0),
        (Sampling(repeat_penalty=1.1), 64),
        (Sampling(dry_multiplier=1, dry_last_n=100), 100),
        (Sampling(dry_multiplier=1, dry_last_n=10, repeat_penalty=1.1), 64),
        (Sampling(dry_multiplier=1), MAX_LOOK_BACK),
        (Sampling(dry_multiplier=1, dry_last_n=0), 0),
    ],
)
def test_samplers_are_shown_as_much_of_the_prompt_as_they_look_back_on(
    config: Sampling, count: int
) -> None:
    assert remembered_tokens(plan_stages(config)) == count


def test_the_models_seed_serves_requests_without_one() -> None:
    config = Sampling(temperature=1, top_k=0, top_p=1, min_p=0)
    assert plan_stages(config, model_seed=9) == (Draw(seed=9),)
    drawn = {plan_stages(config) for _ in range(5)}
    assert len(drawn) == 5


@each_row(
    "config",
    [
        Sampling(repeat_penalty=0),
        Sampling(temperature=float("nan")),
        Sampling(frequency_penalty=float("inf")),
        Sampling(top_logprobs=21),
        Sampling(top_logprobs=-1),
        Sampling(dry_multiplier=1, dry_base=0.5),
        Sampling(dry_allowed_length=-1),
        Sampling(dry_breakers=("x",) * 65),
        Sampling(xtc_threshold=float("nan")),
        Sampling(logit_bias={1: float("nan")}),
        Sampling(logit_bias={1: float("inf")}),
    ],
)
def test_values_without_meaning_are_refused(config: Sampling) -> None:
    with pytest.raises(ValueError, match="expected"):
        plan_stages(config)


def test_a_fast_model_gets_whole_chunks() -> None:
    assert PromptRate(1e9).chunk(512) == 512


def test_a_slow_model_gets_less_until_it_proves_faster() -> None:
    pace = PromptRate(10)
    assert pace.chunk(512) == MIN_CHUNK
    for _ in range(20):
        pace.measured(32, 0.1)
    assert pace.chunk(512) == 288
    pace.measured(1, 5.0)
    assert pace.chunk(512) == 288


def test_a_step_beside_answers_is_shorter() -> None:
    assert PromptRate(400).chunk(512) == 384
    assert PromptRate(400).chunk(512, SHARED_STEP_LIMIT_S) == 96


def test_a_chunk_is_never_over_what_is_allowed() -> None:
    assert PromptRate(10).chunk(8) == 8
