"""What goes into the next step: the token of every sequence that decodes, guesses, prompt tokens.

plan = sizes(running) → cells are found for it → batches(plan), decoded one after the other
"""

from collections.abc import Sequence

from clawd.engine.worker.backend import Backend
from clawd.engine.worker.costs import Grouping, PromptGrouping, StepCosts, draft_length
from clawd.engine.worker.drafts import MAX_DRAFT
from clawd.engine.worker.generation import Generation
from clawd.engine.worker.pace import SHARED_STEP_LIMIT_S, Pace
from clawd.engine.worker.slots import Slot

# Step sizes to know before they are needed, and what a step may take to be worth knowing.
_TRIED_SIZES = (1, 2, 3, 4, 6, 8, 12, 17, 25, 33)
_LONGEST_TRIAL_S = 0.25
# Prompts are cut at multiples of this, which matrix kernels like.
_ALIGNMENT = 32


class Planned:
    """What one generation has in a step: its next `count` tokens, then guesses."""

    __slots__ = ("count", "draft", "generation", "row", "slot", "was_decoding")

    def __init__(self, generation: Generation, slot: Slot, count: int) -> None:
        self.generation = generation
        self.slot = slot
        self.count = count
        self.draft: list[int] = []
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
        self._grouping = Grouping(self._costs)
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
        if not prefilling:
            return decoding
        return decoding + self._chunks(prefilling, len(decoding))

    def batches(self, plan: list[Planned], free_cells: int) -> list[list[Planned]]:
        """Return the plan as batches, with guesses where they pay and have cells."""
        self._answers_s = 0.0
        decoding = [planned for planned in plan if planned.was_decoding]
        prompts = plan[len(decoding) :]
        if not prompts:
            return self._of_answers(plan, free_cells)
        if not decoding or not self._prompts.is_apart():
            return [plan]
        apart = self._grouping.is_apart(len(decoding))
        return [*([each] for each in decoding), prompts] if apart else [decoding, prompts]

    def _of_answers(self, plan: list[Planned], free_cells: int) -> list[list[Planned]]:
        is_apart = self._grouping.is_apart(len(plan))
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
        self._costs.measured(sum(planned.size for planned in batch), elapsed_s)

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
        return chunks

    def _draft(self, generation: Generation, others: int, free_cells: int) -> list[int]:
        drafter = generation.drafter
        if drafter is None:
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
        limit = generation.sampling.max_tokens
        return min(left, limit - generation.generated - 1) if limit else left


def _share(pending: int, left: int) -> int:
    """Return how many of a prompt's pending tokens go into a step that takes `left`.

    A larger prompt is cut evenly: a step of few tokens costs more than its share.
    """
    if pending <= left or left <= 0:
        return min(pending, max(left, 0))
    steps = -(-pending // left)
    even = -(-pending // steps)
    return min(-(-even // _ALIGNMENT) * _ALIGNMENT, left)
