"""Every option of a model, as llama.cpp is given it, and the refusal of those that it lacks."""

from pathlib import Path
from typing import Any

import pytest

from clawd.engine.protocol import LoadFailed, ModelConfig, SamplingConfig
from clawd.engine.worker.llama import context_params, lib, model_params
from tests.engine_real.conftest import StartWorker
from tests.support.engine_worker import LIMIT_S, WorkerClient
from tests.support.gguf_models import EMBEDDED, write_vision_part

pytestmark = pytest.mark.real_model

GREEDY = SamplingConfig(temperature=0, max_tokens=4)

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
        assert "images are not supported" in failed.message


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
