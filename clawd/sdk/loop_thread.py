"""An event loop in a thread of its own, for callers that know nothing of asyncio."""

import asyncio
import atexit
import threading
import weakref
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import CancelledError, ThreadPoolExecutor
from typing import Any, TypeVar

from clawd.errors import InvalidRequestError
from clawd.kernel.threads import Pool

T = TypeVar("T")

_READY_THREADS, _MOST_THREADS = 4, 32

# `atexit` comes too late: by then the thread pools are gone, and closing needs them. They end in
# this way, too, and were imported above: what registers later runs earlier.
_at_exit: Callable[..., object] = getattr(threading, "_register_atexit", atexit.register)


class LoopThread:
    """Runs coroutines of one session.

    Args:
        end: closes what the session began; called once, on the loop, at the latest at exit.

    Attributes:
        is_closed: whether `close` was called.
    """

    def __init__(self, end: Callable[[], Awaitable[None]]) -> None:
        self._end = end
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self.is_closed = False

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine and wait for it; an interrupt cancels it.

        Raises:
            InvalidRequestError: an event loop runs in the caller's thread, which this would block;
                or the session is closed, or was meanwhile.
        """
        with self._lock:  # a loop that ends meanwhile would never run it
            try:
                self._check_caller()
                loop = self._started()
            except BaseException:
                work.close()
                raise
            future = asyncio.run_coroutine_threadsafe(work, loop)
        try:
            return future.result()
        except CancelledError:
            if self.is_closed:
                raise InvalidRequestError("the session was closed meanwhile") from None
            raise
        except BaseException:
            future.cancel()
            raise

    def close(self) -> None:
        """End the session's things, then the thread; idempotent.

        Raises:
            InvalidRequestError: it is called on the thread itself, which cannot wait for its end.
        """
        if threading.current_thread() is self._thread:
            raise InvalidRequestError("a session cannot be closed from its own event loop")
        with self._lock:
            loop, thread, self._loop = self._loop, self._thread, None
            self.is_closed = True
        if loop is None or thread is None:
            return
        try:
            asyncio.run_coroutine_threadsafe(_awaited(self._end()), loop).result()
        finally:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()

    def _started(self) -> asyncio.AbstractEventLoop:
        """Return the loop, begun if need be; the caller holds the lock."""
        if self.is_closed:
            raise InvalidRequestError("the session is closed", hint="Make a new one.")
        if self._loop is None:
            # At the exit of Python 3.12 no thread can be started: it goes on with those it has.
            loop = asyncio.new_event_loop()
            pool = Pool(_MOST_THREADS, "clawd-sdk-pool", ready=_READY_THREADS)
            loop.set_default_executor(pool)
            self._thread = threading.Thread(
                target=self._serve, args=(loop, pool), name="clawd-sdk", daemon=True
            )
            self._thread.start()
            self._loop = loop
            _at_exit(_close_at_exit, weakref.ref(self))
        return self._loop

    def _serve(self, loop: asyncio.AbstractEventLoop, pool: ThreadPoolExecutor) -> None:
        # A method, so that a running thread keeps its session until the exit closes it.
        asyncio.set_event_loop(loop)
        try:
            loop.run_forever()
        finally:
            _cancel_all(loop)
            loop.run_until_complete(loop.shutdown_asyncgens())
            pool.shutdown()  # by ourselves: the loop would start a thread for it
            loop.close()

    def _check_caller(self) -> None:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return
        raise InvalidRequestError(
            "Session waits for its answers, and would block the event loop that runs here",
            hint="Use AsyncSession: `async with AsyncSession.local() as session: "
            "await session.chat(...)`.",
        )


def _cancel_all(loop: asyncio.AbstractEventLoop) -> None:
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    if tasks:
        loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))


def _close_at_exit(running: "weakref.ref[LoopThread]") -> None:
    thread = running()
    if thread is not None:
        thread.close()


async def _awaited(awaitable: Awaitable[T]) -> T:
    return await awaitable
