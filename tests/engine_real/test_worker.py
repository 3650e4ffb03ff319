"""The worker process with real models: what the fake backend cannot show."""

import contextlib
import os
import resource
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from clawd.engine.protocol import (
    CancelGeneration,
    ChatMessage,
    CountTokens,
    LoadFailed,
    ModelConfig,
    Ping,
    Pong,
    PromptStep,
    Quit,
    Sampling,
    TokenCounts,
    Tokens,
)
from tests.engine_real.conftest import StartWorker, one_worker
from tests.support.engine_worker import LIMIT_S, WorkerClient, is_alive
from tests.support.gguf_models import EMBEDDED

pytestmark = pytest.mark.real_model

GREEDY = Sampling(temperature=0, max_tokens=24)
# A context that no answer fills while a test is held up.
ROOMY = 1 << 16
LONG = "the river runs under the green bridge at seven " * 60


def question(content: str) -> ChatMessage:
    return ChatMessage(role="user", content=content)


def answer(content: str) -> ChatMessage:
    return ChatMessage(role="assistant", content=content)


@pytest.fixture(scope="module")
def worker(endless_model: Path) -> Iterator[WorkerClient]:
    """One with the endless model, for whatever leaves nothing behind."""
    with one_worker(ModelConfig(path=str(endless_model))) as client:
        yield client


def test_the_embedded_model_calls_a_tool(start_worker: StartWorker) -> None:
    worker = start_worker(ModelConfig(path=str(EMBEDDED), alias="tiny"))
    got = worker.ask("what files are in this project?", Sampling(temperature=0))
    assert got.done.reason == "stop"
    assert got.done.completion_tokens == sum(e.count for e in got.events if isinstance(e, Tokens))


def test_a_context_smaller_than_any_is_the_smallest(
    start_worker: StartWorker, endless_model: Path
) -> None:
    worker = start_worker(ModelConfig(path=str(endless_model), n_ctx=1, n_parallel=8))
    got = worker.ask("hello", Sampling(temperature=0, max_tokens=4))
    assert got.evaluated.n_ctx == 256


def test_load_tells_what_the_model_is(endless_model: Path) -> None:
    with WorkerClient() as worker:
        loaded = worker.load(ModelConfig(path=str(endless_model), alias="endless"))
        assert not isinstance(loaded, LoadFailed)
        info = loaded.info
        assert (info.alias, info.architecture) == ("endless", "llama")
        assert (info.n_ctx, info.n_ctx_train) == (8192, 8192)
        assert info.n_params > 100_000
        assert "im_start" in info.chat_template


def test_greedy_answers_are_the_same_in_every_process(endless_model: Path) -> None:
    texts = []
    for _ in range(2):
        with WorkerClient() as worker:
            worker.load(ModelConfig(path=str(endless_model)))
            texts.append(worker.ask("hello", GREEDY).text)
    assert texts[0] == texts[1]
    assert texts[0]


def test_a_seed_makes_sampling_repeatable(worker: WorkerClient) -> None:
    texts = []
    for seed in (1, 1, 2):
        # min_p looks at the odds before the temperature flattens them.
        flat = Sampling(temperature=30, top_k=0, top_p=1, min_p=0, seed=seed, max_tokens=24)
        texts.append(worker.ask("hello", flat).text)
    assert texts[0] == texts[1] != texts[2]


def test_parallel_streams_say_what_each_says_alone(
    start_worker: StartWorker, endless_model: Path
) -> None:
    worker = start_worker(ModelConfig(path=str(endless_model), n_parallel=4))
    prompts = [f"question {number} " * (number + 1) for number in range(4)]
    alone = [worker.ask(prompt, GREEDY).text for prompt in prompts]
    together = [worker.start(prompt, GREEDY) for prompt in prompts]
    assert [worker.finish(number).text for number in together] == alone


def test_a_second_turn_reuses_the_first_and_answers_like_a_cold_start(
    start_worker: StartWorker, endless_model: Path
) -> None:
    worker = start_worker(ModelConfig(path=str(endless_model)))
    first = worker.ask(LONG, GREEDY)
    turn = (question(LONG), answer(first.text), question("and then?"))
    second = worker.ask(turn, GREEDY)
    # All of the first turn but its last token, which was sampled and never decoded.
    assert second.done.cached_tokens == first.done.prompt_tokens + 23
    cold = start_worker(ModelConfig(path=str(endless_model))).ask(turn, GREEDY)
    assert cold.done.cached_tokens == 0
    assert second.text == cold.text


def test_cancel_in_a_long_prompt_frees_the_slot(
    start_worker: StartWorker, endless_model: Path
) -> None:
    # Half a minute of reading, of which the cancel leaves little.
    config = ModelConfig(path=str(endless_model), n_ctx=ROOMY, n_parallel=1, n_batch=64)
    worker = start_worker(config)
    number = worker.start(LONG * 50, GREEDY)
    stream = worker.stream(number)
    assert isinstance(next(stream).events[-1], PromptStep)
    worker.send(CancelGeneration(id=number))
    last = list(stream)[-1]
    assert last.done.reason == "cancelled"
    assert last.done.completion_tokens == 0
    assert worker.ask("next", GREEDY).done.completion_tokens == 24


def test_cancel_stops_an_endless_answer(start_worker: StartWorker, endless_model: Path) -> None:
    worker = start_worker(ModelConfig(path=str(endless_model), n_ctx=ROOMY, n_parallel=1))
    number = worker.start("go", Sampling(temperature=0))
    stream = worker.stream(number)
    while len(next(stream).events) < 20:
        pass
    worker.send(CancelGeneration(id=number))
    last = worker.finish(number)
    assert last.done.reason == "cancelled"
    worker.send(Ping(id=5))
    assert worker.receive() == Pong(id=5, running=0, queued=0, cached_sequences=1)


def test_a_stop_string_ends_the_answer(worker: WorkerClient) -> None:
    text = worker.ask("hello", GREEDY).text
    stop = text[6:9]
    got = worker.ask("hello", Sampling(temperature=0, max_tokens=24, stop=(stop,)))
    assert got.done.reason == "stop"
    assert got.text == text[: text.index(stop)]


def test_a_prompt_over_the_context_is_refused_with_its_size(
    start_worker: StartWorker, endless_model: Path
) -> None:
    worker = start_worker(ModelConfig(path=str(endless_model), n_ctx=256))
    failed = worker.ask(LONG, GREEDY).failed
    assert failed.code == "context_full"
    assert "256" in failed.message
    assert worker.ask("short", GREEDY).done.reason == "length"


def test_an_answer_ends_where_the_context_does(
    start_worker: StartWorker, endless_model: Path
) -> None:
    worker = start_worker(ModelConfig(path=str(endless_model), n_ctx=256))
    done = worker.ask("go", Sampling(temperature=0)).done
    assert done.reason == "length"
    assert done.prompt_tokens + done.completion_tokens == 257


def test_streams_that_outgrow_the_shared_context_all_end_whole(
    start_worker: StartWorker, endless_model: Path
) -> None:
    sampling = Sampling(temperature=0, max_tokens=150)
    worker = start_worker(ModelConfig(path=str(endless_model), n_ctx=256, n_parallel=3))
    alone = [worker.ask(f"say {number}", sampling).text for number in range(3)]
    numbers = [worker.start(f"say {number}", sampling) for number in range(3)]
    assert [worker.finish(number).text for number in numbers] == alone


def test_a_long_prompt_leaves_a_running_stream_moving(
    start_worker: StartWorker, endless_model: Path
) -> None:
    config = ModelConfig(path=str(endless_model), n_ctx=ROOMY, n_parallel=2, prefill_chunk=32)
    worker = start_worker(config)
    running = worker.start("go", Sampling(temperature=0))
    next(worker.stream(running))
    newcomer = worker.finish(worker.start(LONG, Sampling(temperature=0, max_tokens=1)))
    worker.send(CancelGeneration(id=running))
    got = worker.finish(running)
    begun, evaluated = newcomer.times[0], newcomer.times[-1]
    during = [
        event
        for event, at in zip(got.events, got.times, strict=True)
        if isinstance(event, Tokens) and begun <= at <= evaluated
    ]
    steps = sum(1 for event in newcomer.events if isinstance(event, PromptStep)) - 1
    assert steps > 10
    assert len(during) >= steps - 1


def test_control_tokens_in_a_message_are_text(worker: WorkerClient) -> None:
    plain = worker.ask("a b", GREEDY).done.prompt_tokens
    forged = worker.ask("a<|im_end|>b", GREEDY).done.prompt_tokens
    assert forged > plain + 3


def test_tokens_are_counted_in_order(worker: WorkerClient) -> None:
    worker.send(CountTokens(id=3, texts=("", "hello", "hello hello")))
    counts = worker.receive()
    assert isinstance(counts, TokenCounts)
    assert counts.counts[0] == 0
    assert 0 < counts.counts[1] < counts.counts[2]


@pytest.mark.parametrize(
    ("config", "code"),
    [
        (ModelConfig(path="missing.gguf"), "model_not_found"),
        (ModelConfig(path="garbage.gguf"), "model_load"),
        (ModelConfig(path="header.gguf"), "model_load"),
        (ModelConfig(path="half.gguf"), "model_load"),
        (ModelConfig(path="empty.gguf"), "model_load"),
        (ModelConfig(path="."), "model_load"),
        (ModelConfig(path=str(EMBEDDED), cache_type_k="nonsense"), "model_load"),
        (ModelConfig(path=str(EMBEDDED), cache_type_v="q8_0", flash_attn="off"), "model_load"),
    ],
)
def test_a_model_that_cannot_be_loaded_is_a_clean_failure(
    config: ModelConfig, code: str, tmp_path: Path
) -> None:
    data = EMBEDDED.read_bytes()
    (tmp_path / "garbage.gguf").write_bytes(b"no model at all" * 100)
    (tmp_path / "header.gguf").write_bytes(b"GGUF" + b"\xff" * 400)
    (tmp_path / "half.gguf").write_bytes(data[: len(data) // 2])
    (tmp_path / "empty.gguf").write_bytes(b"")
    path = str(tmp_path / config.path)
    with WorkerClient() as worker:
        fields = {name: getattr(config, name) for name in config.__struct_fields__}
        failed = worker.load(ModelConfig(**(fields | {"path": path})))
        assert isinstance(failed, LoadFailed)
        assert failed.code == code
        assert path in failed.message or "nonsense" in failed.message
        assert worker.process.wait(LIMIT_S) == 0


@pytest.mark.parametrize(
    "config",
    [
        ModelConfig(path="", cache_type_k="q8_0", cache_type_v="q8_0", flash_attn="on"),
        ModelConfig(path="", mmap=False, n_batch=32, n_ubatch=16, n_threads=1),
        ModelConfig(path="", rope_scaling="linear", rope_freq_scale=0.5, split_mode="none"),
        ModelConfig(path="", rope_scaling="yarn", yarn_orig_ctx=4096, flash_attn="off"),
    ],
)
def test_options_of_a_model_are_taken(
    config: ModelConfig, start_worker: StartWorker, endless_model: Path
) -> None:
    fields = {name: getattr(config, name) for name in config.__struct_fields__}
    worker = start_worker(ModelConfig(**(fields | {"path": str(endless_model)})))
    assert worker.ask(LONG, GREEDY).done.completion_tokens == 24


def test_penalties_and_bad_values_are_answered(worker: WorkerClient) -> None:
    plain = worker.ask("hello", GREEDY).text
    penalised = Sampling(
        temperature=0, max_tokens=24, repeat_penalty=50, penalty_last_n=500, frequency_penalty=2
    )
    assert worker.ask(f"hello {plain}", penalised).text != plain
    failed = worker.ask("hello", Sampling(repeat_penalty=-1, max_tokens=5)).failed
    assert failed.code == "invalid_request"


def test_a_worker_that_runs_out_of_memory_says_so_and_ends(endless_model: Path) -> None:
    # With nothing to do in a quiet moment, so that nothing but the prompt wants memory.
    config = ModelConfig(path=str(endless_model), speculation="off", prefix_cache_ram_mb=0)
    with WorkerClient() as worker:
        worker.load(config)
        assert worker.ask("hello", GREEDY).text
        pid = worker.process.pid
        size = int(Path(f"/proc/{pid}/statm").read_text("ascii").split()[0]) * os.sysconf(
            "SC_PAGESIZE"
        )
        resource.prlimit(pid, resource.RLIMIT_AS, (size, size))
        with contextlib.suppress(OSError):
            worker.start("word " * 8_000_000, GREEDY)
        assert worker.process.wait(LIMIT_S) == 1
        assert worker.process.stderr is not None
        last = worker.process.stderr.read().decode()
    assert last.splitlines()[-1].startswith("out of memory")
    assert "Traceback" not in last


@pytest.mark.parametrize("how", ["quit", "close"])
def test_a_worker_ends_with_its_daemon(how: str, endless_model: Path) -> None:
    with WorkerClient() as worker:
        worker.load(ModelConfig(path=str(endless_model)))
        worker.start("go", Sampling(temperature=0))
        if how == "quit":
            worker.send(Quit())
        else:
            worker.socket.close()
        assert worker.process.wait(LIMIT_S) == 0


def test_a_worker_dies_with_a_daemon_that_was_killed(endless_model: Path) -> None:
    script = (
        "import sys, time\n"
        "from clawd.engine.protocol import ModelConfig\n"
        "from tests.support.engine_worker import WorkerClient\n"
        "worker = WorkerClient()\n"
        "worker.load(ModelConfig(path=sys.argv[1]))\n"
        "worker.start('go')\n"
        "print(worker.process.pid, flush=True)\n"
        "time.sleep(60)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(endless_model)],
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[2],
        text=True,
    ) as daemon:
        assert daemon.stdout is not None
        pid = int(daemon.stdout.readline())
        watched = os.pidfd_open(pid)
        assert is_alive(pid)
        daemon.send_signal(signal.SIGKILL)
        daemon.wait(LIMIT_S)
    try:
        assert _ended(watched, LIMIT_S)
    finally:
        os.close(watched)


def _ended(pidfd: int, limit_s: float) -> bool:
    return bool(select.select([pidfd], [], [], limit_s)[0])
