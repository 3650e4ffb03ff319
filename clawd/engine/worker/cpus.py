"""How many processor cores a worker may compute on."""

import os
from pathlib import Path

_SIBLINGS = "/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"


def usable_cores() -> int:
    """Return the number of physical cores this process may run on, at least 1.

    Two threads of one core share the units that multiply, so more threads only get in each
    other's way.
    """
    cpus = os.sched_getaffinity(0)
    cores = set()
    for cpu in cpus:
        try:
            cores.add(Path(_SIBLINGS.format(cpu)).read_text("ascii"))
        except OSError:
            return len(cpus)
    return max(len(cores), 1)
