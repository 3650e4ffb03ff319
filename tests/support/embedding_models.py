"""Small models that make embeddings: the embedded one with a pooling type, and a random BERT."""

from pathlib import Path
from typing import Any

import gguf
import numpy as np

from tests.support.gguf_models import EMBEDDED, copy_tokenizer, copy_with

MEAN = gguf.PoolingType.MEAN
_POOLING_KEY = "llama.pooling_type"
_SEPARATOR = 5


def write_pooled(path: Path, pooling: gguf.PoolingType = MEAN, source: Path = EMBEDDED) -> Path:
    """Copy a llama-architecture model and say in the copy how its outputs become one vector."""
    return copy_with(path, {_POOLING_KEY: int(pooling)}, source)


def write_random_bert(
    path: Path,
    *,
    n_embd: int = 64,
    n_layer: int = 2,
    n_ctx: int = 128,
    ranks: bool = False,
    rank_template: str = "",
) -> Path:
    """Write a BERT with random weights: a model that makes embeddings and nothing else.

    One that `ranks` has a head that makes one number of a query and a document instead, and may
    have a template of its own for the two.
    """
    writer = gguf.GGUFWriter(path, "bert")
    kinds = copy_tokenizer(gguf.GGUFReader(EMBEDDED), writer)
    n_ff = n_embd * 2
    writer.add_name("random bert")
    writer.add_context_length(n_ctx)
    writer.add_embedding_length(n_embd)
    writer.add_block_count(n_layer)
    writer.add_feed_forward_length(n_ff)
    writer.add_head_count(4)
    writer.add_layer_norm_eps(1e-5)
    writer.add_causal_attention(False)
    writer.add_pooling_type(gguf.PoolingType.RANK if ranks else MEAN)
    if ranks:
        writer.add_sep_token_id(_SEPARATOR)
        writer.add_add_sep_token(True)
        writer.add_add_eos_token(True)
    if rank_template:
        writer.add_string("tokenizer.chat_template.rerank", rank_template)
    writer.add_vocab_size(len(kinds))
    writer.add_token_type_count(1)
    random = np.random.default_rng(1)

    def add(name: str, *shape: int) -> None:
        values: Any = random.standard_normal(shape, dtype=np.float32)
        writer.add_tensor(name, values / np.float32(np.sqrt(shape[-1])))

    add("token_embd.weight", len(kinds), n_embd)
    add("position_embd.weight", n_ctx, n_embd)
    add("token_types.weight", 1, n_embd)
    if ranks:
        add("cls.weight", n_embd, n_embd)
        add("cls.output.weight", 1, n_embd)
    norms = ["token_embd_norm"]
    for layer in range(n_layer):
        block = f"blk.{layer}."
        for name, rows, columns in (
            ("attn_q", n_embd, n_embd),
            ("attn_k", n_embd, n_embd),
            ("attn_v", n_embd, n_embd),
            ("attn_output", n_embd, n_embd),
            ("ffn_up", n_ff, n_embd),
            ("ffn_down", n_embd, n_ff),
        ):
            add(f"{block}{name}.weight", rows, columns)
            writer.add_tensor(f"{block}{name}.bias", np.zeros(rows, dtype=np.float32))
        norms += [f"{block}attn_output_norm", f"{block}layer_output_norm"]
    for name in norms:
        writer.add_tensor(f"{name}.weight", np.ones(n_embd, dtype=np.float32))
        writer.add_tensor(f"{name}.bias", np.zeros(n_embd, dtype=np.float32))
    return _written(writer, path)


def _written(writer: gguf.GGUFWriter, path: Path) -> Path:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
