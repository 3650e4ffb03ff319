"""Nothing in a sandbox writes to the kernel of the host, whoever the daemon runs as."""

import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from clawd.kernel import landlock
from clawd.security.sandbox.plan import (
    ChildCommand,
    HostFacts,
    SandboxPlan,
    bubblewrap_plan,
    closed_files,
    own_devices,
)
from clawd.security.sandbox.process import Level, run_plan
from clawd.security.sandbox.run import Sandbox, SandboxSettings
from tests.support.escape_run import ORDINARY_USER
from tests.support.kernel_writes import KINDS, LEVELS, files_of_the_kernel

pytestmark = [pytest.mark.escape, pytest.mark.sandbox, pytest.mark.landlock]

_ROOT = Path(__file__).resolve().parents[2]
_AS_ROOT = os.getuid() == 0
_ENOUGH_FILES = 500


@pytest.fixture
def base() -> Iterator[Path]:
    """Give a folder that an ordinary user can reach, too."""
    folder = Path(tempfile.mkdtemp(prefix="clawd-kernel-", dir="/tmp"))
    yield folder
    shutil.rmtree(folder)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("uid", [0, ORDINARY_USER])
def test_s1_no_kind_of_sandboxed_child_can_open_a_file_of_the_kernel_for_writing(
    base: Path, uid: int
) -> None:
    if not _AS_ROOT and uid == 0:
        pytest.skip("only root can try what root may")
    ran = subprocess.run(
        [sys.executable, "-m", "tests.support.kernel_writes", str(base), str(uid)],
        cwd=_ROOT,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(_ROOT), "LANG": "C.UTF-8"},
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    found: dict[str, Any] = json.loads(ran.stdout)
    children = found["children"]
    assert sorted(children) == sorted(f"{kind} at {level}" for kind in KINDS for level in LEVELS)
    bad = {
        name: each for name, each in children.items() if each["opened"] or each["core"] != "refused"
    }
    assert bad == {}
    assert all(each["tried"] > _ENOUGH_FILES for each in children.values())
    assert (found["core_pattern"], found["fired"]) == (True, False)
    # Root could, without the sandbox: so the files are the right ones.
    assert found["outside"] > (_ENOUGH_FILES if uid == 0 else 0)


def _plan(workspace: Path, script: str, **changes: Any) -> SandboxPlan:
    sandbox = shutil.which("bwrap")
    assert sandbox is not None
    host = HostFacts(bwrap=sandbox, prlimit="", landlock=(landlock.abi(), os.uname().machine))
    command = ChildCommand(argv=("bash", "-c", script), workspace=workspace)
    return bubblewrap_plan(command, msgspec.structs.replace(host, **changes))


def _without_the_mount(plan: SandboxPlan) -> SandboxPlan:
    """Return a plan that leaves /proc as bubblewrap mounts it."""
    words = list(plan.options)
    at = next(n for n, word in enumerate(words) if words[n : n + 2] == ["--remount-ro", "/proc"])
    del words[at : at + 2]
    return msgspec.structs.replace(plan, options=tuple(words))


async def _ran(plan: SandboxPlan, workspace: Path) -> str:
    command = ChildCommand(argv=("-",), workspace=workspace, timeout_s=60)
    return (await run_plan(plan, command, registry=None, on_output=None)).output


async def test_s1_each_wall_holds_where_the_other_is_not(base: Path) -> None:
    # Pressure files are for everybody to write, so that an ordinary user sees the difference, too.
    files = [
        "/proc/pressure/cpu",
        *(["/proc/sys/kernel/hung_task_timeout_secs"] if _AS_ROOT else []),
    ]
    script = f"for f in {' '.join(files)}; do ( : >> $f ) 2>&1; done; echo x > own && cat own"
    both = _plan(base, script)
    mounts = _plan(base, script, landlock=(0, ""))
    said = {
        "both": await _ran(both, base),
        "mounts": await _ran(mounts, base),
        "Landlock": await _ran(_without_the_mount(both), base),
        "none": await _ran(_without_the_mount(mounts), base),
    }
    refused = {name: text.count("bash: ") for name, text in said.items()}
    assert refused == {"both": len(files), "mounts": len(files), "Landlock": len(files), "none": 0}
    assert said["mounts"].count("Read-only file system") == len(files)
    assert said["Landlock"].count("Permission denied") == len(files)
    assert all(text.endswith("x\n") for text in said.values())


@pytest.mark.skipif(not _AS_ROOT, reason="others cannot read them anyway")
async def test_s1_what_of_proc_only_root_reads_is_closed(base: Path) -> None:
    files = [path for path in closed_files() if os.access(path, os.R_OK)]
    assert "/proc/slabinfo" in files
    sandbox = Sandbox(SandboxSettings(levels=("bwrap",)))
    result = await sandbox.run(
        ChildCommand(
            argv=("bash", "-c", f"for f in {' '.join(files)}; do head -c 1 $f && echo $f; done"),
            workspace=base,
        )
    )
    assert [line for line in result.output.splitlines() if not line.startswith("head: ")] == []
    assert set(files) <= set(files_of_the_kernel())


def _facts(path: Path) -> tuple[int, ...]:
    """Return what a command could change of a device that others use meanwhile."""
    about = path.stat()
    return about.st_mode, about.st_uid, about.st_gid, about.st_mtime_ns


@pytest.mark.skipif(not _AS_ROOT, reason="others do not own them")
@pytest.mark.parametrize("level", LEVELS)
async def test_s1_a_command_changes_no_mode_of_a_device_of_the_host(
    base: Path, level: Level
) -> None:
    home, workspace = base / "home", base / "workspace"
    for folder in (home, workspace):
        folder.mkdir()
    devices = own_devices()
    assert devices
    sandbox = Sandbox(SandboxSettings(home=home, levels=(level,), devices=devices))
    nodes = [Path("/dev/null"), Path("/dev/zero"), Path("/dev/full")]
    before = {path: _facts(path) for path in nodes}
    script = "for d in null zero full; do chmod 640 /dev/$d; touch -d @1 /dev/$d; done"
    try:
        await sandbox.run(ChildCommand(argv=("bash", "-c", script), workspace=workspace))
        changed = [path for path, facts in before.items() if _facts(path) != facts]
    finally:
        for path, (mode, *_) in before.items():
            if path.stat().st_mode != mode:
                path.chmod(stat.S_IMODE(mode))
    assert changed == []
    # What one command did to its devices is gone for the next.
    again = "echo x > /dev/null && head -c 1 /dev/zero | wc -c; stat -c %a /dev/full"
    result = await sandbox.run(ChildCommand(argv=("bash", "-c", again), workspace=workspace))
    assert result.output.split() == ["1", "666"]
