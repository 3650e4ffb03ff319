"""How many requests each key may make in a minute: one bucket of tokens for each. Pure."""

from collections.abc import Callable

MAX_BUCKETS = 4_096


class Rates:
    """Buckets that hold a minute's requests and fill evenly.

    Args:
        per_minute: of each caller; 0 is no limit.
        clock: monotonic seconds.
    """

    def __init__(self, per_minute: int, clock: Callable[[], float]) -> None:
        self._per_minute = per_minute
        self._clock = clock
        self._buckets: dict[str, tuple[float, float]] = {}

    def take(self, who: str) -> float:
        """Take one request; return 0, or in how many seconds there is one to take."""
        if not self._per_minute:
            return 0.0
        now, per_second = self._clock(), self._per_minute / 60
        left, at = self._buckets.pop(who, (float(self._per_minute), now))
        left = min(float(self._per_minute), left + (now - at) * per_second)
        wait_s = 0.0 if left >= 1 else (1 - left) / per_second
        # Put back last: the first of the dict is the one that was idle longest.
        self._buckets[who] = (left if wait_s else left - 1, now)
        if len(self._buckets) > MAX_BUCKETS:
            self._buckets.pop(next(iter(self._buckets)))
        return wait_s
