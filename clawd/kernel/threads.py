"""Pools of threads that go on with those they have when the system allows no more.

The threads of the standard library's pool begin when work comes. Where the limit on processes
(`LimitNPROC=`, `TasksMax=`) is reached by then, the caller is told an error, though the work is in
the queue and the next free thread does it: a write that was told as failed would happen later.
"""

import threading
from concurrent.futures import ThreadPoolExecutor

from typing_extensions import override


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
