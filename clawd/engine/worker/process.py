"""What a worker process does to itself before it touches a model."""

import contextlib
import os
import resource
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

from clawd.kernel import syscalls

# Out of memory, the kernel takes a worker before the daemon and all that do not ask for it.
OOM_SCORE_ADJ = 500
# Between two looks at what the bounded thread has used.
_LEAST_PAUSE_S = 0.01


def harden() -> bool:
    """Tie this process to its parent and keep its memory to itself; False if the parent is gone.

    The kernel kills it when the parent's starting thread ends (prctl(2), PR_SET_PDEATHSIG), so no
    worker outlives a daemon that was killed. Conversations in memory stay out of core dumps and
    out of other processes' reach (PR_SET_DUMPABLE).
    """
    parent = os.getppid()
    _volunteer_for_oom()
    syscalls.set_death_signal(signal.SIGKILL)
    syscalls.set_not_dumpable()
    # An abort in llama.cpp would start a debugger to print a trace of this process.
    os.environ["GGML_NO_BACKTRACE"] = "1"
    # Threads of one computation wait for each other in a loop, by default for milliseconds: when
    # another process needs a core, a token took ten times as long as with this limit (measured).
    os.environ.setdefault("GOMP_SPINCOUNT", "2000")
    # Ctrl-C in the daemon's terminal reaches its whole process group; the daemon decides.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    return os.getppid() == parent


@contextlib.contextmanager
def memory_bound(extra_bytes: int) -> Iterator[None]:
    """Let the process's memory grow by no more than this; what wants more gets a MemoryError.

    Only while one thread works: another that allocates meanwhile is bound too.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    size = _address_space_bytes()
    bound = size + extra_bytes if size else soft
    if soft != resource.RLIM_INFINITY:
        bound = min(bound, soft)
    resource.setrlimit(resource.RLIMIT_AS, (bound, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


class _ProcessorTimeError(BaseException):
    """A block has used the processor time that it may."""


@contextlib.contextmanager
def processor_bound(limit_s: float) -> Iterator[None]:
    """Let Python code take no more processor time than this, then TimeoutError is raised in it.

    Only the main thread runs handlers of signals; in another one there is no bound. And it has to
    get the signal itself: one for the whole process (setitimer(2)) may be given to a thread of a
    library, which computes on, and the main thread does not see it before that one is back.
    What is raised is no Exception before it leaves the block: code that catches, or explains, all
    of them (as Jinja does) would make another error of it, or none.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    bounded = threading.get_ident()
    clock = time.pthread_getcpuclockid(bounded)
    ends_at = time.clock_gettime(clock) + limit_s
    is_over = threading.Event()

    def watch() -> None:
        while (left_s := ends_at - time.clock_gettime(clock)) > 0:
            if is_over.wait(max(left_s, _LEAST_PAUSE_S)):
                return
        signal.pthread_kill(bounded, signal.SIGPROF)

    def end(_number: int, _frame: FrameType | None) -> None:
        if not is_over.is_set():
            raise _ProcessorTimeError

    watcher = threading.Thread(target=watch, daemon=True)
    before = signal.signal(signal.SIGPROF, end)
    try:
        try:
            watcher.start()
            yield
        finally:
            is_over.set()
    except _ProcessorTimeError:
        raise TimeoutError from None
    finally:
        is_over.set()
        watcher.join()
        signal.signal(signal.SIGPROF, before)


def _address_space_bytes() -> int:
    """Return the size of the process, or 0 where the kernel does not show it."""
    try:
        pages = int(Path("/proc/self/statm").read_text("ascii").split()[0])
    except OSError:
        return 0
    return pages * resource.getpagesize()


def _volunteer_for_oom() -> None:
    """Raise the score by which the kernel chooses; must come before PR_SET_DUMPABLE (proc(5))."""
    path = Path("/proc/self/oom_score_adj")
    with contextlib.suppress(OSError, ValueError):
        if int(path.read_text("ascii")) < OOM_SCORE_ADJ:
            path.write_text(str(OOM_SCORE_ADJ), "ascii")
