"""What goes into the next step: the token of every sequence that decodes, guesses, prompt tokens.

plan = sizes(running) → cells are found for it → batches(plan), decoded one after the other
"""

from collections.abc import Sequence

from clawd.engine.worker.backend import Backend
from clawd.engine.worker.costs import Grouping, Payoff, PromptGrouping, StepCosts, draft_length
from clawd.engine.worker.drafts import MAX_DRAFT
from clawd.engine.worker.generation import Generation
from clawd.engine.worker.pace import SHARED_STEP_LIMIT_S, Pace
from clawd.engine.worker.slots import Slot

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

    __slots__ = ("accepted", "count", "draft", "generation", "row", "slot", "was_decoding")

    def __init__(self, generation: Generation, slot: Slot, count: int) -> None:
        self.generation = generation
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
    """

    def __init__(self, backend: Backend, *, prefill_chunk: int, speculates: bool) -> None:
        self._backend = backend
        self._prefill_chunk = prefill_chunk
        self._pace = Pace(backend.expected_prefill_rate)
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

    def plan(self, running: Sequence[Generation]) -> list[Planned]:
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
            planned.count = _share(planned.generation.pending, left)
            if planned.count > 0:
                chunks.append(planned)
                left -= planned.count
        return sorted(chunks, key=_slot_number)

    def _draft(self, generation: Generation, others: int, free_cells: int) -> list[int]:
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

    def _left_to_say(self, generation: Generation) -> int:
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
