"""The prefix cache with real models: exact copies, warm restarts, harmless bad files."""

import itertools
import os
import resource
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from clawd.engine.protocol import (
    ChatMessage,
    ModelConfig,
    Ping,
    Pong,
    Sampling,
    TokenLogprob,
    Tokens,
)
from clawd.engine.worker.llama import lib
from clawd.engine.worker.model import LlamaModel
from tests.engine_real.conftest import TEMPLATE, StartWorker, one_worker
from tests.support.engine_worker import LIMIT_S, Answer, WorkerClient
from tests.support.gguf_models import EMBEDDED, write_random_gguf

pytestmark = pytest.mark.real_model

GREEDY = Sampling(temperature=0, max_tokens=24)
TELLING = Sampling(temperature=0, max_tokens=8, logprobs=True, top_logprobs=20)
TEXT = "the river runs under the green bridge at seven and the children walk home slowly"
WORDS = TEXT.split()
Conversation = tuple[ChatMessage, ...]


@pytest.fixture(scope="session")
def thinking_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose answers depend on everything before them, and that takes time to read."""
    path = tmp_path_factory.mktemp("model") / "thinking.gguf"
    return write_random_gguf(
        path,
        chat_template=TEMPLATE,
        n_embd=256,
        n_layer=6,
        n_ff=768,
        context_length=4096,
        chain=False,
    )


def text(words: int, seed: int = 0) -> str:
    return " ".join(WORDS[(index * (seed + 1) + seed) % len(WORDS)] for index in range(words))


def user(content: str) -> ChatMessage:
    return ChatMessage(role="user", content=content)


def assistant(content: str) -> ChatMessage:
    return ChatMessage(role="assistant", content=content)


def on_disk(path: Path, folder: Path, **options: Any) -> ModelConfig:
    return ModelConfig(
        path=str(path), prefix_cache_disk_mb=200, prefix_cache_folder=str(folder), **options
    )


def timed(worker: WorkerClient, conversation: Conversation) -> tuple[Answer, float]:
    """Ask; return the answer and the ms from the request to its first token."""
    started = time.monotonic()
    answer = worker.ask(conversation, GREEDY)
    first = answer.events.index(answer.evaluated)
    return answer, (answer.times[first] - started) * 1000


def quit_worker(worker: WorkerClient) -> float:
    """Let a worker end as the supervisor does; return how long it took in ms."""
    started = time.monotonic()
    worker.quit()
    return (time.monotonic() - started) * 1000


def rested(worker: WorkerClient, sequences: int) -> None:
    """Wait until the worker is idle and says that it keeps so many sequences."""
    worker.send(Ping(id=1))
    pong = worker.receive()
    assert isinstance(pong, Pong)
    assert (pong.running, pong.cached_sequences) == (0, sequences)


def test_a_turn_after_others_pushed_it_out_goes_on_from_ram(
    start_worker: StartWorker, thinking_model: Path
) -> None:
    config = ModelConfig(path=str(thinking_model), n_ctx=2048, n_parallel=2)
    worker = start_worker(config)
    first = worker.ask(text(400), GREEDY)
    for seed in range(1, 7):
        worker.ask(text(300, seed), GREEDY)
    turn = (user(text(400)), assistant(first.text), user("and then?"))
    second = worker.ask(turn, GREEDY)
    assert second.done.cached_tokens == first.done.prompt_tokens + 23
    rested(worker, 7)
    # The same turn where nothing was in between: the same memory, so the same answer.
    undisturbed = start_worker(config)
    assert undisturbed.ask(text(400), GREEDY).text == first.text
    assert undisturbed.ask(turn, GREEDY).text == second.text


def test_the_embedded_model_goes_on_after_a_restart(
    start_worker: StartWorker, tmp_path: Path
) -> None:
    _restart(start_worker, on_disk(EMBEDDED, tmp_path, n_ctx=1024), words=230, least=600)


def test_a_long_conversation_goes_on_after_a_restart(
    start_worker: StartWorker, thinking_model: Path, tmp_path: Path
) -> None:
    _restart(start_worker, on_disk(thinking_model, tmp_path), words=600, least=1450)


def _restart(start_worker: StartWorker, config: ModelConfig, *, words: int, least: int) -> None:
    """A conversation, a restart, its next turn: cached, exact, and a small part of the time."""
    # The embedded model's template shows nothing from before the last user message.
    opening = (user(text(60)), assistant(text(words)), ChatMessage(role="tool", content="done"))
    before = start_worker(config)
    first = before.ask(opening, GREEDY)
    assert first.done.prompt_tokens >= least
    turn = (*opening, assistant(first.text), ChatMessage(role="tool", content="done"))
    quit_ms = quit_worker(before)

    after = start_worker(config)
    second, warm_ms = timed(after, turn)
    kept = first.done.prompt_tokens + first.done.completion_tokens - 1
    assert second.done.cached_tokens == kept
    assert second.evaluated.cached == kept
    assert second.evaluated.tokens - kept < 30

    off = {"prefix_cache_disk_mb": 0, "prefix_cache_folder": ""}
    fields = {name: getattr(config, name) for name in config.__struct_fields__}
    stayed = start_worker(ModelConfig(**(fields | off)))
    stayed.ask(opening, GREEDY)
    assert stayed.ask(turn, GREEDY).text == second.text
    cold, cold_ms = timed(start_worker(ModelConfig(**(fields | off))), turn)
    assert cold.done.cached_tokens == 0
    print(
        f"\n{Path(config.path).name}: {second.evaluated.tokens} tokens, {kept} cached: "
        f"first token {warm_ms:.1f} ms after a restart, {cold_ms:.1f} ms cold "
        f"({warm_ms / cold_ms:.1%}); to quit took {quit_ms:.0f} ms"
    )


class Logits(LlamaModel):
    """A model that shows what it computed."""

    def of(self, row: int) -> npt.NDArray[np.float32]:
        found = lib.llama_get_logits_ith(self._context, row)
        return np.ctypeslib.as_array(found, (self.n_vocab,)).copy()

    def read(self, tokens: list[int], position: int = 0, sequence: int = 0) -> int:
        row = -1
        for start in range(0, len(tokens), self.n_batch):
            piece = tokens[start : start + self.n_batch]
            row = self.add_prompt(piece, position + start, sequence, last_output=True)
            self.decode()
        return row


def test_a_copy_put_back_gives_the_same_logits_bit_for_bit(thinking_model: Path) -> None:
    model = Logits(ModelConfig(path=str(thinking_model), n_ctx=4096))
    tokens = model.tokenize(text(680), parse_special=False)
    assert len(tokens) > 1500
    model.read(tokens[:-1])
    state = np.empty(model.state_size(0), np.uint8)
    passed_ms = _timer()
    assert model.save_state(0, state) == state.nbytes
    fresh_ms = passed_ms()
    assert model.save_state(0, state) == state.nbytes
    touched_ms = passed_ms()
    expected = model.of(model.read(tokens[-1:], len(tokens) - 1))
    model.cut(0, 0)
    restored_ms = 0.0
    other = Logits(ModelConfig(path=str(thinking_model), n_ctx=4096))
    for each in (model, other):
        passed_ms()
        assert each.load_state(3, state)
        restored_ms = passed_ms()
        row = each.read(tokens[-1:], len(tokens) - 1, 3)
        assert np.array_equal(each.of(row), expected)
    print(
        f"\n{len(tokens)} tokens, {state.nbytes / 1e6:.1f} MB: copied out in {fresh_ms:.2f} ms "
        f"(fresh memory) and {touched_ms:.2f} ms (touched), back in {restored_ms:.2f} ms"
    )
    model.close()
    other.close()


@pytest.mark.parametrize("options", [{}, {"cache_type_k": "q8_0", "flash_attn": "on"}])
def test_log_probabilities_after_a_restart_are_those_of_a_process_that_never_ended(
    options: dict[str, Any], start_worker: StartWorker, thinking_model: Path, tmp_path: Path
) -> None:
    # Guesses are made as steps take their time, and change the shape of a batch.
    options = {**options, "speculation": "off"}
    config = on_disk(thinking_model, tmp_path, **options)
    opening = (user(text(700)),)
    before = start_worker(config)
    first = before.ask(opening, GREEDY)
    assert first.done.prompt_tokens >= 1500
    turn = (*opening, assistant(first.text), user("and then?"))
    quit_worker(before)
    resumed = start_worker(config).ask(turn, TELLING)

    # The same requests where no process ended, so that the last batch has the same shape.
    stayed = start_worker(ModelConfig(path=str(thinking_model), **options))
    assert stayed.ask(opening, GREEDY).text == first.text
    uninterrupted = stayed.ask(turn, TELLING)
    assert resumed.done.cached_tokens == uninterrupted.done.cached_tokens
    assert logprobs(resumed) == logprobs(uninterrupted)

    told = first.done.prompt_tokens + first.done.completion_tokens
    new = resumed.done.prompt_tokens - told
    assert 0 < new < 40
    assert resumed.done.prompt_tokens - resumed.done.cached_tokens <= new + 1


def logprobs(answer: Answer) -> list[TokenLogprob]:
    """Return the likeliest tokens at each token of an answer, as exact floats.

    Each log probability has the sum over all tokens of the vocabulary in it.
    """
    found = [one for event in answer.events if isinstance(event, Tokens) for one in event.logprobs]
    assert len(found) == TELLING.max_tokens
    assert {len(one.top) for one in found} == {TELLING.top_logprobs}
    return found


def _timer() -> Callable[[], float]:
    last = time.perf_counter()

    def since() -> float:
        nonlocal last
        now = time.perf_counter()
        last, passed = now, now - last
        return passed * 1000

    return since


def test_own_tokens_survive_a_restart_where_the_tokeniser_would_cut_otherwise(
    start_worker: StartWorker, thinking_model: Path, tmp_path: Path
) -> None:
    config = on_disk(thinking_model, tmp_path)
    worker = start_worker(config)
    answers = []
    conversation: Conversation = (user(text(100)),)
    for turn in range(3):
        got = worker.ask(conversation, GREEDY)
        answers.append(got)
        conversation = (*conversation, assistant(got.text), user(f"question {turn}"))
        quit_worker(worker)
        worker = start_worker(config)
    for before, after in itertools.pairwise(answers):
        # The last of 24 was never read; an answer that ended by itself was, all of it.
        said = min(before.done.completion_tokens, 23)
        assert after.done.cached_tokens == before.done.prompt_tokens + said


def test_six_hops_evaluate_only_what_is_new(
    start_worker: StartWorker, thinking_model: Path, tmp_path: Path
) -> None:
    config = on_disk(thinking_model, tmp_path, n_ctx=2048)
    worker = start_worker(config)
    conversation: Conversation = (user(text(200)),)
    known = 0
    for hop in range(6):
        got = worker.ask(conversation, GREEDY)
        # The last token of an answer is sampled and not evaluated: one more per hop.
        assert got.done.cached_tokens >= known - 1
        known = got.done.prompt_tokens + got.done.completion_tokens
        conversation = (*conversation, assistant(got.text), user(f"result of hop {hop}"))
        worker.ask(text(150, hop + 1), GREEDY)
        if hop == 3:
            quit_worker(worker)
            worker = start_worker(config)


@pytest.fixture(scope="module")
def saved_state(
    thinking_model: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, bytes]:
    """Name and content of the state file of a conversation."""
    folder = tmp_path_factory.mktemp("saved")
    with one_worker(on_disk(thinking_model, folder)) as worker:
        worker.ask(text(200), GREEDY)
        quit_worker(worker)
    (path,) = folder.iterdir()
    return path.name, path.read_bytes()


@pytest.fixture
def saved(saved_state: tuple[str, bytes], tmp_path: Path) -> Path:
    """The one state file of a conversation."""
    name, data = saved_state
    (tmp_path / name).write_bytes(data)
    (tmp_path / name).chmod(0o600)
    return tmp_path / name


def _ask_again(start_worker: StartWorker, config: ModelConfig) -> int:
    """Ask the saved prompt again; return how much of it was cached. The worker must live."""
    worker = start_worker(config)
    cached = worker.ask(text(200), GREEDY).done.cached_tokens
    assert worker.ask("short", GREEDY).done.completion_tokens == 24
    return cached


@pytest.mark.parametrize("damage", ["header", "half", "last byte", "flipped", "garbage", "empty"])
def test_damaged_files_are_ignored_and_removed(
    damage: str, saved: Path, start_worker: StartWorker, thinking_model: Path
) -> None:
    data = saved.read_bytes()
    flipped = bytearray(data)
    flipped[len(data) // 2] ^= 16
    saved.write_bytes({
        "header": data[:20],
        "half": data[: len(data) // 2],
        "last byte": data[:-1],
        "flipped": bytes(flipped),
        "garbage": os.urandom(len(data)),
        "empty": b"",
    }[damage])  # fmt: skip
    inode = saved.stat().st_ino
    assert _ask_again(start_worker, on_disk(thinking_model, saved.parent)) == 0
    assert inode not in {path.stat().st_ino for path in saved.parent.iterdir()}


def test_the_state_of_a_model_of_the_same_shape_is_not_used(
    saved: Path, start_worker: StartWorker, thinking_model: Path, tmp_path: Path
) -> None:
    assert _ask_again(start_worker, on_disk(thinking_model, saved.parent)) > 400
    twin = tmp_path / "twin"
    twin.mkdir()
    other = twin / "thinking.gguf"
    other.write_bytes(thinking_model.read_bytes())
    assert _ask_again(start_worker, on_disk(other, saved.parent)) == 0
    # The model's own, with a memory of another type.
    typed = on_disk(thinking_model, saved.parent, cache_type_k="q8_0", flash_attn="on")
    assert _ask_again(start_worker, typed) == 0
    assert saved.exists()


def test_a_disk_that_takes_no_more_is_harmless(
    start_worker: StartWorker, thinking_model: Path, tmp_path: Path
) -> None:
    worker = start_worker(on_disk(thinking_model, tmp_path))
    resource.prlimit(worker.process.pid, resource.RLIMIT_FSIZE, (100_000, 100_000))
    worker.ask(text(200), GREEDY)
    quit_worker(worker)
    assert list(tmp_path.iterdir()) == []


def test_the_quota_on_disk_holds(
    start_worker: StartWorker, thinking_model: Path, tmp_path: Path
) -> None:
    config = ModelConfig(
        path=str(thinking_model), prefix_cache_disk_mb=3, prefix_cache_folder=str(tmp_path)
    )
    for seed in range(3):
        worker = start_worker(config)
        for number in range(3):
            worker.ask(text(250, seed * 3 + number), GREEDY)
        quit_worker(worker)
        sizes = [path.stat().st_size for path in tmp_path.iterdir()]
        assert 0 < sum(sizes) <= 3 * 1024 * 1024


def test_the_ram_budget_holds(start_worker: StartWorker, thinking_model: Path) -> None:
    config = ModelConfig(path=str(thinking_model), prefix_cache_ram_mb=4)
    worker = start_worker(config)
    worker.ask(text(250), GREEDY)
    for seed in range(1, 8):
        worker.ask(text(250, seed), GREEDY)
    assert worker.ask(text(250, 7), GREEDY).done.cached_tokens > 400
    assert worker.ask(text(250), GREEDY).done.cached_tokens < 400


def test_a_killed_worker_leaves_nothing_that_harms_the_next(
    saved: Path, start_worker: StartWorker, thinking_model: Path
) -> None:
    worker = start_worker(on_disk(thinking_model, saved.parent))
    worker.ask(text(200, 3), GREEDY)
    worker.process.send_signal(signal.SIGKILL)
    worker.process.wait(LIMIT_S)
    assert _ask_again(start_worker, on_disk(thinking_model, saved.parent)) > 400
