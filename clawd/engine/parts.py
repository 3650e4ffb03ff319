"""The files of one model: large ones are split, `name-00001-of-00003.gguf` and so on."""

import re
from pathlib import Path

SHARD = re.compile(r"-(\d{5})-of-(\d{5})$")
"""Ends the stem of a part: its number, and how many there are."""


def files_of(path: Path) -> list[Path]:
    """Return all files of the model of which this is the only one, or one part."""
    shard = SHARD.search(path.stem)
    if shard is None:
        return [path]
    stem, count = path.stem[: shard.start()], int(shard[2])
    names = (f"{stem}-{number:05}-of-{shard[2]}{path.suffix}" for number in range(1, count + 1))
    return [path.with_name(name) for name in names]
