"""From measured pairs to rows, and from rows to the table, the shortfalls and the JSON. Pure.

    {"rows": [{"name": "clawctl status (…)", "ours": 71.2, "peer": 55.9, "ratio": 1.27,
               "spread": [1.19, 1.36], "unit": "ms"}, …]}

`ours` and `peer` are medians, `ratio` is the median of ours / peer of each pair, `spread` the ends
of the middle 90 % of these ratios. A unit that ends in `/s` is a rate and better high, any other is
a time and better low.
"""

import argparse
import statistics
from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec

T = TypeVar("T")

TAIL = 0.05
COLUMNS = ("", "ours", "peer", "ratio", "spread", "unit")


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the result; see the module."""

    name: str
    ours: float
    peer: float
    ratio: float
    spread: tuple[float, float]
    unit: str


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """All lines of the result."""

    rows: list[Row]


def measured_in_turn(
    ours: Callable[[int], T], peer: Callable[[int], T], count: int
) -> list[tuple[T, T]]:
    """Measure ours, peer, ours, peer and so on; both get the pair's number."""
    return [(ours(number), peer(number)) for number in range(count)]


def row_of(name: str, unit: str, pairs: Sequence[tuple[float, float]]) -> Row:
    """Return the line that sums up the pairs (ours, peer)."""
    ratios = [ours / peer for ours, peer in pairs]
    return Row(
        name=name,
        ours=statistics.median(ours for ours, _ in pairs),
        peer=statistics.median(peer for _, peer in pairs),
        ratio=statistics.median(ratios),
        spread=(quantile(ratios, TAIL), quantile(ratios, 1 - TAIL)),
        unit=unit,
    )


def quantile(values: Sequence[float], share: float) -> float:
    """Return the value below which that share lies, between neighbours in proportion."""
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def table(rows: Sequence[Row]) -> str:
    """Return the rows as aligned text."""
    lines = [COLUMNS, *(_cells(row) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(COLUMNS))]
    return "\n".join(_aligned(line, widths) for line in lines)


def shortfalls(rows: Sequence[Row]) -> list[str]:
    """Return a sentence for every row where the peer is ahead."""
    return [_shortfall(row) for row in rows if _is_behind(row)]


def to_json(rows: Sequence[Row]) -> bytes:
    """Return the report as indented JSON."""
    return msgspec.json.format(msgspec.json.encode(Report(rows=list(rows))), indent=2) + b"\n"


def _is_rate(row: Row) -> bool:
    return row.unit.endswith("/s")


def _is_behind(row: Row) -> bool:
    return row.ratio < 1 if _is_rate(row) else row.ratio > 1


def _shortfall(row: Row) -> str:
    low, high = row.spread
    what = "the peer's rate" if _is_rate(row) else "the peer's time"
    doubt = "; the spread includes a draw" if low <= 1 <= high else ""
    return f"{row.name}: {row.ratio:.2f} times {what} ({low:.2f} to {high:.2f}){doubt}"


def _cells(row: Row) -> tuple[str, ...]:
    low, high = row.spread
    figures = (_figure(row.ours), _figure(row.peer), f"{row.ratio:.2f}")
    return (row.name, *figures, f"{low:.2f} to {high:.2f}", row.unit)


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def _aligned(line: Sequence[str], widths: Sequence[int]) -> str:
    """Return a line with its name and unit flush left and its figures flush right."""
    first, *figures, last = line
    middle = [text.rjust(width) for text, width in zip(figures, widths[1:-1], strict=True)]
    return "  ".join((first.ljust(widths[0]), *middle, last)).rstrip()


def some_of(known: Sequence[str]) -> Callable[[str], tuple[str, ...]]:
    """Return what reads an option that names some of these, with commas between them.

    The first words of names (`real`, `real_4`) stand for all that begin so.
    """

    def read(text: str) -> tuple[str, ...]:
        chosen: list[str] = []
        for word in text.split(","):
            named = [name for name in known if name == word or name.startswith(f"{word}_")]
            if not named:
                raise argparse.ArgumentTypeError(f"{word!r} is none of {', '.join(known)}")
            chosen += [name for name in named if name not in chosen]
        return tuple(chosen)

    return read
