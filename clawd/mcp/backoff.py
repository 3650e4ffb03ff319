"""How long to wait before the next try: doubling, with jitter, and from the start when it held."""

import random


class Backoff:
    """Counts the tries that failed.

    Args:
        first_s: the first wait.
        most_s: no wait is longer.
    """

    def __init__(self, *, first_s: float = 1.0, most_s: float = 60.0) -> None:
        self._first_s = first_s
        self._most_s = most_s
        self._next_s = first_s

    def next(self) -> float:
        """Return the seconds to wait now, between half of the step and all of it."""
        step = min(self._next_s, self._most_s)
        self._next_s = min(step * 2, self._most_s)
        return step * random.uniform(0.5, 1.0)  # noqa: S311 - only spreads the tries

    def reset(self) -> None:
        """Begin anew; what was connected has held."""
        self._next_s = self._first_s
