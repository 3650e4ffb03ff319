"""The sections of the built-in engine: [engine], and [model."pattern"] over it for one model."""

from typing import Literal

from pydantic import Field

from clawd.config.section import Section

MAX_CONTEXT = 1 << 24
MAX_THREADS = 512  # more than that ends llama.cpp

CacheType = Literal["f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl"]
SplitMode = Literal["none", "layer", "row", "tensor"]
RopeScaling = Literal["", "none", "linear", "yarn"]


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
        description="Models loaded at once; the least recently used one goes.",
    )
    n_gpu_layers: int = Field(
        default=-1, ge=-1, description="Layers on the GPU; -1 is all, 0 none."
    )
    ctx_size: int = Field(
        default=0, ge=0, le=MAX_CONTEXT, description="Context in tokens; 0 is the model's own."
    )
    n_batch: int = Field(default=512, ge=1, description="Tokens of one decode call, at most.")
    n_ubatch: int = Field(
        default=512, ge=1, description="Tokens computed at once, at most n_batch."
    )
    n_threads: int = Field(default=0, ge=0, le=MAX_THREADS, description="CPU threads; 0 chooses.")
    n_parallel: int = Field(
        default=4, ge=1, le=256, description="Sequences that run at the same time."
    )
    cache_type_k: CacheType = Field(default="f16", description="Type of the key cache.")
    cache_type_v: CacheType = Field(default="f16", description="Type of the value cache.")
    flash_attn: Literal["auto", "on", "off"] = Field(default="auto", description="Flash attention.")
    mlock: bool = Field(default=False, description="Keep the model in memory, never swapped.")
    mmap: bool = Field(default=True, description="Map the model's file instead of reading it.")
    split_mode: SplitMode = Field(default="layer", description="How a model is split over GPUs.")
    rope_scaling: RopeScaling = Field(
        default="", description="none, linear or yarn; empty is the model's."
    )
    rope_freq_scale: float = Field(
        default=0.0, ge=0, description="RoPE frequency scale; 0 is the model's."
    )
    yarn_orig_ctx: int = Field(
        default=0, ge=0, description="Context before YaRN; 0 is the model's."
    )
    max_queue: int = Field(
        default=64, ge=1, description="Requests that may wait; more are told to retry."
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
    temperature: float = Field(default=0.8, ge=0, le=10, description="Randomness; 0 is greedy.")
    top_k: int = Field(default=40, ge=0, description="Only the k likeliest tokens; 0 is all.")
    top_p: float = Field(
        default=0.95, ge=0, le=1, description="Nucleus: the likeliest with this share."
    )
    min_p: float = Field(
        default=0.05, ge=0, le=1, description="Drop tokens below this share of the best."
    )
    repeat_penalty: float = Field(default=1.0, ge=0, le=10, description="1 is none.")
    frequency_penalty: float = Field(default=0.0, ge=0, le=2, description="0 is none.")
    presence_penalty: float = Field(default=0.0, ge=-2, le=2, description="0 is none.")
    max_tokens: int = Field(
        default=0, ge=0, description="Tokens of one answer; 0 is to the end of context."
    )
    prefix_cache_ram_mb: int = Field(
        default=1024,
        ge=0,
        description="RAM of each model for conversations that are idle; 0 keeps none outside the "
        "context, on disk neither.",
    )
    prefix_cache_disk_mb: int = Field(
        default=0,
        ge=0,
        description="Disk for conversations of all models, so that they go on where they were "
        "after a restart; 0 keeps none.",
    )


class ModelProfile(Section):
    """Overrides for models whose file name contains the pattern: [model."pattern"]."""

    temperature: float | None = Field(default=None, ge=0, le=10)
    top_p: float | None = Field(default=None, ge=0, le=1)
    top_k: int | None = Field(default=None, ge=0)
    min_p: float | None = Field(default=None, ge=0, le=1)
    repeat_penalty: float | None = Field(default=None, ge=0, le=10)
    frequency_penalty: float | None = Field(default=None, ge=0, le=2)
    presence_penalty: float | None = Field(default=None, ge=-2, le=2)
    max_tokens: int | None = Field(default=None, ge=0)
    ctx_size: int | None = Field(default=None, ge=0, le=MAX_CONTEXT)
    n_gpu_layers: int | None = Field(default=None, ge=-1)
    split_mode: SplitMode | None = None
    rope_scaling: RopeScaling | None = None
    rope_freq_scale: float | None = Field(default=None, ge=0)
    yarn_orig_ctx: int | None = Field(default=None, ge=0)
