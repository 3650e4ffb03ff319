"""Samplers of llama.cpp as requests ask for them: seeds, bias, DRY, XTC, log probabilities."""

import math
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from clawd.engine.protocol import ModelConfig, Sampling, TokenLogprob, Tokens
from clawd.engine.worker.sampler import Candidates, SamplerChain, VocabularyHandle, plan_stages
from tests.engine_real.conftest import TEMPLATE, StartWorker
from tests.support.engine_worker import Answer
from tests.support.gguf_models import write_random_gguf
from tests.support.rows import each_row

pytestmark = pytest.mark.real_model

GREEDY = Sampling(temperature=0, max_tokens=12, logprobs=True, top_logprobs=3)


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
        worker.ask("go", Sampling(**fields, seed=seed)).text  # type: ignore[arg-type]
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
    assert logprobs(worker.ask("go", Sampling(temperature=0, max_tokens=3))) == []


def test_a_bias_forbids_and_forces(start_worker: StartWorker, random_model: Path) -> None:
    worker = start_worker(ModelConfig(path=str(random_model), n_ctx=2048))
    first = logprobs(worker.ask("go", GREEDY))[0]
    fields = {"temperature": 0.0, "max_tokens": 1, "logprobs": True}
    banned = Sampling(**fields, logit_bias={first.token: -math.inf})  # type: ignore[arg-type]
    assert logprobs(worker.ask("go", banned))[0].token == first.top[1].token
    third = first.top[2].token
    forced = Sampling(**fields, logit_bias={third: 1000.0})  # type: ignore[arg-type]
    assert logprobs(worker.ask("go", forced))[0].token == third
    failed = worker.ask("go", Sampling(logit_bias={10**9: 1.0})).failed
    assert failed.code == "invalid_request"
    assert "1000000000" in failed.message


def test_dry_breaks_a_repetition_that_the_prompt_began(
    start_worker: StartWorker, endless_model: Path
) -> None:
    worker = start_worker(ModelConfig(path=str(endless_model), n_ctx=2048))
    plain = Sampling(temperature=0, max_tokens=20)
    said = worker.ask("go", plain).text
    dry = Sampling(temperature=0, max_tokens=20, dry_multiplier=5.0, dry_breakers=())
    assert worker.ask("go", dry).text == said
    assert worker.ask(f"{said} go", plain).text == said
    assert worker.ask(f"{said} go", dry).text != said


def test_xtc_leaves_the_likeliest_out(start_worker: StartWorker, random_model: Path) -> None:
    worker = start_worker(ModelConfig(path=str(random_model), n_ctx=2048))
    first = logprobs(worker.ask("go", GREEDY))[0]
    threshold = math.exp(first.top[1].logprob) * 0.99
    xtc = Sampling(
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


TOKENS = 101_003
ROWS = 100
FLAT = {"temperature": 1.5, "top_p": 1.0, "min_p": 0.0}


class Rows(VocabularyHandle, frozen=True, kw_only=True):
    """Outputs that no model made."""

    rows: list[npt.NDArray[np.float32]]

    def logits(self, row: int) -> npt.NDArray[np.float32]:
        return self.rows[row]


@pytest.fixture(scope="module")
def outputs() -> list[npt.NDArray[np.float32]]:
    """Return outputs that differ in level and width from one to the next, some odd ones."""
    random = np.random.default_rng(1)
    found = []
    for number in range(ROWS):
        level, width = random.normal(0, 8), random.uniform(0.2, 6)
        each = random.normal(level, width, TOKENS).astype(np.float32)
        if number % 7 == 3:  # nearly all is banned
            each[random.random(TOKENS) < 0.9995] = -math.inf
        if number % 7 == 4:  # one stands out
            each[random.integers(TOKENS)] = level + 20 * width
        found.append(each)
    return found


def handle_of(outputs: list[npt.NDArray[np.float32]]) -> Rows:
    return Rows(
        context=None,
        vocab=None,
        size=TOKENS,
        n_ctx=512,
        piece=lambda _token: b"",
        ends_generation=lambda _token: False,
        tokenize=lambda _text: [],
        rows=outputs,
    )


def drawn_of_all(chain: SamplerChain, candidates: Candidates, row: int) -> int:
    """Return what llama.cpp draws when it gets every token."""
    candidates.fill(chain.handle.logits(row))
    return chain._apply()


@each_row(
    "fields",
    [
        {},
        FLAT,
        FLAT | {"top_k": 1},
        FLAT | {"top_k": 2000},
        FLAT | {"top_k": 2 * TOKENS},
        FLAT | {"top_k": 0, "top_p": 0.9},
        FLAT | {"top_k": 0, "min_p": 0.1},
        FLAT | {"xtc_probability": 0.9, "xtc_threshold": 0.001},
        FLAT | {"logit_bias": {7: 18.0, 8: -math.inf}},
        FLAT | {"repeat_penalty": 1.3, "presence_penalty": 0.5},
        {"temperature": 0.0},
        {"temperature": 0.0, "logit_bias": {7: 9.0, 8: -3.0}},
    ],
)
def test_r10_of_a_large_vocabulary_the_token_is_the_one_that_is_drawn_of_all(
    fields: dict[str, object], outputs: list[npt.NDArray[np.float32]]
) -> None:
    stages = plan_stages(Sampling(**fields, seed=5))  # type: ignore[arg-type]
    candidates = Candidates(TOKENS)
    handle = handle_of(outputs)
    ours, theirs = (SamplerChain(handle, candidates, stages) for _ in range(2))
    for row in range(ROWS):
        token = ours.pick(row)
        assert token == drawn_of_all(theirs, candidates, row), row
        for chain in (ours, theirs):
            chain.remember(token)
    ours.close()
    theirs.close()


def test_r10_of_equally_likely_tokens_any_is_drawn_and_without_chance_the_first(
    outputs: list[npt.NDArray[np.float32]],
) -> None:
    equal = [each.round() for each in outputs[:20]]
    broken = equal[0].copy()
    broken[[40, 50_000]] = math.nan
    candidates, handle = Candidates(TOKENS), handle_of([*equal, broken])
    stages = plan_stages(Sampling(seed=5))
    ours, theirs = (SamplerChain(handle, candidates, stages) for _ in range(2))
    greedy = SamplerChain(handle, candidates, plan_stages(Sampling(temperature=0)))
    for row, logits in enumerate(equal):
        assert logits[ours.pick(row)] == logits[drawn_of_all(theirs, candidates, row)], row
        assert greedy.pick(row) == int(np.flatnonzero(logits == logits.max())[0])
    assert greedy.pick(len(equal)) == greedy.pick(0)
    for chain in (ours, theirs, greedy):
        chain.close()
