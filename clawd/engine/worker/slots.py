"""The prefix cache: which sequence of the KV memory a prompt goes into, and what it keeps there.

A slot is a sequence of the memory with the tokens that it holds. It is in use by one generation
or idle; idle ones stay until their place is needed, the least recently used goes first.
"""

from collections.abc import Sequence

from clawd.engine.worker.backend import Backend
from clawd.engine.worker.cells import CellMap
from clawd.engine.worker.prompt import Part

# An idle sequence is cut down for a prompt only when the prompt shares this much of it: the few
# tokens that every prompt of a template begins with must not cost a long conversation its cache.
MIN_SHARE_TO_TAKE_OVER = 0.5
_STRIDE = 256


class Slot:
    """One sequence: its tokens in the memory, and the text they came from."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.tokens: list[int] = []
        self.parts: tuple[Part, ...] = ()
        self.in_use = False
        self.last_used = 0


class SlotCache:
    """All slots of a backend; the only caller of its memory operations."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._slots = [Slot(number) for number in range(backend.n_sequences)]
        self._cells = CellMap(backend.n_sequences)
        self._clock = 0

    @property
    def idle_count(self) -> int:
        """Return how many idle sequences are kept."""
        return sum(1 for slot in self._slots if slot.tokens and not slot.in_use)

    @property
    def free_cells(self) -> int:
        """Return how many cells no sequence holds."""
        return self._backend.n_ctx - self._cells.used

    def histories(self) -> list[tuple[Part, ...]]:
        """Return the texts of all kept sequences, those in use included."""
        return [slot.parts for slot in self._slots if slot.parts]

    def can_hold(self, tokens: Sequence[int], reserve: int) -> bool:
        """Return whether the prompt and `reserve` more fit beside the sequences in use."""
        used = [slot.number for slot in self._slots if slot.in_use]
        shared = max((_shared(self._slots[number].tokens, tokens) for number in used), default=0)
        if self._backend.reuses_whole_only:
            shared = 0
        free = self._backend.n_ctx - self._cells.used_by(used)
        return len(tokens) - shared + reserve <= free

    def acquire(self, tokens: Sequence[int]) -> Slot | None:
        """Return a slot holding the longest prefix of the prompt that can be reused, or None.

        At least one token of the prompt is left to decode. None means all slots are in use.
        """
        if all(slot.in_use for slot in self._slots):
            return None
        source, length = self._best_source(tokens)
        if source is None:
            slot = self._emptied_slot(None)
        elif self._may_take_over(source, length):
            slot = source
        else:
            slot = self._emptied_slot(source)
            if slot is not source:
                self._share(source, slot, length)
        if slot is source and not self._cut(slot, length):
            self.evict(slot)
        slot.in_use = True
        return slot

    def extend(self, slot: Slot, tokens: Sequence[int]) -> None:
        """Note that these tokens were decoded into the slot."""
        slot.tokens.extend(tokens)
        self._cells.extend(slot.number, len(tokens))

    def release(self, slot: Slot, parts: tuple[Part, ...]) -> None:
        """Make the slot idle, keeping its tokens and the text they came from."""
        self._clock += 1
        slot.in_use = False
        slot.last_used = self._clock
        slot.parts = parts if slot.tokens else ()

    def evict(self, slot: Slot) -> None:
        """Empty a slot."""
        self._backend.cut(slot.number, 0)
        self._cells.cut(slot.number, 0)
        slot.tokens = []
        slot.parts = ()

    def evict_oldest(self) -> bool:
        """Empty the least recently used idle slot; False when none holds anything."""
        idle = [slot for slot in self._slots if slot.tokens and not slot.in_use]
        if not idle:
            return False
        self.evict(min(idle, key=lambda slot: slot.last_used))
        return True

    def reset(self) -> None:
        """Forget everything: the memory's state is not known any more."""
        self._backend.clear()
        self._cells = CellMap(self._backend.n_sequences)
        for slot in self._slots:
            slot.tokens = []
            slot.parts = ()

    def _best_source(self, tokens: Sequence[int]) -> tuple[Slot | None, int]:
        """Return the slot with the longest usable prefix (idle before in use), and its length."""
        best: Slot | None = None
        rank = (0, False)
        for slot in self._slots:
            length = min(_shared(slot.tokens, tokens), len(tokens) - 1)
            if self._backend.reuses_whole_only and (slot.in_use or length < len(slot.tokens)):
                continue
            if length and (length, not slot.in_use) > rank:
                best, rank = slot, (length, not slot.in_use)
        return best, rank[0]

    def _may_take_over(self, slot: Slot, length: int) -> bool:
        return not slot.in_use and length >= MIN_SHARE_TO_TAKE_OVER * len(slot.tokens)

    def _emptied_slot(self, source: Slot | None) -> Slot:
        """Return an empty slot, evicting one if need be; `source` itself only when alone."""
        free = [slot for slot in self._slots if not slot.in_use]
        others = [slot for slot in free if slot is not source]
        empty = [slot for slot in others if not slot.tokens]
        if empty:
            return empty[0]
        if not others:
            return free[0]
        oldest = min(others, key=lambda slot: slot.last_used)
        self.evict(oldest)
        return oldest

    def _share(self, source: Slot, target: Slot, length: int) -> None:
        self._backend.share_prefix(source.number, target.number, length)
        self._cells.share_prefix(source.number, target.number, length)
        target.tokens = source.tokens[:length]

    def _cut(self, slot: Slot, length: int) -> bool:
        if length < len(slot.tokens) and not self._backend.cut(slot.number, length):
            return False
        self._cells.cut(slot.number, length)
        del slot.tokens[length:]
        return True


def _shared(kept: Sequence[int], tokens: Sequence[int]) -> int:
    """Return the length of the longest common prefix (compared in strides: C speed)."""
    limit = min(len(kept), len(tokens))
    start = 0
    while start < limit and kept[start : start + _STRIDE] == tokens[start : start + _STRIDE]:
        start += _STRIDE
    while start < limit and kept[start] == tokens[start]:
        start += 1
    return min(start, limit)
