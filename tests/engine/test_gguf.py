"""What a GGUF file tells of its model, and files that lie about themselves."""

import contextlib
import random
import struct
from pathlib import Path

import pytest

from clawd.engine.embedded import embedded_model_path
from clawd.engine.gguf import QUANTIZATIONS, read_head
from clawd.errors import ModelLoadError

gguf = pytest.importorskip("gguf")


def test_the_embedded_model_is_told_as_gguf_itself_reads_it() -> None:
    path = embedded_model_path()
    head = read_head(path)
    tensors = gguf.GGUFReader(path).tensors
    assert head.parameters == sum(int(each.n_elements) for each in tensors)
    assert (head.architecture, head.quantization, head.context_size) == ("llama", "Q8_0", 1024)
    assert "<tool_call>" in head.chat_template


def test_quantisations_are_called_as_gguf_calls_them() -> None:
    names = {int(kind): kind.name for kind in gguf.LlamaFileType}
    for number, name in QUANTIZATIONS.items():
        assert names[number] in {f"MOSTLY_{name}", f"ALL_{name}"}


def test_cut_and_damaged_files_are_refused_or_read_but_never_break_it(tmp_path: Path) -> None:
    whole = embedded_model_path().read_bytes()[:60_000]
    path = tmp_path / "m.gguf"
    chance = random.Random(7)
    for size in (0, 3, 4, 8, 23, 100, 5_000, 20_000):
        path.write_bytes(whole[:size])
        with pytest.raises(ModelLoadError, match="no whole GGUF"):
            read_head(path)
    for _ in range(300):
        data = bytearray(whole)
        for _ in range(chance.randrange(1, 6)):
            data[chance.randrange(2_000)] = chance.randrange(256)
        path.write_bytes(data)
        with contextlib.suppress(ModelLoadError):
            read_head(path)


@pytest.mark.parametrize(
    "after",
    [
        struct.pack("<QQ", 1 << 60, 0),
        struct.pack("<QQ", 0, 1 << 60),
        struct.pack("<QQQ", 0, 1, 1 << 62),
        struct.pack("<QQQ", 0, 1, 1) + b"a" + struct.pack("<IIQ", 9, 8, 3_999_999),
        struct.pack("<QQQ", 0, 1, 1) + b"a" + struct.pack("<IIQ", 9, 9, 3),
        struct.pack("<QQQ", 0, 1, 1) + b"a" + struct.pack("<I", 99),
        struct.pack("<QQQ", 1, 0, 1) + b"a" + struct.pack("<I", 5),
    ],
)
def test_counts_that_the_file_cannot_hold_are_refused_at_once(tmp_path: Path, after: bytes) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(struct.pack("<4sI", b"GGUF", 3) + after)
    with pytest.raises(ModelLoadError, match="no whole GGUF"):
        read_head(path)
