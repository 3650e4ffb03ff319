"""What keeps a reader of untrusted bytes from holding up the event loop, or from reading for ever.

    pace, allowance = Pace(), Allowance(burst=4 << 20, per_s=256 << 10)
    for line in lines:
        await pace.step()
        if not allowance.take(len(line)):
            …  # a flood

A coroutine that always finds something to read never gives way by itself.
"""

import asyncio
import time

SLICE_S = 0.002


class Pace:
    """Lets the loop turn to others whenever a reader had its slice of time.

    Args:
        slice_s: how long the reader may work at a stretch.
    """

    def __init__(self, slice_s: float = SLICE_S) -> None:
        self._slice_s = slice_s
        self._began = time.monotonic()

    async def step(self) -> None:
        """Give way if the slice is used up; to be awaited before each piece of work."""
        if time.monotonic() - self._began >= self._slice_s:
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
