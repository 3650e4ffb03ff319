"""The files of a model, looked at before llama.cpp opens them, and why one cannot be loaded."""

import hashlib
from pathlib import Path

import msgspec

from clawd.engine.protocol import ModelConfig

_MAGIC = b"GGUF"
MAX_TEXT_BYTES = 1 << 20


class LoadError(Exception):
    """The model cannot be loaded; `code` is model_not_found, out_of_memory or model_load."""

    def __init__(self, message: str, *, code: str = "model_load") -> None:
        super().__init__(message)
        self.code = code
        self.message = message


def check_file(name: str, path: Path, *, missing_code: str = "model_load") -> None:
    """Make sure that a file is there, can be read and is GGUF; `name` is what to call it.

    Raises:
        LoadError: it is not; `missing_code` is its code where there is no file.
    """
    try:
        with path.open("rb") as file:
            magic = file.read(len(_MAGIC))
    except FileNotFoundError:
        raise LoadError(f"{name} does not exist", code=missing_code) from None
    except OSError as error:
        raise LoadError(f"{name} cannot be read: {error.strerror}") from None
    if magic != _MAGIC:
        raise LoadError(f"{name} is no GGUF file: it begins with {magic!r}")


def read_text(name: str) -> str:
    """Return a text that belongs to a model, as its chat template.

    Raises:
        LoadError: it is not there, cannot be read, is empty or too long.
    """
    try:
        with Path(name).open("rb") as file:
            data = file.read(MAX_TEXT_BYTES + 1)
        text = data.decode("utf-8")
    except OSError as error:
        raise LoadError(f"the chat template {name} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise LoadError(f"the chat template {name} is no text in UTF-8") from None
    if not text.strip() or len(data) > MAX_TEXT_BYTES:
        told = f"has {len(data)} bytes" if text.strip() else "is empty"
        raise LoadError(f"the chat template {name} {told}; expected 1 to {MAX_TEXT_BYTES}")
    return text


_SAMPLE_BYTES = 1024 * 1024
# What changes speed, place or policy, but not what a token's keys and values are.
_IRRELEVANT = frozenset({
    "path", "alias", "template_file", "mmproj", "n_ctx", "n_batch", "n_ubatch", "n_threads",
    "n_parallel", "mlock", "mmap", "max_queue", "prefill_chunk", "speculation", "seed",
    "prefix_cache_ram_mb", "prefix_cache_disk_mb", "prefix_cache_folder",
    "prefix_cache_conversations", "fence", "kv_unified",
})  # fmt: skip


def fingerprint(
    config: ModelConfig, *, library: str, architecture: str, n_ctx: int, streams: int = 1
) -> str:
    """Return the fingerprint of a model that is loaded.

    The file counts by its size, its time of change and a hash of its first and last megabyte:
    hashing all of a large one would take longer than what the cache saves. So does each LoRA
    adapter's, with its scale. Options that are not known to be harmless count too, those added
    later included. Of `streams`, sequences with cells of their own, a state says the number.

    Raises:
        OSError: the model file, or an adapter's, cannot be read.
    """
    options = {
        name: value
        for name, value in msgspec.to_builtins(config).items()
        if name not in _IRRELEVANT and name != "lora"
    }
    adapters = [(_file_facts(adapter.path), adapter.scale) for adapter in config.lora]
    described = (
        library,
        architecture,
        n_ctx,
        streams,
        sorted(options.items()),
        _file_facts(config.path),
        adapters,
    )
    return hashlib.sha256(msgspec.json.encode(described)).hexdigest()


def _file_facts(name: str) -> tuple[int, int, str]:
    path = Path(name)
    digest = hashlib.sha256()
    with path.open("rb") as file:
        digest.update(file.read(_SAMPLE_BYTES))
        size = file.seek(0, 2)
        file.seek(max(size - _SAMPLE_BYTES, 0))
        digest.update(file.read(_SAMPLE_BYTES))
    return size, path.stat().st_mtime_ns, digest.hexdigest()
