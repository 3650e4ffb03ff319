"""Commands at work at the same time: none has another's sandbox show what no command may see."""

import asyncio
import os
from pathlib import Path

import pytest

from clawd.errors import SandboxUnavailableError
from clawd.security.sandbox.neighbours import Neighbours, check_place
from clawd.security.sandbox.plan import ChildCommand
from clawd.security.sandbox.process import ChildResult
from clawd.security.sandbox.run import Sandbox, SandboxSettings

SECRET = "tell-nobody"


class Folders:
    """A workspace in a folder that holds a secret and must not be changed."""

    def __init__(self, base: Path) -> None:
        self.outside = base
        (base / "secret").write_text(SECRET)
        self.workspace = base / "w"
        self.workspace.mkdir()
        self.sandbox = Sandbox(SandboxSettings(home=base / ".clawd"))

    async def sh(self, script: str, folder: Path | None = None) -> ChildResult:
        return await self.sandbox.run(
            ChildCommand(argv=("bash", "-c", script), workspace=folder or self.workspace)
        )


@pytest.fixture
def folders(tmp_path: Path) -> Folders:
    return Folders(tmp_path)


@pytest.mark.sandbox
@pytest.mark.escape
async def test_a_second_command_cannot_bend_the_setting_up_of_the_first(folders: Folders) -> None:
    # Repositories are bound, and very many of them make setting up slow.
    await folders.sh("for i in {1..300}; do mkdir -p y$i/.git; done; mkdir -p z/.git")
    for delay_s in (0.0, 0.01, 0.02, 0.03):
        first = asyncio.create_task(folders.sh("sleep 0.1; cat ../secret; echo x > ../planted"))
        await asyncio.sleep(delay_s)
        second = asyncio.create_task(folders.sh("rmdir z/.git; ln -s ../.. z/.git; sleep 0.3"))
        assert SECRET not in (await first).output
        await second
        assert not (folders.outside / "planted").exists()
        await folders.sh("rm -rf z; mkdir -p z/.git")


@pytest.mark.sandbox
@pytest.mark.escape
async def test_a_workspace_that_was_exchanged_for_a_link_is_refused(folders: Folders) -> None:
    inner = folders.workspace / "sub"
    inner.mkdir()
    assert (await folders.sh("mv sub old; ln -s .. sub")).exit_code == 0
    with pytest.raises(SandboxUnavailableError, match="a link leads elsewhere"):
        await folders.sh("cat secret; echo x > planted", inner)
    assert not (folders.outside / "planted").exists()


@pytest.mark.sandbox
async def test_a_workspace_within_one_at_work_waits_for_its_end(folders: Folders) -> None:
    inner = folders.workspace / "sub"
    inner.mkdir()
    ready = asyncio.Event()

    def heard(_text: str) -> None:
        ready.set()

    command = ChildCommand(
        argv=("sh", "-c", "echo ready; sleep 60"), workspace=folders.workspace, timeout_s=90
    )
    outer = asyncio.create_task(folders.sandbox.run(command, on_output=heard))
    async with asyncio.timeout(60):
        await ready.wait()
    with pytest.raises(SandboxUnavailableError, match="overlaps") as refused:
        await folders.sh("true", inner)
    assert refused.value.hint
    assert (await folders.sh("echo beside")).output == "beside\n"
    outer.cancel()
    await asyncio.wait([outer])
    assert (await folders.sh("echo after", inner)).output == "after\n"


def test_who_comes_later_begins_when_the_earlier_are_set_up(tmp_path: Path) -> None:
    neighbours = Neighbours()
    with neighbours.beside(tmp_path, binds=True) as first:
        assert neighbours.may_begin(first)
        with neighbours.beside(tmp_path, binds=True) as second:
            assert not neighbours.may_begin(second)
            first.init = os.getpid()  # whose root is not a sandbox's
            assert not neighbours.may_begin(second)
            assert neighbours.may_begin(first)
            first.init = 2**22 + 1  # nobody: it is gone
            assert neighbours.may_begin(second)
        other = tmp_path.with_name(tmp_path.name + "-other")
        other.mkdir()
        with neighbours.beside(other, binds=True) as elsewhere:
            assert neighbours.may_begin(elsewhere)


def test_a_missing_folder_and_a_link_above_are_refused(tmp_path: Path) -> None:
    (tmp_path / "real" / "w").mkdir(parents=True)
    (tmp_path / "link").symlink_to("real")
    check_place(tmp_path / "real" / "w")
    with pytest.raises(SandboxUnavailableError, match="a link leads elsewhere"):
        check_place(tmp_path / "link" / "w")
    with pytest.raises(SandboxUnavailableError, match="is no folder"):
        check_place(tmp_path / "real" / "none")
