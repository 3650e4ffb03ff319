"""Guessing with a real model: the same answers, in fewer steps, and both counted."""

from pathlib import Path
from typing import Literal

import pytest

from clawd.engine.protocol import ChatMessage, ModelConfig, Sampling
from tests.engine_real.conftest import StartWorker
from tests.support.engine_worker import Answer

pytestmark = pytest.mark.real_model

SAYING = Sampling(temperature=0, max_tokens=300)


def config(model: Path, speculation: Literal["auto", "off"]) -> ModelConfig:
    return ModelConfig(path=str(model), n_ctx=4096, n_parallel=1, speculation=speculation)


def said_again(start_worker: StartWorker, config: ModelConfig) -> list[Answer]:
    """Ask for the same answer again and again; from the second time on it repeats what is there."""
    worker = start_worker(config)
    messages = [ChatMessage(role="user", content="say it")]
    answers = []
    for _ in range(4):
        answers.append(worker.ask(tuple(messages), SAYING))
        messages.append(ChatMessage(role="assistant", content=answers[-1].text))
        messages.append(ChatMessage(role="user", content="say it again"))
    return answers


def test_what_is_said_again_is_guessed_and_the_same(
    start_worker: StartWorker, endless_model: Path
) -> None:
    guessed = said_again(start_worker, config(endless_model, "auto"))
    plain = said_again(start_worker, config(endless_model, "off"))
    assert [each.text for each in guessed] == [each.text for each in plain]
    assert all(each.done.drafted_tokens == 0 for each in plain)
    assert sum(each.done.accepted_tokens for each in guessed[1:]) > 300
    for each in guessed:
        assert each.done.accepted_tokens <= each.done.drafted_tokens


def test_a_sampled_answer_is_the_one_of_its_seed_with_guesses_or_without(
    start_worker: StartWorker, endless_model: Path
) -> None:
    sampling = Sampling(temperature=0.7, seed=7, max_tokens=200)
    message = (ChatMessage(role="user", content="say it"),)
    texts = {
        start_worker(config(endless_model, mode)).ask(message, sampling).text
        for mode in ("auto", "off")
    }
    assert len(texts) == 1
