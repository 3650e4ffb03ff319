"""Tiny projectors with random weights, and a model that each of them belongs to."""

import hashlib
import struct
import zlib
from pathlib import Path
from typing import Any, Literal

import gguf
import numpy as np
import numpy.typing as npt

from clawd.wire.pictures import Picture
from tests.support.gguf_models import write_random_gguf
from tests.support.pictures import chunk

Kind = Literal["mlp", "gemma3", "qwen2vl_merger"]
WIDTH = 128
_EYE, _INNER, _LAYERS, _HEADS, _PATCH = 32, 64, 2, 2, 8
_MERGED = 2


def write_pair(folder: Path, kind: Kind, *, template: str, side: int = 32) -> tuple[Path, Path]:
    """Write a model and its projector; return both paths.

    Args:
        folder: where to write them.
        kind: `mlp` is LLaVA's, which lets each cell see the ones before it; with `gemma3` the
            cells of a picture see each other; `qwen2vl_merger` goes with M-RoPE.
        template: the model's chat template.
        side: of the square that a picture is scaled to, in pixels; of `qwen2vl_merger` the largest.
    """
    uses_mrope = kind == "qwen2vl_merger"
    model = write_random_gguf(
        folder / f"{kind}.gguf",
        chat_template=template,
        n_embd=WIDTH,
        n_layer=3,
        context_length=4096,
        chain=False,
        quantization=gguf.GGMLQuantizationType.F16,
        architecture="qwen2vl" if uses_mrope else "llama",
        rope_sections=(4, 6, 6, 0) if uses_mrope else (),
    )
    return model, write_projector(folder / f"mmproj-{kind}.gguf", kind, side=side)


def write_projector(
    path: Path, kind: Kind, *, side: int = 32, width: int = WIDTH, merged: int = _MERGED
) -> Path:
    """Write a projector for a model of this width; `merged` squared patches become one cell."""
    writer = gguf.GGUFWriter(path, "clip")
    writer.add_type("mmproj")
    writer.add_bool("clip.has_vision_encoder", True)
    writer.add_string("clip.projector_type", kind)
    writer.add_bool("clip.use_gelu", True)
    numbers = {
        "embedding_length": _EYE,
        "feed_forward_length": _INNER,
        "block_count": _LAYERS,
        "attention.head_count": _HEADS,
        "projection_dim": width,
        "image_size": side,
        "patch_size": _PATCH,
        "projector.scale_factor": merged,
    }
    for name, number in numbers.items():
        writer.add_uint32(f"clip.vision.{name}", number)
    writer.add_float32("clip.vision.attention.layer_norm_epsilon", 1e-5)
    for name in ("image_mean", "image_std"):
        writer.add_array(f"clip.vision.{name}", [0.5, 0.5, 0.5])
    for name, values in _tensors(kind, side, width).items():
        writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _tensors(kind: Kind, side: int, width: int) -> dict[str, npt.NDArray[np.float32]]:
    random = np.random.default_rng(5)

    def normal(*shape: int) -> npt.NDArray[np.float32]:
        size = np.prod(shape[1:]) if len(shape) > 1 else 100
        return random.standard_normal(shape, np.float32) / np.float32(np.sqrt(size))

    found = {"v.patch_embd.weight": normal(_EYE, 3, _PATCH, _PATCH)}
    if kind == "qwen2vl_merger":
        found["v.patch_embd.weight.1"] = normal(_EYE, 3, _PATCH, _PATCH)
    else:
        found["v.position_embd.weight"] = normal((side // _PATCH) ** 2, _EYE)
    for layer in range(_LAYERS):
        begin = f"v.blk.{layer}."
        shapes = dict.fromkeys(("attn_q", "attn_k", "attn_v", "attn_out"), (_EYE, _EYE))
        # An eye of the first kind names the two the other way round.
        shapes |= {"ffn_up": (_INNER, _EYE), "ffn_down": (_EYE, _INNER)}
        for name, shape in shapes.items():
            found[f"{begin}{name}.weight"] = normal(*shape)
            found[f"{begin}{name}.bias"] = normal(shape[0])
        for name in ("ln1", "ln2"):
            found[f"{begin}{name}.weight"] = np.ones(_EYE, np.float32)
            found[f"{begin}{name}.bias"] = np.zeros(_EYE, np.float32)
    found |= {"v.post_ln.weight": np.ones(_EYE, np.float32), "v.post_ln.bias": normal(_EYE)}
    if kind == "gemma3":
        found["mm.soft_emb_norm.weight"] = np.ones(_EYE, np.float32)
        return found | {"mm.input_projection.weight": normal(_EYE, width) * np.float32(3)}
    read = _EYE * _MERGED**2 if kind == "qwen2vl_merger" else _EYE
    found |= {"mm.0.weight": normal(width, read), "mm.0.bias": normal(width)}
    return found | {"mm.2.weight": normal(width, width) * np.float32(3), "mm.2.bias": normal(width)}


def noise(seed: int, *, width: int = 40, height: int = 32, **other: Any) -> Picture:
    """Return a picture of random greys."""
    random = np.random.default_rng(seed)
    greys = random.integers(0, 256, (height, width), np.uint8)
    rows = b"".join(b"\0" + row.tobytes() for row in greys)
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    chunks = (chunk(b"IHDR", header), chunk(b"IDAT", zlib.compress(rows)), chunk(b"IEND", b""))
    data = b"\x89PNG\r\n\x1a\n" + b"".join(chunks)
    known = {"data": data, "sha256": hashlib.sha256(data).hexdigest()} | other
    return Picture(media_type="image/png", width=width, height=height, **known)
