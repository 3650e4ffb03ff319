"""What a worker may compute on, as the system and its cgroups say."""

import os
from pathlib import Path

import pytest

from clawd.engine.worker import cpus
from tests.support.rows import each_row


@pytest.fixture
def cgroups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tree of cgroups with this process in a/b, on a machine with eight cores of two threads."""
    root = tmp_path / "cgroup"
    (root / "a/b").mkdir(parents=True)
    own = tmp_path / "own"
    own.write_text("1:cpu:/old\n0::/a/b\n")
    topology = tmp_path / "siblings-{}"
    for cpu in range(16):
        pair = cpu // 2 * 2
        path = Path(str(topology).format(cpu))
        path.write_text(f"{pair}-{pair + 1}\n", encoding="ascii")
    (tmp_path / "meminfo").write_text("MemFree: 1 kB\nMemAvailable:   4000 kB\n")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: set(range(16)))
    monkeypatch.setattr(cpus, "_CGROUPS", root)
    monkeypatch.setattr(cpus, "_OWN_CGROUP", own)
    monkeypatch.setattr(cpus, "_SIBLINGS", str(topology))
    monkeypatch.setattr(cpus, "_MEMORY", tmp_path / "meminfo")
    return root


@each_row(
    ("inner", "outer", "cores"),
    [
        ("max 100000", "max 100000", 8),
        ("", "", 8),
        ("200000 100000", "max 100000", 2),
        ("max 100000", "150000 100000", 2),
        ("10000 100000", "max 100000", 1),
        ("1600000 100000", "", 8),
        ("nonsense", "400000 100000", 4),
    ],
    fresh=("cgroups",),
)
def test_r10_threads_are_the_physical_cores_that_the_cgroups_give(
    cgroups: Path, inner: str, outer: str, cores: int
) -> None:
    for folder, text in ((cgroups / "a/b", inner), (cgroups / "a", outer)):
        if text:
            (folder / "cpu.max").write_text(f"{text}\n")
    assert cpus.usable_cores() == cores


def test_r10_memory_is_what_is_free_and_no_cgroup_forbids(cgroups: Path) -> None:
    assert cpus.available_memory() == 4000 * 1024
    (cgroups / "a/memory.max").write_text("3000000\n")
    (cgroups / "a/memory.current").write_text("1000000\n")
    (cgroups / "a/b/memory.max").write_text("max\n")
    assert cpus.available_memory() == 2_000_000
