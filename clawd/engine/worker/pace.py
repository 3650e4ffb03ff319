"""How much of a prompt fits into one step, by what steps took so far.

A step cannot be interrupted: a cancelled request, a ping and a newcomer wait for its end, and so do
answers that are on their way. So a step gets no more prompt tokens than are decoded in
`STEP_LIMIT_S`, beside answers in `SHARED_STEP_LIMIT_S`.
"""

STEP_LIMIT_S = 1.0
SHARED_STEP_LIMIT_S = 0.3
MIN_CHUNK = 32
# Steps with fewer prompt tokens say more about the cost of a step than about the rate.
_MIN_MEASURED = 16
_WEIGHT_OF_NEW = 0.5


class Pace:
    """Prompt tokens per second, measured."""

    def __init__(self, expected_rate: float) -> None:
        self._rate = expected_rate

    def measured(self, prompt_tokens: int, elapsed_s: float) -> None:
        """Take the measurement of a step."""
        if prompt_tokens < _MIN_MEASURED or elapsed_s <= 0:
            return
        rate = prompt_tokens / elapsed_s
        self._rate += (rate - self._rate) * _WEIGHT_OF_NEW

    def chunk(self, largest: int, limit_s: float = STEP_LIMIT_S) -> int:
        """Return how many prompt tokens the next step may have, at most `largest`.

        Whole multiples of MIN_CHUNK, so that small changes of the rate change nothing.
        """
        affordable = int(self._rate * limit_s) // MIN_CHUNK * MIN_CHUNK
        return min(largest, max(affordable, MIN_CHUNK))
