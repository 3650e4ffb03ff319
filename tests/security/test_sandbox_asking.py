"""Commands that are asked to end before they are killed, and whose errors are kept apart."""

import asyncio
import contextlib
import time
from pathlib import Path

import pytest

from clawd.errors import InvalidRequestError, SandboxUnavailableError
from clawd.security.sandbox import child as sandbox_child
from clawd.security.sandbox.limits import Oversight
from clawd.security.sandbox.plan import ChildCommand
from clawd.security.sandbox.process import ChildResult
from clawd.security.sandbox.run import Sandbox, SandboxSettings
from tests.support.time_limits import TimeLimit

pytestmark = pytest.mark.sandbox

POLITE = "trap 'echo asked; exit 0' TERM; echo begun; while :; do sleep 0.05; done"
STUBBORN = "trap '' TERM; echo begun; while :; do sleep 0.05; done"


@pytest.fixture(params=["bwrap", pytest.param("landlock", marks=pytest.mark.landlock), "none"])
def sandbox(request: pytest.FixtureRequest) -> Sandbox:
    if request.param == "none":
        return Sandbox(SandboxSettings(mode="off"))
    return Sandbox(SandboxSettings(levels=(request.param,)))


async def run(
    sandbox: Sandbox,
    script: str,
    workspace: Path,
    *,
    over: TimeLimit | None = None,
    grace_s: float = 0.0,
    separate: bool = False,
) -> ChildResult:
    """Run a script; with `over` its time limit is over as soon as it says that it has begun."""
    command = ChildCommand(
        argv=("bash", "-c", script),
        workspace=workspace,
        timeout_s=30.0 if over is None else over.seconds,
        grace_s=grace_s,
        separate_errors=separate,
    )
    async with asyncio.timeout(90):
        heard = None if over is None else over.is_over_at("begun")
        return await sandbox.run(command, on_output=heard)


@pytest.fixture
def over(monkeypatch: pytest.MonkeyPatch) -> TimeLimit:
    return TimeLimit(monkeypatch)


async def test_with_a_grace_it_is_asked_first(
    sandbox: Sandbox, tmp_path: Path, over: TimeLimit
) -> None:
    result = await run(sandbox, POLITE, tmp_path, over=over, grace_s=60)
    assert "asked" in result.output
    assert (result.timed_out, result.exit_code) == (True, 0)


async def test_without_a_grace_it_is_killed(
    sandbox: Sandbox, tmp_path: Path, over: TimeLimit
) -> None:
    result = await run(sandbox, POLITE, tmp_path, over=over)
    assert "asked" not in result.output
    assert result.timed_out


async def test_after_the_grace_it_is_killed(
    sandbox: Sandbox, tmp_path: Path, over: TimeLimit
) -> None:
    result = await run(sandbox, STUBBORN, tmp_path, over=over, grace_s=0.3)
    assert result.output == "begun\n"
    assert (result.timed_out, result.exit_code) == (True, 137)


async def test_where_no_group_can_be_signalled_the_command_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, over: TimeLimit
) -> None:
    monkeypatch.setattr(sandbox_child, "PROCESS_GROUP", 1 << 20)  # as Linux 6.8 answers
    sandbox = Sandbox(SandboxSettings(levels=("bwrap",)))
    result = await run(sandbox, POLITE, tmp_path, over=over, grace_s=60)
    assert result.output == "begun\nasked\n"


async def test_what_has_not_begun_when_its_time_is_over_does_not_begin_in_its_grace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, over: TimeLimit
) -> None:
    sandbox = Sandbox(SandboxSettings(levels=("bwrap",)))
    await sandbox.probe()
    asked = 0

    def may_begin(_self: Oversight) -> bool:
        nonlocal asked
        asked += 1
        if asked == 2:
            over.is_over()
        return asked > 4

    monkeypatch.setattr(Oversight, "may_begin", may_begin)
    result = await run(sandbox, "echo ran > proof", tmp_path, over=over, grace_s=5)
    assert (result.timed_out, result.exit_code) == (True, 137)
    assert not (tmp_path / "proof").exists()


async def test_errors_can_be_kept_apart(sandbox: Sandbox, tmp_path: Path) -> None:
    script = "echo out; echo err >&2"
    apart = await run(sandbox, script, tmp_path, separate=True)
    assert (apart.output, apart.errors) == ("out\n", "err\n")
    merged = await run(sandbox, script, tmp_path)
    assert (merged.output, merged.errors) == ("out\nerr\n", "")


async def test_a_flood_of_errors_ends_it_as_well(tmp_path: Path) -> None:
    result = await run(Sandbox(SandboxSettings()), "yes >&2", tmp_path, separate=True)
    assert result.ended_by == "output"
    assert len(result.errors) == 4096


async def test_a_missing_program_is_told_apart_from_a_missing_sandbox(tmp_path: Path) -> None:
    sandbox = Sandbox(SandboxSettings(levels=("bwrap",)))
    command = ChildCommand(argv=("no-such-program",), workspace=tmp_path, separate_errors=True)
    assert (await sandbox.run(command)).exit_code == 127
    gone = ChildCommand(
        argv=("true",), workspace=tmp_path, readonly_paths=(Path("/gone"),), separate_errors=True
    )
    with pytest.raises(SandboxUnavailableError, match="/gone"):
        await sandbox.run(gone)


async def test_a_missing_sandbox_is_told_when_its_process_ends_while_it_is_limited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process is there, and has left its namespaces: nothing can be limited any more."""
    begin = Oversight.begin

    def late(self: Oversight, init: int) -> None:
        with contextlib.suppress(OSError):
            while Path(f"/proc/{init}/ns/pid").readlink().name:
                time.sleep(0.001)
        begin(self, init)

    sandbox = Sandbox(SandboxSettings(levels=("bwrap",)))
    assert (await sandbox.probe()).level == "bwrap"
    monkeypatch.setattr(Oversight, "begin", late)
    gone = ChildCommand(argv=("true",), workspace=tmp_path, readonly_paths=(Path("/gone"),))
    with pytest.raises(SandboxUnavailableError, match="/gone"):
        await sandbox.run(gone)


async def test_it_may_start_in_a_folder_that_it_is_shown(sandbox: Sandbox, tmp_path: Path) -> None:
    workspace, shown = tmp_path / "ws", tmp_path / "shown"
    workspace.mkdir()
    shown.mkdir()
    command = ChildCommand(argv=("pwd",), workspace=workspace, cwd=shown, readonly_paths=(shown,))
    assert (await sandbox.run(command)).output == f"{shown}\n"
    elsewhere = ChildCommand(argv=("pwd",), workspace=workspace, cwd=shown)
    with pytest.raises(InvalidRequestError, match="not in the workspace"):
        await sandbox.run(elsewhere)
