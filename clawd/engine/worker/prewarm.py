"""Beginnings of prompts, evaluated ahead in quiet moments and kept: what conversations start with.

A beginning is what all prompts with one system prompt and the same tools have in common, whatever
the user says. It is evaluated in slices, each so short that real work hardly waits for it, and
what is there of it when work arrives is of use to that work. Then it is kept like a conversation
that nobody goes on with: in RAM, and on disk under its tokens, so that the next process reads it.
"""

from collections.abc import Callable, Sequence

from clawd.engine.protocol import Warmth
from clawd.engine.worker.backend import Backend, DecodeResult
from clawd.engine.worker.prompt import Part
from clawd.engine.worker.slots import Slot, SlotCache
from clawd.engine.worker.states import MIN_KEPT_TOKENS

MAX_WANTED = 8
# Work that arrives waits for a slice at most.
SLICE_S = 0.2
_FIRST_SLICE = 32
_LEAST_SLICE = 16
# What is evaluated is not kept as it is: a part of it changes with the hour.
_PASSING = (Part(text="", tokens=(), generated=False),)


class Warmer:
    """Evaluates beginnings on a backend that has nothing else to do."""

    def __init__(self, backend: Backend, cache: SlotCache, clock: Callable[[], float]) -> None:
        self._backend = backend
        self._cache = cache
        self._clock = clock
        # With how much of it is kept; the one that was wanted last is the next.
        self._wanted: list[tuple[list[int], int]] = []
        self._slot: Slot | None = None
        self._slice = _FIRST_SLICE
        self._restored = 0
        self._elapsed_s = 0.0
        self._news: list[Warmth] = []

    @property
    def elapsed_ms(self) -> float:
        """Return what the one that was begun last took so far, without the waiting."""
        return self._elapsed_s * 1000

    def want(self, tokens: Sequence[int], stable: int) -> None:
        """Have a beginning evaluated when there is time, and its first `stable` tokens kept.

        One that is too short is none.
        """
        if len(tokens) < MIN_KEPT_TOKENS:
            self._news.append(Warmth(tokens=0))
            return
        if self._slot is not None:
            self.give_way()
        self._wanted = [each for each in self._wanted if each[0] != tokens][1 - MAX_WANTED :]
        self._wanted.append((list(tokens), stable))

    def want_again(self, tokens: Sequence[int]) -> None:
        """Have a beginning kept that was met a second time, unless it is."""
        if len(tokens) >= MIN_KEPT_TOKENS and not self._cache.holds_beginning(tokens):
            self.want(tokens, len(tokens))

    def news(self) -> list[Warmth]:
        """Return what happened since this was asked last."""
        news, self._news = self._news, []
        return news

    def give_way(self) -> None:
        """Leave what is evaluated so far to the work that has come."""
        slot, self._slot = self._slot, None
        if slot is not None:
            self._cache.release(slot, _PASSING)

    def rest(self) -> bool:
        """Use a quiet moment: evaluate a slice; return whether there was something to do."""
        if not self._wanted:
            return False
        tokens, stable = self._wanted[-1]
        started = self._clock()
        if self._slot is None:
            self._begin(tokens, stable)
        slot = self._slot
        is_over = slot is None or not self._go_on(slot, tokens, stable)
        self._elapsed_s += self._clock() - started
        if is_over:
            self._wanted.pop()
            self.give_way()
        elif slot is not None:
            self._tell(tokens, len(slot.tokens))
            if len(slot.tokens) == len(tokens):
                self._wanted.pop()
                self.give_way()
        return True

    def _begin(self, tokens: list[int], stable: int) -> None:
        self._elapsed_s = 0.0
        # What is to be kept must end where it is kept, whatever goes on further.
        is_kept = self._cache.holds_beginning(tokens[:stable])
        self._slot = self._cache.acquire(tokens if is_kept else tokens[:stable], spares_idle=True)
        if self._slot is not None:
            self._slot.parts = ()
            self._restored = len(self._slot.tokens)

    def _go_on(self, slot: Slot, tokens: list[int], stable: int) -> bool:
        """Evaluate a slice; return whether that went well."""
        at = len(slot.tokens)
        border = stable if at < stable else len(tokens)
        chunk = tokens[at : min(at + self._slice, border)][: self._backend.n_batch]
        while self._cache.free_cells < len(chunk):
            if not self._cache.evict_oldest():
                return False
        started = self._clock()
        self._backend.add_prompt(chunk, at, slot.number, last_output=False)
        if self._backend.decode() is not DecodeResult.OK:
            return False
        self._cache.extend(slot, chunk)
        if len(slot.tokens) == stable:
            self._cache.keep_beginning(slot)
        took_s = max(self._clock() - started, 1e-6)
        fitting = int(len(chunk) * SLICE_S / took_s)
        self._slice = max(_LEAST_SLICE, min(fitting, 2 * self._slice, self._backend.n_batch))
        return True

    def _tell(self, tokens: list[int], ready: int) -> None:
        self._news.append(
            Warmth(
                tokens=len(tokens),
                ready=ready,
                restored=min(self._restored, ready),
                elapsed_ms=self.elapsed_ms,
            )
        )
