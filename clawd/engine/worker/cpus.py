"""What a worker may compute on: processor cores, and memory that is free."""

import math
import os
from pathlib import Path

_SIBLINGS = "/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"
_OWN_CGROUP = Path("/proc/self/cgroup")
_CGROUPS = Path("/sys/fs/cgroup")
_MEMORY = Path("/proc/meminfo")


def usable_cores() -> int:
    """Return the number of physical cores this process may run on, at least 1.

    Two threads of one core share the units that multiply, so more threads only get in each
    other's way. A cgroup that limits the time of processors (`cpu.max`) has that many.
    """
    cpus = os.sched_getaffinity(0)
    cores = set()
    for cpu in cpus:
        try:
            cores.add(Path(_SIBLINGS.format(cpu)).read_text("ascii"))
        except OSError:
            cores = {str(cpu) for cpu in cpus}
            break
    return max(min(len(cores), _cores_of_time()), 1)


def _cores_of_time() -> int:
    """Return how many cores' time the cgroups of this process get, as cgroup v2's cpu.max says."""
    least = math.inf
    for folder in _own_cgroups():
        try:
            quota, period = (folder / "cpu.max").read_text("ascii").split()
            least = min(least, math.ceil(int(quota) / int(period)))
        except (OSError, ValueError):
            continue  # the root has none, and "max" is no number
    return int(min(least, len(os.sched_getaffinity(0))))


def available_memory() -> int:
    """Return how many bytes can be taken without others having to go; 0 where nothing says."""
    free = 0
    try:
        for line in _MEMORY.read_text("ascii").splitlines():
            if line.startswith("MemAvailable:"):
                free = int(line.split()[1]) * 1024
    except (OSError, ValueError):
        return 0
    for folder in _own_cgroups():
        try:
            limit = int((folder / "memory.max").read_text("ascii"))
            used = int((folder / "memory.current").read_text("ascii"))
        except (OSError, ValueError):
            continue
        free = min(free, max(limit - used, 0))
    return free


def _own_cgroups() -> list[Path]:
    """Return the folders of the cgroup that this process is in and of those around it (v2)."""
    try:
        lines = _OWN_CGROUP.read_text("utf-8").splitlines()
    except OSError:
        return []
    paths = [line.removeprefix("0::").strip("/") for line in lines if line.startswith("0::")]
    found: list[Path] = []
    for path in paths:
        inner = _CGROUPS / path
        found += [inner, *(each for each in inner.parents if _CGROUPS in each.parents)]
    return found
