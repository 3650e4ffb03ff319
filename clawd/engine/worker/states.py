"""Sequences that are kept outside the KV memory: in RAM within a budget, and as files beyond that.

A kept state is in RAM, on disk, or both. What was used last stays longest; what RAM has no room
for any more is written out before it is dropped, as far as the engine had quiet moments for it.
"""

import time
from collections.abc import Callable, Generator, Sequence

from clawd.engine.worker.buffers import Buffer, BufferPool
from clawd.engine.worker.prompt import Part
from clawd.engine.worker.statefolder import StateFolder, StoredState

MIN_KEPT_TOKENS = 32
# From this share of the budget on, states are written out so that dropping them loses nothing.
_CROWDED = 0.75


class Kept:
    """A sequence outside the KV memory."""

    __slots__ = (
        "buffer",
        "is_beginning",
        "is_refused",
        "is_superseded",
        "parts",
        "size",
        "stored",
        "tokens",
        "used_at",
    )

    def __init__(
        self, tokens: list[int], parts: tuple[Part, ...], size: int, used_at: float
    ) -> None:
        self.tokens = tokens
        self.parts = parts
        self.size = size
        self.used_at = used_at
        self.buffer: Buffer | None = None
        self.stored: StoredState | None = None
        # What conversations start with is of no text of its own.
        self.is_beginning = not parts
        # The disk had no room for it; a longer sequence stands for it.
        self.is_refused = False
        self.is_superseded = False


class _Writing:
    """A state on its way to the disk."""

    def __init__(self, kept: Kept, slices: Generator[StoredState | None]) -> None:
        self.kept = kept
        self.slices = slices


class StateStore:
    """All kept sequences of one model.

    Args:
        memory_bytes: budget of copies in RAM; 0 keeps nothing, on disk neither.
        folder: where states go when RAM is full or the model is unloaded; None keeps none there.
        keeps_conversations: on disk, too; otherwise beginnings alone are written there.
        whole_only: a kept sequence can only be extended, not cut (recurrent, hybrid).
        clock: wall time; the files' times of change are compared with it.
    """

    def __init__(
        self,
        memory_bytes: int = 0,
        folder: StateFolder | None = None,
        *,
        keeps_conversations: bool = True,
        whole_only: bool = False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._pool = BufferPool(memory_bytes)
        self._folder = folder if memory_bytes else None
        self._keeps_conversations = keeps_conversations
        self._whole_only = whole_only
        self._clock = clock
        # In order of use, the last used at the end.
        self._kept: list[Kept] = []
        self._is_indexed = self._folder is None
        self._writing: _Writing | None = None

    @property
    def is_on(self) -> bool:
        """Return whether anything is kept at all."""
        return self._pool.limit_bytes > 0

    @property
    def is_lasting(self) -> bool:
        """Return whether what is kept of conversations outlives this process."""
        return self._folder is not None and self._keeps_conversations

    @property
    def memory_bytes(self) -> int:
        """Return how much RAM the copies take, spare buffers included."""
        return self._pool.total_bytes

    def all(self) -> list[Kept]:
        """Return every kept sequence; reads the folder's index when it was not read yet."""
        self._index()
        return self._kept[:]

    def known(self) -> list[Kept]:
        """Return what is kept, without looking into the folder and without beginnings of others."""
        return [kept for kept in self._kept if not kept.is_superseded]

    def find(self, tokens: Sequence[int]) -> tuple[Kept | None, int]:
        """Return the sequence that shares the longest usable prefix, and its length.

        At least one token of the prompt is left over.
        """
        self._index()
        best: Kept | None = None
        longest = 0
        for kept in reversed(self._kept):
            length = min(shared_length(kept.tokens, tokens), len(tokens) - 1)
            if self._whole_only and length < len(kept.tokens):
                continue
            is_shorter = best is not None and len(kept.tokens) < len(best.tokens)
            if length > longest or (length == longest > 0 and is_shorter):
                best, longest = kept, length
        return best, longest

    def holds_beginning(self, tokens: Sequence[int]) -> bool:
        """Return whether just this beginning is kept; counts as a use of it."""
        self._index()
        for kept in self._kept:
            if kept.is_beginning and kept.tokens == tokens:
                self.use(kept)
                return True
        return False

    def covers(self, tokens: Sequence[int]) -> bool:
        """Return whether a copy in RAM could stand in for this sequence; counts as a use of it."""
        for kept in self._kept:
            if kept.buffer is None or shared_length(kept.tokens, tokens) < len(tokens):
                continue
            if not self._whole_only or len(kept.tokens) == len(tokens):
                self.use(kept)
                return True
        return False

    def keep(
        self,
        tokens: list[int],
        parts: tuple[Part, ...],
        size: int,
        fill: Callable[[Buffer], int],
    ) -> bool:
        """Keep a copy of a sequence in RAM; replaces what is a prefix of it.

        Args:
            tokens: of the sequence; not changed later.
            parts: the text that they came from.
            size: of its state, in bytes.
            fill: writes the state into a buffer of that size and returns how many bytes it wrote.

        Returns:
            Whether it is kept; it is not when it alone is over the budget.
        """
        buffer = self._room(size)
        if buffer is None:
            return False
        if fill(buffer[:size]) != size:
            self._pool.give_back(buffer)
            return False
        kept = Kept(tokens, parts, size, self._clock())
        kept.buffer = buffer
        for older in self._kept[:]:
            shared = shared_length(older.tokens, tokens)
            if older.is_beginning and not kept.is_beginning:
                continue  # other conversations start with it
            if shared == len(older.tokens) and (not self._whole_only or shared == len(tokens)):
                self._replace(older, kept)
        self._kept.append(kept)
        return True

    def state(self, kept: Kept) -> Buffer | None:
        """Return a kept sequence's state, from disk if need be; None when it is lost.

        The buffer is the store's: read it before the next call.
        """
        if kept.buffer is None and not self._read(kept):
            self.forget(kept)
        return kept.buffer[: kept.size] if kept.buffer is not None else None

    def use(self, kept: Kept) -> None:
        """Note that a sequence is of use: it is the last to go."""
        kept.used_at = self._clock()
        self._kept = [other for other in self._kept if other is not kept]
        self._kept.append(kept)
        if kept.stored is not None and self._folder is not None:
            self._folder.touch(kept.stored.path, kept.used_at)

    def forget(self, kept: Kept) -> None:
        """Drop a sequence everywhere."""
        self._drop_copy(kept)
        if kept.stored is not None and self._folder is not None:
            self._folder.remove(kept.stored.path)
        self._kept = [other for other in self._kept if other is not kept]

    def rest(self) -> bool:
        """Use a quiet moment: write a slice of what is soon dropped, or touch memory.

        Returns:
            Whether there was something to do.
        """
        if self._writing is None:
            self._begin_writing()
        if self._writing is not None:
            self._write_slice(self._writing)
            return True
        return self._pool.prepare()

    def save(self, is_time_over: Callable[[], bool]) -> None:
        """Write what is in RAM only to the disk, last used first, until the time is over."""
        if self._folder is None:
            return
        for kept in reversed(self._kept[:]):
            if kept.buffer is not None and kept.stored is None and self._may_be_written(kept):
                if self._writing is None or self._writing.kept is not kept:
                    self._stop_writing()
                    self._writing = self._new_writing(self._folder, kept)
                while self._writing is not None and not is_time_over():
                    self._write_slice(self._writing)
        self._stop_writing()

    def _index(self) -> None:
        if self._is_indexed or self._folder is None:
            return
        self._is_indexed = True
        found = []
        for stored in self._folder.states():
            header = stored.header
            if self._pool.could_hold(header.size):
                kept = Kept(header.token_list(), header.parts, header.size, stored.used_at)
                kept.stored = stored
                found.append(kept)
        self._kept = [*reversed(found), *self._kept]

    def _read(self, kept: Kept) -> bool:
        if kept.stored is None or self._folder is None:
            return False
        buffer = self._room(kept.size, besides=kept)
        if buffer is None:
            return False
        if not self._folder.read(kept.stored, buffer):
            self._pool.give_back(buffer)
            return False
        kept.buffer = buffer
        return True

    def _room(self, size: int, *, besides: Kept | None = None) -> Buffer | None:
        """Return a buffer, dropping the least recently used copies for it."""
        if not self._pool.could_hold(size):
            return None
        while (buffer := self._pool.take(size)) is None:
            copies = [k for k in self._kept if k.buffer is not None and k is not besides]
            if not copies:
                return None
            self._drop_copy(copies[0])
        return buffer

    def _drop_copy(self, kept: Kept) -> None:
        if self._writing is not None and self._writing.kept is kept:
            self._stop_writing()
        if kept.buffer is not None:
            self._pool.give_back(kept.buffer)
            kept.buffer = None
        if kept.stored is None:
            self._kept = [other for other in self._kept if other is not kept]

    def _replace(self, older: Kept, newer: Kept) -> None:
        """Let the newer copy stand for the older one; a file goes when its successor is written."""
        older.is_superseded = True
        self._drop_copy(older)
        if len(older.tokens) == len(newer.tokens):
            newer.stored = older.stored if older.size == newer.size else None
            self._kept = [other for other in self._kept if other is not older]

    def _begin_writing(self) -> None:
        if self._folder is None:
            return
        is_crowded = self._pool.total_bytes >= self._pool.limit_bytes * _CROWDED
        unwritten = [
            kept
            for kept in self._kept
            if kept.buffer is not None
            and kept.stored is None
            and not kept.is_refused
            and (kept.is_beginning or is_crowded)
            and self._may_be_written(kept)
        ]
        if unwritten:
            self._writing = self._new_writing(self._folder, unwritten[0])

    def _may_be_written(self, kept: Kept) -> bool:
        # Pictures are known by numbers of this process.
        is_text = min(kept.tokens, default=0) >= 0
        return is_text and (kept.is_beginning or self._keeps_conversations)

    @staticmethod
    def _new_writing(folder: StateFolder, kept: Kept) -> _Writing | None:
        if kept.buffer is None:
            return None
        state = kept.buffer[: kept.size]
        return _Writing(kept, folder.write(kept.tokens, kept.parts, state, kept.used_at))

    def _write_slice(self, writing: _Writing) -> None:
        try:
            stored = next(writing.slices)
        except StopIteration:
            writing.kept.is_refused = True
            self._writing = None
            return
        if stored is not None:
            self._writing = None
            writing.kept.stored = stored
            self._remove_superseded(writing.kept)

    def _remove_superseded(self, written: Kept) -> None:
        """Remove the files of what the written sequence begins with."""
        if self._whole_only:
            return
        for older in self._kept[:]:
            is_other = older is not written and older.buffer is None and not older.is_beginning
            if is_other and shared_length(older.tokens, written.tokens) == len(older.tokens):
                self.forget(older)

    def _stop_writing(self) -> None:
        writing, self._writing = self._writing, None
        if writing is not None:
            writing.slices.close()


_STRIDE = 256


def shared_length(kept: Sequence[int], tokens: Sequence[int]) -> int:
    """Return the length of the longest common prefix (compared in strides: C speed)."""
    limit = min(len(kept), len(tokens))
    start = 0
    while start < limit and kept[start : start + _STRIDE] == tokens[start : start + _STRIDE]:
        start += _STRIDE
    while start < limit and kept[start] == tokens[start]:
        start += 1
    return min(start, limit)
