"""Every option of a model, as llama.cpp is given it, and the refusal of those that it lacks."""

import platform
from pathlib import Path
from typing import Any

import pytest

from clawd.engine.protocol import LoadFailed, ModelConfig, Sampling
from clawd.engine.worker import files, llama
from clawd.engine.worker.llama import (
    cells_fit_apart,
    context_params,
    lib,
    load_file,
    model_params,
    start,
)
from tests.engine_real.conftest import StartWorker
from tests.support.engine_worker import LIMIT_S, WorkerClient
from tests.support.gguf_models import EMBEDDED, write_random_gguf, write_vision_part

pytestmark = pytest.mark.real_model

GREEDY = Sampling(temperature=0, max_tokens=4)

# option, value, where llama.cpp has it, what it is there
OF_THE_MODEL: list[tuple[str, Any, str, int]] = [
    ("n_gpu_layers", 7, "n_gpu_layers", 7),
    ("n_gpu_layers", -1, "n_gpu_layers", -1),
    ("split_mode", "none", "split_mode", 0),
    ("split_mode", "layer", "split_mode", 1),
    ("split_mode", "row", "split_mode", 2),
    ("split_mode", "tensor", "split_mode", 3),
    ("mmap", True, "load_mode", lib.LLAMA_LOAD_MODE_MMAP),
    ("mmap", False, "load_mode", lib.LLAMA_LOAD_MODE_NONE),
    ("mlock", True, "load_mode", lib.LLAMA_LOAD_MODE_MMAP_MLOCK),
]
OF_THE_CONTEXT: list[tuple[str, Any, str, float]] = [
    ("n_ctx", 1024, "n_ctx", 1024),
    ("n_ctx", 0, "n_ctx", 4096),
    ("n_batch", 96, "n_batch", 96),
    ("n_ubatch", 64, "n_ubatch", 64),
    ("n_threads", 3, "n_threads", 3),
    ("n_threads", 3, "n_threads_batch", 3),
    ("n_threads", 0, "n_threads", 5),
    ("cache_type_k", "q8_0", "type_k", 8),
    ("cache_type_v", "bf16", "type_v", 30),
    ("cache_type_v", "q4_0", "type_v", 2),
    ("flash_attn", "auto", "flash_attn_type", -1),
    ("flash_attn", "off", "flash_attn_type", 0),
    ("flash_attn", "on", "flash_attn_type", 1),
    ("rope_scaling", "", "rope_scaling_type", -1),
    ("rope_scaling", "none", "rope_scaling_type", 0),
    ("rope_scaling", "linear", "rope_scaling_type", 1),
    ("rope_scaling", "yarn", "rope_scaling_type", 2),
    ("rope_freq_scale", 0.25, "rope_freq_scale", 0.25),
    ("yarn_orig_ctx", 2048, "yarn_orig_ctx", 2048),
]


@pytest.mark.parametrize(("option", "value", "field", "expected"), OF_THE_MODEL)
def test_an_option_of_loading_reaches_llama_cpp(
    option: str, value: object, field: str, expected: int
) -> None:
    config = ModelConfig(path="", **{option: value})  # type: ignore[arg-type]
    assert getattr(model_params(config), field) == expected


@pytest.mark.parametrize(("option", "value", "field", "expected"), OF_THE_CONTEXT)
def test_an_option_of_the_context_reaches_llama_cpp(
    option: str, value: object, field: str, expected: float
) -> None:
    config = ModelConfig(path="", **{option: value})  # type: ignore[arg-type]
    params = context_params(config, n_ctx_train=4096, default_threads=5, n_sequences=8)
    assert getattr(params, field) == expected


def test_the_context_holds_the_sequences_in_one_memory() -> None:
    config = ModelConfig(path="", n_batch=2, n_parallel=6)
    params = context_params(config, n_ctx_train=1 << 20, default_threads=5, n_sequences=12)
    assert (params.n_seq_max, params.kv_unified, params.n_batch) == (12, True, 6)
    assert params.n_ctx == 8192


def test_r10_sequences_with_cells_of_their_own_have_the_whole_context_each() -> None:
    config = ModelConfig(path="", n_ctx=1024, n_parallel=4)
    params = context_params(
        config, n_ctx_train=1 << 20, default_threads=5, n_sequences=4, shares_cells=False
    )
    assert (params.n_seq_max, params.kv_unified, params.n_ctx) == (4, False, 4096)


def test_r10_cells_are_kept_apart_where_memory_allows_it_and_as_the_config_says(
    endless_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start()
    model = load_file(ModelConfig(path=str(endless_model), n_gpu_layers=0))
    # 2 layers, 2 heads of 32 numbers, key and value, 2 bytes each: 512 bytes a token.
    needed = 4 * 1024 * 512
    monkeypatch.setattr(llama, "TINY_MODEL_PARAMS", 0)
    rows = {
        ("auto", 4, 4 * needed): True,
        ("auto", 4, 4 * needed - 1): False,
        ("auto", 1, 1 << 40): False,
        ("off", 4, 0): True,
        ("on", 4, 1 << 40): False,
        ("auto", 2048, 1 << 40): True,
        ("auto", 2049, 1 << 40): False,
    }
    found = {}
    for row in rows:
        choice, parallel, free = row
        monkeypatch.setattr(files, "available_memory", lambda free=free: free)
        options: dict[str, Any] = {"n_parallel": parallel, "kv_unified": choice}
        config = ModelConfig(path="", n_ctx=1024, n_gpu_layers=0, **options)
        found[row] = cells_fit_apart(model, config)
    assert found == rows
    monkeypatch.setattr(llama, "TINY_MODEL_PARAMS", 32_000_000)
    assert not cells_fit_apart(model, ModelConfig(path="", n_ctx=1024, n_gpu_layers=0))
    lib.llama_model_free(model)


def test_r10_the_same_is_said_with_cells_shared_and_apart(
    start_worker: StartWorker, tmp_path: Path
) -> None:
    model = write_random_gguf(tmp_path / "random.gguf", chain=False)
    texts = ["tell me of rivers", "tell me of rivers and of lakes", "what is a mountain?"]
    # Later tokens differ by rounding, as other batches are computed.
    sampling = Sampling(temperature=0, max_tokens=6)
    told: dict[str, list[tuple[str, int]]] = {}
    for kv_unified in ("on", "off"):
        options: dict[str, Any] = {"n_ctx": 512, "n_parallel": 3, "kv_unified": kv_unified}
        worker = start_worker(ModelConfig(path=str(model), **options))
        # The second round begins like what runs beside it and like what is idle.
        rounds = [texts, [text + " And then?" for text in texts]]
        answers = [
            worker.finish(number)
            for each in rounds
            for number in [worker.start(text, sampling) for text in each]
        ]
        told[kv_unified] = [(answer.text, answer.done.completion_tokens) for answer in answers]
        assert answers[3].evaluated.cached > 8
    assert told["on"] == told["off"]


@pytest.mark.parametrize("split_mode", ["none", "layer", "row"])
def test_a_way_to_split_is_harmless_where_there_is_nothing_to_split_over(
    split_mode: Any, start_worker: StartWorker, endless_model: Path
) -> None:
    worker = start_worker(ModelConfig(path=str(endless_model), split_mode=split_mode))
    assert worker.ask("hello", GREEDY).done.completion_tokens == 4


def test_splitting_tensors_takes_devices() -> None:
    if lib.llama_supports_gpu_offload():
        pytest.skip("this build of llama.cpp has devices")
    with WorkerClient() as worker:
        failed = worker.load(ModelConfig(path=str(EMBEDDED), split_mode="tensor"))
        assert isinstance(failed, LoadFailed)
        assert "LLAMA_SPLIT_MODE_TENSOR needs >= 1 devices" in failed.message


def test_the_vision_part_of_a_model_is_refused_for_what_it_is(tmp_path: Path) -> None:
    path = write_vision_part(tmp_path / "mmproj.gguf")
    with WorkerClient() as worker:
        failed = worker.load(ModelConfig(path=str(path)))
        assert isinstance(failed, LoadFailed)
        assert f"{path} is the vision part of a model (mmproj)" in failed.message
        assert "load the file of the model itself" in failed.message


def test_rpc_servers_are_refused_by_a_build_without_rpc() -> None:
    if lib.llama_supports_rpc():
        pytest.skip("this build of llama.cpp has RPC")
    with WorkerClient() as worker:
        failed = worker.load(ModelConfig(path=str(EMBEDDED), rpc_servers=("127.0.0.1:50052",)))
        assert isinstance(failed, LoadFailed)
        assert failed.code == "model_load"
        assert "this build of llama.cpp has no RPC" in failed.message
        assert "127.0.0.1:50052" in failed.message
        assert worker.process.wait(LIMIT_S) == 0


def test_r10_auto_leaves_flash_attention_out_where_it_slows_answers(
    endless_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start()
    model = load_file(ModelConfig(path=str(endless_model), n_gpu_layers=0))
    # 4 heads, 512 tokens a step, 4 bytes each: 8 KB a cell, so 32,768 cells take 256 MB.
    rows: dict[tuple[tuple[str, Any], ...], str] = {
        (): "off",
        (("n_ctx", 32_768),): "off",
        (("n_ctx", 32_769),): "auto",
        (("n_ctx", 32_769), ("n_ubatch", 256)): "off",
        (("cache_type_v", "q8_0"),): "auto",
        (("cache_type_k", "f32"),): "off",
        (("flash_attn", "on"),): "on",
        (("flash_attn", "off"), ("n_ctx", 1 << 20)): "off",
    }
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    for row, wanted in rows.items():
        config = ModelConfig(path="", n_gpu_layers=0, **dict(row))
        assert llama.settled(model, config).flash_attn == wanted, row
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    assert llama.settled(model, ModelConfig(path="", n_gpu_layers=0)).flash_attn == "auto"
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(llama.lib, "llama_supports_gpu_offload", lambda: True)
    assert llama.settled(model, ModelConfig(path="", n_gpu_layers=-1)).flash_attn == "auto"
    lib.llama_model_free(model)
