"""What a worker does to itself: whom the kernel takes first, what a block may want of it."""

import hashlib
import resource
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from clawd.engine.worker.lockdown import OOM_SCORE_ADJ, memory_bound, processor_bound
from tests.support.rows import each_row

HARDENED = (
    "from pathlib import Path\n"
    "from clawd.engine.worker.lockdown import harden\n"
    "score = Path('/proc/self/oom_score_adj')\n"
    "score.write_text(str(max(int(score.read_text()), {before})))\n"
    "before = int(score.read_text())\n"
    "assert harden()\n"
    "print(before, score.read_text())\n"
)


@each_row("before", [0, 900])
def test_out_of_memory_the_kernel_takes_a_worker_before_others(before: int) -> None:
    # Anybody may raise it; to lower it takes a right that a test need not have.
    argv = [sys.executable, "-c", HARDENED.format(before=before)]
    done = subprocess.run(
        argv, cwd=Path(__file__).parents[3], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    found, after = map(int, done.stdout.split())
    assert after == max(found, OOM_SCORE_ADJ)


def test_a_block_gets_its_memory_and_no_more() -> None:
    before = resource.getrlimit(resource.RLIMIT_AS)
    with memory_bound(64 << 20):
        assert len(bytearray(16 << 20)) == 16 << 20
        with pytest.raises(MemoryError):
            bytearray(1 << 30)
    assert resource.getrlimit(resource.RLIMIT_AS) == before
    assert len(bytearray(128 << 20)) == 128 << 20


def test_a_limit_from_outside_is_not_raised() -> None:
    before = resource.getrlimit(resource.RLIMIT_AS)
    with memory_bound(1 << 30):
        outer = resource.getrlimit(resource.RLIMIT_AS)
        with memory_bound(8 << 30):
            assert resource.getrlimit(resource.RLIMIT_AS) == outer
        assert resource.getrlimit(resource.RLIMIT_AS) == outer
    assert resource.getrlimit(resource.RLIMIT_AS) == before


def test_code_that_computes_for_too_long_is_ended_while_another_thread_computes_in_a_library() -> (
    None
):
    before, started = signal.getsignal(signal.SIGPROF), time.thread_time()
    ended = threading.Event()

    def compute() -> None:
        # No Python code runs in it: it would not see a signal, nor pass one on.
        hashlib.pbkdf2_hmac("sha256", b"password", b"salt", 5_000_000)
        ended.set()

    library = threading.Thread(target=compute)
    library.start()
    for _ in range(5):
        with pytest.raises(TimeoutError), processor_bound(0.05):
            while True:
                pass
    assert not ended.is_set()
    assert time.thread_time() - started >= 5 * 0.05
    library.join()
    assert signal.getsignal(signal.SIGPROF) is before


def test_code_that_waits_or_ends_in_time_is_left_alone() -> None:
    with processor_bound(0.05):
        time.sleep(0.2)
    for _ in range(20):
        with processor_bound(0.02):
            until = time.thread_time() + 0.01
            while time.thread_time() < until:
                pass
