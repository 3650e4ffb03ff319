"""Words and fragments of real English, taken from the sources of the Python standard library.

Nothing is stored in the repository: every Python has these texts at hand (comments and docstrings
under the PSF licence). A word or fragment is held out of training by its checksum, so the split is
the same on every machine and under every Python version, whatever the lists hold there.
"""

import random
import re
import sysconfig
import zlib
from collections import Counter
from dataclasses import dataclass
from functools import cache
from pathlib import Path

HELD_OUT_IN = 10  # one of ten
MAX_FRAGMENTS = 40_000
MIN_FILES_PER_WORD = 2

_WORD = re.compile(r"\b[a-z]{3,11}\b")
_LINE = re.compile(r"[A-Za-z][A-Za-z0-9 ,'.:-]*")
_FRAGMENT_WORD = re.compile(r"[A-Za-z][a-z]{0,11}(-[a-z]+)?,?|[0-9]{1,4}")


@dataclass(frozen=True)
class Corpus:
    """One side of the split: single words and fragments of three to nine words."""

    words: list[str]
    fragments: list[str]


@cache
def corpus(*, held_out: bool) -> Corpus:
    """Returns the training side, or with `held_out` the side that no training text contains."""
    words, fragments = _everything()
    return Corpus(
        words=[word for word in words if _is_held_out(word) == held_out],
        fragments=[text for text in fragments if _is_held_out(text) == held_out],
    )


def _is_held_out(text: str) -> bool:
    return zlib.crc32(text.encode()) % HELD_OUT_IN == 0


@cache
def _everything() -> tuple[list[str], list[str]]:
    files_with_word: Counter[str] = Counter()
    fragments: set[str] = set()
    for path in sorted(Path(sysconfig.get_paths()["stdlib"]).rglob("*.py")):
        if "site-packages" in path.parts:
            continue
        text = path.read_text("utf-8", errors="ignore")
        files_with_word.update(set(_WORD.findall(text)))
        for line in text.split("\n"):
            fragments.update(_fragments_of(line))
    words = sorted(word for word, files in files_with_word.items() if files >= MIN_FILES_PER_WORD)
    ordered = sorted(fragments)
    random.Random(0).shuffle(ordered)
    return words, ordered[:MAX_FRAGMENTS]


def _fragments_of(line: str) -> list[str]:
    """Returns the parts of a line that read like English: short words, many of them common ones."""
    line = line.strip().lstrip("#").strip()
    if len(line) < 12 or not _LINE.fullmatch(line):
        return []
    found = []
    for part in re.split(r"(?<=[.:,]) ", line):
        words = part.strip(" .:,-").split()
        if not 3 <= len(words) <= 14:
            continue
        if not all(_FRAGMENT_WORD.fullmatch(word) for word in words):
            continue
        if sum(len(word) <= 4 for word in words) * 5 < len(words):
            continue
        if len(words) > 9:
            words = words[: random.Random(part).randint(4, 9)]
        found.append(" ".join(words).strip(","))
    return found
