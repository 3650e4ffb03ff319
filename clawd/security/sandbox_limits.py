"""Limits on what a process and its children may use, set from outside while it waits."""

import resource
from collections.abc import Mapping

_LIMITS = {
    "core": resource.RLIMIT_CORE,
    "cpu": resource.RLIMIT_CPU,
    "data": resource.RLIMIT_DATA,
    "as": resource.RLIMIT_AS,
    "fsize": resource.RLIMIT_FSIZE,
    "nofile": resource.RLIMIT_NOFILE,
    "nproc": resource.RLIMIT_NPROC,
}


def limit_process(pid: int, limits: Mapping[str, int]) -> None:
    """Set soft and hard limits, by prlimit(1)'s names; a hard limit that is lower stays.

    Raises:
        OSError: they cannot be set; the process must not go on.
    """
    for name, wanted in limits.items():
        kind = _LIMITS[name]
        _, hard = resource.prlimit(pid, kind)
        value = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.prlimit(pid, kind, (value, value))
