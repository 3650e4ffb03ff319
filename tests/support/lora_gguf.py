"""A model of a few small matrices, and a LoRA adapter over it: what is merged, not what answers."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np

Kind = gguf.GGMLQuantizationType
RANK, ALPHA = 4, 8.0
TOUCHED, WIDE, NARROW = "blk.0.attn_q.weight", "blk.0.ffn_up.weight", "blk.0.odd.weight"


def numbers(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype("float32")


def tensors() -> dict[str, tuple[Any, Kind]]:
    """Return those of a base: matrices of several types, one that Q8_0 cannot hold, a vector."""
    return {
        "token_embd.weight": (numbers(8, 64, seed=1), Kind.Q8_0),
        TOUCHED: (numbers(96, 64, seed=2), Kind.Q4_1),
        WIDE: (numbers(64, 96, seed=3), Kind.F16),
        "blk.0.ffn_gate_exps.weight": (numbers(2, 32, 64, seed=4), Kind.F16),
        NARROW: (numbers(4, 20, seed=5), Kind.F16),
        "blk.0.attn_norm.weight": (numbers(64, seed=6), Kind.F32),
    }


def write_base(path: Path, **values: str) -> Path:
    writer = gguf.GGUFWriter(path, values.pop("architecture", "llama"))
    writer.add_name("Tiny")
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q4_1)
    writer.add_context_length(512)
    writer.add_token_list(["a", "b", "é"])
    writer.add_array("tokenizer.ggml.scores", [0.5, 1.5, 2.5])
    for key, value in values.items():
        writer.add_string(key.replace("_", "."), value)
    for name, (data, kind) in tensors().items():
        writer.add_tensor(name, gguf.quants.quantize(data, kind), raw_dtype=kind)
    finish(writer)
    return path


def write_adapter(
    path: Path,
    pairs: Mapping[str, Any] | None = None,
    *,
    architecture: str = "llama",
    kind: str = "lora",
    alpha: float = ALPHA,
) -> Path:
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_string("general.type", "adapter")
    writer.add_string("adapter.type", kind)
    writer.add_float32("adapter.lora.alpha", alpha)
    for name, data in (pair(TOUCHED, 64, 96) if pairs is None else pairs).items():
        writer.add_tensor(name, data)
    finish(writer)
    return path


def pair(name: str, columns: int, rows: int) -> dict[str, Any]:
    return {
        f"{name}.lora_a": numbers(RANK, columns, seed=11),
        f"{name}.lora_b": numbers(rows, RANK, seed=12),
    }


def finish(writer: Any) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
