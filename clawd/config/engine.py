"""The sections of the built-in engine: [engine], and [model."pattern"] over it for one model.

A LoRA adapter is written as a GGUF file, and behind a colon how much it counts:

    lora = ["~/adapters/style.gguf", "~/adapters/law.gguf:0.5"]
"""

import re
from typing import Annotated, Any, Literal

from pydantic import Field, create_model

from clawd.config.sections import Section

MAX_CONTEXT = 1 << 24
MAX_THREADS = 512  # more than that ends llama.cpp
CacheType = Literal["f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl"]
SplitMode = Literal["none", "layer", "row", "tensor"]
RopeScaling = Literal["", "none", "linear", "yarn"]
FlashAttention = Literal["auto", "on", "off"]
UnifiedCache = Literal["auto", "on", "off"]
Speculation = Literal["auto", "off"]
Fence = Literal["auto", "off"]
Preset = Literal["", "deterministic", "precise", "balanced", "creative", "wild"]
Texts = Annotated[tuple[str, ...], Field(strict=False)]
Breakers = Annotated[tuple[str, ...], Field(strict=False, max_length=64)]
Layers = Annotated[int, Field(ge=-1)]
Context = Annotated[int, Field(ge=0, le=MAX_CONTEXT)]
Threads = Annotated[int, Field(ge=0, le=MAX_THREADS)]
Sequences = Annotated[int, Field(ge=1, le=256)]
Positive = Annotated[int, Field(ge=1)]
Count = Annotated[int, Field(ge=0)]
CountOrAll = Annotated[int, Field(ge=-1)]
Scale = Annotated[float, Field(ge=0)]
Share = Annotated[float, Field(ge=0, le=1)]
Heat = Annotated[float, Field(ge=0, le=10)]
Repetition = Annotated[float, Field(gt=0, le=10)]
Frequency = Annotated[float, Field(ge=0, le=2)]
Presence = Annotated[float, Field(ge=-2, le=2)]
Base = Annotated[float, Field(ge=1)]
_ADAPTER = re.compile(
    r"(?P<file>.+\.gguf)(:(?P<scale>[-+]?(\d+\.?\d*|\.\d+)))?", re.DOTALL | re.IGNORECASE
)


class EngineSection(Section):
    """The built-in engine (llama.cpp) and how it samples."""

    keep_alive_s: float = Field(
        default=300.0,
        ge=0,
        description="An idle model is unloaded after that long; 0 keeps it loaded.",
    )
    max_loaded: int = Field(
        default=2,
        ge=1,
        le=64,
        description="Models loaded at once; the least recently used one is unloaded.",
    )
    n_gpu_layers: Layers = Field(default=-1, description="Layers on the GPU; -1 is all, 0 none.")
    ctx_size: Context = Field(
        default=0, description="Context in tokens; 0 is the model's own, at most 8192."
    )
    n_batch: Positive = Field(default=512, description="Tokens of one decode call, at most.")
    n_ubatch: Positive = Field(default=512, description="Tokens computed at once, at most n_batch.")
    n_threads: Threads = Field(
        default=0,
        description="CPU threads; 0 is all physical cores that the cgroup and the affinity give.",
    )
    n_parallel: Sequences = Field(default=4, description="Sequences that run at the same time.")
    cache_type_k: CacheType = Field(default="f16", description="Type of the key cache.")
    cache_type_v: CacheType = Field(
        default="f16",
        description="Type of the value cache; all but f32, f16 and bf16 need flash_attn.",
    )
    flash_attn: FlashAttention = Field(default="auto", description="Flash attention, if it helps.")
    kv_unified: UnifiedCache = Field(
        default="auto",
        description="on: all sequences share one KV cache of ctx_size; off: each has its own, "
        "which is faster for several at once and takes n_parallel times the memory; auto: its own "
        "where that is 1 GiB and a quarter of the free memory at most, and no GPU computes.",
    )
    mlock: bool = Field(default=False, description="Keep the model in memory, never swapped.")
    mmap: bool = Field(default=True, description="Map the model's file instead of reading it.")
    split_mode: SplitMode = Field(default="layer", description="How a model is split over GPUs.")
    rope_scaling: RopeScaling = Field(
        default="", description="none, linear or yarn; empty is the model's."
    )
    rope_freq_scale: Scale = Field(
        default=0.0, description="RoPE frequency scale; 0 is the model's."
    )
    yarn_orig_ctx: Count = Field(default=0, description="Context before YaRN; 0 is the model's.")
    lora: Texts = Field(
        default=(),
        description='LoRA adapters: GGUF files, each with ":0.5" behind it to let it count half. '
        'They fit one model, so they belong below its [model."pattern"].',
    )
    mmproj: str = Field(
        default="",
        description="The projector with which a model reads pictures, a GGUF file; empty is "
        "mmproj-NAME.gguf beside the model, where there is one. off: it reads none. It fits one "
        'model, so it belongs below its [model."pattern"].',
    )
    image_max_tokens: int = Field(
        default=0,
        ge=0,
        le=65_536,
        description="The most tokens of a picture, which is scaled down to take about as many; 0 "
        "is the projector's. Only for projectors that take pictures of any size.",
    )
    rpc_servers: Texts = Field(
        default=(),
        description="host:port of llama.cpp's rpc-servers, which take a share of the layers; "
        "unencrypted, and only with a llama.cpp built with GGML_RPC.",
    )
    speculation: Speculation = Field(
        default="auto",
        description="Draft tokens from earlier text where that is faster; the answer is the "
        "same. off never does.",
    )
    max_queue: int = Field(
        default=64, ge=1, description="Requests that may wait; more are refused and may be retried."
    )
    prefill_chunk: int = Field(
        default=128,
        ge=1,
        description="Prompt tokens taken per step while other sequences generate.",
    )
    load_timeout_s: float = Field(default=300.0, gt=0, description="To load a model.")
    watchdog_s: float = Field(
        default=30.0, gt=0, description="A worker silent that long is replaced."
    )
    seed: int = Field(default=-1, description="Seed of sampling; below 0 draws one each time.")
    preset: Preset = Field(
        default="",
        description="deterministic, precise, balanced, creative or wild: sets the shape of "
        "sampling; keys that stand beside it win.",
    )
    temperature: Heat = Field(default=0.8, description="Randomness; 0 is greedy.")
    top_k: Count = Field(default=40, description="Only the k likeliest tokens; 0 is all.")
    top_p: Share = Field(default=0.95, description="Nucleus: the likeliest with this share.")
    min_p: Share = Field(default=0.05, description="Drop tokens below this share of the best.")
    typical_p: Share = Field(
        default=1.0, description="Locally typical tokens with this share; 1 is all."
    )
    xtc_probability: Share = Field(
        default=0.0, description="XTC: how often the likeliest are left out; 0 is never."
    )
    xtc_threshold: Share = Field(
        default=0.1, description="XTC: of those above this share all but the last go."
    )
    repeat_penalty: Repetition = Field(default=1.0, description="1 is none.")
    frequency_penalty: Frequency = Field(default=0.0, description="0 is none.")
    presence_penalty: Presence = Field(default=0.0, description="0 is none.")
    penalty_last_n: Count = Field(
        default=64, description="How many tokens back these three penalties look."
    )
    dry_multiplier: Scale = Field(
        default=0.0, description="DRY: strength of the penalty on repeated runs; 0 is none."
    )
    dry_base: Base = Field(default=1.75, description="DRY: its growth with each token.")
    dry_allowed_length: Count = Field(default=2, description="DRY: runs up to that long are free.")
    dry_last_n: CountOrAll = Field(
        default=-1, description="DRY: how many tokens back it looks; -1 is all."
    )
    dry_breakers: Breakers = Field(
        default=("\n", ":", '"', "*"), description="DRY: texts that end a run."
    )
    allow_request_penalties: bool = Field(
        default=False,
        description="Let requests set penalties too; otherwise the values here hold.",
    )
    max_tokens: Count = Field(
        default=0,
        description="Tokens of one answer; 0 is what the context has room for, at most 4096.",
    )
    stop_loops: bool = Field(
        default=True,
        description="End an answer whose last 512 tokens do nothing but repeat themselves; 96 "
        "for models of fewer than 32 million parameters.",
    )
    template_kwargs: dict[str, Any] = Field(
        default={},
        description="Variables of the chat template, such as { enable_thinking = false } for "
        "models that think otherwise; those of a request win.",
    )
    prefix_cache_ram_mb: int = Field(
        default=1024,
        ge=0,
        description="RAM of each model for conversations that are idle; 0 keeps none outside the "
        "context, on disk neither.",
    )
    prefix_cache_disk_mb: int = Field(
        default=2048,
        ge=0,
        description="Disk for evaluated prompts, so that models continue there after a restart: "
        "of the system prompt and the tools; where this key is set, of conversations as well. "
        "0 keeps nothing.",
    )
    preload: bool = Field(
        default=True,
        description="Load the default model when the daemon starts, if it takes at most half of "
        "the free memory, and evaluate the system prompt and the tools before the first "
        "message.",
    )
    fence: Fence = Field(
        default="auto",
        description="Confine the process that runs a model: it reads the model and its own code, "
        "starts nothing and reaches no network. off is for a graphics driver that needs more.",
    )


_OF_A_MODEL = (
    "preset", "temperature", "top_p", "top_k", "min_p", "typical_p", "xtc_probability",
    "xtc_threshold", "repeat_penalty", "frequency_penalty", "presence_penalty",
    "penalty_last_n", "dry_multiplier", "dry_base", "dry_allowed_length", "dry_last_n",
    "dry_breakers", "seed", "max_tokens", "stop_loops", "template_kwargs", "ctx_size",
    "n_batch", "n_ubatch", "n_threads", "n_parallel", "n_gpu_layers", "split_mode",
    "cache_type_k", "cache_type_v", "flash_attn", "kv_unified", "mlock", "mmap", "rope_scaling",
    "rope_freq_scale", "yarn_orig_ctx", "lora", "mmproj", "image_max_tokens", "rpc_servers",
    "speculation",
)  # fmt: skip
"""The keys of [engine] that may differ from model to model."""


def _optional(name: str) -> Any:
    """Return the type of a key of [engine], its range included, or None for one left out."""
    field = EngineSection.model_fields[name]
    kind: Any = field.annotation
    if field.metadata:
        kind = Annotated[(kind, *field.metadata)]
    return kind | None


class ModelProfile(
    create_model(  # type: ignore[misc]
        "ModelProfile",
        __base__=Section,
        **{name: (_optional(name), None) for name in _OF_A_MODEL},
    )
):
    """Overrides for models whose file name contains the pattern: [model."pattern"]."""


def split_adapter(text: str) -> tuple[str, float]:
    """Return the file and the scale, which is 1 where none is given.

    Raises:
        ValueError: it is no such text; the message is what to expect.
    """
    match = _ADAPTER.fullmatch(text)
    if match is None:
        raise ValueError('a .gguf file, or one with a scale behind it, as "style.gguf:0.5"')
    return match["file"], float(match["scale"] or 1)
