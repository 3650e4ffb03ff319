"""The adapter as a GGUF file: what llama.cpp loads beside a base, and training goes on from.

    python -m training.assistant.adapter_file FIRST SECOND SHARE OUT

writes the mean of two adapters of one run.
"""

import sys
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType, GGUFReader, GGUFWriter


def write_adapter(
    path: Path, tensors: Iterable[tuple[str, np.ndarray, np.ndarray]], alpha: float
) -> None:
    """Writes name, A (rank, in) and B (out, rank) of each matrix in half precision."""
    part = path.with_suffix(".part")
    writer = GGUFWriter(part, "llama")
    writer.add_type("adapter")
    writer.add_string("adapter.type", "lora")
    writer.add_float32("adapter.lora.alpha", alpha)
    for name, down, up in tensors:
        for suffix, value in (("lora_a", down), ("lora_b", up)):
            half = np.ascontiguousarray(value, dtype=np.float16)
            writer.add_tensor(f"{name}.{suffix}", half, raw_dtype=GGMLQuantizationType.F16)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    part.replace(path)


def read_adapter(path: Path) -> tuple[dict[str, np.ndarray], float]:
    """Returns the tensors by name in float32, and alpha."""
    reader = GGUFReader(path)
    tensors = {tensor.name: tensor.data.astype(np.float32) for tensor in reader.tensors}
    return tensors, float(reader.fields["adapter.lora.alpha"].contents())


def mean_adapter(first: Path, second: Path, share: float, out: Path) -> None:
    """Writes the mean of two adapters of one run, of which the second has that share."""
    (one, alpha), (other, _) = read_adapter(first), read_adapter(second)
    mean = {name: (1 - share) * one[name] + share * other[name] for name in one}
    names = [name.removesuffix(".lora_a") for name in mean if name.endswith(".lora_a")]
    matrices = ((each, mean[f"{each}.lora_a"], mean[f"{each}.lora_b"]) for each in names)
    write_adapter(out, matrices, alpha)


if __name__ == "__main__":
    earlier, later, weight, target = sys.argv[1:]
    mean_adapter(Path(earlier), Path(later), float(weight), Path(target))
