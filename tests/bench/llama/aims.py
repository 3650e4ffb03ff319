"""The rows of `make bench-engine`, what each is to reach, and when it counts as reached. Pure.

A row's ratio is the median of the pairs' ratios. Its interval is a 90 % confidence interval of that
median which supposes nothing about how ratios are spread: the innermost pair of ordered ratios
between which the median lies with at least that probability (sign test). A row is reached when the
interval includes or passes the aim.
"""

from collections.abc import Sequence
from math import comb

import msgspec

from tests.bench.report import Row, row_of

CONFIDENCE = 0.90
MIN_PAIRS = 9


class Aim(msgspec.Struct, frozen=True, kw_only=True):
    """One row: the ratio clawd ÷ peer that it is to reach.

    A unit that ends in `/s` is a rate, whose ratio is to be at least `limit`; any other is a time
    or a size, whose ratio is to be at most that.
    """

    name: str
    unit: str
    limit: float
    about: str

    @property
    def is_rate(self) -> bool:
        """Whether more is better."""
        return self.unit.endswith("/s")


def _decode(streams: int, state: str, limit: float) -> Aim:
    about = {"fresh": "nothing else in the KV memory", "longlived": "KV memory full of idle ones"}
    noun = "1 stream" if streams == 1 else f"{streams} streams"
    name = f"decode_{streams}_{state}"
    return Aim(name=name, unit="tok/s", limit=limit, about=f"{noun}, {about[state]}")


def _real(streams: int) -> tuple[Aim, ...]:
    noun = "1 stream" if streams == 1 else f"{streams} streams"
    name = f"real_{streams}"
    return (
        Aim(name=f"{name}_whole", unit="tok/s", limit=1.0, about=f"{noun}, sampled, with prompts"),
        Aim(name=f"{name}_all", unit="tok/s", limit=1.0, about=f"{noun}, while all answer"),
        Aim(name=f"{name}_ttft", unit="ms", limit=1.0, about=f"{noun}, mean first token"),
        Aim(name=f"{name}_cpu", unit="tok/CPU/s", limit=1.0, about=f"{noun}, processor time"),
        Aim(name=f"{name}_greedy", unit="tok/s", limit=1.0, about=f"{noun}, temperature 0"),
    )


AIMS = (
    _decode(1, "fresh", 0.97),
    _decode(4, "fresh", 1.0),
    _decode(8, "fresh", 1.0),
    _decode(1, "longlived", 0.97),
    _decode(4, "longlived", 1.0),
    _decode(8, "longlived", 1.0),
    Aim(name="prefill_cold", unit="tok/s", limit=0.97, about="a long first message"),
    Aim(name="second_turn_ttft", unit="ms", limit=1.0, about="first token of the turn after it"),
    Aim(name="stall_p95", unit="ms", limit=0.1, about="running streams' gap, long prompt arriving"),
    Aim(name="stall_newcomer_ttft", unit="ms", limit=1.3, about="first token of that prompt"),
    Aim(name="hops_6_total", unit="ms", limit=1.0, about="six hops over one growing prefix"),
    Aim(name="restart_ttft", unit="ms", limit=0.2, about="first token of the turn after a restart"),
    Aim(name="restart_own_cold", unit="ms", limit=0.05, about="the same against our own, cold"),
    Aim(name="speculation_edit", unit="tok/s", limit=1.3, about="repeats its input, against off"),
    Aim(name="speculation_plain", unit="tok/s", limit=0.98, about="repeats nothing, against off"),
    Aim(name="constrained_whole", unit="tok/s", limit=0.95, about="held to a schema, against free"),
    Aim(name="constrained_cpu", unit="tok/s", limit=0.95, about="the same by CPU seconds"),
    Aim(name="memory_rss", unit="MB", limit=1.3, about="RAM after 8 streams; informative"),
    Aim(name="llama_cpp_server_8", unit="tok/s", limit=1.5, about="8 streams, llama_cpp.server"),
    *(aim for streams in (1, 4, 8) for aim in _real(streams)),
    Aim(name="real_prefill_cold", unit="tok/s", limit=1.0, about="a long first message"),
    Aim(name="step_outside_49k", unit="ms", limit=0.03, about="of a step, outside llama_decode"),
    Aim(name="step_outside_152k", unit="ms", limit=0.03, about="the same, 152,064 tokens"),
)
BY_NAME = {aim.name: aim for aim in AIMS}


def row(name: str, pairs: Sequence[tuple[float, float]]) -> Row:
    """Return the row of that name for its pairs (ours, peer), its spread being the interval."""
    ratios = [ours / peer for ours, peer in pairs]
    found = row_of(name, BY_NAME[name].unit, pairs)
    return msgspec.structs.replace(found, spread=median_interval(ratios))


def median_interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the confidence interval of the median; all there is where there is too little."""
    ordered = sorted(values)
    count = len(ordered)
    outside = 0.0
    place = 0
    # The median lies below the k-th value with the chance of fewer than k heads in `count` throws.
    for index in range(count // 2):
        outside += 2 * comb(count, index) / 2**count
        if outside > 1 - CONFIDENCE:
            break
        place = index
    return ordered[place], ordered[count - 1 - place]


def is_reached(found: Row) -> bool:
    """Return whether the interval includes or passes the aim."""
    aim = BY_NAME[found.name]
    low, high = found.spread
    return high >= aim.limit if aim.is_rate else low <= aim.limit


def verdicts(rows: Sequence[Row]) -> list[str]:
    """Return a line for every row: its aim, whether it is reached, and what it is."""
    width = max((len(found.name) for found in rows), default=0)
    return [_verdict(found, width) for found in rows]


def _verdict(found: Row, width: int) -> str:
    aim = BY_NAME[found.name]
    low, high = found.spread
    sign = "≥" if aim.is_rate else "≤"
    reached = "reached" if is_reached(found) else "NOT reached"
    ratio = f"{found.ratio:.2f} ({low:.2f} to {high:.2f})"
    return (
        f"{found.name:{width}}  {ratio:21}  aim {sign} {aim.limit:<4g}  {reached:11}  {aim.about}"
    )
