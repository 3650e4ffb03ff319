"""What a step takes by the number of its tokens, measured, and what follows from it. Pure.

A batch is no bargain everywhere: on one CPU a step of 1 token took 8 ms, of 2 tokens 30, of 4
tokens 39 and of 8 tokens 40; on a GPU 8 tokens take hardly longer than one. So nothing is supposed:
steps are measured as they come, and whatever looks cheaper by what is known is done.
"""

from collections.abc import Sequence
from itertools import pairwise

# Step sizes that are told apart; one in between counts for the next larger.
_SIZES = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 17, 20, 25, 29, 33, 49, 65, 97, 129, 193, 257, 513)
# Noise only adds time: a shorter time is believed sooner than a longer one.
_WEIGHT_OF_SHORTER = 0.5
_WEIGHT_OF_LONGER = 0.1
_WEIGHT_OF_RATE = 0.5
# Sequences are decoded one by one when that takes at most this share of the time of all at once.
_CLEARLY_LESS = 0.95
# The other way is tried again after so many steps, each time after twice as many, up to a limit
# that is the larger the worse it was; and for some steps, as one may be an exception.
_FIRST_RETRY = 16
_LAST_RETRY = 512
_RETRIED_STEPS = 3
# Guesses are decoded on when they promise so much more speed.
_CLEARLY_FASTER = 1.05
# Steps without guesses after one that cost more time than it saved, each time twice as many.
_FIRST_PAUSE = 32
_LONGEST_PAUSE = 2048


class StepCosts:
    """Seconds a step takes, by its tokens."""

    def __init__(self) -> None:
        self._known: dict[int, float] = {}

    def measured(self, tokens: int, elapsed_s: float) -> None:
        """Take the measurement of a step."""
        size = _size(tokens)
        known = self._known.get(size)
        if known is None:
            self._known[size] = elapsed_s
            return
        weight = _WEIGHT_OF_SHORTER if elapsed_s < known else _WEIGHT_OF_LONGER
        self._known[size] = known + (elapsed_s - known) * weight

    def known(self, tokens: int) -> float | None:
        """Return what a step of so many tokens took, None if there was none."""
        return self._known.get(_size(tokens))

    def expected(self, tokens: int) -> float | None:
        """Return what a step should take, going by the nearest that are known; None of none."""
        size = _size(tokens)
        exact = self._known.get(size)
        if exact is not None:
            return exact
        sizes = sorted(self._known)
        if not sizes:
            return None
        if size < sizes[0]:
            return self._known[sizes[0]]
        for smaller, larger in pairwise(sizes):
            if smaller < size < larger:
                share = (size - smaller) / (larger - smaller)
                low, high = self._known[smaller], self._known[larger]
                return low + (high - low) * share
        return self._known[sizes[-1]] * size / sizes[-1]


class Grouping:
    """Whether running sequences are decoded in one batch or one by one.

    Both ways are measured as whole rounds of all sequences. Single steps would be measured so much
    oftener that their least time beats what a batch takes now and then.
    """

    def __init__(self) -> None:
        self._costs = {is_apart: StepCosts() for is_apart in (False, True)}
        self._retries: dict[int, _Retries] = {}

    def prefers_apart(self, count: int) -> bool:
        """Return whether decoding `count` sequences one by one has clearly been faster."""
        together, apart = (self._costs[way].known(count) for way in (False, True))
        return together is not None and apart is not None and apart < together * _CLEARLY_LESS

    def is_apart(self, count: int) -> bool:
        """Return whether to decode `count` sequences one by one in this step, if only to try it."""
        together, apart = (self._costs[way].known(count) for way in (False, True))
        if count < 2 or together is None:
            return False
        better, worse = sorted((together, apart if apart is not None else together))
        retries = self._retries.setdefault(count, _Retries())
        is_due = retries.is_due(worse / better if better > 0 else 1.0)
        return self.prefers_apart(count) != is_due

    def measured(self, count: int, elapsed_s: float, *, is_apart: bool) -> None:
        """Take how long it took to decode a token of each of so many sequences."""
        self._costs[is_apart].measured(count, elapsed_s)


class PromptGrouping:
    """Whether prompt tokens are decoded in a batch of their own, behind those of answers.

    One CPU took 363 ms for 96 prompt tokens and 3 of answers in one batch, 294 for the 96 alone and
    7 for each of the 3.
    """

    def __init__(self) -> None:
        self._rates: dict[bool, float] = {}
        self._retries = _Retries()

    def is_apart(self) -> bool:
        """Return whether the prompt tokens of this step should be decoded by themselves."""
        mixed, apart = self._rates.get(False), self._rates.get(True)
        if mixed is None or apart is None:
            return mixed is not None
        is_apart = apart > mixed
        worse, better = sorted((apart, mixed))
        return is_apart != self._retries.is_due(better / worse if worse > 0 else 1.0)

    def measured(self, prompt_tokens: int, elapsed_s: float, *, is_apart: bool) -> None:
        """Take how long a whole step with so many prompt tokens took."""
        if prompt_tokens <= 0 or elapsed_s <= 0:
            return
        rate = prompt_tokens / elapsed_s
        known = self._rates.get(is_apart, rate)
        self._rates[is_apart] = known + (rate - known) * _WEIGHT_OF_RATE


class _Retries:
    """Counts steps until the way that looks worse is tried again."""

    def __init__(self) -> None:
        self._interval = _FIRST_RETRY
        self._left = _FIRST_RETRY

    def is_due(self, ratio: float) -> bool:
        """Count a step; `ratio` is how many times worse the other way looks."""
        self._left -= 1
        if self._left > -_RETRIED_STEPS:
            return self._left < 0
        self._interval = min(2 * self._interval, int(_LAST_RETRY * ratio))
        self._left = self._interval
        return True


class Payoff:
    """Whether guesses have saved time of late; a loss stops them, the longer the more it repeats.

    One step of nine tokens that were all wrong costs a twentieth of a short answer, so text that
    hardly repeats anything must not make every answer pay for trying.
    """

    def __init__(self) -> None:
        self._left = 0
        self._pause = _FIRST_PAUSE

    @property
    def is_paused(self) -> bool:
        """Return whether guesses should not be decoded on now."""
        return self._left > 0

    def step(self) -> None:
        """Count a step."""
        self._left = max(self._left - 1, 0)

    def measured(self, gain_s: float) -> None:
        """Take how much time a step with guesses saved; less than 0 when it cost some."""
        if gain_s >= 0:
            self._left, self._pause = 0, _FIRST_PAUSE
            return
        self._left = self._pause
        self._pause = min(2 * self._pause, _LONGEST_PAUSE)


def draft_length(costs: StepCosts, others: int, chances: Sequence[float]) -> int:
    """Return how many guessed tokens to decode on; 0 when none pays.

    Args:
        costs: of steps.
        others: tokens of other sequences in the same step.
        chances: for each guessed token, the chance that it and all before it are right.
    """
    plain = costs.known(1 + others)
    if plain is None or plain <= 0:
        return 0
    best, best_rate = 0, _CLEARLY_FASTER * (1 + others) / plain
    tokens = 1.0 + others
    for count, chance in enumerate(chances, 1):
        tokens += chance
        is_border = 1 + others + count in _SIZES or count == len(chances)
        expected = costs.expected(1 + others + count) if is_border else None
        if expected and tokens / expected > best_rate:
            best, best_rate = count, tokens / expected
    return best


def _size(tokens: int) -> int:
    for size in _SIZES:
        if tokens <= size:
            return size
    return _SIZES[-1]
