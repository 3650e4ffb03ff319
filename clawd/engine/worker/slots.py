"""The prefix cache: which sequence of the KV memory a prompt goes into, and what it keeps there.

A slot is a sequence of the memory with the tokens that it holds. It is in use by one generation
or idle. Where all share their cells, every cell in use costs time at every step, idle or not; so
idle sequences are copied out in quiet moments and leave the memory when something else is admitted.
Otherwise, and without a store for copies, they stay until their place is needed, the least recently
used goes first.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

from clawd.engine.worker.backend import Backend
from clawd.engine.worker.buffers import Buffer
from clawd.engine.worker.pictures import positions_of, whole_length
from clawd.engine.worker.prompt import Part
from clawd.engine.worker.states import MIN_KEPT_TOKENS, Kept, StateStore, shared_length

# Counts the KV cells that sequences take, where several may share the cells of a prefix.
#
# A sequence is a list of runs; a run belongs to every sequence that holds it. Sharing a prefix
# costs no cell (llama.h `llama_memory_seq_cp` in a unified cache), and a cell is free when the
# last sequence that holds it lets go.


class _Run:
    """Consecutive cells that are held by the same sequences."""

    __slots__ = ("holders", "length")

    def __init__(self, length: int, holders: int) -> None:
        self.length = length
        self.holders = holders


class CellMap:
    """Cells in use, by sequence."""

    def __init__(self, n_sequences: int) -> None:
        self._runs: list[list[_Run]] = [[] for _ in range(n_sequences)]
        self.used = 0

    def length(self, sequence: int) -> int:
        """Return how many cells the sequence holds, shared ones included."""
        return sum(run.length for run in self._runs[sequence])

    def used_by(self, sequences: Iterable[int]) -> int:
        """Return how many cells these sequences hold together."""
        runs = {id(run): run.length for sequence in sequences for run in self._runs[sequence]}
        return sum(runs.values())

    def extend(self, sequence: int, count: int) -> None:
        """Give the sequence new cells of its own at its end."""
        runs = self._runs[sequence]
        self.used += count
        if runs and runs[-1].holders == 1:
            runs[-1].length += count
        else:
            runs.append(_Run(count, 1))

    def share_prefix(self, source: int, target: int, length: int) -> None:
        """Let the empty `target` hold the first `length` cells of `source` too."""
        for run in self._cut_at(source, length):
            run.holders += 1
            self._runs[target].append(run)

    def cut(self, sequence: int, length: int) -> None:
        """Let the sequence keep its first `length` cells only."""
        kept = self._cut_at(sequence, length)
        for run in self._runs[sequence][len(kept) :]:
            run.holders -= 1
            if not run.holders:
                self.used -= run.length
        self._runs[sequence] = kept

    def _cut_at(self, sequence: int, length: int) -> list[_Run]:
        """Split the run that goes over `length` and return the runs before that border."""
        runs = self._runs[sequence]
        for index, run in enumerate(runs):
            if length <= 0:
                return runs[:index]
            if run.length > length:
                self._split(run, length)
                return self._runs[sequence][: index + 1]
            length -= run.length
        return runs[:]

    def _split(self, run: _Run, length: int) -> None:
        rest = _Run(run.length - length, run.holders)
        run.length = length
        for runs in self._runs:
            for index, candidate in enumerate(runs):
                if candidate is run:
                    runs.insert(index + 1, rest)
                    break


# An idle sequence is cut down for a prompt only when the prompt shares this much of it: the few
# tokens that every prompt of a template begins with must not cost a long conversation its cache.
MIN_SHARE_TO_TAKE_OVER = 0.5
# A prefix is copied out of a whole sequence, which takes about as long as to compute a hundredth of
# its tokens; for fewer it does not pay.
_LEAST_COPIED_SHARE = 0.01
# A copy is put back as a whole: it must save more tokens than that, and this share of its own.
MIN_RESTORED_TOKENS = 16
MIN_RESTORED_SHARE = 0.05
# Cells that must be free beyond a prompt, when others run, before a copy is put back for it.
RESTORE_HEADROOM = 64
_MAX_LOST_COPIES = 4


class Slot:
    """One sequence: its tokens in the memory, and the text they came from."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.tokens: list[int] = []
        self.parts: tuple[Part, ...] = ()
        self.in_use = False
        self.last_used = 0
        # Whether a quiet moment was used for it since it was released.
        self.is_settled = True


class SlotCache:
    """All slots of a backend; the only caller of its memory operations."""

    def __init__(
        self,
        backend: Backend,
        store: StateStore | None = None,
        lags: Mapping[int, int] | None = None,
    ) -> None:
        self._backend = backend
        # By how many cells a piece of a picture has more than positions.
        self._lags = lags if lags is not None else {}
        self._store = store or StateStore()
        self._slots = [Slot(number) for number in range(backend.n_sequences)]
        sharers = 1 if backend.shares_cells else backend.n_sequences
        self._n_cells = backend.n_ctx * sharers
        self._cells = CellMap(backend.n_sequences)
        self._clock = 0

    @property
    def idle_count(self) -> int:
        """Return how many idle sequences are kept, in the memory or as a copy."""
        held = [slot.tokens for slot in self._slots if slot.tokens]
        copies = [kept.tokens for kept in self._store.known()]
        apart = sum(1 for copy in copies if not any(_begins(tokens, copy) for tokens in held))
        return len(self._idle()) + apart

    @property
    def free_cells(self) -> int:
        """Return how many cells no sequence holds."""
        return self._n_cells - self._cells.used

    def histories(self) -> list[tuple[Part, ...]]:
        """Return the texts of all kept sequences, those in use included."""
        kept = [*(slot.parts for slot in self._slots), *(kept.parts for kept in self._store.all())]
        return [parts for parts in kept if parts]

    def can_hold(self, tokens: Sequence[int], reserve: int) -> bool:
        """Return whether the prompt and `reserve` more fit beside the sequences in use."""
        used = [slot.number for slot in self._slots if slot.in_use]
        shared = max(
            (shared_length(self._slots[number].tokens, tokens) for number in used), default=0
        )
        if self._backend.reuses_whole_only or not self._backend.shares_cells:
            shared = 0
        free = self._n_cells - self._cells.used_by(used)
        return len(tokens) - shared + reserve <= free

    def reusable(self, tokens: Sequence[int]) -> int:
        """Return how many of a prompt's first tokens need not be evaluated."""
        return max(self._best_source(tokens)[1], self._store.find(tokens)[1])

    def acquire(self, tokens: Sequence[int], *, spares_idle: bool = False) -> Slot | None:
        """Return a slot holding the longest prefix of the prompt that can be reused, or None.

        At least one token of the prompt is left to decode. None means all slots are in use. With
        `spares_idle` no idle sequence is cut down or put away for it while there is room.
        """
        if all(slot.in_use for slot in self._slots):
            return None
        slot = self._restored(tokens, spares_idle=spares_idle) or self._reused(
            tokens, spares_idle=spares_idle
        )
        slot.in_use = True
        if not spares_idle:
            self._put_idle_away()
        return slot

    def _reused(self, tokens: Sequence[int], *, spares_idle: bool) -> Slot:
        """Return a free slot with what the memory itself holds of the prompt."""
        source, length = self._best_source(tokens)
        if source is None:
            slot = self._emptied_slot(None)
        elif self._may_take_over(source, length) and not (
            spares_idle and length < len(source.tokens)
        ):
            if len(source.tokens) - length >= MIN_RESTORED_TOKENS:
                # Its end may be another conversation's, which was not copied out yet.
                self._copy_out(source)
            slot = self._moved_to_others(source, length)
        else:
            slot = self._emptied_slot(source)
            if slot is not source and self._pays_to_share(source, length):
                self._share(source, slot, length)
        if slot is source and not self._cut(slot, length):
            self.evict(slot)
        return slot

    def extend(self, slot: Slot, tokens: Sequence[int]) -> None:
        """Note that these tokens were decoded into the slot."""
        slot.tokens.extend(tokens)
        self._cells.extend(slot.number, len(tokens))

    def trim(self, slot: Slot, length: int) -> bool:
        """Drop what was decoded behind `length` tokens; False when the backend cannot."""
        return self._cut(slot, length)

    def release(self, slot: Slot, parts: tuple[Part, ...]) -> None:
        """Make the slot idle, keeping its tokens and the text they came from."""
        self._clock += 1
        whole = whole_length(slot.tokens, len(slot.tokens))
        if whole < len(slot.tokens) and not self._cut(slot, whole):
            self.evict(slot)
        slot.in_use = False
        slot.last_used = self._clock
        slot.parts = parts if slot.tokens else ()
        slot.is_settled = False

    def holds_beginning(self, tokens: Sequence[int]) -> bool:
        """Return whether just this beginning is kept."""
        return self._store.holds_beginning(tokens)

    def keep_beginning(self, slot: Slot) -> None:
        """Have a copy of what conversations start with, which none of them replaces."""
        if self._store.is_on and not self._store.holds_beginning(slot.tokens):
            self._store.keep(
                slot.tokens[:], (), self._backend.state_size(slot.number), self._filler(slot)
            )

    def put_away(self, slot: Slot) -> None:
        """Empty a slot; what it held is copied out if there is room for it."""
        self._copy_out(slot)
        self.evict(slot)

    def evict(self, slot: Slot) -> None:
        """Empty a slot."""
        self._backend.cut(slot.number, 0)
        self._cells.cut(slot.number, 0)
        slot.tokens = []
        slot.parts = ()

    def evict_oldest(self) -> bool:
        """Empty the least recently used idle slot; False when none holds anything."""
        idle = self._idle()
        if not idle:
            return False
        self.put_away(idle[0])
        return True

    def rest(self) -> bool:
        """Use a quiet moment: copy one idle sequence out, or let the store do what it has to.

        Returns:
            Whether there was something to do.
        """
        for slot in self._idle():
            if not slot.is_settled:
                slot.is_settled = True
                self._copy_out(slot)
                return True
        return self._store.rest()

    def spare_sequence(self, length: int) -> int | None:
        """Return an empty sequence that has so many cells, None when there is none."""
        if length > self.free_cells:
            return None
        return next((s.number for s in self._slots if not s.tokens and not s.in_use), None)

    def save(self, is_time_over: Callable[[], bool]) -> None:
        """Copy out what is idle and write it to the disk, until the time is over."""
        for slot in self._idle():
            if self._store.is_lasting and not is_time_over():
                self._copy_out(slot)
        self._store.save(is_time_over)

    def reset(self) -> None:
        """Forget everything: the memory's state is not known any more."""
        self._backend.clear()
        self._cells = CellMap(self._backend.n_sequences)
        for slot in self._slots:
            slot.tokens = []
            slot.parts = ()

    def _idle(self) -> list[Slot]:
        """Return the idle slots that hold something, the least recently used first."""
        idle = [slot for slot in self._slots if slot.tokens and not slot.in_use]
        return sorted(idle, key=lambda slot: slot.last_used)

    def _copy_out(self, slot: Slot) -> bool:
        """Have a copy of an idle sequence in RAM; False when it is not worth it or too large."""
        if not self._store.is_on or len(slot.tokens) < MIN_KEPT_TOKENS:
            return False
        if self._store.covers(slot.tokens):
            return True
        size = self._backend.state_size(slot.number)
        return self._store.keep(slot.tokens[:], slot.parts, size, self._filler(slot))

    def _filler(self, slot: Slot) -> Callable[[Buffer], int]:
        return lambda buffer: self._backend.save_state(slot.number, buffer)

    def _put_idle_away(self) -> None:
        """Let go of the cells of what is idle, unless a copy would be missed and has no room."""
        if not self._store.is_on or not self._backend.shares_cells:
            return
        for slot in self._idle():
            if self._copy_out(slot) or len(slot.tokens) < MIN_KEPT_TOKENS:
                self.evict(slot)

    def _restored(self, tokens: Sequence[int], *, spares_idle: bool) -> Slot | None:
        """Return a slot with a copy put back, if one holds clearly more than the memory does."""
        for _ in range(_MAX_LOST_COPIES):
            _, in_memory = self._best_source(tokens)
            kept, length = self._store.find(tokens)
            if kept is None or not self._is_worth_it(kept, length - in_memory):
                return None
            if not self._has_room_for(kept, tokens):
                return None
            slot = self._put_back(kept, spares_idle=spares_idle)
            if slot is not None and self._cut(slot, length):
                return slot
            if slot is not None:
                self.evict(slot)
        return None

    @staticmethod
    def _is_worth_it(kept: Kept, saved: int) -> bool:
        return saved >= max(MIN_RESTORED_TOKENS, MIN_RESTORED_SHARE * len(kept.tokens))

    def _has_room_for(self, kept: Kept, tokens: Sequence[int]) -> bool:
        """Return whether the copy, and then the prompt, fit beside the sequences in use.

        A copy shares no cells with what runs; a prompt that has room only as long as it shares
        some would have to give its cells back at once.
        """
        used = [slot.number for slot in self._slots if slot.in_use]
        free = self._n_cells - self._cells.used_by(used)
        headroom = RESTORE_HEADROOM if used else 0
        return max(len(kept.tokens), len(tokens) + headroom) <= free

    def _put_back(self, kept: Kept, *, spares_idle: bool) -> Slot | None:
        """Fill an empty slot from a copy; a copy that is lost or refused is forgotten."""
        self._store.use(kept)
        if not spares_idle:
            # The lowest cells are freed first: the copy lands there.
            self._put_idle_away()
        slot = self._emptied_slot(None)
        while len(kept.tokens) > self.free_cells:
            if not self.evict_oldest():
                return None
        state = self._store.state(kept)
        if state is None:
            return None
        if not self._backend.load_state(slot.number, state):
            self._store.forget(kept)
            return None
        slot.tokens = kept.tokens[:]
        slot.parts = kept.parts
        self._cells.extend(slot.number, len(slot.tokens))
        return slot

    def _best_source(self, tokens: Sequence[int]) -> tuple[Slot | None, int]:
        """Return the slot with the longest usable prefix (idle before in use), and its length."""
        best: Slot | None = None
        rank = (0, False)
        for slot in self._slots:
            shared = whole_length(slot.tokens, shared_length(slot.tokens, tokens))
            length = min(shared, len(tokens) - 1)
            if self._backend.reuses_whole_only and (slot.in_use or length < len(slot.tokens)):
                continue
            if length and (length, not slot.in_use) > rank:
                best, rank = slot, (length, not slot.in_use)
        return best, rank[0]

    def _may_take_over(self, slot: Slot, length: int) -> bool:
        return not slot.in_use and length >= MIN_SHARE_TO_TAKE_OVER * len(slot.tokens)

    def _emptied_slot(self, source: Slot | None) -> Slot:
        """Return an empty slot, evicting one if need be; `source` itself only when alone."""
        others = [slot for slot in self._slots if not slot.in_use and slot is not source]
        if source is not None and not others:
            return source
        beside = self._emptied_beside(others)
        if beside is not None:
            return beside
        for slot in others:
            if not slot.tokens:
                return slot
        oldest = min(others, key=lambda slot: slot.last_used)
        self.put_away(oldest)
        return oldest

    def _emptied_beside(self, free: Sequence[Slot]) -> Slot | None:
        """Return an empty slot beside what runs, emptying one that leaves a copy; None of none."""
        near = [slot for slot in free if self._neighbours(slot)]
        near.sort(key=lambda slot: (-self._neighbours(slot), bool(slot.tokens), slot.last_used))
        for slot in near:
            if len(slot.tokens) < MIN_KEPT_TOKENS or self._copy_out(slot):
                self.evict(slot)
                return slot
        return None

    def _neighbours(self, slot: Slot) -> int:
        """Return how many of the slots beside this one run, where that counts.

        Sequences with cells of their own are computed at once as far as their numbers follow each
        other (llama.cpp's split_equal).
        """
        if self._backend.shares_cells:
            return 0
        return sum(other.in_use and abs(other.number - slot.number) == 1 for other in self._slots)

    def _moved_to_others(self, source: Slot, length: int) -> Slot:
        """Return the slot to go on in: a copy beside what runs, where the idle `source` is not."""
        running = any(slot.in_use for slot in self._slots)
        if self._backend.shares_cells or not running or self._neighbours(source):
            return source
        others = [slot for slot in self._slots if not slot.in_use and slot is not source]
        beside = self._emptied_beside(others)
        if beside is not None:
            self._share(source, beside, length)
        if beside is None or not beside.tokens:
            return source
        self.evict(source)
        return beside

    def _pays_to_share(self, source: Slot, length: int) -> bool:
        least = 0.0 if self._backend.shares_cells else _LEAST_COPIED_SHARE
        return length >= least * len(source.tokens)

    def _share(self, source: Slot, target: Slot, length: int) -> None:
        positions = positions_of(source.tokens, length, self._lags)
        if not self._backend.share_prefix(source.number, target.number, positions):
            self.evict(target)
            return
        if self._backend.shares_cells:
            self._cells.share_prefix(source.number, target.number, length)
        else:
            self._cells.extend(target.number, length)
        target.tokens = source.tokens[:length]

    def _cut(self, slot: Slot, length: int) -> bool:
        if length < len(slot.tokens):
            positions = positions_of(slot.tokens, length, self._lags)
            if not self._backend.cut(slot.number, positions):
                return False
        self._cells.cut(slot.number, length)
        del slot.tokens[length:]
        return True


def _begins(tokens: Sequence[int], beginning: Sequence[int]) -> bool:
    return shared_length(tokens, beginning) == len(beginning)
