"""A backend without a model: strict about how it is used, and its answers depend on all it holds.

The next token is a function of every token in the sequence's memory, so a wrong position, a lost
or foreign prefix, or a token decoded twice changes the output.
"""

from collections.abc import Callable, Sequence

import numpy as np

from clawd.engine.protocol import (
    FromWorker,
    GenerationDone,
    Sampling,
    TokenLogprob,
    Tokens,
    TopLogprob,
)
from clawd.engine.worker.backend import DecodeResult
from clawd.engine.worker.buffers import Buffer
from clawd.engine.worker.constraint import NOTHING_FITS
from clawd.engine.worker.grammar import GrammarPlan
from clawd.engine.worker.prompt import Part
from clawd.engine.worker.scheduler import Scheduler

END = 0
LETTERS = 26


def next_token(tokens: Sequence[int], end_every: int = 0) -> int:
    """Return the successor of a sequence: a letter, or END at lengths that `end_every` divides."""
    if end_every and len(tokens) % end_every == 0:
        return END
    value = 7
    for token in tokens:
        value = (value * 31 + token) % 1_000_003
    return ord("a") + value % LETTERS


def repetitive_token(tokens: Sequence[int], end_every: int = 0) -> int:
    """Return a successor that is mostly known from the last two tokens, now and then from all."""
    if end_every and len(tokens) % end_every == 0:
        return END
    whole = next_token(tokens)
    return whole if whole == ord("q") else next_token(tokens[-2:])


Successor = Callable[[Sequence[int], int], int]


def expected_text(prompt: Sequence[int], count: int, follows: Successor = next_token) -> str:
    """Return what a model with a whole memory says after a prompt."""
    tokens = list(prompt)
    for _ in range(count):
        tokens.append(follows(tokens, 0))
    return "".join(map(chr, tokens[len(prompt) :]))


class FakeSampler:
    """Knows the backend; counts how often it is closed."""

    def __init__(self, backend: "FakeBackend") -> None:
        self._backend = backend
        self.closed = 0
        self.lifted = ""
        self.likely = 1.0
        self.constrained: tuple[GrammarPlan, bool] | None = None
        self.nothing_fits = False

    def constrain(self, plan: GrammarPlan, *, in_reasoning: bool) -> None:
        self.constrained = (plan, in_reasoning)

    def sample(self, row: int) -> int:
        assert not self.closed
        if self.nothing_fits:
            return NOTHING_FITS
        return self._backend.follows(self._backend.outputs[row], self._backend.end_every)

    def close(self) -> None:
        self.closed += 1


class FakeBackend:
    """Sequences as lists of cells; a cell is [token], shared by identity."""

    def __init__(
        self,
        *,
        n_ctx: int = 256,
        n_batch: int = 32,
        n_sequences: int = 4,
        reuses_whole_only: bool = False,
        shares_cells: bool = True,
        end_every: int = 0,
        follows: Successor = next_token,
        step_s: Callable[[int], float] = lambda tokens: 1.0 + 0.01 * tokens,
    ) -> None:
        self.n_ctx = n_ctx
        self.n_batch = n_batch
        self.n_sequences = n_sequences
        self.reuses_whole_only = reuses_whole_only
        self.shares_cells = shares_cells
        self.expected_prefill_rate = 1e9
        self.end_every = end_every
        self.follows = follows
        self.step_s = step_s
        self.now = 0.0
        self.sequences: list[list[list[int]]] = [[] for _ in range(n_sequences)]
        self.outputs: dict[int, list[int]] = {}
        self.samplers: list[FakeSampler] = []
        self.batches: list[list[tuple[int, int]]] = []
        self.results: list[DecodeResult] = []
        self.saved = 0
        self.restored = 0
        self.copied = 0
        self.refuses_states = False
        self._batch: list[tuple[int, int, int, bool]] = []

    def clock(self) -> float:
        return self.now

    @property
    def used_cells(self) -> int:
        return len({id(cell) for cells in self.sequences for cell in cells})

    def add_token(self, token: int, position: int, sequence: int) -> int:
        self._batch.append((token, position, sequence, True))
        return len(self._batch) - 1

    def add_prompt(
        self, tokens: Sequence[int], position: int, sequence: int, *, last_output: bool
    ) -> int:
        assert tokens
        for index, token in enumerate(tokens):
            is_last = index == len(tokens) - 1
            self._batch.append((token, position + index, sequence, is_last and last_output))
        return len(self._batch) - 1

    def add_draft(self, tokens: Sequence[int], position: int, sequence: int) -> None:
        assert tokens
        assert self._batch[-1][1:] == (position - 1, sequence, True)
        for index, token in enumerate(tokens):
            self._batch.append((token, position + index, sequence, True))

    def decode(self) -> DecodeResult:
        batch, self._batch = self._batch, []
        assert 0 < len(batch) <= self.n_batch
        self.now += self.step_s(len(batch))
        result = self.results.pop(0) if self.results else DecodeResult.OK
        if self.lacks_cells(batch):
            result = DecodeResult.NO_CELLS
        if result is not DecodeResult.OK:
            return result
        self.outputs = {}
        for row, (token, position, sequence, has_output) in enumerate(batch):
            cells = self.sequences[sequence]
            assert position == len(cells), "a hole, or a token decoded twice"
            cells.append([token])
            if has_output:
                self.outputs[row] = [cell[0] for cell in cells]
        counts: dict[int, int] = {}
        for _, _, sequence, _ in batch:
            counts[sequence] = counts.get(sequence, 0) + 1
        self.batches.append(list(counts.items()))
        return DecodeResult.OK

    def lacks_cells(self, batch: Sequence[tuple[int, int, int, bool]]) -> bool:
        if self.shares_cells:
            return self.used_cells + len(batch) > self.n_ctx
        return any(position >= self.n_ctx for _, position, _, _ in batch)

    def cut(self, sequence: int, length: int) -> bool:
        if self.reuses_whole_only and 0 < length < len(self.sequences[sequence]):
            return False
        del self.sequences[sequence][length:]
        return True

    def share_prefix(self, source: int, target: int, length: int) -> bool:
        assert not self.sequences[target]
        assert not self.reuses_whole_only
        self.copied += not self.shares_cells
        shared = self.sequences[source][:length]
        self.sequences[target] = shared if self.shares_cells else [list(cell) for cell in shared]
        return True

    def clear(self) -> None:
        self.sequences = [[] for _ in range(self.n_sequences)]

    def state_size(self, sequence: int) -> int:
        return 4 * len(self.sequences[sequence]) + 4

    def save_state(self, sequence: int, into: Buffer) -> int:
        cells = self.sequences[sequence]
        assert into.nbytes == self.state_size(sequence)
        into[:] = np.array([len(cells), *(cell[0] for cell in cells)], "<i4").view(np.uint8)
        self.saved += 1
        return into.nbytes

    def load_state(self, sequence: int, state: Buffer) -> bool:
        assert not self.sequences[sequence]
        count, *tokens = state.view("<i4").tolist()
        assert count == len(tokens), "a state cut short ends the process"
        assert (self.used_cells if self.shares_cells else 0) + count <= self.n_ctx
        if self.refuses_states:
            return False
        self.sequences[sequence] = [[token] for token in tokens]
        self.restored += 1
        return True

    def piece(self, token: int) -> bytes:
        return chr(token).encode()

    def ends_generation(self, token: int) -> bool:
        return token == END

    def new_sampler(self, config: Sampling, prompt: Sequence[int]) -> FakeSampler:
        if config.repeat_penalty is not None and config.repeat_penalty <= 0:
            raise ValueError("repeat_penalty must be over 0")
        self.samplers.append(FakeSampler(self))
        return self.samplers[-1]

    def logprob(self, row: int, token: int, top: int) -> TokenLogprob:
        assert row in self.outputs
        likely = tuple(
            TopLogprob(token=token + at, piece=self.piece(token + at), logprob=-1.0 - at)
            for at in range(top)
        )
        return TokenLogprob(token=token, piece=self.piece(token), logprob=-1.0, top=likely)


MAX_STEPS = 5000


def prompt(seed: int, length: int) -> list[int]:
    """Return that many tokens, others for each seed."""
    return [1000 + (seed * 7919 + index * 31) % 997 for index in range(length)]


def parts(tokens: Sequence[int]) -> tuple[Part, ...]:
    """Return tokens as a prompt of one part."""
    return (Part(text=f"{list(tokens)}", tokens=tuple(tokens), generated=False),)


class SchedulerRun:
    """A scheduler, and the events so far."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self.events: list[FromWorker] = []

    def step(self) -> list[FromWorker]:
        events = self.scheduler.step()
        self.events += events
        return events

    def finish(self) -> None:
        for _ in range(MAX_STEPS):
            if not self.scheduler.has_work:
                return
            self.step()
        raise AssertionError("it never ends")

    def text(self, number: int) -> str:
        return "".join(e.text for e in self.events if isinstance(e, Tokens) and e.id == number)

    def done(self, number: int = 1) -> GenerationDone:
        (event,) = (e for e in self.events if isinstance(e, GenerationDone) and e.id == number)
        return event
