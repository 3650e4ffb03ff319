"""What a GGUF file tells of its model, read without loading it (GGUF specification of ggml, v3).

The head is `GGUF`, version, count of tensors, count of values; then the values, each a name, a type
and its content; then of each tensor name, dimensions, type and place. Numbers are little-endian, a
text is its length in 64 bits and UTF-8. The file may be hostile: every count is
bounded by what is there to be read.
"""

import os
import re
import struct
from pathlib import Path
from typing import IO, Any

import msgspec

from clawd.errors import ModelLoadError
from clawd.wire.models import MERGED_FROM

MAX_VALUES = 4_096
MAX_TENSORS = 65_536
MAX_ITEMS = 4_000_000
MAX_TEXT_BYTES = 4 << 20
MAX_DIMENSIONS = 4

_TEXT, _ARRAY = 8, 9
_NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q"} | {
    12: "d"
}
# llama.h `llama_ftype`.
QUANTIZATIONS = {
    0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 7: "Q8_0", 8: "Q5_0", 9: "Q5_1", 10: "Q2_K",
    11: "Q3_K_S", 12: "Q3_K_M", 13: "Q3_K_L", 14: "Q4_K_S", 15: "Q4_K_M", 16: "Q5_K_S",
    17: "Q5_K_M", 18: "Q6_K", 19: "IQ2_XXS", 20: "IQ2_XS", 21: "Q2_K_S", 22: "IQ3_XS",
    23: "IQ3_XXS", 24: "IQ1_S", 25: "IQ4_NL", 26: "IQ3_S", 27: "IQ3_M", 28: "IQ2_S", 29: "IQ2_M",
    30: "IQ4_XS", 31: "IQ1_M", 32: "BF16", 36: "TQ1_0", 37: "TQ2_0", 38: "MXFP4_MOE",
}  # fmt: skip

SHARD = re.compile(r"-(\d{5})-of-(\d{5})$")
"""Ends the stem of a part: its number, and how many there are."""


class GgufHead(msgspec.Struct, frozen=True, kw_only=True):
    """What a file tells of itself; "" and 0 for what it does not tell.

    Attributes:
        context_size: what the model was trained for.
        parameters: of this file alone.
        is_embedding: made for vectors, not for texts.
        projector: of a projector its type.
        merged_from: the SHA-256 of the base, and of the adapter over it, that it was made of.
    """

    architecture: str = ""
    name: str = ""
    licence: str = ""
    quantization: str = ""
    context_size: int = 0
    parameters: int = 0
    chat_template: str = ""
    is_embedding: bool = False
    projector: str = ""
    merged_from: tuple[str, ...] = ("", "")


def read_head(path: Path) -> GgufHead:
    """Return what a model's file tells of it; blocks.

    Raises:
        ModelLoadError: it is no GGUF file, or not whole.
    """
    try:
        with path.open("rb") as file:
            return _Reader(file).head()
    except (OSError, ValueError, struct.error) as error:
        raise ModelLoadError(f"{path} is no whole GGUF file: {error}") from error


def files_of(path: Path) -> list[Path]:
    """Return all files of the model of which this is the only one, or one part."""
    shard = SHARD.search(path.stem)
    if shard is None:
        return [path]
    stem, count = path.stem[: shard.start()], int(shard[2])
    names = (f"{stem}-{number:05}-of-{shard[2]}{path.suffix}" for number in range(1, count + 1))
    return [path.with_name(name) for name in names]


class _Reader:
    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._left = os.fstat(file.fileno()).st_size

    def head(self) -> GgufHead:
        if self._take(4) != b"GGUF":
            raise ValueError("it does not begin with GGUF")
        version = self._number("I")
        if version not in {2, 3}:
            raise ValueError(f"it is of version {version}")
        tensors = self._count("tensors", MAX_TENSORS)
        values = self._values(self._count("values", MAX_VALUES))
        of = str(values.get("general.architecture", ""))
        return GgufHead(
            architecture=of,
            name=_text(values.get("general.name")),
            licence=_text(values.get("general.license")),
            quantization=QUANTIZATIONS.get(values.get("general.file_type", -1), ""),
            context_size=_whole(values.get(f"{of}.context_length")),
            parameters=sum(self._tensor() for _ in range(tensors)),
            chat_template=_text(values.get("tokenizer.chat_template")),
            is_embedding=_whole(values.get(f"{of}.pooling_type")) > 0,
            projector=_text(
                values.get("clip.projector_type") or values.get("clip.vision.projector_type")
            ),
            merged_from=tuple(_text(values.get(key)) for key in MERGED_FROM),
        )

    def _values(self, count: int) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for _ in range(count):
            name = self._string()
            values[name] = self._value(self._number("I"))
        return values

    def _value(self, kind: int) -> Any:
        """Return a value; of an array nothing, for none of them is needed."""
        if kind == _TEXT:
            return self._string()
        if kind in _NUMBERS:
            return self._number(_NUMBERS[kind])
        if kind != _ARRAY:
            raise ValueError(f"a value is of type {kind}")
        of, count = self._number("I"), self._count("items", MAX_ITEMS)
        if of in _NUMBERS:
            self._skip(count * struct.calcsize(f"<{_NUMBERS[of]}"))
        elif of == _TEXT:
            for _ in range(count):
                self._skip(self._number("Q"))
        else:
            raise ValueError(f"an array is of type {of}")
        return None

    def _tensor(self) -> int:
        """Return how many numbers a tensor has."""
        self._string()
        dimensions = self._number("I")
        if dimensions > MAX_DIMENSIONS:
            raise ValueError(f"a tensor has {dimensions} dimensions")
        count: int = 1
        for _ in range(dimensions):
            count *= self._number("Q")
        self._skip(12)
        return count

    def _count(self, what: str, most: int) -> int:
        count = int(self._number("Q"))
        if count > most:
            raise ValueError(f"it has {count} {what}, more than {most}")
        return count

    def _string(self) -> str:
        size = self._number("Q")
        if size > MAX_TEXT_BYTES:
            raise ValueError(f"a text of {size} bytes")
        return self._take(size).decode("utf-8", "replace")

    def _number(self, form: str) -> Any:
        size = struct.calcsize(f"<{form}")
        return struct.unpack(f"<{form}", self._take(size))[0]

    def _take(self, size: int) -> bytes:
        data = self._file.read(size)
        if len(data) != size:
            raise ValueError("it ends too early")
        self._left -= size
        return data

    def _skip(self, size: int) -> None:
        if size > self._left:
            raise ValueError("it ends too early")
        self._left -= size
        self._file.seek(size, os.SEEK_CUR)


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _whole(value: object) -> int:
    return value if isinstance(value, int) else 0
