"""The names of the rows of `make bench-http`, what some are to reach, and rows of pairs. Pure.

A row's `spread` is the 90 % interval of its median ratio, as in `make bench-engine`.
"""

import argparse
from collections.abc import Sequence

import msgspec

from tests.bench.http.dialects import DIALECTS
from tests.bench.llama.aims import median_interval
from tests.bench.report import Row, row_of

# What is asked on either side, and how over HTTP.
MODEL_TURN, SCRIPT_TURN, SCRIPT_PASS = "model_turn", "script_turn", "script_pass"
# Times of a stream to its first text and its end, and of a whole answer.
FIGURES = ("first", "stream", "whole")
OVERHEADS = tuple(
    f"{part}_{dialect.name}_{figure}"
    for part in (MODEL_TURN, SCRIPT_TURN, SCRIPT_PASS)
    for dialect in DIALECTS
    for figure in FIGURES
)
MANY = ("many_first_p95", "many_all", "many_cpu", "many_memory")
LLAMA = ("llama_first_cold", "llama_first_warm", "llama_rate_1", "llama_rate_4")
ROWS = (*OVERHEADS, *MANY, *LLAMA)
UNITS = {
    "many_cpu": "ms/stream",
    "many_memory": "MB",
    "llama_rate_1": "tok/s",
    "llama_rate_4": "tok/s",
}
AIMS = {"many_memory": 1.05, "llama_first_warm": 1.1}


def row(name: str, pairs: Sequence[tuple[float, float]]) -> Row:
    """Return the row of that name for its pairs (ours, peer)."""
    spread = median_interval([ours / peer for ours, peer in pairs])
    return msgspec.structs.replace(row_of(name, UNITS.get(name, "ms"), pairs), spread=spread)


def verdict(found: Row) -> str:
    """Return a line that says what a row found, and whether it reached its aim."""
    low, high = found.spread
    line = f"{found.name:28} {found.ratio:.2f} ({low:.2f} to {high:.2f})"
    aim = AIMS.get(found.name)
    if aim is None:
        return line
    return f"{line}  aim ≤ {aim}: {'reached' if low <= aim else 'NOT reached'}"


def chosen(text: str) -> tuple[str, ...]:
    """Return the rows whose names begin with one of these words, with commas between them.

    Raises:
        ArgumentTypeError: a word begins none.
    """
    words = text.split(",")
    for word in words:
        if not word or not any(name.startswith(word) for name in ROWS):
            raise argparse.ArgumentTypeError(f"{word!r} begins none of {', '.join(ROWS)}")
    return tuple(name for name in ROWS if name.startswith(tuple(words)))
