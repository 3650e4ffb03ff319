"""The GGUF side of the embedded model: writes weights with all metadata, and reads them back.

Weights travel as a dict of float32 arrays under the names of `training.model` (`emb.weight`,
`blocks.0.qkv.weight`, and so on). GGUF keeps q, k and v apart, gate apart from up, and q and k in
the row order of llama.cpp's rotary embedding; the conversion both ways is here and nowhere else.

    python -m training.gguf_file IN.gguf OUT.gguf     the current chat template, the same tensors
"""

import sys
from dataclasses import dataclass
from pathlib import Path

import gguf
import numpy as np

from training.tokens import SPECIAL_TOKENS, TOOL_CALL_TOKENS, merges, vocabulary

TEMPLATE = Path(__file__).parent / "template.jinja"
NORM_EPSILON = 1e-5
END_OF_TEXT_ID, END_OF_MESSAGE_ID, PAD_ID = 0, 2, 5
Q8_0 = gguf.GGMLQuantizationType.Q8_0
F32 = gguf.GGMLQuantizationType.F32


@dataclass(frozen=True)
class Shape:
    """The sizes of the network. The defaults are those of the shipped model: 3.8 M parameters."""

    vocab: int = 1536
    width: int = 256
    layers: int = 4
    heads: int = 8
    ffn: int = 768
    context: int = 1024
    rope_base: float = 100_000.0

    @property
    def head_width(self) -> int:
        return self.width // self.heads


def write_weights(path: Path, weights: dict[str, np.ndarray], shape: Shape) -> None:
    """Writes the model as Q8_0: matrices quantised, norms in float32, output tied."""
    tensors = {
        name: (value.astype(np.float32), F32)
        if value.ndim == 1
        else (gguf.quantize(np.ascontiguousarray(value, dtype=np.float32), Q8_0), Q8_0)
        for name, value in _to_gguf_names(weights, shape).items()
    }
    _write(path, tensors, shape)


def read_weights(path: Path, shape: Shape) -> dict[str, np.ndarray]:
    """Returns the weights of a GGUF file dequantised, under the names of `training.model`."""
    held = {
        tensor.name: gguf.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        for tensor in gguf.GGUFReader(path).tensors
    }
    weights = {"emb.weight": held["token_embd.weight"], "norm": held["output_norm.weight"]}
    for layer in range(shape.layers):
        ours, theirs = f"blocks.{layer}.", f"blk.{layer}."
        weights[ours + "norm1"] = held[theirs + "attn_norm.weight"]
        weights[ours + "norm2"] = held[theirs + "ffn_norm.weight"]
        weights[ours + "qkv.weight"] = np.concatenate(
            [
                _from_llama_rows(held[theirs + "attn_q.weight"], shape.heads),
                _from_llama_rows(held[theirs + "attn_k.weight"], shape.heads),
                held[theirs + "attn_v.weight"],
            ]
        )
        weights[ours + "out.weight"] = held[theirs + "attn_output.weight"]
        weights[ours + "gate_up.weight"] = np.concatenate(
            [
                held[theirs + "ffn_gate.weight"],
                held[theirs + "ffn_up.weight"],
            ]
        )
        weights[ours + "down.weight"] = held[theirs + "ffn_down.weight"]
    return weights


def rewrite_metadata(source: Path, target: Path, shape: Shape) -> None:
    """Copies the tensors of `source` bit for bit under freshly written metadata and template."""
    tensors = {
        tensor.name: (np.array(tensor.data), tensor.tensor_type)
        for tensor in gguf.GGUFReader(source).tensors
    }
    _write(target, tensors, shape)


def _to_gguf_names(weights: dict[str, np.ndarray], shape: Shape) -> dict[str, np.ndarray]:
    named = {"token_embd.weight": weights["emb.weight"], "output_norm.weight": weights["norm"]}
    for layer in range(shape.layers):
        ours, theirs = f"blocks.{layer}.", f"blk.{layer}."
        q, k, v = np.split(weights[ours + "qkv.weight"], 3)
        gate, up = np.split(weights[ours + "gate_up.weight"], 2)
        named |= {
            theirs + "attn_norm.weight": weights[ours + "norm1"],
            theirs + "ffn_norm.weight": weights[ours + "norm2"],
            theirs + "attn_q.weight": _to_llama_rows(q, shape.heads),
            theirs + "attn_k.weight": _to_llama_rows(k, shape.heads),
            theirs + "attn_v.weight": v,
            theirs + "attn_output.weight": weights[ours + "out.weight"],
            theirs + "ffn_gate.weight": gate,
            theirs + "ffn_up.weight": up,
            theirs + "ffn_down.weight": weights[ours + "down.weight"],
        }
    return named


def _to_llama_rows(matrix: np.ndarray, heads: int) -> np.ndarray:
    """Half-split rotary rows to llama.cpp's interleaved ones, head by head."""
    rows, columns = matrix.shape
    return (
        matrix.reshape(heads, 2, rows // heads // 2, columns).swapaxes(1, 2).reshape(rows, columns)
    )


def _from_llama_rows(matrix: np.ndarray, heads: int) -> np.ndarray:
    """The inverse of `_to_llama_rows`."""
    rows, columns = matrix.shape
    return (
        matrix.reshape(heads, rows // heads // 2, 2, columns).swapaxes(1, 2).reshape(rows, columns)
    )


def _write(path: Path, tensors: dict[str, tuple], shape: Shape) -> None:
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("clawd-tiny")
    writer.add_context_length(shape.context)
    writer.add_embedding_length(shape.width)
    writer.add_block_count(shape.layers)
    writer.add_feed_forward_length(shape.ffn)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.heads)
    writer.add_layer_norm_rms_eps(NORM_EPSILON)
    writer.add_rope_freq_base(shape.rope_base)
    writer.add_rope_dimension_count(shape.head_width)
    writer.add_vocab_size(shape.vocab)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q8_0)
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    _add_tokenizer(writer)
    writer.add_chat_template(TEMPLATE.read_text("utf-8").rstrip("\n"))
    for name, (data, kind) in tensors.items():
        writer.add_tensor(name, data, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _add_tokenizer(writer: gguf.GGUFWriter) -> None:
    writer.add_tokenizer_model("gpt2")
    # deepseek-coder has no contraction rule (others split "'src'" after "'s") and single digits
    writer.add_tokenizer_pre("deepseek-coder")
    writer.add_token_list(vocabulary())
    writer.add_token_types([_token_type(token) for token in vocabulary()])
    writer.add_token_merges(merges())
    writer.add_bos_token_id(END_OF_TEXT_ID)
    writer.add_eos_token_id(END_OF_MESSAGE_ID)
    writer.add_eot_token_id(END_OF_MESSAGE_ID)
    writer.add_pad_token_id(PAD_ID)
    writer.add_add_bos_token(False)
    writer.add_add_space_prefix(False)


def _token_type(token: str) -> gguf.TokenType:
    if token in TOOL_CALL_TOKENS:
        return gguf.TokenType.USER_DEFINED  # llama.cpp leaves CONTROL tokens out of the text
    if token in SPECIAL_TOKENS:
        return gguf.TokenType.CONTROL
    return gguf.TokenType.UNUSED if token.startswith("<|unused") else gguf.TokenType.NORMAL


if __name__ == "__main__":
    rewrite_metadata(Path(sys.argv[1]), Path(sys.argv[2]), Shape())
