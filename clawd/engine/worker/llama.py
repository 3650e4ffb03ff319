"""llama.cpp's library: the only module that imports llama_cpp. Its log, options and loading.

model.py works on what is loaded here.
"""

import ctypes
import logging
import platform
import re
import sys
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import llama_cpp
import llama_cpp.llama_cpp as lib
import msgspec
import numpy as np

from clawd.engine.protocol import LoraAdapter, ModelConfig
from clawd.engine.worker import files
from clawd.engine.worker.files import LoadError, check_file

__all__ = [
    "LIBRARY_VERSION",
    "Batch",
    "LoadError",
    "cells_fit_apart",
    "context_of",
    "context_params",
    "find_mtmd",
    "flash_attention",
    "lib",
    "load_file",
    "log_callback",
    "log_reasons",
    "model_params",
    "new_context",
    "new_embedding_context",
    "pointer",
    "settled",
    "start",
]

LIBRARY_VERSION = str(llama_cpp.__version__)

MAX_DEFAULT_CTX = 8192
# llama.cpp rounds up to that, too, but ends the process where there are fewer than sequences.
MIN_CTX = 256
TINY_MODEL_PARAMS = 32_000_000
# Sequences get KV cells of their own when all of these take at most this share of the memory that
# is free once the model is loaded, and not more than llama.cpp clears within about a second.
_SHARE_FOR_CELLS = 0.25
_MOST_CELL_BYTES = 1 << 30
_MAX_LOG_LINES = 4
_VISION_PART = "CLIP cannot be used as main model"  # llama.cpp's words
_OUT_OF_MEMORY = re.compile("insufficient memory|bad_alloc|(failed|unable) to allocate")
# ggml.h ggml_log_level; the binding has them wrong in a comment.
_LOG_WARNING, _LOG_ERROR, _LOG_CONTINUED = 3, 4, 5

_CACHE_TYPES: dict[str, int] = {
    "f32": lib.GGML_TYPE_F32,
    "f16": lib.GGML_TYPE_F16,
    "bf16": 30,  # GGML_TYPE_BF16 has no name in the binding
    "q8_0": lib.GGML_TYPE_Q8_0,
    "q5_1": lib.GGML_TYPE_Q5_1,
    "q5_0": lib.GGML_TYPE_Q5_0,
    "q4_1": lib.GGML_TYPE_Q4_1,
    "q4_0": lib.GGML_TYPE_Q4_0,
    "iq4_nl": lib.GGML_TYPE_IQ4_NL,
}
# What the attention scores of a whole step may take where no flash attention spares them.
_MOST_SCORE_BYTES = 1 << 28
# Bytes of a number in the cache, where they are not about one or less.
_CACHE_BYTES = {"f32": 4.0, "f16": 2.0, "bf16": 2.0}
_FLASH_ATTENTION = {
    "auto": lib.LLAMA_FLASH_ATTN_TYPE_AUTO,
    "on": lib.LLAMA_FLASH_ATTN_TYPE_ENABLED,
    "off": lib.LLAMA_FLASH_ATTN_TYPE_DISABLED,
}
_SPLIT_MODES = {
    "none": lib.LLAMA_SPLIT_MODE_NONE,
    "layer": lib.LLAMA_SPLIT_MODE_LAYER,
    "row": lib.LLAMA_SPLIT_MODE_ROW,
    "tensor": lib.LLAMA_SPLIT_MODE_TENSOR,
}
_ROPE_SCALING = {
    "": lib.LLAMA_ROPE_SCALING_TYPE_UNSPECIFIED,
    "none": lib.LLAMA_ROPE_SCALING_TYPE_NONE,
    "linear": lib.LLAMA_ROPE_SCALING_TYPE_LINEAR,
    "yarn": lib.LLAMA_ROPE_SCALING_TYPE_YARN,
}


logger = logging.getLogger(__name__)


class _Log:
    """Sends llama.cpp's warnings and errors to stderr and remembers the last errors."""

    def __init__(self) -> None:
        self.errors: deque[str] = deque(maxlen=_MAX_LOG_LINES)
        self._level = 0
        self.callback = lib.llama_log_callback(self._write)

    def _write(self, level: int, text: bytes, _data: object) -> None:
        if level != _LOG_CONTINUED:
            self._level = level
        if self._level not in {_LOG_WARNING, _LOG_ERROR}:
            return
        line = text.decode("utf-8", errors="replace")
        sys.stderr.write(line)
        sys.stderr.flush()
        if self._level == _LOG_ERROR and line.strip():
            self.errors.append(line.strip())


_log = _Log()


def start() -> None:
    """Send llama.cpp's log to stderr and get its devices ready.

    Raises:
        LoadError: it has nothing that computes on this processor.
    """
    lib.llama_log_set(_log.callback, None)
    files.load_backends(lib)
    lib.llama_backend_init()


def load_file(config: ModelConfig) -> Any:
    """Return the model in the file.

    Raises:
        LoadError: it is missing, is no GGUF model for text, or needs servers that are not there.
    """
    path = Path(config.path)
    check_file(str(path), path, missing_code="model_not_found")
    files.add_rpc_servers(lib, config.rpc_servers)
    if config.n_gpu_layers > 0 and not lib.llama_supports_gpu_offload():
        logger.warning("n_gpu_layers is %d, but llama.cpp has no GPU here", config.n_gpu_layers)
    model = lib.llama_model_load_from_file(str(path).encode(), model_params(config))
    if not model:
        reasons = log_reasons()
        if _VISION_PART in reasons:
            raise LoadError(
                f"{path} is the vision part of a model (mmproj); load the file of the model "
                "itself, which takes it along"
            )
        raise LoadError(f"llama.cpp could not load {path}{reasons}", code=_code())
    if (
        lib.llama_model_has_encoder(model)
        or not lib.llama_model_has_decoder(model)
        or lib.llama_model_is_diffusion(model)
    ):
        lib.llama_model_free(model)
        raise LoadError(f"{path} is no model that generates text token by token")
    return model


def cells_fit_apart(model: Any, config: ModelConfig) -> bool:
    """Return whether each sequence gets n_ctx KV cells of its own, as `kv_unified` has it.

    With cells that all share, each token looks through those of every other sequence: eight
    conversations of 300 tokens took a real model of 135M parameters a tenth longer for a step. So
    auto gives each its own where memory allows it, except on a GPU, whose memory is all taken at
    once, and for tiny models and single sequences.
    """
    if config.kv_unified != "auto" or config.n_parallel == 1:
        return config.kv_unified == "off"
    if _uses_gpu(config) or lib.llama_model_n_params(model) < TINY_MODEL_PARAMS:
        return False
    n_ctx = _n_ctx(config, int(lib.llama_model_n_ctx_train(model)))
    size = config.n_parallel * n_ctx * _cell_bytes(model, config)
    return size <= min(_SHARE_FOR_CELLS * files.available_memory(), _MOST_CELL_BYTES)


def settled(model: Any, config: ModelConfig) -> ModelConfig:
    """Return the config with what `flash_attn = "auto"` means for this model on this processor.

    llama.cpp has one flash attention for prompts and answers. On x86 a prompt is read a tenth
    faster with it, and an answer is decoded up to twice as slowly: 68 ms a token behind 1,536 of a
    model of 135M parameters where it is 34 without, 206 and 84 for four at once. Models with 32
    heads of 128 show no difference. Without it the scores of a step stand in memory, so large
    contexts keep it, as do quantised values, which cannot be without.
    """
    is_plain = {config.cache_type_k, config.cache_type_v} <= {"f32", "f16"}
    cells = _n_ctx(config, int(lib.llama_model_n_ctx_train(model)))
    scores = int(lib.llama_model_n_head(model)) * config.n_ubatch * cells * 4
    is_slower = platform.machine() == "x86_64" and not _uses_gpu(config)
    if config.flash_attn != "auto" or not (is_plain and is_slower) or scores > _MOST_SCORE_BYTES:
        return config
    return msgspec.structs.replace(config, flash_attn="off")


def _uses_gpu(config: ModelConfig) -> bool:
    return config.n_gpu_layers != 0 and bool(lib.llama_supports_gpu_offload())


def _cell_bytes(model: Any, config: ModelConfig) -> float:
    """Return about how many bytes the keys and values of one token take."""
    heads = int(lib.llama_model_n_head(model))
    width = int(lib.llama_model_n_embd(model)) // max(heads, 1)
    numbers = int(lib.llama_model_n_layer(model)) * int(lib.llama_model_n_head_kv(model)) * width
    sizes = (_CACHE_BYTES.get(name, 1.1) for name in (config.cache_type_k, config.cache_type_v))
    return numbers * sum(sizes)


def new_context(
    model: Any, config: ModelConfig, *, n_sequences: int, shares_cells: bool = True
) -> Any:
    """Return a context for the model with its KV memory, its adapters applied.

    Raises:
        LoadError: an option that it does not know, too little memory, or a bad adapter.
    """
    params = context_params(
        config,
        n_ctx_train=int(lib.llama_model_n_ctx_train(model)),
        default_threads=_default_threads(model),
        n_sequences=n_sequences,
        shares_cells=shares_cells,
    )
    return context_of(model, config, params)


def new_embedding_context(model: Any, config: ModelConfig, *, n_tokens: int, pooling: int) -> Any:
    """Return a context that makes one vector of up to so many tokens at a time.

    Raises:
        LoadError: too little memory, or a bad adapter.
    """
    params = context_params(
        config, n_ctx_train=n_tokens, default_threads=_default_threads(model), n_sequences=1
    )
    params.n_ctx = max(n_tokens, MIN_CTX)
    # A text is pooled within one physical batch only.
    params.n_batch = params.n_ubatch = n_tokens
    params.embeddings = True
    params.pooling_type = pooling
    return context_of(model, config, params)


def context_of(model: Any, config: ModelConfig, params: Any) -> Any:
    """Return a context with these options, the config's adapters applied.

    Raises:
        LoadError: too little memory, or a bad adapter.
    """
    # Before the context, which makes room for what the adapters compute.
    adapters = [_adapter(model, config, each) for each in config.lora]
    context = lib.llama_init_from_model(model, params)
    if not context:
        raise LoadError(
            f"llama.cpp could not make a context of {params.n_ctx} tokens for {config.path}"
            f"{log_reasons()}",
            code=_code(),
        )
    if adapters:
        _apply(context, adapters, config)
    return context


def model_params(config: ModelConfig) -> Any:
    """Return llama.cpp's options for loading a model (llama.h llama_model_params)."""
    params = lib.llama_model_default_params()
    params.n_gpu_layers = config.n_gpu_layers
    params.split_mode = _SPLIT_MODES[config.split_mode]
    params.load_mode = _load_mode(config)
    return params


def context_params(
    config: ModelConfig,
    *,
    n_ctx_train: int,
    default_threads: int,
    n_sequences: int,
    shares_cells: bool = True,
) -> Any:
    """Return llama.cpp's options for a context (llama.h llama_context_params).

    Raises:
        LoadError: a cache type that it does not know.
    """
    params = lib.llama_context_default_params()
    params.n_ctx = _n_ctx(config, n_ctx_train) * (1 if shares_cells else n_sequences)
    params.n_batch = max(config.n_batch, config.n_parallel)
    params.n_ubatch = min(config.n_ubatch, params.n_batch)
    params.n_seq_max = n_sequences
    params.kv_unified = shares_cells
    params.n_threads = params.n_threads_batch = config.n_threads or default_threads
    params.type_k = _cache_type(config.cache_type_k)
    params.type_v = _cache_type(config.cache_type_v)
    params.flash_attn_type = flash_attention(config)
    params.rope_scaling_type = _ROPE_SCALING[config.rope_scaling]
    params.rope_freq_scale = config.rope_freq_scale
    params.yarn_orig_ctx = config.yarn_orig_ctx
    params.no_perf = True
    return params


def _n_ctx(config: ModelConfig, n_ctx_train: int) -> int:
    return max(config.n_ctx or min(n_ctx_train, MAX_DEFAULT_CTX), MIN_CTX)


def _adapter(model: Any, config: ModelConfig, wanted: LoraAdapter) -> Any:
    """Return a LoRA adapter; it is freed with the model."""
    path = Path(wanted.path)
    check_file(f"the LoRA adapter {path}", path)
    adapter = lib.llama_adapter_lora_init(model, str(path).encode())
    if not adapter:
        raise LoadError(
            f"llama.cpp could not load {path} as a LoRA adapter of {config.path}{log_reasons()}"
        )
    if lib.llama_adapter_get_alora_n_invocation_tokens(adapter):
        raise LoadError(
            f"{path} is an activated LoRA adapter, which counts from certain tokens on; expected "
            "a plain one, which counts everywhere"
        )
    return adapter


def _apply(context: Any, adapters: list[Any], config: ModelConfig) -> None:
    count = len(adapters)
    scales = (ctypes.c_float * count)(*(each.scale for each in config.lora))
    handles = (lib.llama_adapter_lora_p_ctypes * count)(*adapters)
    if lib.llama_set_adapters_lora(context, handles, count, scales) != 0:
        raise LoadError(f"llama.cpp could not apply the adapters of {config.path}{log_reasons()}")


def _default_threads(model: Any) -> int:
    """Return one thread per core; one for tiny models, which wait for each other otherwise."""
    is_tiny = lib.llama_model_n_params(model) < TINY_MODEL_PARAMS
    return 1 if is_tiny else files.usable_cores()


def log_reasons() -> str:
    """Return the last errors in llama.cpp's log as the end of a sentence, or ""."""
    return ": " + "; ".join(_log.errors) if _log.errors else ""


def _code() -> str:
    """Return the code of a failure by what llama.cpp wrote about it."""
    return "out_of_memory" if _OUT_OF_MEMORY.search(log_reasons()) else "model_load"


def find_mtmd() -> Any:
    """Return the binding of libmtmd, which reads pictures; None for a build without it."""
    try:
        from llama_cpp import mtmd_cpp
    except (ImportError, OSError, RuntimeError):
        return None
    return mtmd_cpp


def log_callback() -> Any:
    """Return what llama.cpp's libraries write their log with."""
    return _log.callback


def flash_attention(config: ModelConfig) -> int:
    """Return whether to use flash attention, in llama.cpp's terms."""
    return int(_FLASH_ATTENTION[config.flash_attn])


def pointer(array: Any, element: Any) -> Any:
    """Return a numpy array's memory as a C pointer; the array must outlive it."""
    return array.ctypes.data_as(ctypes.POINTER(element))


def _load_mode(config: ModelConfig) -> int:
    if config.mmap:
        return int(lib.LLAMA_LOAD_MODE_MMAP_MLOCK if config.mlock else lib.LLAMA_LOAD_MODE_MMAP)
    return int(lib.LLAMA_LOAD_MODE_MLOCK if config.mlock else lib.LLAMA_LOAD_MODE_NONE)


def _cache_type(name: str) -> int:
    if name not in _CACHE_TYPES:
        raise LoadError(f"cache type {name!r} is none of {', '.join(_CACHE_TYPES)}")
    return _CACHE_TYPES[name]


class Batch:
    """llama_batch over numpy memory: nothing is allocated or set twice per step."""

    def __init__(self, capacity: int) -> None:
        self._tokens = np.zeros(capacity, np.int32)
        self._positions = np.zeros(capacity, np.int32)
        self._sequences = np.zeros(capacity, np.int32)
        self._counts = np.ones(capacity, np.int32)
        self._outputs = np.zeros(capacity, np.int8)
        first = self._sequences.ctypes.data
        self._pointers = np.arange(capacity, dtype=np.uintp) * np.uintp(4) + np.uintp(first)
        self.raw = lib.llama_batch(
            n_tokens=0,
            token=pointer(self._tokens, ctypes.c_int32),
            embd=None,
            pos=pointer(self._positions, ctypes.c_int32),
            n_seq_id=pointer(self._counts, ctypes.c_int32),
            seq_id=pointer(self._pointers, ctypes.POINTER(ctypes.c_int32)),
            logits=pointer(self._outputs, ctypes.c_int8),
        )
        self.size = 0

    def add_token(self, token: int, position: int, sequence: int) -> int:
        """Add a token whose output is wanted; return its row."""
        row = self.size
        self._tokens[row] = token
        self._positions[row] = position
        self._sequences[row] = sequence
        self._outputs[row] = 1
        self.size = row + 1
        return row

    def add_prompt(
        self, tokens: Sequence[int], position: int, sequence: int, *, last_output: bool
    ) -> int:
        """Add consecutive tokens, the output of the last if wanted; return the last one's row."""
        start, end = self.size, self.size + len(tokens)
        self._tokens[start:end] = tokens
        self._positions[start:end] = np.arange(position, position + len(tokens), dtype=np.int32)
        self._sequences[start:end] = sequence
        self._outputs[start:end] = 0
        self._outputs[end - 1] = last_output
        self.size = end
        return end - 1

    def add_draft(self, tokens: Sequence[int], position: int, sequence: int) -> None:
        """Add consecutive tokens whose outputs are all wanted."""
        start = self.size
        last = self.add_prompt(tokens, position, sequence, last_output=True)
        self._outputs[start:last] = 1
