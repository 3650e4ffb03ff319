"""Tasks and threads: work that is not broken off, readers that give way, pools that hold.

    pace, allowance = Pace(), Allowance(burst=4 << 20, per_s=256 << 10)
    for line in lines:
        await pace.step()
        if not allowance.take(len(line)):
            …  # a flood

A coroutine that always finds something to read never gives way by itself, and one that reads
untrusted bytes may be made to read for ever.
"""

import asyncio
import threading
import time
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeVar

from typing_extensions import override

SLICE_S = 0.002
_T = TypeVar("_T")


@dataclass(slots=True)
class Pace:
    """Lets the loop turn to others whenever a reader had its slice of time.

    Args:
        slice_s: how long the reader may work at a stretch.
    """

    slice_s: float = SLICE_S
    _began: float = field(default_factory=time.monotonic, init=False)

    async def step(self) -> None:
        """Give way if the slice is used up; to be awaited before each piece of work."""
        if time.monotonic() - self._began >= self.slice_s:
            await asyncio.sleep(0)
            self._began = time.monotonic()


class Allowance:
    """How much may come: so much at once, and so much a second in the long run.

    Args:
        burst: what may come at once.
        per_s: what is added each second, up to the burst.
    """

    def __init__(self, *, burst: float, per_s: float) -> None:
        self.burst = burst
        self._per_s = per_s
        self._left = burst
        self._at = time.monotonic()

    def take(self, amount: float) -> bool:
        """Take an amount; return whether that was still within what may come."""
        now = time.monotonic()
        self._left = min(self.burst, self._left + (now - self._at) * self._per_s)
        self._at = now
        self._left -= amount
        return self._left >= 0


# Pools of threads that go on with those they have when the system allows no more.
#
# The threads of the standard library's pool begin when work comes. Where the limit on processes
# (`LimitNPROC=`, `TasksMax=`) is reached by then, the caller gets an error, though the work is in
# the queue and the next free thread does it: a write that was reported as failed would happen
# later.


class Pool(ThreadPoolExecutor):
    """Threads for blocking work.

    Args:
        most: how many there may be.
        name: what their names begin with.
        ready: how many begin at once.

    Raises:
        RuntimeError: those that are to begin at once cannot.
    """

    def __init__(self, most: int, name: str, *, ready: int = 1) -> None:
        super().__init__(most, thread_name_prefix=name)
        self.make_ready(ready)

    def make_ready(self, count: int = 1) -> None:
        """Have so many threads, and have them now.

        Raises:
            RuntimeError: the system allows no more.
        """
        together = threading.Barrier(max(count, 1))
        try:
            for _ in range(count):
                self.submit(_meet, together)
            if len(self._threads) < count:
                raise RuntimeError("can't start new thread")
        except RuntimeError:
            together.abort()
            self.shutdown(wait=False)
            raise

    @override
    def _adjust_thread_count(self) -> None:
        try:
            super()._adjust_thread_count()
        except RuntimeError:
            if not self._threads:
                raise


def _meet(together: threading.Barrier) -> None:
    """Hold a thread until the others are there, so that none of them does the work of two."""
    try:
        together.wait()
    except threading.BrokenBarrierError:
        return


# Awaiting what must not be broken off: a receipt half-written is none.


def cancel_is_wanted() -> bool:
    """Return whether the running task was cancelled, even if that came while it cleared up."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


async def settled(work: Coroutine[Any, Any, _T]) -> tuple[_T, bool]:
    """Await work that must not be broken off; return its result.

    The second value is whether the caller was cancelled meanwhile.

    Raises:
        Exception: whatever the work raises.
    """
    task = asyncio.create_task(work)
    cancelled = False
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            cancelled = True
    return task.result(), cancelled
