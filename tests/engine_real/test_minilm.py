"""The embedding model that tests use: converted right, by a second reading of the same file."""

from collections.abc import Sequence
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt
import pytest

from clawd.engine.protocol import Embed, ModelConfig, Tokenize
from clawd.engine.supervisor import Engine
from tests.support.minilm import MINILM, SIZE

pytestmark = [pytest.mark.real_model, pytest.mark.minilm]

TEXTS = (
    "My car broke down on the motorway.",
    "The vehicle needs new brakes.",
    "Simmer the onions in butter.",
    "How do I make a good soup?",
)
Numbers = npt.NDArray[np.float32]


async def test_sentences_of_one_subject_are_nearer_than_others_and_as_numpy_computes_them() -> None:
    engine = Engine()
    config = ModelConfig(path=str(MINILM), alias="minilm", n_threads=1)
    try:
        made = await engine.embed(config, Embed(id=0, inputs=TEXTS, first=1))
        question = Tokenize(id=0, text="Unaffable déjà!", add_special=True, parse_special=False)
        pieces = (await engine.tokenize(config, question)).pieces
        tokens = [
            (await engine.tokenize(config, Tokenize(id=0, text=text, add_special=True,
                                                    parse_special=False))).tokens
            for text in TEXTS
        ]  # fmt: skip
    finally:
        await engine.close()
    assert pieces == (b"[CLS]", b" una", b"ffa", b"ble", b" de", b"ja", b" !", b"[SEP]")
    ours = np.array([np.frombuffer(vector, "<f4") for vector in made.vectors])
    assert ours.shape == (len(TEXTS), SIZE)
    likeness = ours @ ours.T
    assert min(likeness[0, 1], likeness[2, 3]) > 2 * likeness[:2, 2:].max()
    model = _tensors()
    for vector, each in zip(ours, tokens, strict=True):
        assert float(vector @ _forward(model, each)) > 0.9999


def _tensors() -> dict[str, Numbers]:
    return {each.name: each.data.astype(np.float32) for each in gguf.GGUFReader(MINILM).tensors}


def _forward(model: dict[str, Numbers], tokens: Sequence[int], heads: int = 12) -> Numbers:
    """Return the vector of tokens: BERT (Devlin et al. 2018), the mean over all, of length 1."""
    x = model["token_embd.weight"][list(tokens)] + model["position_embd.weight"][: len(tokens)]
    x = _normed(model, "token_embd_norm", x + model["token_types.weight"][0])
    layer = 0
    while f"blk.{layer}.attn_q.weight" in model:
        block = f"blk.{layer}."
        q, k, v = (
            _linear(model, f"{block}attn_{name}", x).reshape(len(tokens), heads, -1).swapaxes(0, 1)
            for name in "qkv"
        )
        weights = q @ k.swapaxes(1, 2) / np.sqrt(q.shape[-1])
        weights = np.exp(weights - weights.max(axis=-1, keepdims=True))
        mixed = (weights / weights.sum(axis=-1, keepdims=True)) @ v
        mixed = mixed.swapaxes(0, 1).reshape(len(tokens), -1)
        x = _normed(
            model, f"{block}attn_output_norm", x + _linear(model, f"{block}attn_output", mixed)
        )
        wide = _linear(model, f"{block}ffn_up", x)
        wide = 0.5 * wide * (1 + np.tanh(np.sqrt(2 / np.pi) * (wide + 0.044715 * wide**3)))
        x = _normed(
            model, f"{block}layer_output_norm", x + _linear(model, f"{block}ffn_down", wide)
        )
        layer += 1
    mean: Any = x.mean(axis=0)
    return np.asarray(mean / np.linalg.norm(mean), np.float32)


def _linear(model: dict[str, Numbers], name: str, x: Numbers) -> Numbers:
    return np.asarray(x @ model[f"{name}.weight"].T + model[f"{name}.bias"], np.float32)


def _normed(model: dict[str, Numbers], name: str, x: Numbers) -> Numbers:
    middle, spread = x.mean(axis=-1, keepdims=True), x.var(axis=-1, keepdims=True)
    scaled: Any = (x - middle) / np.sqrt(spread + 1e-12)
    return np.asarray(scaled * model[f"{name}.weight"] + model[f"{name}.bias"], np.float32)
