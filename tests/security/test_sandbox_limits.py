"""Limits that are set on a process from outside."""

import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from clawd.security.sandbox_limits import limit_process
from clawd.security.sandbox_plan import ChildCommand, Plan, Surroundings, bubblewrap_plan


@pytest.fixture
def child() -> Iterator[int]:
    """A process that waits, and opens no more than 512 files."""
    code = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_NOFILE, (256, 512)); "
        "print(flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process.pid
        process.kill()


def test_soft_and_hard_limits_are_set(child: int) -> None:
    limit_process(child, {"core": 0, "nproc": 7, "fsize": 1 << 20})
    assert resource.prlimit(child, resource.RLIMIT_CORE) == (0, 0)
    assert resource.prlimit(child, resource.RLIMIT_NPROC) == (7, 7)
    assert resource.prlimit(child, resource.RLIMIT_FSIZE) == (1 << 20, 1 << 20)


def test_a_hard_limit_that_is_lower_stays(child: int) -> None:
    limit_process(child, {"nofile": 1024})
    assert resource.prlimit(child, resource.RLIMIT_NOFILE) == (512, 512)


def test_what_cannot_be_limited_is_an_error() -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    with pytest.raises(ProcessLookupError):
        limit_process(gone.pid, {"core": 0})
    with pytest.raises(KeyError):
        limit_process(os.getpid(), {"corre": 0})


def plan_with(bwrap: Path, workspace: Path) -> Plan:
    command = ChildCommand(argv=("true",), workspace=workspace)
    return bubblewrap_plan(command, Surroundings(bwrap=str(bwrap), prlimit="/usr/bin/prlimit"))


def test_a_set_user_id_bubblewrap_limits_the_command_from_inside(tmp_path: Path) -> None:
    bwrap = tmp_path / "bwrap"
    bwrap.touch()
    plan = plan_with(bwrap, tmp_path)
    assert (plan.argv, plan.limits["core"], plan.limits["nproc"]) == (("true",), 0, 256)
    bwrap.chmod(0o4755)
    inside = plan_with(bwrap, tmp_path)
    assert inside.limits == {}
    words = [f"--{name}={value}" for name, value in plan.limits.items()]
    assert inside.argv == ("/usr/bin/prlimit", *words, "--", "true")
