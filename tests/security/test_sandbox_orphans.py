"""What a daemon that was killed leaves of its sandboxes: nothing that runs, nothing for ever."""

import os
import select
import subprocess
import sys
from pathlib import Path

import pytest

from clawd.security.sandbox.neighbours import end_orphans, marked
from clawd.service.lifecycle import checkup
from tests.support.inprocess import daemon_in

pytestmark = pytest.mark.sandbox

# A daemon that is never allowed to let its command go; it prints the pid of the held init.
HOLDER = """
import asyncio, sys
from pathlib import Path
from clawd.security.sandbox.run import Sandbox, SandboxSettings
from clawd.security.sandbox.plan import ChildCommand

class Registry:
    def register_kill(self, pidfd):
        lines = Path(f"/proc/self/fdinfo/{pidfd}").read_text().splitlines()
        print(next(line.split()[1] for line in lines if line.startswith("Pid:")), flush=True)
    def unregister_kill(self, pidfd):
        pass

async def main(home, workspace):
    sandbox = Sandbox(SandboxSettings(home=home), registry=Registry())
    await sandbox.probe()
    command = ChildCommand(argv=("sh", "-c", "echo ran > proof"), workspace=workspace)
    await sandbox.run(command, cleared=asyncio.Event().wait)

asyncio.run(main(*map(Path, sys.argv[1:])))
"""


def ends_within(pidfd: int, limit_s: float) -> bool:
    return bool(select.select([pidfd], [], [], limit_s)[0])


async def test_what_a_killed_daemon_held_never_runs_and_ends_with_the_next(tmp_path: Path) -> None:
    home, workspace = tmp_path / "home", tmp_path / "workspace"
    home.mkdir()
    workspace.mkdir()
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(home), str(workspace)], stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        init = os.pidfd_open(int(holder.stdout.readline()))
        holder.kill()
    try:
        # One that goes on without having been let go ends by itself, soon.
        assert not ends_within(init, 0.5)
        other = tmp_path / "other"
        other.mkdir()
        assert end_orphans(other) == 0
        assert not ends_within(init, 0)
        async with daemon_in(tmp_path):
            assert ends_within(init, 60)
    finally:
        os.close(init)
    assert not (workspace / "proof").exists()


async def test_s8_a_checkup_ends_nothing_that_the_daemon_of_the_home_runs(tmp_path: Path) -> None:
    home, workspace = tmp_path / "home", tmp_path / "workspace"
    home.mkdir()
    workspace.mkdir()
    (home / "config.toml").write_text(f'workspace_dir = "{workspace}"\n')
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(home), str(workspace)], stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        init = os.pidfd_open(int(holder.stdout.readline()))
        try:
            environ = {"HOME": str(tmp_path), "CLAWD_HOME": str(home)}
            found = await checkup(home / "config.toml", environ)
            assert (found.problems, found.sandbox) == ((), "bwrap")
            assert not ends_within(init, 0)
        finally:
            holder.kill()
            end_orphans(home)
            os.close(init)


def test_without_a_home_nothing_is_marked_and_nothing_ended() -> None:
    assert marked(None) == {}
    assert end_orphans(None) == 0


def test_a_mark_does_not_tell_the_home(tmp_path: Path) -> None:
    (mark,) = marked(tmp_path).values()
    assert mark.isalnum()
    assert marked(tmp_path / "x" / "..").values() != marked(tmp_path / "x").values()
    assert [*marked(tmp_path / "x" / "..").values()] == [mark]
