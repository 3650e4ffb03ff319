"""Numbers that only grow, and how long things take: kept in memory, read by the reports.

It knows no library and no format; counting is a few dictionary operations, on the loop's thread.
"""

from bisect import bisect_left

MAX_SERIES = 200
OTHER = "other"
SHORT_S = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 120.0)
LONG_S = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0)


class Tally:
    """Counts by the values of some labels, at most MAX_SERIES of them; the rest is one, `other`.

    Args:
        labels: their names, in the order in which values are given.
    """

    def __init__(self, *labels: str) -> None:
        self.labels = labels
        self._values: dict[tuple[str, ...], float] = {}

    def add(self, *values: str, by: float = 1.0) -> None:
        """Count something, once or `by` so much; less than nothing counts as nothing."""
        if len(values) != len(self.labels):
            raise ValueError(f"{len(values)} values for the labels {self.labels}")
        known = values in self._values or len(self._values) < MAX_SERIES
        key = values if known else (OTHER,) * len(values)
        self._values[key] = self._values.get(key, 0.0) + max(by, 0.0)

    def values(self) -> dict[tuple[str, ...], float]:
        """Return what was counted, by the values of the labels."""
        return dict(self._values)

    def total(self, **where: str) -> float:
        """Return the sum of what was counted, or of that with these values of labels."""
        wanted = [(self.labels.index(label), value) for label, value in where.items()]
        return sum(
            count
            for values, count in self._values.items()
            if all(values[place] == value for place, value in wanted)
        )


class Histogram:
    """How often something took how long.

    Args:
        bounds: upper ends of the buckets, inclusive, growing.
    """

    def __init__(self, bounds: tuple[float, ...] = LONG_S) -> None:
        self.bounds = bounds
        self.sum = 0.0
        self._counts = [0] * (len(bounds) + 1)

    @property
    def count(self) -> int:
        """How many values were observed."""
        return sum(self._counts)

    def observe(self, value: float) -> None:
        """Take a value."""
        self._counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    def cumulative(self) -> tuple[tuple[float, int], ...]:
        """Return for each bound how many values were at or below it."""
        found, so_far = [], 0
        for bound, count in zip(self.bounds, self._counts, strict=False):
            so_far += count
            found.append((bound, so_far))
        return tuple(found)
