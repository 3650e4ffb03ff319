"""Writes a BERT of sentence-transformers as a GGUF that llama.cpp makes embeddings with.

    python -m tests.support.bert_gguf FOLDER FILE

The folder holds `config.json`, `vocab.txt` and `model.safetensors` (float32). Matrices become
float16, vectors stay as they are. llama.cpp's word pieces are written the other way round from
BERT's: what begins a word is marked by "▁", what goes on in one by nothing.
"""

import json
import sys
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt

_CONTINUES = "##"
_BEGINS = "▁"
_NORMAL, _UNKNOWN, _CONTROL, _UNUSED = 1, 2, 3, 5
_IDS = gguf.Keys.Tokenizer
_SPECIAL = {
    "[PAD]": _IDS.PAD_ID,
    "[UNK]": _IDS.UNK_ID,
    "[CLS]": _IDS.BOS_ID,
    "[SEP]": _IDS.SEP_ID,
}
_NAMES = {
    "embeddings.word_embeddings.weight": "token_embd.weight",
    "embeddings.position_embeddings.weight": "position_embd.weight",
    "embeddings.token_type_embeddings.weight": "token_types.weight",
    "embeddings.LayerNorm": "token_embd_norm",
}
_OF_LAYER = {
    "attention.self.query": "attn_q",
    "attention.self.key": "attn_k",
    "attention.self.value": "attn_v",
    "attention.output.dense": "attn_output",
    "attention.output.LayerNorm": "attn_output_norm",
    "intermediate.dense": "ffn_up",
    "output.dense": "ffn_down",
    "output.LayerNorm": "layer_output_norm",
}
# llama.cpp adds these two in float32.
_WHOLE = frozenset({"position_embd.weight", "token_types.weight"})


def write_bert_gguf(folder: Path, target: Path, name: str) -> Path:
    """Convert the model in a folder; vectors are the mean over all tokens."""
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    writer = gguf.GGUFWriter(target, "bert")
    writer.add_name(name)
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_layer_norm_eps(config["layer_norm_eps"])
    writer.add_causal_attention(False)
    writer.add_pooling_type(gguf.PoolingType.MEAN)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
    words = (folder / "vocab.txt").read_text(encoding="utf-8").splitlines()
    _add_vocabulary(writer, words, config["type_vocab_size"])
    for key, values in read_safetensors(folder / "model.safetensors").items():
        own = own_name(key)
        if own:
            is_matrix = values.ndim > 1 and own not in _WHOLE
            writer.add_tensor(own, values.astype(np.float16 if is_matrix else np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return target


def read_safetensors(path: Path) -> dict[str, npt.NDArray[Any]]:
    """Return the float32 tensors of a file: a length, a JSON header, then the numbers."""
    data = np.memmap(path, dtype=np.uint8, mode="r")
    length = int.from_bytes(data[:8].tobytes(), "little")
    header = json.loads(data[8 : 8 + length].tobytes())
    found = {}
    for name, about in header.items():
        if about.get("dtype") == "F32":
            start, end = (8 + length + offset for offset in about["data_offsets"])
            found[name] = data[start:end].view("<f4").reshape(about["shape"])
    return found


def own_name(key: str) -> str:
    """Return llama.cpp's name of a tensor; empty for one that it has no use for."""
    if key in _NAMES:
        return _NAMES[key]
    stem, _, kind = key.rpartition(".")
    if stem in _NAMES:
        return f"{_NAMES[stem]}.{kind}"
    if not stem.startswith("encoder.layer."):
        return ""
    number, _, part = stem.removeprefix("encoder.layer.").partition(".")
    return f"blk.{number}.{_OF_LAYER[part]}.{kind}"


def piece(word: str) -> tuple[str, int]:
    """Return a word of BERT's vocabulary as llama.cpp wants it, and its kind."""
    if word == "[UNK]":
        return word, _UNKNOWN
    if word.startswith("[unused"):
        return word, _UNUSED
    if word in _SPECIAL or word == "[MASK]":
        return word, _CONTROL
    if word.startswith(_CONTINUES) and len(word) > len(_CONTINUES):
        return word.removeprefix(_CONTINUES), _NORMAL
    return _BEGINS + word, _NORMAL


def _add_vocabulary(writer: gguf.GGUFWriter, words: list[str], kinds_of_text: int) -> None:
    pieces = [piece(word) for word in words]
    writer.add_tokenizer_model("bert")
    writer.add_tokenizer_pre("bert-bge")
    writer.add_vocab_size(len(pieces))
    writer.add_token_type_count(kinds_of_text)
    writer.add_token_list([text for text, _ in pieces])
    writer.add_token_types([kind for _, kind in pieces])
    for word, key in _SPECIAL.items():
        writer.add_uint32(key, words.index(word))


if __name__ == "__main__":
    write_bert_gguf(Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[2]).stem)
