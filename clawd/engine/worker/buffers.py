"""Memory for copies of sequences: reused, touched before it is needed, within a budget.

The first write to a page of fresh memory costs many times a write to one that is there: a copy of
25 MB took 1.3 ms into touched memory and 10 to 80 ms into fresh. Huge pages make touching cheap
where the kernel gives them: 16 MB in 0.9 ms instead of 36 (measured).
"""

import contextlib
import mmap

import numpy as np
import numpy.typing as npt

Buffer = npt.NDArray[np.uint8]

MAX_SPARE = 4
_PAGE_BYTES = 4096
_SMALLEST_BYTES = 64 * 1024
# A spare buffer this many times larger than what it would hold is left for something larger.
_MAX_WASTE = 2


class BufferPool:
    """Hands out buffers whose sizes, spare ones included, add up to at most `limit_bytes`."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.total_bytes = 0
        self._spare: list[Buffer] = []
        self._wanted = 0

    def could_hold(self, size: int) -> bool:
        """Return whether a buffer of `size` bytes is within the budget when all else is gone."""
        return size > 0 and _capacity(size) <= self.limit_bytes

    def take(self, size: int) -> Buffer | None:
        """Return a touched buffer of at least `size` bytes; None when the budget has no room."""
        fitting = [spare for spare in self._spare if size <= spare.nbytes <= size * _MAX_WASTE]
        if fitting:
            buffer = min(fitting, key=lambda spare: spare.nbytes)
            self._remove(buffer)
            return buffer
        wanted = _capacity(size)
        self._wanted = max(self._wanted, wanted)
        while self._spare and self.total_bytes + wanted > self.limit_bytes:
            self.total_bytes -= self._spare.pop(0).nbytes
        return self._new(wanted)

    def give_back(self, buffer: Buffer) -> None:
        """Take a buffer back for the next one who wants such a size."""
        self._spare.append(buffer)
        if len(self._spare) > MAX_SPARE:
            self.total_bytes -= self._spare.pop(0).nbytes

    def prepare(self) -> bool:
        """Have a buffer of the largest size asked for ready; return whether one was made."""
        if not self._wanted or any(spare.nbytes >= self._wanted for spare in self._spare):
            return False
        buffer = self._new(self._wanted)
        if buffer is not None:
            self.give_back(buffer)
        return buffer is not None

    def _new(self, size: int) -> Buffer | None:
        if self.total_bytes + size > self.limit_bytes:
            return None
        try:
            memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        except OSError:
            return None
        with contextlib.suppress(OSError):
            memory.madvise(mmap.MADV_HUGEPAGE)
        buffer = np.frombuffer(memory, np.uint8)
        buffer[::_PAGE_BYTES] = 0
        self.total_bytes += size
        return buffer

    def _remove(self, buffer: Buffer) -> None:
        self._spare = [spare for spare in self._spare if spare is not buffer]


def _capacity(size: int) -> int:
    """Round up by at most an eighth, so that a sequence that grew a little fits again."""
    step = max(_SMALLEST_BYTES, 1 << max(size.bit_length() - 4, 0))
    return -(-size // step) * step
