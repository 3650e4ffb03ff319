"""The method about what the daemon counts and measures, and its report; see `wire.methods`."""

from typing import Literal

import msgspec

from clawd.wire.method import Method


class MetricSample(msgspec.Struct, frozen=True, kw_only=True):
    """One number."""

    value: float
    labels: dict[str, str] = {}


class MetricSpread(msgspec.Struct, frozen=True, kw_only=True):
    """How many values there were up to each bound (`buckets`: bound and count), and in all."""

    count: int
    sum: float
    buckets: tuple[tuple[float, int], ...]
    labels: dict[str, str] = {}


class MetricFamily(msgspec.Struct, frozen=True, kw_only=True):
    """All numbers of one name. A counter and a gauge have samples, a histogram has spreads."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    samples: tuple[MetricSample, ...] = ()
    spreads: tuple[MetricSpread, ...] = ()


class MetricsReport(msgspec.Struct, frozen=True, kw_only=True):
    """All numbers, by name. Counters begin at the start of the daemon."""

    families: tuple[MetricFamily, ...]


class ShowMetrics(Method[MetricsReport], frozen=True, kw_only=True):
    """Show what the daemon counts and measures: sums over everybody, nobody's contents."""
