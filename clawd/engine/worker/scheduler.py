"""Continuous batching: many generations through one model, a step at a time.

    step() = admit → plan → for each batch: decode → sample each → events

A batch holds the last token of every decoding sequence first, then prompt tokens in order of
arrival; planner.py says when there is more than one, and what is decoded on a guess. KV cells are
shared by all: when they run out, idle sequences go first, then the newest generation gives its
cells back and waits at the head of the queue; the oldest always goes on.
"""

import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Literal

from clawd.engine.protocol import (
    DoneReason,
    FromWorker,
    GenerationFailed,
    Sampling,
)
from clawd.engine.worker.backend import Backend, DecodeResult
from clawd.engine.worker.constraint import NOTHING_FITS
from clawd.engine.worker.generation import GenerationState
from clawd.engine.worker.grammar import GrammarPlan
from clawd.engine.worker.pictures import PictureError, PictureSpan
from clawd.engine.worker.planner import SHARED_STEP_LIMIT_S, STEP_LIMIT_S, Planned, Planner
from clawd.engine.worker.prewarm import Warmer
from clawd.engine.worker.prompt import Part
from clawd.engine.worker.slots import Slot, SlotCache
from clawd.engine.worker.states import StateStore, shared_length
from clawd.wire.pictures import Picture

# Cells that must be free beyond a prompt before it is admitted beside others, so that it is not
# at once the one that has to give its cells back.
ADMISSION_RESERVE = 64
# Tokens of a prompt that another is about to have read: for so many it is waited.
MIN_AWAITED = 32
MIN_RETRY_AFTER_S = 1.0
MAX_RETRY_AFTER_S = 60.0
RATED_ENDS = 32
MIN_RATED_ENDS = 4

_ANY_TOKEN = 0

_Ending = DoneReason | Literal["nothing_fits"]


class Scheduler:
    """Runs generations on a backend; knows no socket and no llama.cpp."""

    def __init__(
        self,
        backend: Backend,
        planner: Planner,
        *,
        n_parallel: int,
        max_queue: int,
        store: StateStore | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._backend = backend
        self._n_parallel = n_parallel
        self._max_queue = max_queue
        self._clock = clock
        self._eye = planner.eye
        lags = self._eye.album.lags if self._eye is not None else None
        self._cache = SlotCache(backend, store, lags)
        self.warmer = Warmer(backend, self._cache, clock)
        self._planner = planner
        self._queue: deque[GenerationState] = deque()
        self._running: list[GenerationState] = []
        self._mean_duration_s = MIN_RETRY_AFTER_S
        # Since there was work last: when generations ended, and how many were turned away.
        self._ended_at: deque[float] = deque(maxlen=RATED_ENDS)
        self._turned_away = 0

    @property
    def has_work(self) -> bool:
        """Return whether a step would do anything."""
        return bool(self._running or self._queue)

    @property
    def running(self) -> int:
        """Return how many generations have a slot."""
        return len(self._running)

    @property
    def queued(self) -> int:
        """Return how many generations wait for a slot."""
        return len(self._queue)

    @property
    def cached_sequences(self) -> int:
        """Return how many idle sequences are kept for their prefix."""
        return self._cache.idle_count

    def histories(self) -> list[tuple[Part, ...]]:
        """Return the parts of every kept sequence."""
        return self._cache.histories()

    def refusal(self, number: int) -> GenerationFailed | None:
        """Return why a new generation cannot be taken now, before its prompt is even built."""
        if any(generation.number == number for generation in (*self._running, *self._queue)):
            return GenerationFailed(
                id=number,
                code="invalid_request",
                message=f"generation {number} is already running",
                hint="use a new id for every generation",
            )
        if len(self._running) + len(self._queue) < self._n_parallel + self._max_queue:
            return None
        wait_s = self._wait_s(len(self._queue) + 1 + self._turned_away)
        self._turned_away += 1
        return GenerationFailed(
            id=number,
            code="busy",
            message=f"{len(self._queue)} generations are waiting already (max_queue)",
            hint="try again later, or raise max_queue or n_parallel",
            retry_after_s=min(max(wait_s, MIN_RETRY_AFTER_S), MAX_RETRY_AFTER_S),
        )

    def _wait_s(self, ahead: int) -> float:
        """Return how long it takes until so many have ended, at the pace of the last ones.

        A client that was turned away counts as well: they come back, and not all at once.
        """
        ends = self._ended_at
        if len(ends) >= MIN_RATED_ENDS and ends[-1] > ends[0]:
            return ahead * (ends[-1] - ends[0]) / (len(ends) - 1)
        return self._mean_duration_s * ahead / self._n_parallel

    def submit(
        self,
        number: int,
        parts: tuple[Part, ...],
        sampling: Sampling,
        grammar: GrammarPlan | None = None,
        *,
        fallback: str = "",
        pictures: Iterable[Picture] = (),
    ) -> GenerationFailed | None:
        """Queue a generation; return why not when its prompt can never fit."""
        generation = GenerationState(number, parts, sampling)
        generation.fallback = fallback
        if self._eye is not None:
            generation.pieces = self._eye.album.pieces(pictures)
        count = generation.prompt_tokens
        if not count:
            return GenerationFailed(
                id=number, code="invalid_request", message="the prompt has no tokens"
            )
        if count >= self._backend.n_ctx:
            return context_full(number, f"{count} tokens", self._backend.n_ctx, count)
        if generation.tokens[-1] < 0:
            told = "the prompt ends with a picture; expected text behind it"
            return GenerationFailed(id=number, code="invalid_request", message=told)
        try:
            generation.sampler = self._backend.new_sampler(sampling, generation.tokens)
        except ValueError as error:
            return GenerationFailed(id=number, code="invalid_request", message=str(error))
        if grammar is not None:
            generation.sampler.constrain(grammar, in_reasoning=_ends_in_reasoning(parts, grammar))
            generation.quarantined = grammar.quarantined
        self._queue.append(generation)
        return None

    def cancel(self, number: int) -> list[FromWorker]:
        """End a generation wherever it is; its slot is free at once. Unknown ids do nothing."""
        for generation in (*self._running, *self._queue):
            if generation.number == number:
                return self._end(generation, "cancelled")
        return []

    def step(self) -> list[FromWorker]:
        """Let every running generation go on, and return the events of all of them."""
        events = self._admit()
        plan = self._plan_within_cells(events)
        for batch in self._planner.batches(plan, self._cache.free_cells) if plan else ():
            result = self._decode(batch, events)
            if result is DecodeResult.NO_CELLS:
                events += self._give_way()
            elif result is DecodeResult.FAILED:
                events += self._fail_all()
            if result is not DecodeResult.OK:
                break
        return events + self._encode(SHARED_STEP_LIMIT_S if plan else STEP_LIMIT_S)

    def _encode(self, limit_s: float) -> list[FromWorker]:
        """Go on for about so long with the picture that was begun first; return what fails."""
        waiting = [each for each in self._running if each.span is not None and not each.stretch]
        begun = [each for each in waiting if each.encoding is not None]
        for generation in (begun or waiting)[:1]:
            span = generation.span
            assert self._eye is not None, "there are pictures, and nothing encodes them"
            assert span is not None, "it waits for no picture"
            if generation.encoding is None:
                generation.encoding = self._eye.begin(*generation.pieces[span.number])
            try:
                embeddings = generation.encoding.go_on(limit_s)
            except PictureError as error:
                return self._fail(generation, str(error))
            if embeddings is not None:
                generation.encoding = None
                generation.embeddings = (span.number, embeddings)
        return []

    def rest(self) -> bool:
        """Use a quiet moment, while there is no work; return whether there was something to do."""
        return self.warmer.rest() or self._cache.rest() or self._try_a_size()

    def shut_down(self, limit_s: float) -> None:
        """End everything and save what is worth it, within this time; nothing runs after it."""
        deadline = self._clock() + limit_s
        self.warmer.give_way()
        for generation in (*self._running, *self._queue):
            generation.close()
            self._leave(generation)
        self._cache.save(lambda: self._clock() >= deadline)

    def _try_a_size(self) -> bool:
        """Measure a step of a size that is not known yet; return whether one was."""
        size = self._planner.size_to_try()
        sequence = self._cache.spare_sequence(size) if size is not None else None
        if size is None or sequence is None:
            return False
        started = self._clock()
        row = self._backend.add_token(_ANY_TOKEN, 0, sequence)
        if size > 1:
            self._backend.add_draft([_ANY_TOKEN] * (size - 1), 1, sequence)
        result = self._backend.decode()
        if result is DecodeResult.OK:
            # The output is there only when it is read.
            self._backend.logprob(row, _ANY_TOKEN, 0)
            self._planner.tried(size, self._clock() - started)
        self._backend.cut(sequence, 0)
        return result is DecodeResult.OK

    def _admit(self) -> list[FromWorker]:
        self.warmer.give_way()
        events: list[FromWorker] = []
        held_back = 0
        for generation in tuple(self._queue):
            if len(self._running) + held_back >= self._n_parallel:
                break
            if self._is_being_read(generation):
                held_back += 1
                continue
            if self._running and not self._cache.can_hold(generation.tokens, _reserve(generation)):
                break
            # Putting a copy back is a part of evaluating the prompt.
            admitted_at = self._clock()
            slot = self._cache.acquire(generation.tokens)
            if slot is None:
                break
            self._queue.remove(generation)
            self._start(generation, slot, admitted_at)
            if not generation.is_evaluated:
                events.append(generation.progress())
        return events

    def _is_being_read(self, generation: GenerationState) -> bool:
        """Return whether one that runs is about to have read what this prompt begins with.

        Several that begin at the same moment would each read what they share; the first reads it
        for all. A place is kept free for each that waits.
        """
        tokens = generation.tokens
        ahead = [other.tokens for other in self._running if not other.is_evaluated]
        shared = max((shared_length(other, tokens) for other in ahead), default=0)
        if shared < MIN_AWAITED or generation.is_evaluated or self._backend.reuses_whole_only:
            return False
        return shared - self._cache.reusable(tokens) >= MIN_AWAITED

    def _start(self, generation: GenerationState, slot: Slot, admitted_at: float) -> None:
        slot.parts = generation.parts
        generation.slot = slot
        if not generation.is_evaluated:
            generation.cached_tokens = len(slot.tokens)
            generation.admitted_at = admitted_at
        self._running.append(generation)

    def _plan_within_cells(self, events: list[FromWorker]) -> list[Planned]:
        """Plan a step for which there are cells, making room as far as needed."""
        plan = self._planner.plan(self._running)
        while plan and self._cache.free_cells < sum(planned.count for planned in plan):
            if not self._cache.evict_oldest():
                events += self._give_way()
                plan = self._planner.plan(self._running)
        return plan

    def _decode(self, batch: list[Planned], events: list[FromWorker]) -> DecodeResult:
        started = self._clock()
        if batch[0].span is not None:
            result = self._decode_cells(batch[0], batch[0].span)
        else:
            for planned in batch:
                self._add_to_batch(planned)
            result = self._backend.decode()
        if result is not DecodeResult.OK:
            return result
        for planned in batch:
            position = len(planned.slot.tokens)
            tokens = planned.generation.tokens[position : position + planned.count]
            self._cache.extend(planned.slot, tokens + planned.draft)
        endings = [(planned, self._sample(planned)) for planned in batch]
        now = self._clock()
        self._planner.measured(batch, now - started)
        for planned, ending in endings:
            events += self._told(planned, ending, now)
        return result

    def _decode_cells(self, planned: Planned, span: PictureSpan) -> DecodeResult:
        """Have the model read the planned cells of a picture."""
        generation, slot = planned.generation, planned.slot
        assert self._eye is not None, "there are pictures, and nothing reads them"
        assert generation.embeddings is not None, "the picture is not encoded"
        first = len(slot.tokens) - span.start
        return self._eye.decode(
            generation.embeddings[1],
            range(first, first + planned.count),
            self._position(generation, span.start),
            slot.number,
        )

    def _position(self, generation: GenerationState, length: int) -> int:
        """Return the position behind so many tokens of a generation."""
        lags = self._eye.album.lags if self._eye is not None else {}
        return length - generation.lag(length, lags)

    def _add_to_batch(self, planned: Planned) -> None:
        generation, slot = planned.generation, planned.slot
        at = len(slot.tokens)
        position = self._position(generation, at)
        if generation.pending == 1:
            planned.row = self._backend.add_token(generation.tokens[at], position, slot.number)
            if planned.draft:
                self._backend.add_draft(planned.draft, position + 1, slot.number)
            return
        is_last = planned.count == generation.pending
        row = self._backend.add_prompt(
            generation.tokens[at : at + planned.count], position, slot.number, last_output=is_last
        )
        if is_last:
            planned.row = row

    def _sample(self, planned: Planned) -> _Ending | None:
        """Sample row after row while guesses are right; return why the generation ends, if so.

        What the sampler draws is what it would have drawn one token at a time.
        """
        generation, sampler = planned.generation, planned.generation.sampler
        if planned.row < 0 or sampler is None:
            return None
        draft = planned.draft
        ending: _Ending | None = None
        right = 0
        for right in range(len(draft) + 1):
            row = planned.row + right
            token = sampler.sample(row)
            ending = self._take(generation, token, row)
            if ending is not None or right == len(draft) or token != draft[right]:
                break
        if draft:
            generation.drafted_tokens += len(draft)
            generation.accepted_tokens += right
            planned.accepted = right
            self._drop_wrong(planned, len(draft) - right)
        return ending

    def _drop_wrong(self, planned: Planned, count: int) -> None:
        slot = planned.slot
        if count and not self._cache.trim(slot, len(slot.tokens) - count):
            self._planner.speculates = False
            self._cache.evict(slot)

    def _take(self, generation: GenerationState, token: int, row: int) -> _Ending | None:
        if token == NOTHING_FITS:
            return "nothing_fits"
        if self._backend.ends_generation(token):
            return "stop"
        sampling = generation.sampling
        if sampling.logprobs:
            generation.note_logprob(self._backend.logprob(row, token, sampling.top_logprobs or 0))
        reason = generation.push(token, self._backend.piece(token))
        if reason is None and len(generation.tokens) > self._backend.n_ctx:
            reason = "length"
        return reason

    def _told(self, planned: Planned, ending: _Ending | None, now: float) -> list[FromWorker]:
        """Return the events of a generation in a step."""
        generation = planned.generation
        events: list[FromWorker] = []
        if not generation.is_evaluated:
            events.append(generation.progress())
        if planned.row < 0:
            return events
        if not generation.is_evaluated:
            events.append(generation.mark_evaluated(now, self._backend.n_ctx))
            if self._planner.speculates:
                generation.begin_drafts()
        if ending == "nothing_fits":
            return events + self._fail(
                generation, "no token of the vocabulary goes on as the grammar wants"
            )
        if ending is not None:
            return events + self._end(generation, ending)
        tokens = generation.take_tokens()
        return [*events, tokens] if tokens is not None else events

    def _end(self, generation: GenerationState, reason: DoneReason) -> list[FromWorker]:
        now = self._clock()
        tokens, done = generation.finish(reason, now)
        if generation.slot is not None:
            self._mean_duration_s += (now - generation.admitted_at - self._mean_duration_s) * 0.2
            self._ended_at.append(now)
            self._turned_away = max(0, self._turned_away - 1)
        self._leave(generation)
        if not self.has_work:
            self._ended_at.clear()
            self._turned_away = 0
        return [tokens, done] if tokens is not None else [done]

    def _leave(self, generation: GenerationState) -> None:
        if generation in self._running:
            self._running.remove(generation)
        else:
            self._queue.remove(generation)
        generation.stop_encoding()
        slot, generation.slot = generation.slot, None
        if slot is not None:
            self._cache.release(slot, generation.history())

    def _give_way(self) -> list[FromWorker]:
        """Free cells when no idle sequence is left or the backend found none."""
        if self._cache.evict_oldest():
            return []
        newest = self._running[-1]
        if len(self._running) == 1:
            if newest.is_evaluated:
                return self._end(newest, "length")
            size = f"{newest.prompt_tokens} tokens and does not fit as it is"
            count = newest.prompt_tokens
            return self._fail_as(
                newest, context_full(newest.number, size, self._backend.n_ctx, count)
            )
        slot = newest.slot
        self._leave(newest)
        if slot is not None:
            self._cache.put_away(slot)
        self._queue.appendleft(newest)
        return []

    def _fail_all(self) -> list[FromWorker]:
        """End everything that runs: after a failed decode the memory's state is unknown."""
        events: list[FromWorker] = []
        for generation in self._running[:]:
            events += self._fail(generation, "llama.cpp could not decode the batch")
        self._cache.reset()
        return events

    def _fail(self, generation: GenerationState, message: str) -> list[FromWorker]:
        failed = GenerationFailed(id=generation.number, code="engine", message=message)
        return self._fail_as(generation, failed)

    def _fail_as(self, generation: GenerationState, failed: GenerationFailed) -> list[FromWorker]:
        generation.close()
        self._leave(generation)
        return [failed]


def context_full(number: int, size: str, n_ctx: int, tokens: int) -> GenerationFailed:
    """Return the answer to a prompt that does not fit."""
    return GenerationFailed(
        id=number,
        code="context_full",
        message=f"the prompt has {size}, the context holds {n_ctx} and needs room for an answer",
        hint="shorten the conversation, or raise ctx_size of the model",
        n_prompt_tokens=tokens,
        n_ctx=n_ctx,
    )


def _ends_in_reasoning(parts: tuple[Part, ...], grammar: GrammarPlan) -> bool:
    """Return whether the prompt ends with a marker that opens reasoning."""
    openings = tuple(opening for opening, _ in grammar.thoughts if opening)
    return bool(parts) and parts[-1].text.rstrip().encode().endswith(openings)


def _reserve(generation: GenerationState) -> int:
    return min(generation.left_to_say, ADMISSION_RESERVE)
