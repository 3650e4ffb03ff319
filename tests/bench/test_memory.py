"""What is counted of a process's memory, and whose."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.bench.memory import kilobytes_of, memory_mb
from tests.bench.streams import BenchError

SMAPS = """\
55d0-55d1 r--p 00000000 08:01 11 /usr/bin/python3
Size:                 40 kB
Rss:                  36 kB
Pss:                  12 kB
VmFlags: rd mr mw me
7f00-7f01 r--s 00000000 08:01 12 /tmp/a model.gguf
Size:                900 kB
Rss:                 800 kB
Pss:                 400 kB
7f02-7f03 rw-p 00000000 00:00 0
Rss:                   5 kB
Pss:                   5 kB
SwapPss:               7 kB
"""


def test_shared_pages_count_in_part_but_the_models_whole() -> None:
    assert kilobytes_of(iter(SMAPS.splitlines()), Path("/tmp/a model.gguf")) == 12 + 800 + 5
    assert kilobytes_of(iter(SMAPS.splitlines()), Path("/tmp/other.gguf")) == 12 + 400 + 5


def test_a_process_counts_with_those_that_it_started(tmp_path: Path) -> None:
    grandchild = (
        "import sys; held = b'x' * 30_000_000; print('ready', flush=True); sys.stdin.read()"
    )
    child = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {grandchild!r}])"
    process = subprocess.Popen(
        [sys.executable, "-c", child], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        assert memory_mb(process.pid, tmp_path) > 30
        assert process.stdin is not None
        process.stdin.close()


def test_a_process_that_is_gone_has_no_figure(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    with pytest.raises(BenchError, match="cannot be read"):
        memory_mb(process.pid, tmp_path)
    assert memory_mb(os.getpid(), tmp_path) > 1
