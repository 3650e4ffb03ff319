"""llama.cpp's library: the only module that imports llama_cpp. Its log, options and loading.

model.py works on what is loaded here.
"""

import ctypes
import re
import sys
from collections import deque
from pathlib import Path
from typing import Any

import llama_cpp
import llama_cpp.llama_cpp as lib

from clawd.engine.protocol import ModelConfig
from clawd.engine.worker.cpus import usable_cores

__all__ = [
    "LIBRARY_VERSION",
    "LoadError",
    "lib",
    "load_file",
    "log_reasons",
    "new_context",
    "pointer",
    "start",
]

LIBRARY_VERSION = str(llama_cpp.__version__)

MAX_DEFAULT_CTX = 8192
TINY_MODEL_PARAMS = 32_000_000
_MAX_LOG_LINES = 4
_OUT_OF_MEMORY = re.compile("insufficient memory|bad_alloc|(failed|unable) to allocate")
# ggml.h ggml_log_level; the binding has them wrong in a comment.
_LOG_WARNING, _LOG_ERROR, _LOG_CONTINUED = 3, 4, 5

_CACHE_TYPES = {
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


class LoadError(Exception):
    """The model cannot be loaded; `code` is model_not_found, out_of_memory or model_load."""

    def __init__(self, message: str, *, code: str = "model_load") -> None:
        super().__init__(message)
        self.code = code
        self.message = message


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
    """Send llama.cpp's log to stderr and get its devices ready."""
    lib.llama_log_set(_log.callback, None)
    lib.llama_backend_init()


def load_file(config: ModelConfig) -> Any:
    """Return the model in the file.

    Raises:
        LoadError: it is missing, or is no GGUF model for text.
    """
    path = Path(config.path)
    _check_file(path)
    params = lib.llama_model_default_params()
    params.n_gpu_layers = config.n_gpu_layers
    params.split_mode = _SPLIT_MODES[config.split_mode]
    params.load_mode = _load_mode(config)
    model = lib.llama_model_load_from_file(str(path).encode(), params)
    if not model:
        raise LoadError(f"llama.cpp could not load {path}{log_reasons()}", code=_code())
    if (
        lib.llama_model_has_encoder(model)
        or not lib.llama_model_has_decoder(model)
        or lib.llama_model_is_diffusion(model)
    ):
        lib.llama_model_free(model)
        raise LoadError(f"{path} is no model that generates text token by token")
    return model


def new_context(model: Any, config: ModelConfig, *, n_sequences: int) -> Any:
    """Return a context for the model, one KV memory for all sequences.

    Raises:
        LoadError: an option that it does not know, or too little memory.
    """
    params = lib.llama_context_default_params()
    n_ctx_train = int(lib.llama_model_n_ctx_train(model))
    params.n_ctx = config.n_ctx or min(n_ctx_train, MAX_DEFAULT_CTX)
    params.n_batch = max(config.n_batch, config.n_parallel)
    params.n_ubatch = min(config.n_ubatch, params.n_batch)
    params.n_seq_max = n_sequences
    params.kv_unified = True
    params.n_threads = params.n_threads_batch = config.n_threads or _default_threads(model)
    params.type_k = _cache_type(config.cache_type_k)
    params.type_v = _cache_type(config.cache_type_v)
    params.flash_attn_type = _FLASH_ATTENTION[config.flash_attn]
    params.rope_scaling_type = _ROPE_SCALING[config.rope_scaling]
    params.rope_freq_scale = config.rope_freq_scale
    params.yarn_orig_ctx = config.yarn_orig_ctx
    params.no_perf = True
    context = lib.llama_init_from_model(model, params)
    if not context:
        raise LoadError(
            f"llama.cpp could not make a context of {params.n_ctx} tokens for {config.path}"
            f"{log_reasons()}",
            code=_code(),
        )
    return context


def _default_threads(model: Any) -> int:
    """Return one thread per core; one for tiny models, which wait for each other otherwise."""
    is_tiny = lib.llama_model_n_params(model) < TINY_MODEL_PARAMS
    return 1 if is_tiny else usable_cores()


def log_reasons() -> str:
    """Return the last errors in llama.cpp's log as the end of a sentence, or ""."""
    return ": " + "; ".join(_log.errors) if _log.errors else ""


def _code() -> str:
    """Return the code of a failure by what llama.cpp wrote about it."""
    return "out_of_memory" if _OUT_OF_MEMORY.search(log_reasons()) else "model_load"


def pointer(array: Any, element: Any) -> Any:
    """Return a numpy array's memory as a C pointer; the array must outlive it."""
    return array.ctypes.data_as(ctypes.POINTER(element))


def _check_file(path: Path) -> None:
    try:
        with path.open("rb") as file:
            magic = file.read(4)
    except FileNotFoundError:
        raise LoadError(f"{path} does not exist", code="model_not_found") from None
    except OSError as error:
        raise LoadError(f"{path} cannot be read: {error.strerror}") from None
    if magic != b"GGUF":
        raise LoadError(f"{path} is no GGUF file: it begins with {magic!r}")


def _load_mode(config: ModelConfig) -> int:
    if config.mmap:
        return lib.LLAMA_LOAD_MODE_MMAP_MLOCK if config.mlock else lib.LLAMA_LOAD_MODE_MMAP
    return lib.LLAMA_LOAD_MODE_MLOCK if config.mlock else lib.LLAMA_LOAD_MODE_NONE


def _cache_type(name: str) -> int:
    if name not in _CACHE_TYPES:
        raise LoadError(f"cache type {name!r} is none of {', '.join(_CACHE_TYPES)}")
    return _CACHE_TYPES[name]
