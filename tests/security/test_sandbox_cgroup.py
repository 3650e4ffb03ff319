"""The cgroup of the tools: on a made-up tree, and on a real one where the test may mount it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from clawd.security.sandbox.limits import (
    CommandCgroup,
    NoCgroup,
    Oversight,
    ToolsCgroup,
    bounds_of,
    tools_cgroup,
    unbounded_by,
)
from clawd.security.sandbox.plan import ResourceLimits

_WANTED = frozenset({"memory", "pids"})
_CORE = ("cgroup.procs", "cgroup.kill", "cgroup.controllers", "cgroup.subtree_control")


class Tree:
    """A folder that looks like cgroup v2 under a unit of systemd."""

    def __init__(self, base: Path, controllers: str = "cpu memory pids") -> None:
        self.mount = base / "cgroup"
        self.unit = self.mount / "unit"
        self.proc = base / "proc"
        self.proc.mkdir()
        for folder in (self.unit, self.unit / "daemon", self.unit / "tools"):
            self.fill(folder, controllers)
        (self.proc / "cgroup").write_text("3:cpuset:/\n0::/system.slice/unit\n")
        (self.proc / "mountinfo").write_text(
            "22 1 0:20 / /proc rw - proc proc rw\n"
            f"30 1 0:26 /system.slice {self.mount} rw,nosuid shared:4 - cgroup2 cgroup2 rw\n"
        )

    def fill(self, folder: Path, controllers: str) -> None:
        folder.mkdir(parents=True)
        for name in _CORE:
            (folder / name).write_text(controllers if name == "cgroup.controllers" else "")

    def open(self, *, is_delegated: bool = True) -> ToolsCgroup | NoCgroup:
        return tools_cgroup(proc=self.proc, is_delegated=lambda folder: is_delegated)


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


def test_the_daemon_moves_beside_the_tools(tree: Tree) -> None:
    tools = tree.open()
    assert isinstance(tools, ToolsCgroup)
    assert (tools.name, tools.controllers) == ("/system.slice/unit/tools", _WANTED)
    assert (tree.unit / "daemon/cgroup.procs").read_text() == str(os.getpid())
    for folder in (tree.unit, tree.unit / "tools"):
        assert (folder / "cgroup.subtree_control").read_text() == "+memory +pids"


def test_after_a_restart_the_unit_is_still_found(tree: Tree) -> None:
    (tree.proc / "cgroup").write_text("0::/system.slice/unit/daemon\n")
    tools = tree.open()
    assert isinstance(tools, ToolsCgroup)
    assert tools.name == "/system.slice/unit/tools"


def test_without_controllers_there_is_killing_only(tmp_path: Path) -> None:
    tools = Tree(tmp_path, controllers="hugetlb").open()
    assert isinstance(tools, ToolsCgroup)
    assert tools.controllers == frozenset()


def test_where_nothing_is_delegated_nothing_is_touched(tree: Tree) -> None:
    found = tree.open(is_delegated=False)
    reason = "cgroup /system.slice/unit is not delegated (Delegate=yes)"
    assert found == NoCgroup(reason=reason)
    assert (tree.unit / "daemon/cgroup.procs").read_text() == ""


@pytest.mark.parametrize("missing", ["cgroup", "mountinfo"])
def test_what_cannot_be_read_is_no_cgroup(tree: Tree, missing: str) -> None:
    (tree.proc / missing).unlink()
    assert isinstance(tree.open(), NoCgroup)


def test_a_machine_without_cgroup_2_has_none(tree: Tree) -> None:
    (tree.proc / "mountinfo").write_text("22 1 0:20 / /proc rw - proc proc rw\n")
    assert tree.open() == NoCgroup(reason="no cgroup v2 here")


def test_a_command_gets_its_limits_before_it_runs(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools = tree.open()
    assert isinstance(tools, ToolsCgroup)
    made = Path.mkdir

    def with_files(folder: Path) -> None:
        made(folder)
        for name in ("memory.max", "memory.oom.group", "memory.swap.max", "pids.max", *_CORE):
            (folder / name).write_text("")

    monkeypatch.setattr(Path, "mkdir", with_files)
    limits = ResourceLimits(total_memory_bytes=1_000_000, processes=7)
    oversight = Oversight((), limits, tools)
    oversight.begin(4711)
    folder = tree.unit / "tools/1"
    said = {name: (folder / name).read_text() for name in ("memory.max", "pids.max")}
    assert said == {"memory.max": "1000000", "pids.max": "7"}
    assert (folder / "cgroup.procs").read_text() == "4711"
    (folder / "memory.events").write_text("low 0\noom 1\noom_kill 3\n")
    assert oversight.end() == "it used more than 1000000 bytes"
    assert (folder / "cgroup.kill").read_text() == "1"  # what is left is killed and told of
    assert oversight.end() == ""


def test_what_an_earlier_daemon_left_and_is_still_dying_hinders_no_command(tree: Tree) -> None:
    (tree.unit / "tools/1").mkdir()
    (tree.unit / "tools/1/alive").touch()  # a cgroup that is not empty cannot be removed
    tools = tree.open()
    assert isinstance(tools, ToolsCgroup)
    tools.controllers = frozenset()
    tools.new(memory_bytes=1, processes=1)
    assert (tree.unit / "tools/2").is_dir()


def test_a_command_whose_limits_cannot_be_set_does_not_begin(tree: Tree) -> None:
    tools = tree.open()
    assert isinstance(tools, ToolsCgroup)
    with pytest.raises(OSError, match=r"memory\.max"):
        Oversight((), ResourceLimits(), tools).begin(4711)


@pytest.mark.sandbox
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a cgroup tree of its own")
def test_a_real_tree_kills_and_goes_away() -> None:
    script = f"""
import os, subprocess, sys
from pathlib import Path
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
from clawd.security.sandbox.limits import *
mount, unit = Path(sys.argv[1]), Path(sys.argv[1]) / f"clawd-test-{{os.getpid()}}"
unit.mkdir()
(unit / "cgroup.procs").write_text(str(os.getpid()))
os.setxattr(unit, "user.delegate", b"1")
tools = tools_cgroup()
assert isinstance(tools, ToolsCgroup), tools
own = Path("/proc/self/cgroup").read_text()
command = tools.new(memory_bytes=1 << 30, processes=50)
child = subprocess.Popen(["setsid", "sleep", "60"])
command.add(child.pid)
assert f"{{tools.name}}/1" in Path(f"/proc/{{child.pid}}/cgroup").read_text()
command.close()
assert child.wait(60) == -9
command.close()
print(own.splitlines()[-1].removeprefix("0::").removeprefix(f"/{{unit.name}}"))
print(sorted(p.name for p in (unit / "tools").iterdir() if p.is_dir()))
(mount / "cgroup.procs").write_text(str(os.getpid()))
for folder in ("tools", "daemon", "."):
    (unit / folder).rmdir()
"""
    mount = "/tmp/clawd-test-cgroup2"
    argv = f'mkdir -p {mount}; mount -t cgroup2 none {mount} && exec "$0" -c "$1" {mount}'
    ran = subprocess.run(
        ["unshare", "-m", "sh", "-c", argv, sys.executable, script],
        capture_output=True,
        text=True,
        timeout=110,
    )
    if "mount" in ran.stderr:
        pytest.skip(f"no cgroup2 can be mounted here: {ran.stderr}")
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == "/daemon\n[]\n"


def test_an_unknown_cgroup_is_closed_without_an_error(tmp_path: Path) -> None:
    cgroup = CommandCgroup(tmp_path / "gone")
    cgroup.kill()
    cgroup.close()
    assert not cgroup.ran_out_of_memory()


def test_what_bounds_a_command_and_what_does_not_is_told(tmp_path: Path) -> None:
    whole = ToolsCgroup(tmp_path, "/unit/tools", frozenset({"memory", "pids"}))
    assert bounds_of(whole) == ("disk watch", "cgroup (kill, memory, pids)")
    assert unbounded_by(whole) == ()
    assert bounds_of(None) == ("disk watch",)
    assert unbounded_by(None)[0] == "memory of all processes together"
