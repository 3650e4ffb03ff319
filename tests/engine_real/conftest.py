"""Models and workers for tests that run llama.cpp."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from clawd.engine.protocol import ModelConfig, ModelReady
from tests.support.engine_worker import WorkerClient
from tests.support.gguf_models import write_random_gguf

pytest.importorskip("llama_cpp")

TEMPLATE = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}"
    "{% endfor %}{{ '<|im_start|>assistant\\n' }}"
)

StartWorker = Callable[[ModelConfig], WorkerClient]


@pytest.fixture(scope="session")
def endless_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small model whose greedy answer is known and never ends."""
    path = tmp_path_factory.mktemp("model") / "endless.gguf"
    return write_random_gguf(path, chat_template=TEMPLATE, context_length=8192)


@contextlib.contextmanager
def one_worker(config: ModelConfig) -> Iterator[WorkerClient]:
    """Start a worker with a loaded model, which several tests may share."""
    with WorkerClient() as client:
        loaded = client.load(config)
        assert isinstance(loaded, ModelReady), loaded
        yield client


@pytest.fixture
def start_worker() -> Iterator[StartWorker]:
    """Start workers with a loaded model; all end with the test."""
    clients: list[WorkerClient] = []

    def start(config: ModelConfig) -> WorkerClient:
        client = WorkerClient()
        clients.append(client)
        loaded = client.load(config)
        assert isinstance(loaded, ModelReady), loaded
        return client

    yield start
    for client in clients:
        client.__exit__(None, None, None)
