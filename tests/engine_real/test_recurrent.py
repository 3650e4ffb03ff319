"""A recurrent model: its state is kept as a whole; it goes on from there, or begins anew."""

from pathlib import Path

import pytest

from clawd.engine.protocol import ChatMessage, ModelConfig, Sampling
from tests.engine_real.conftest import TEMPLATE, StartWorker
from tests.support.engine_worker import WorkerClient
from tests.support.recurrent_gguf import write_random_mamba

pytestmark = pytest.mark.real_model

SAYING = Sampling(temperature=0, max_tokens=20)
OPENING = "the river runs under the green bridge " * 5


@pytest.fixture(scope="module")
def recurrent_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "mamba.gguf"
    return write_random_mamba(path, chat_template=TEMPLATE)


def user(content: str) -> ChatMessage:
    return ChatMessage(role="user", content=content)


def assistant(content: str) -> ChatMessage:
    return ChatMessage(role="assistant", content=content)


def conversation(worker: WorkerClient, between: str = "") -> list[str]:
    """Hold one of three turns, each from where the last one ended, and return what was said."""
    messages: tuple[ChatMessage, ...] = (user(OPENING),)
    said: list[str] = []
    left = 0
    for turn in range(3):
        got = worker.ask(messages, SAYING)
        assert got.done.cached_tokens == left
        # The last token that was said is not in the state yet.
        left = got.done.prompt_tokens + got.done.completion_tokens - 1
        said.append(got.text)
        messages = (*messages, assistant(got.text), user(f"and then, {turn}?"))
        if between:
            worker.ask((user(f"{between} {turn}"),), SAYING)
    return said


@pytest.mark.parametrize("ram_mb", [0, 64])
def test_a_conversation_goes_on_where_it_was_whatever_came_between(
    start_worker: StartWorker, recurrent_model: Path, ram_mb: int
) -> None:
    config = ModelConfig(
        path=str(recurrent_model), n_ctx=2048, n_parallel=2, prefix_cache_ram_mb=ram_mb
    )
    undisturbed = conversation(start_worker(config))
    assert conversation(start_worker(config), "something else entirely") == undisturbed
    assert len(set(undisturbed)) == len(undisturbed)


def test_a_prompt_that_turns_off_earlier_begins_anew(
    start_worker: StartWorker, recurrent_model: Path
) -> None:
    worker = start_worker(ModelConfig(path=str(recurrent_model), n_ctx=2048, n_parallel=2))
    worker.ask((user(f"{OPENING} at seven"),), SAYING)
    assert worker.ask((user(f"{OPENING} at eight"),), SAYING).done.cached_tokens == 0
