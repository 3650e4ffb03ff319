"""Writes small GGUF models with random weights: real enough for llama.cpp, made in seconds."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt

EMBEDDED = Path(__file__).parents[2] / "clawd" / "engine" / "embedded" / "clawd-tiny.gguf"
FIM = {"pre": 1508, "suf": 1509, "mid": 1510, "rep": 1511, "sep": 1512}
_NORMAL_TOKEN = 1
_TOKENIZER_KEYS = ("model", "pre", "tokens", "token_type", "scores", "merges")
_TOKEN_IDS = ("bos", "eos", "eot", "padding")


def write_random_gguf(
    path: Path,
    *,
    tokenizer_from: Path = EMBEDDED,
    n_embd: int = 128,
    n_layer: int = 2,
    n_head: int = 4,
    n_kv_head: int = 2,
    n_ff: int = 256,
    context_length: int = 4096,
    quantization: gguf.GGMLQuantizationType = gguf.GGMLQuantizationType.Q8_0,
    chain: bool = True,
    chain_order: Sequence[int] = (),
    is_printable: bool = False,
    chat_template: str | None = None,
    seed: int = 1,
    tensors_per_file: int = 0,
    vocabulary: int = 0,
    architecture: str = "llama",
    rope_sections: Sequence[int] = (),
) -> Path:
    """Write a model of llama's shape and return its path.

    Args:
        path: where to write it.
        tokenizer_from: a GGUF whose vocabulary and chat template are taken over.
        n_embd: width; with `n_ff` a multiple of 32, as Q8_0 wants.
        n_layer: layers.
        n_head: attention heads.
        n_kv_head: key and value heads.
        n_ff: width of the feed-forward part.
        context_length: what the file says it was trained with.
        quantization: type of the matrices.
        chain: the output head maps every token to one fixed ordinary successor, whatever came
            before it: greedy output is known, never ends, and has no near ties. Otherwise the
            head is random too.
        chain_order: the chain's tokens, each the successor of the one before it and the first
            that of the last; by default all ordinary ones in random order.
        is_printable: keep the chain to tokens of printable ASCII, in random order, so that every
            piece of the answer is whole text; the tokenizer must be a byte-level one.
        chat_template: a Jinja template instead of the other model's.
        seed: of all weights.
        vocabulary: fill the vocabulary up to so many tokens, which no text has.
        tensors_per_file: split the model, `name-00001-of-00003.gguf`; the first is returned.
        architecture: another one with the same tensors.
        rope_sections: of an architecture with M-RoPE.
    """
    reader = gguf.GGUFReader(tokenizer_from)
    writer = gguf.GGUFWriter(path, architecture, split_max_tensors=tensors_per_file)
    if rope_sections:
        writer.add_rope_dimension_sections([*rope_sections])
    kinds = copy_tokenizer(reader, writer, fill_to=vocabulary)
    template = chat_template
    if template is None:
        template = _field(reader, "tokenizer.chat_template")
    writer.add_chat_template(template)
    writer.add_name("random")
    writer.add_context_length(context_length)
    writer.add_embedding_length(n_embd)
    writer.add_block_count(n_layer)
    writer.add_feed_forward_length(n_ff)
    writer.add_head_count(n_head)
    writer.add_head_count_kv(n_kv_head)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(n_embd // n_head)
    writer.add_rope_freq_base(10000.0)
    writer.add_vocab_size(len(kinds))
    writer.add_file_type(7)

    weights = _Weights(writer, quantization, seed)
    embeddings = weights.normal(len(kinds), n_embd)
    weights.add("token_embd.weight", embeddings)
    ordinary = [token for token, kind in enumerate(kinds) if kind == _NORMAL_TOKEN]
    texts = _field(reader, "tokenizer.ggml.tokens")
    chained = [token for token in ordinary if not is_printable or _is_printable(texts[token])]
    order = chain_order or weights.random.permutation(np.array(chained)).tolist()
    head = _head(weights, embeddings, ordinary, order) if chain else None
    weights.add("output.weight", head, embeddings)
    weights.ones("output_norm.weight", n_embd)
    # A chain's layers must not drown the embedding that the head looks at.
    scale = 0.02 if chain else 0.5
    for layer in range(n_layer):
        _add_layer(weights, layer, (n_embd, n_ff, n_embd // n_head * n_kv_head), scale)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return min(path.parent.glob(f"{path.stem}-*")) if tensors_per_file else path


def copy_with(path: Path, numbers: dict[str, int], source: Path = EMBEDDED) -> Path:
    """Copy a llama-architecture model with more numbers in its metadata; return the copy."""
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(path, "llama")
    for field in reader.fields.values():
        if not field.name.startswith("GGUF.") and field.name != gguf.Keys.General.ARCHITECTURE:
            inner = field.types[-1] if field.types[0] is gguf.GGUFValueType.ARRAY else None
            writer.add_key_value(field.name, field.contents(), field.types[0], sub_type=inner)
    for name, number in numbers.items():
        writer.add_key_value(name, number, gguf.GGUFValueType.UINT32)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def write_infilling(path: Path) -> Path:
    """Copy the embedded model and let tokens that it has no use for stand around a gap."""
    return copy_with(
        path, {f"tokenizer.ggml.fim_{mark}_token_id": token for mark, token in FIM.items()}
    )


def write_random_lora(
    path: Path,
    base: Path,
    *,
    rank: int = 4,
    seed: int = 1,
    invocation: Sequence[int] = (),
    **metadata: Any,
) -> Path:
    """Write a LoRA adapter with random weights for every attention matrix of a model.

    Args:
        path: where to write it.
        base: the model; `write_random_gguf` made it.
        rank: of each pair of matrices.
        seed: of all weights.
        invocation: tokens that make it an activated adapter, which counts behind them only.
        metadata: other values for `general_type`, `architecture`, `adapter_type`.
    """
    known = {"general_type": "adapter", "architecture": "llama", "adapter_type": "lora"} | metadata
    writer = gguf.GGUFWriter(path, known["architecture"])
    writer.add_type(known["general_type"])
    writer.add_string("adapter.type", known["adapter_type"])
    writer.add_float32("adapter.lora.alpha", float(rank))
    if invocation:
        kinds = gguf.GGUFValueType
        key = "adapter.alora.invocation_tokens"
        writer.add_key_value(key, list(invocation), kinds.ARRAY, sub_type=kinds.UINT32)
    weights = _Weights(writer, gguf.GGMLQuantizationType.F32, seed)
    for tensor in gguf.GGUFReader(base).tensors:
        if "attn_" in tensor.name and "norm" not in tensor.name:
            columns, rows = map(int, tensor.shape)
            weights.add(f"{tensor.name}.lora_a", weights.normal(rank, columns) * np.float32(0.3))
            weights.add(f"{tensor.name}.lora_b", weights.normal(rows, rank) * np.float32(0.3))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def write_vision_part(path: Path) -> Path:
    """Write a file that begins as the vision part of a model (mmproj) does; return its path."""
    writer = gguf.GGUFWriter(path, "clip")
    writer.add_type("mmproj")
    writer.add_tensor("v.patch_embd.weight", np.ones((32, 32), dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


class _Weights:
    """Random tensors of one file."""

    def __init__(
        self, writer: gguf.GGUFWriter, quantization: gguf.GGMLQuantizationType, seed: int
    ) -> None:
        self._writer = writer
        self._quantization = quantization
        self.random = np.random.default_rng(seed)

    def normal(self, rows: int, columns: int) -> npt.NDArray[np.float32]:
        return self.random.standard_normal((rows, columns), dtype=np.float32)

    def add(
        self,
        name: str,
        values: npt.NDArray[np.float32] | None,
        like: npt.NDArray[np.float32] | None = None,
    ) -> None:
        """Add a matrix; random values of another's shape when it is None."""
        if values is None:
            assert like is not None
            values = self.normal(*like.shape) / np.float32(np.sqrt(like.shape[1]))
        data = gguf.quants.quantize(values, self._quantization)
        self._writer.add_tensor(name, data, raw_dtype=self._quantization)

    def ones(self, name: str, size: int) -> None:
        self._writer.add_tensor(name, np.ones(size, dtype=np.float32))


def _head(
    weights: _Weights,
    embeddings: npt.NDArray[np.float32],
    ordinary: list[int],
    chain_order: Sequence[int],
) -> npt.NDArray[np.float32]:
    """Return an output matrix that answers each ordinary token with one of the chained ones."""
    order = np.array(chain_order)
    strength = np.float32(20.0 / embeddings.shape[1])
    head = weights.normal(*embeddings.shape) * np.float32(0.0005)
    head[np.roll(order, -1)] += embeddings[order] * strength
    leading_in = np.setdiff1d(np.array(ordinary), order)
    if leading_in.size:
        successors = weights.random.choice(order, leading_in.size)
        np.add.at(head, successors, embeddings[leading_in] * strength)
    return head


def _is_printable(token: str) -> bool:
    """Return whether a byte-level token, which writes a space as Ġ, is printable ASCII."""
    plain = token.replace("\u0120", " ")
    return plain.isascii() and plain.isprintable()


def _add_layer(weights: _Weights, layer: int, sizes: tuple[int, int, int], scale: float) -> None:
    n_embd, n_ff, n_kv = sizes
    root = 1 / np.sqrt(n_embd)
    prefix = f"blk.{layer}."
    weights.ones(f"{prefix}attn_norm.weight", n_embd)
    weights.ones(f"{prefix}ffn_norm.weight", n_embd)
    for name, rows, columns, deviation in (
        ("attn_q", n_embd, n_embd, root * 2),
        ("attn_k", n_kv, n_embd, root * 2),
        ("attn_v", n_kv, n_embd, root),
        ("attn_output", n_embd, n_embd, root * scale * 4),
        ("ffn_gate", n_ff, n_embd, root),
        ("ffn_up", n_ff, n_embd, root),
        ("ffn_down", n_embd, n_ff, scale * 4 / np.sqrt(n_ff)),
    ):
        values = weights.normal(rows, columns) * np.float32(deviation)
        weights.add(f"{prefix}{name}.weight", values)


def copy_tokenizer(reader: gguf.GGUFReader, writer: gguf.GGUFWriter, fill_to: int = 0) -> list[int]:
    """Copy the vocabulary, filled up to a number, and return the kinds of its tokens."""
    values: dict[str, Any] = {
        key: _field(reader, f"tokenizer.ggml.{key}") for key in _TOKENIZER_KEYS
    }
    more = range(max(fill_to - len(values["tokens"]), 0))
    fillers: dict[str, list[Any]] = {
        "tokens": [f"filler{n}" for n in more],
        "token_type": [_NORMAL_TOKEN] * len(more),
        "scores": [0.0] * len(more),
    }
    for key, filler in fillers.items():
        if values[key] is not None:
            values[key] = [*values[key], *filler]
    writer.add_tokenizer_model(values["model"])
    if values["pre"] is not None:
        writer.add_tokenizer_pre(values["pre"])
    writer.add_token_list(values["tokens"])
    writer.add_token_types(values["token_type"])
    if values["scores"] is not None:
        writer.add_token_scores(values["scores"])
    if values["merges"] is not None:
        writer.add_token_merges(values["merges"])
    for name in _TOKEN_IDS:
        token = _field(reader, f"tokenizer.ggml.{name}_token_id")
        if token is not None:
            writer.add_uint32(f"tokenizer.ggml.{name}_token_id", token)
    for name in ("add_bos_token", "add_space_prefix"):
        flag = _field(reader, f"tokenizer.ggml.{name}")
        if flag is not None:
            writer.add_bool(f"tokenizer.ggml.{name}", flag)
    return list(values["token_type"])


def _field(reader: gguf.GGUFReader, key: str) -> Any:
    field = reader.fields.get(key)
    return field.contents() if field is not None else None
