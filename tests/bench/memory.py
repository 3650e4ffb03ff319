"""How much RAM a process takes together with all that it started.

Pages that processes share are divided among them (PSS), so those of one side add up. The model's
file is the exception: the other side may have mapped it, too, and would pay for half of it. So its
pages count whole, as if this side were alone.
"""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.bench.streams import BenchError

PROC = Path("/proc")


def memory_mb(pid: int, model: Path) -> float:
    """Return the millions of bytes that the process and its descendants take in RAM.

    Raises:
        BenchError: the process is gone, or belongs to somebody else.
    """
    try:
        return sum(_kilobytes(each, model) for each in family_of(pid)) * 1024 / 1e6
    except OSError as error:
        raise BenchError(f"the memory of process {pid} cannot be read: {error}") from error


def kilobytes_of(lines: Iterator[str], model: Path) -> int:
    """Return the sum over the mappings of /proc/PID/smaps."""
    total = 0
    is_model = False
    for line in lines:
        name, _, rest = line.partition(" ")
        if not name.endswith(":"):
            is_model = line.rstrip().endswith(str(model))
        elif name == ("Rss:" if is_model else "Pss:"):
            total += int(rest.split()[0])
    return total


def _kilobytes(pid: int, model: Path) -> int:
    with (PROC / str(pid) / "smaps").open(encoding="utf-8", errors="replace") as lines:
        return kilobytes_of(lines, model)


def family_of(pid: int) -> list[int]:
    """Return the process and all below it."""
    parents = dict(_parents())
    family = [pid]
    for member in family:
        family += [child for child, parent in parents.items() if parent == member]
    return family


def cpu_s(pids: Iterable[int]) -> float:
    """Return the processor time of processes so far; those that ended count nothing."""
    ticks = 0
    for each in pids:
        try:
            fields = (PROC / str(each) / "stat").read_text("utf-8", "replace").rpartition(")")[2]
        except OSError:
            continue
        ticks += sum(map(int, fields.split()[11:13]))
    return ticks / os.sysconf("SC_CLK_TCK")


def _parents() -> Iterator[tuple[int, int]]:
    for path in PROC.glob("[0-9]*/stat"):
        try:
            # The name before the last bracket may hold anything.
            fields = path.read_text("utf-8", "replace").rpartition(")")[2].split()
        except OSError:
            continue  # ended meanwhile
        yield int(path.parent.name), int(fields[1])
