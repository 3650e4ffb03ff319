"""What a worker process does to itself before it touches a model."""

import contextlib
import os
import resource
import signal
from collections.abc import Iterator
from pathlib import Path

from clawd.kernel import syscalls

# Out of memory, the kernel takes a worker before the daemon and all that do not ask for it.
OOM_SCORE_ADJ = 500


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
