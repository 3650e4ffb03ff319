"""What a worker process does to itself before it touches a model."""

import ctypes
import os
import signal

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4


def harden() -> bool:
    """Tie this process to its parent and keep its memory to itself; False if the parent is gone.

    The kernel kills it when the parent's starting thread ends (prctl(2), PR_SET_PDEATHSIG), so no
    worker outlives a daemon that was killed. Conversations in memory stay out of core dumps and
    out of other processes' reach (PR_SET_DUMPABLE).
    """
    parent = os.getppid()
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    # An abort in llama.cpp would start a debugger to print a trace of this process.
    os.environ["GGML_NO_BACKTRACE"] = "1"
    # Threads of one computation wait for each other in a loop, by default for milliseconds: when
    # another process needs a core, a token took ten times as long as with this limit (measured).
    os.environ.setdefault("GOMP_SPINCOUNT", "2000")
    # Ctrl-C in the daemon's terminal reaches its whole process group; the daemon decides.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    return os.getppid() == parent
