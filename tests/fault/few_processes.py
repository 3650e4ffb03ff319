"""A daemon to which the limit on processes applies.

Root is free of it, so the real user of such a daemon is another one.

Started as `python -c PROGRAM`; the effective user stays, and with it what files it may open.
"""

import os
import signal
import time
from pathlib import Path

SOMEBODY = 61_313
PROGRAM = f"""
import ctypes, os, resource, signal, struct, sys
if os.geteuid() == 0:
    libc = ctypes.CDLL(None, use_errno=True)
    os.setresuid({SOMEBODY}, 0, 0)
    head = ctypes.create_string_buffer(struct.pack("=Ii", 0x20080522, 0))
    sets = ctypes.create_string_buffer(24)
    assert libc.capget(head, sets) == 0
    words = list(struct.unpack("=6I", sets.raw))
    for bit in (21, 24):  # CAP_SYS_ADMIN, CAP_SYS_RESOURCE
        for at in range(3):
            words[at] &= ~(1 << bit)
    assert libc.capset(head, ctypes.create_string_buffer(struct.pack("=6I", *words))) == 0
def limited(count):
    hard = resource.getrlimit(resource.RLIMIT_NPROC)[1]
    resource.setrlimit(resource.RLIMIT_NPROC, (hard if count is None else count, hard))
signal.signal(signal.SIGUSR1, lambda *_: limited(1))
signal.signal(signal.SIGUSR2, lambda *_: limited(None))
from clawd.service.main import main
sys.exit(main([]))
"""


def forbid(pid: int) -> None:
    """Let such a daemon begin no thread and no process any more."""
    _tell(pid, signal.SIGUSR1)


def allow(pid: int) -> None:
    """Let it again."""
    _tell(pid, signal.SIGUSR2)


def _tell(pid: int, number: signal.Signals) -> None:
    before = _limit(pid)
    os.kill(pid, number)
    deadline = time.monotonic() + 60
    while _limit(pid) == before:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def _limit(pid: int) -> str:
    lines = Path(f"/proc/{pid}/limits").read_text(encoding="utf-8").splitlines()
    return next(line for line in lines if line.startswith("Max processes")).split()[2]
