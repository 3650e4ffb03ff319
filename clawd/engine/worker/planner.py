"""What goes into the next step: the token of every sequence that decodes, guesses, prompt tokens.

plan = sizes(running) → cells are found for it → batches(plan), decoded one after the other
"""

from collections.abc import Sequence
from itertools import pairwise

from clawd.engine.worker.backend import Backend
from clawd.engine.worker.generation import GenerationState
from clawd.engine.worker.pictures import Eye
from clawd.engine.worker.prompt_lookup import MAX_DRAFT
from clawd.engine.worker.slots import Slot

# What a step takes by the number of its tokens, measured, and what follows from it. Pure.
#
# A batch is no bargain everywhere: on one CPU a step of 1 token took 8 ms, of 2 tokens 30, of 4
# tokens 39 and of 8 tokens 40; on a GPU 8 tokens take hardly longer than one. So nothing is
# supposed: steps are measured as they come, and whatever looks cheaper by what is known is done.

# Step sizes that are told apart; one in between counts for the next larger.
_SIZES = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 17, 20, 25, 29, 33, 49, 65, 97, 129, 193, 257, 513)
# Noise only adds time: a shorter time is believed sooner than a longer one.
_WEIGHT_OF_SHORTER = 0.5
_WEIGHT_OF_LONGER = 0.1
_WEIGHT_OF_RATE = 0.5
# Sequences are decoded one by one when that takes at most this share of the time of all at once.
_CLEARLY_LESS = 0.95
# The other way is tried again after so many steps, each time after twice as many, up to a limit
# that is the larger the worse it was; and for some steps, as one may be an exception, but not
# where it was so many times worse that no exception explains it.
_FIRST_RETRY = 16
_LAST_RETRY = 512
_BEYOND_EXCEPTION = 1.5
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
        if count < 2:
            return False
        together, apart = (self._costs[way].known(count) for way in (False, True))
        if together is None:
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
        if self._left > -(3 if ratio < _BEYOND_EXCEPTION else 1):
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


# How much of a prompt fits into one step, by what steps took so far.
#
# A step cannot be interrupted: a cancelled request, a ping and a newcomer wait for its end, and so
# do answers that are on their way. So a step gets no more prompt tokens than are decoded in
# `STEP_LIMIT_S`, beside answers in `SHARED_STEP_LIMIT_S`.

STEP_LIMIT_S = 1.0
SHARED_STEP_LIMIT_S = 0.3
MIN_CHUNK = 32
# Steps with fewer prompt tokens say more about the cost of a step than about the rate.
_MIN_MEASURED = 16
_WEIGHT_OF_NEW = 0.5


class PromptRate:
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


# Step sizes to know before they are needed, and what a step may take to be worth knowing.
_TRIED_SIZES = (1, 2, 3, 4, 6, 8, 12, 17, 25, 33)
_LONGEST_TRIAL_S = 0.25
# No answer begins with guesses: what it repeats is not known, and its first words are waited for.
_SETTLED_TOKENS = 8
# Guesses that have held for so many tokens are decoded on though others have not paid of late.
_SURE_TOKENS = 16
# Prompts are cut at multiples of this, which matrix kernels like.
_ALIGNMENT = 32


class Planned:
    """What one generation has in a step: its next `count` tokens, then guesses."""

    __slots__ = ("accepted", "count", "draft", "generation", "row", "slot", "span", "was_decoding")

    def __init__(self, generation: GenerationState, slot: Slot, count: int) -> None:
        self.generation = generation
        self.span = generation.span  # where the tokens are cells of a picture
        self.slot = slot
        self.count = count
        self.draft: list[int] = []
        # Of the draft, after the step.
        self.accepted = 0
        # The first row of the batch to sample, below 0 while the prompt is not whole.
        self.row = -1
        self.was_decoding = generation.is_decoding

    @property
    def size(self) -> int:
        """Return how many tokens it has in the batch."""
        return self.count + len(self.draft)


class Planner:
    """Chooses by what steps have taken so far.

    Args:
        backend: the model.
        prefill_chunk: prompt tokens of a step while others decode, at most.
        speculates: decode on guesses where that pays.
        eye: what reads pictures, None where the model sees none.
    """

    def __init__(
        self,
        backend: Backend,
        *,
        prefill_chunk: int,
        speculates: bool,
        eye: Eye | None = None,
    ) -> None:
        self._backend = backend
        self.eye = eye
        self._prefill_chunk = prefill_chunk
        self._pace = PromptRate(backend.expected_prefill_rate)
        self._costs = StepCosts()
        # By answers in a step, apart from those costs: trials and guesses are of one sequence, and
        # what an answer takes grows with its length.
        self._answer_costs = StepCosts()
        self._grouping = Grouping()
        # What the answers that this step decodes one by one have taken, and how many there are.
        self._one_by_one_s: list[float] = []
        self._one_by_one = 0
        self._payoff = Payoff()
        self._prompts = PromptGrouping()
        # What the answers' own batches of this step have taken.
        self._answers_s = 0.0
        # What was decoded on a wrong guess is cut off again.
        self.speculates = speculates and not backend.reuses_whole_only

    def plan(self, running: Sequence[GenerationState]) -> list[Planned]:
        """Return what each generation does next, those that decode first."""
        decoding: list[Planned] = []
        prefilling: list[Planned] = []
        for generation in running:
            if generation.slot is None:
                continue
            planned = Planned(generation, generation.slot, 1)
            (decoding if planned.was_decoding else prefilling).append(planned)
        # Neighbours with cells of their own are computed at once (llama.cpp's split_equal).
        decoding.sort(key=_slot_number)
        if not prefilling:
            return decoding
        return decoding + self._chunks(prefilling, len(decoding))

    def batches(self, plan: list[Planned], free_cells: int) -> list[list[Planned]]:
        """Return the plan as batches, with guesses where they pay and have cells."""
        self._answers_s, self._one_by_one = 0.0, 0
        pictures = [[planned] for planned in plan if planned.span is not None]
        if pictures:
            free_cells -= sum(planned.count for (planned,) in pictures)
            plan = [planned for planned in plan if planned.span is None]
            return [*(self._of_text(plan, free_cells) if plan else ()), *pictures]
        return self._of_text(plan, free_cells)

    def _of_text(self, plan: list[Planned], free_cells: int) -> list[list[Planned]]:
        decoding = [planned for planned in plan if planned.was_decoding]
        prompts = plan[len(decoding) :]
        if not prompts:
            return self._of_answers(plan, free_cells)
        if not decoding or not self._prompts.is_apart():
            return [plan]
        apart = self._grouping.prefers_apart(len(decoding))
        return [*([each] for each in decoding), prompts] if apart else [decoding, prompts]

    def _of_answers(self, plan: list[Planned], free_cells: int) -> list[list[Planned]]:
        is_apart = self._grouping.is_apart(len(plan))
        self._payoff.step()
        self._one_by_one, self._one_by_one_s = len(plan) if is_apart else 0, []
        if self.speculates:
            others = 0 if is_apart else len(plan) - 1
            free_cells -= len(plan)
            for planned in plan:
                planned.draft = self._draft(planned.generation, others, free_cells)
                free_cells -= len(planned.draft)
                others += 0 if is_apart else len(planned.draft)
        return [[planned] for planned in plan] if is_apart else [plan]

    def size_to_try(self) -> int | None:
        """Return a step size whose time is not known yet and should be; None when all are."""
        if not self.speculates:
            return None
        largest = min(self._backend.n_batch, MAX_DRAFT + 1)
        for size in _TRIED_SIZES:
            if size > largest or (self._costs.expected(size) or 0.0) > _LONGEST_TRIAL_S:
                return None
            if self._costs.known(size) is None:
                return size
        return None

    def tried(self, size: int, elapsed_s: float) -> None:
        """Take how long a step of a size took that nobody needed."""
        self._costs.measured(size, elapsed_s)

    def measured(self, batch: Sequence[Planned], elapsed_s: float) -> None:
        """Take how long the decoding of a batch and the sampling of its rows took."""
        prompt = sum(planned.count for planned in batch if not planned.was_decoding)
        self._pace.measured(prompt, elapsed_s)
        if batch[0].span is not None:
            return
        if not prompt:
            self._answers_s += elapsed_s
        elif self._answers_s:
            self._prompts.measured(prompt, elapsed_s + self._answers_s, is_apart=True)
        elif batch[0].was_decoding:
            self._prompts.measured(prompt, elapsed_s, is_apart=False)
        size = sum(planned.size for planned in batch)
        self._costs.measured(size, elapsed_s)
        if prompt:
            return
        if size == len(batch):
            self._measured_answers(size, elapsed_s)
        elif (plain_s := self._answer_costs.known(len(batch))) is not None:
            steps = sum(1 + planned.accepted for planned in batch) / len(batch)
            self._payoff.measured(steps * plain_s - elapsed_s)

    def _measured_answers(self, count: int, elapsed_s: float) -> None:
        """Take how long the next token of so many answers took, without guesses."""
        self._answer_costs.measured(count, elapsed_s)
        if count > 1:
            self._grouping.measured(count, elapsed_s, is_apart=False)
        elif self._one_by_one:
            self._one_by_one_s.append(elapsed_s)
            if len(self._one_by_one_s) == self._one_by_one:
                whole_s = sum(self._one_by_one_s)
                self._grouping.measured(self._one_by_one, whole_s, is_apart=True)

    def _chunks(self, prefilling: list[Planned], n_decoding: int) -> list[Planned]:
        room = self._backend.n_batch - n_decoding
        if n_decoding:
            left = min(self._pace.chunk(self._prefill_chunk, SHARED_STEP_LIMIT_S), room)
        else:
            left = min(self._pace.chunk(self._backend.n_batch), room)
        chunks: list[Planned] = []
        for planned in prefilling:
            planned.count = _share(planned.generation.stretch, left)
            if planned.span is not None and self.eye is not None and self.eye.at_once:
                planned.count = planned.generation.stretch
            if planned.count > 0:
                chunks.append(planned)
                left -= planned.count
        return sorted(chunks, key=_slot_number)

    def _draft(self, generation: GenerationState, others: int, free_cells: int) -> list[int]:
        drafter = generation.drafter
        if drafter is None or generation.generated < _SETTLED_TOKENS:
            return []
        if self._payoff.is_paused and drafter.agreed < _SURE_TOKENS:
            return []
        room = self._backend.n_batch - 1 - others
        limit = min(MAX_DRAFT, free_cells, room, self._left_to_say(generation))
        guess = drafter.guess(limit)
        if not guess:
            return []
        return guess[: draft_length(self._costs, others, drafter.chances(len(guess)))]

    def _left_to_say(self, generation: GenerationState) -> int:
        """Return how many tokens may follow the next one."""
        left = self._backend.n_ctx - len(generation.tokens)
        return min(left, generation.left_to_say - 1)


def _slot_number(planned: Planned) -> int:
    return planned.slot.number


def _share(pending: int, left: int) -> int:
    """Return how many of a prompt's pending tokens go into a step that takes `left`.

    A larger prompt is cut evenly: a step of few tokens costs more than its share.
    """
    if pending <= left or left <= 0:
        return min(pending, max(left, 0))
    steps = -(-pending // left)
    even = -(-pending // steps)
    return min(-(-even // _ALIGNMENT) * _ALIGNMENT, left)
