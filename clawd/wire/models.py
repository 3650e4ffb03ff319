"""Methods about providers and models, and what they report.

Beside a model's file stands its pin: the digest that a changed file must answer for.
`Qwen3-8B-Q4_K_M.gguf.pin` stands beside `Qwen3-8B-Q4_K_M.gguf`. Who puts a model there writes it,
the engine reads it before it loads. `seen` is how the file looked when its digest was last found
right: while it looks so it is not read again.

    {"sha256":"9f86d0…","source":"hf:Qwen/Qwen3-8B-GGUF@1a2b3c","seen":{"inode":7,"size":98,…}}
"""

import os
from pathlib import Path
from typing import Any, ClassVar, Literal

import msgspec

from clawd.wire.method import Done, Method


class ProviderLine(msgspec.Struct, frozen=True, kw_only=True):
    """One configured provider."""

    name: str
    kind: str
    model: str
    is_default: bool = False


class ProviderList(msgspec.Struct, frozen=True, kw_only=True):
    """The configured providers."""

    items: tuple[ProviderLine, ...]


class ListProviders(Method[ProviderList], frozen=True, kw_only=True):
    """List the configured providers."""


class CheckProvider(Method[Done], frozen=True, kw_only=True):
    """Reach a provider with the smallest request; an empty name means the default one."""

    name: str = ""


class ModelLine(msgspec.Struct, frozen=True, kw_only=True):
    """One model of this machine.

    Attributes:
        size_bytes: of all its files.
        profile: the pattern of the `[model."pattern"]` that applies to it; empty for none.
        state: loading, ready, or stopped after its worker died; empty when it is not loaded.
        pid: the worker's, 0 without one.
    """

    name: str
    path: str
    size_bytes: int
    profile: str = ""
    state: str = ""
    pid: int = 0


class ModelList(msgspec.Struct, frozen=True, kw_only=True):
    """The embedded model and those of the folder, by name.

    Attributes:
        default: the one that answers where nobody names one, by name, or by path where it lies
            elsewhere, whether it is there or not; "" where that is none of this machine.
    """

    folder: str
    items: tuple[ModelLine, ...]
    default: str = ""


class ListModels(Method[ModelList], frozen=True, kw_only=True):
    """List the models of this machine, loaded or not."""


class ModelDetail(msgspec.Struct, frozen=True, kw_only=True):
    """What a model's file tells of it, without loading it; "" and 0 for what it does not.

    Attributes:
        context_size: what it was trained for.
        template_family: how it writes tool calls, as its chat template says; "" without one.
        tools: whether its chat template takes tools.
        reasoning: whether its chat template knows of thinking.
        embeddings: whether it is made for vectors.
        vision: the file that it needs for images, "" without one.
        pin: `right`, `changed`, or `none` where no digest was noted; `vision_pin` likewise of the
            file for images.
        sha256: the digest that was noted; `vision_sha256` likewise.
        source: where it came from.
        adapters: the LoRA adapters over it.
        adapter_sha256: of the packaged one, as its card tells it.
        card: what is told of how it was made and how good it is; by table and key.
        reads: what of a request it does not read, "" where its template takes all.
        form: of the packaged assistant, whether base and adapter are one file, and if not, why.
    """

    name: str
    path: str
    size_bytes: int
    profile: str = ""
    state: str = ""
    title: str = ""
    architecture: str = ""
    parameters: int = 0
    quantization: str = ""
    licence: str = ""
    context_size: int = 0
    template_family: str = ""
    tools: bool = False
    reasoning: bool = False
    embeddings: bool = False
    vision: str = ""
    vision_pin: Literal["none", "right", "changed"] = "none"
    vision_sha256: str = ""
    pin: Literal["none", "right", "changed"] = "none"
    sha256: str = ""
    source: str = ""
    adapters: tuple[str, ...] = ()
    adapter_sha256: str = ""
    card: dict[str, Any] = {}
    reads: str = ""
    form: str = ""


class ShowModel(Method[ModelDetail], frozen=True, kw_only=True):
    """Say what a model's file tells of it, and whether it is the one that was pinned."""

    name: str


class LoadedModel(msgspec.Struct, frozen=True, kw_only=True):
    """One model in memory, or on its way there.

    Attributes:
        pid: the worker's, 0 without one.
        running: generations that run or wait.
        parallel: sequences that may run at the same time.
        deaths: of its worker, in a row.
        fence: what holds its worker, as `landlock+seccomp`, none or off.
        processor: the processors that llama.cpp's loaded code is for, as `zen4`; "" where it was
            built for one machine.
        prompt_tokens: of all its prompts so far; `cached_tokens` of these were not evaluated.
        completion_tokens: generated so far; `accepted_tokens` of them, of `drafted_tokens`, were
            guessed ahead.
        template_notes: what had to be done otherwise with its chat template, a sentence each.
        warm_tokens: of system prompt and tools, which prompts begin with; 0 where nothing is read
            ahead. `warm_ready` of these are evaluated; `warm_restored` were on disk or in RAM.
    """

    name: str
    path: str
    pid: int
    state: str
    running: int = 0
    context_size: int = 0
    parallel: int = 0
    parameters: int = 0
    size_bytes: int = 0
    load_ms: float = 0.0
    fence: str = ""
    processor: str = ""
    last_used_at: str = ""
    deaths: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    drafted_tokens: int = 0
    accepted_tokens: int = 0
    warm_tokens: int = 0
    warm_ready: int = 0
    warm_restored: int = 0
    template_notes: tuple[str, ...] = ()


class LoadModel(Method[LoadedModel], frozen=True, kw_only=True):
    """Load a model if it is not loaded, and say what it is; `name` as in a config."""

    name: str


class UnloadModel(Method[Done], frozen=True, kw_only=True):
    """Unload a model and forget its failures; what runs on it is cancelled."""

    admin: ClassVar[bool] = True
    name: str


class LoadedModelList(msgspec.Struct, frozen=True, kw_only=True):
    """The models in memory, the one used last first."""

    items: tuple[LoadedModel, ...]


class ListLoadedModels(Method[LoadedModelList], frozen=True, kw_only=True):
    """List the models that are loaded, are being loaded, or whose worker died."""


MERGED_FROM = ("clawd.merge.base_sha256", "clawd.merge.adapter_sha256")
"""The values of a GGUF file that say of which base, and of which adapter over it, it was made."""
MERGED_ASSISTANT = "assistant-merged"
"""Of the packaged assistant the name of that file, beside its base; no model by itself."""
SUFFIX = ".pin"
MAX_BYTES = 65_536


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """How a file looks without being read; a change of content changes at least one of them."""

    inode: int
    size: int
    modified_ns: int
    changed_ns: int


class ModelPin(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The digest of a model's file, in hexadecimal, and where the file came from."""

    sha256: str
    source: str = ""
    seen: Seen | None = None


def pin_of(path: Path) -> Path:
    """Return where the pin of a model's file stands."""
    return path.with_name(path.name + SUFFIX)


def seen(status: os.stat_result) -> Seen:
    """Return how a file looks."""
    return Seen(
        inode=status.st_ino,
        size=status.st_size,
        modified_ns=status.st_mtime_ns,
        changed_ns=status.st_ctime_ns,
    )


def decode_pin(data: bytes) -> ModelPin:
    """Return a pin as it was written.

    Raises:
        ValueError: it is none.
    """
    pin = msgspec.json.decode(data, type=ModelPin)
    if len(pin.sha256) != 64 or set(pin.sha256) - set("0123456789abcdef"):
        raise ValueError(f"{pin.sha256!r} is no SHA-256 in lower-case hexadecimal")
    return pin


def encode_pin(pin: ModelPin) -> bytes:
    """Return a pin as it is written."""
    return msgspec.json.encode(pin) + b"\n"
