"""Writes a small recurrent model: a Mamba with random weights, whose memory cannot be cut."""

from pathlib import Path

import gguf
import numpy as np

from tests.support.gguf_models import EMBEDDED, copy_tokenizer

_STATE, _CONV = 16, 4


def write_random_mamba(
    path: Path, *, chat_template: str, n_embd: int = 64, n_layer: int = 2
) -> Path:
    """Write a Mamba (version 1) of F32 weights with the embedded model's vocabulary."""
    inner, rank = 2 * n_embd, max(1, n_embd // 16)
    writer = gguf.GGUFWriter(path, "mamba")
    kinds = copy_tokenizer(gguf.GGUFReader(EMBEDDED), writer)
    writer.add_chat_template(chat_template)
    writer.add_context_length(4096)
    writer.add_embedding_length(n_embd)
    writer.add_block_count(n_layer)
    writer.add_feed_forward_length(0)
    writer.add_head_count(0)
    writer.add_ssm_conv_kernel(_CONV)
    writer.add_ssm_inner_size(inner)
    writer.add_ssm_state_size(_STATE)
    writer.add_ssm_time_step_rank(rank)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(len(kinds))
    writer.add_file_type(0)
    random = np.random.default_rng(1)

    def matrix(name: str, rows: int, columns: int) -> None:
        values = random.standard_normal((rows, columns), dtype=np.float32)
        writer.add_tensor(name, values / np.float32(np.sqrt(columns)))

    def filled(name: str, size: int, value: float) -> None:
        writer.add_tensor(name, np.full(size, value, np.float32))

    matrix("token_embd.weight", len(kinds), n_embd)
    matrix("output.weight", len(kinds), n_embd)
    filled("output_norm.weight", n_embd, 1.0)
    for layer in range(n_layer):
        prefix = f"blk.{layer}."
        filled(f"{prefix}attn_norm.weight", n_embd, 1.0)
        matrix(f"{prefix}ssm_in.weight", 2 * inner, n_embd)
        matrix(f"{prefix}ssm_conv1d.weight", inner, _CONV)
        filled(f"{prefix}ssm_conv1d.bias", inner, 0.0)
        matrix(f"{prefix}ssm_x.weight", rank + 2 * _STATE, inner)
        matrix(f"{prefix}ssm_dt.weight", inner, rank)
        filled(f"{prefix}ssm_dt.bias", inner, -2.0)
        decay = -np.arange(1, _STATE + 1, dtype=np.float32)
        writer.add_tensor(f"{prefix}ssm_a", np.tile(decay, (inner, 1)))
        filled(f"{prefix}ssm_d", inner, 1.0)
        matrix(f"{prefix}ssm_out.weight", n_embd, inner)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
