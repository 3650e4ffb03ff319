"""How commands end: time limits, cancellation, floods, survivors, the emergency stop."""

import asyncio
import os
import resource
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import psutil
import pytest

from clawd.errors import SandboxUnavailableError, StorageError
from clawd.kernel import landlock
from clawd.security.estop import EmergencyStop
from clawd.security.sandbox import child as sandbox_child
from clawd.security.sandbox.child import limit_process
from clawd.security.sandbox.plan import ChildCommand, HostFacts, SandboxPlan, bubblewrap_plan
from clawd.security.sandbox.process import FLOOD_BYTES, ChildResult, Level
from clawd.security.sandbox.run import Mode, Sandbox, SandboxSettings
from tests.support.time_limits import TimeLimit

pytestmark = pytest.mark.sandbox

# Twenty processes that leave session and parent behind and ignore polite signals; at the level
# without a PID namespace none may begin a session, and they stay in this one.
_SURVIVORS = (
    "stay='trap \"\" TERM HUP INT; (exec -a TAG sleep 300 & wait)'; "
    'for i in $(seq 20); do (setsid bash -c "$stay" || bash -c "$stay") 2>/dev/null & done; '
    "echo ready; wait; sleep 300"
)


class Registry:
    """Remembers what may be killed, and kills it when told to."""

    def __init__(self) -> None:
        self.held: set[int] = set()
        self.ever = 0
        self.is_set = False
        self.has_one = asyncio.Event()

    def register_kill(self, pidfd: int) -> None:
        self.held.add(pidfd)
        self.has_one.set()
        self.ever += 1
        if self.is_set:
            self.stop()

    def unregister_kill(self, pidfd: int) -> None:
        self.held.discard(pidfd)

    def stop(self) -> None:
        self.is_set = True
        for pidfd in self.held:
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)


def processes_with(word: str) -> list[int]:
    """Return the processes on this machine whose command line holds a word."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                line = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if word.encode() in line and int(entry.name) != os.getpid():
                found.append(int(entry.name))
    return found


async def gone(word: str) -> None:
    """Wait until what was killed without a namespace or a keeper, whom one could ask, is dead."""
    async with asyncio.timeout(60):
        while processes_with(word):
            await asyncio.sleep(0.01)


class Run:
    """Runs commands that carry a tag of their own, and tells when they have printed `ready`.

    Where `over` is given, their time limit is over then.
    """

    def __init__(
        self, workspace: Path, *, mode: Mode = "required", level: Level | None = None
    ) -> None:
        self.workspace = workspace
        self.tag = f"clawd-test-{os.getpid()}-{time.monotonic_ns()}"
        self.registry = Registry()
        settings = SandboxSettings(mode=mode)
        if level is not None:
            settings = SandboxSettings(mode=mode, levels=(level,))
        self.sandbox = Sandbox(settings, registry=self.registry)
        self.ready = asyncio.Event()
        self.output = ""
        self.over: TimeLimit | None = None

    def heard(self, text: str) -> None:
        self.output += text
        if "ready" in self.output and not self.ready.is_set():
            self.ready.set()
            if self.over is not None:
                self.over.is_over()

    async def __call__(
        self,
        script: str,
        *,
        timeout_s: float = 90.0,
        max_output_bytes: int = 1 << 20,
        cleared: Callable[[], Awaitable[None]] | None = None,
    ) -> ChildResult:
        command = ChildCommand(
            argv=("bash", "-c", script.replace("TAG", self.tag)),
            workspace=self.workspace,
            timeout_s=timeout_s if self.over is None else self.over.seconds,
            max_output_bytes=max_output_bytes,
        )
        return await self.sandbox.run(command, on_output=self.heard, cleared=cleared)


@pytest.fixture(params=["bwrap", pytest.param("landlock", marks=pytest.mark.landlock)])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Run:
    return Run(tmp_path, level=request.param)


async def test_output_streams_while_the_command_runs(run: Run) -> None:
    async with asyncio.TaskGroup() as group:
        task = group.create_task(run("echo ready; cat fifo-that-never-comes; sleep 300"))
        async with asyncio.timeout(60):
            await run.ready.wait()
        assert not task.done()
        run.registry.stop()
    assert task.result().output.startswith("ready\n")


async def test_the_time_limit_kills_every_survivor(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    run.over = TimeLimit(monkeypatch)
    result = await run(_SURVIVORS)
    assert (result.timed_out, result.ended_by) == (True, "timeout")
    assert "ready" in result.output
    assert processes_with(run.tag) == []
    assert result.duration_ms < 100_000  # they sleep longer than that


async def test_cancelling_kills_every_survivor_before_it_returns(run: Run) -> None:
    task = asyncio.create_task(run(_SURVIVORS))
    async with asyncio.timeout(60):
        await run.ready.wait()
        # The shell says so when it has begun them; a busy machine lets none of them run before.
        while len(processes_with(run.tag)) < 20:
            await asyncio.sleep(0.02)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert processes_with(run.tag) == []
    assert run.registry.held == set()


async def test_cancelling_twice_still_leaves_nothing_behind(run: Run) -> None:
    task = asyncio.create_task(run(_SURVIVORS))
    async with asyncio.timeout(60):
        await run.ready.wait()
    task.cancel()
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert processes_with(run.tag) == []


@pytest.mark.parametrize("turns", [0, 1, 2, 3, 5, 8, 13])
async def test_cancelling_at_the_very_start_leaves_nothing_behind(run: Run, turns: int) -> None:
    await run.sandbox.probe()
    task = asyncio.create_task(run("exec -a TAG sleep 300"))
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert processes_with(run.tag) == []
    assert run.registry.held == set()


async def test_the_emergency_stop_kills_a_running_command_at_once(run: Run) -> None:
    task = asyncio.create_task(run(_SURVIVORS))
    async with asyncio.timeout(60):
        await run.ready.wait()
    run.registry.stop()
    result = await task
    assert (result.exit_code, result.ended_by) == (137, "exit")
    assert processes_with(run.tag) == []


async def test_a_stop_that_is_set_already_lets_no_command_begin(run: Run, tmp_path: Path) -> None:
    await run.sandbox.probe()
    run.registry.is_set = True
    result = await run("echo ran > proof; sleep 300")
    assert result.exit_code == 137
    assert not (tmp_path / "proof").exists()


async def test_a_sandbox_that_died_before_its_gate_is_opened_has_been_killed(run: Run) -> None:
    """Nobody is left to read from the gate then."""

    others = {child.pid for child in psutil.Process().children()}  # of other tests

    class Slow(Registry):
        def register_kill(self, pidfd: int) -> None:
            super().register_kill(pidfd)
            for child in psutil.Process().children():
                if child.pid in others:
                    continue
                outer = os.pidfd_open(child.pid)
                select.select([outer], [], [], 60.0)
                os.close(outer)

    failures: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, what: failures.append(what))
    await run.sandbox.probe()
    run.sandbox._registry = registry = Slow()
    registry.is_set = True
    result = await run("echo ran > proof; sleep 300")
    assert (result.exit_code, failures) == (137, [])
    assert not (run.workspace / "proof").exists()


async def test_a_command_that_cannot_be_limited_never_begins(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    await run.sandbox.probe()

    def refuse(_pid: int, _limits: dict[str, int]) -> None:
        raise PermissionError("not yours")

    monkeypatch.setattr(sandbox_child, "limit_process", refuse)
    with pytest.raises(SandboxUnavailableError, match="limits cannot be set: not yours"):
        await run("echo ran > proof; exec -a TAG sleep 300")
    assert not (run.workspace / "proof").exists()
    assert processes_with(run.tag) == []
    assert run.registry.held == set()


async def test_a_program_that_may_not_be_executed_is_the_commands_own_failure(
    run: Run, tmp_path: Path
) -> None:
    (tmp_path / "plain").write_text("no program")
    command = ChildCommand(argv=(str(tmp_path / "plain"),), workspace=tmp_path)
    result = await run.sandbox.run(command)
    assert (result.exit_code, result.ended_by) == (126, "exit")
    assert "Permission denied" in result.output


@pytest.mark.parametrize("mode", ["required", "off"])
async def test_a_command_begins_when_it_is_cleared_and_not_before(
    tmp_path: Path, mode: Mode
) -> None:
    run, asked, may_act = Run(tmp_path, mode=mode), asyncio.Event(), asyncio.Event()

    async def cleared() -> None:
        asked.set()
        await may_act.wait()

    task = asyncio.create_task(run("echo ran > proof", cleared=cleared))
    async with asyncio.timeout(60):
        await asked.wait()
        if mode == "required":
            await run.registry.has_one.wait()
    assert not (tmp_path / "proof").exists()
    assert not task.done()
    may_act.set()
    assert (await task).exit_code == 0
    assert (tmp_path / "proof").exists()


@pytest.mark.parametrize("mode", ["required", "off"])
async def test_a_command_that_is_not_cleared_never_begins(tmp_path: Path, mode: Mode) -> None:
    run = Run(tmp_path, mode=mode)

    async def cleared() -> None:
        if mode == "required":
            await run.registry.has_one.wait()
        raise StorageError("no room for an intent")

    with pytest.raises(StorageError, match="no room"):
        await run("echo ran > proof; exec -a TAG sleep 300", cleared=cleared)
    assert not (tmp_path / "proof").exists()
    assert processes_with(run.tag) == []
    assert run.registry.held == set()


async def test_a_command_that_is_cleared_too_late_never_begins(run: Run) -> None:
    async def cleared() -> None:
        await asyncio.Event().wait()

    result = await run("echo ran > proof", cleared=cleared, timeout_s=0.2)
    assert result.timed_out
    assert not (run.workspace / "proof").exists()


async def test_a_stop_between_the_start_and_the_clearance_lets_no_command_begin(run: Run) -> None:
    async def cleared() -> None:
        await run.registry.has_one.wait()
        run.registry.stop()

    assert (await run("echo ran > proof", cleared=cleared)).exit_code == 137
    assert not (run.workspace / "proof").exists()


async def test_the_file_estop_kills_a_running_command_and_lets_none_begin(tmp_path: Path) -> None:
    run = Run(tmp_path)
    home = tmp_path / "home"
    home.mkdir()
    stop = EmergencyStop(home)
    stop.start()
    try:
        run.sandbox = Sandbox(SandboxSettings(home=home), registry=stop)
        task = asyncio.create_task(run(_SURVIVORS))
        async with asyncio.timeout(60):
            await run.ready.wait()
        (home / "ESTOP").touch()
        async with asyncio.timeout(60):
            assert (await task).exit_code == 137
        assert processes_with(run.tag) == []
        assert (await run("echo ran > proof")).exit_code == 137
        assert not (tmp_path / "proof").exists()
    finally:
        stop.close()


async def test_output_is_cut_at_its_limit_and_counted(run: Run) -> None:
    result = await run("head -c 3000000 /dev/zero | tr '\\0' x", max_output_bytes=1000)
    assert result.output == "x" * 1000
    assert (result.output_bytes, result.truncated, result.exit_code) == (3_000_000, True, 0)
    assert run.output == result.output


async def test_endless_output_ends_the_command(run: Run) -> None:
    result = await run("yes", timeout_s=60, max_output_bytes=1000)
    assert result.ended_by == "output"
    assert FLOOD_BYTES < result.output_bytes < 2 * FLOOD_BYTES
    assert len(result.output) == 1000


async def test_endless_slow_output_meets_the_time_limit(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    run.over = TimeLimit(monkeypatch)
    result = await run("while :; do echo ready; sleep 0.01; done")
    assert result.timed_out
    assert "ready\n" in result.output


async def test_a_background_child_that_holds_the_output_does_not_delay_the_end(run: Run) -> None:
    result = await run("(setsid sleep 300 || sleep 300) 2>/dev/null & echo done")
    assert (result.output, result.exit_code, result.ended_by) == ("done\n", 0, "exit")


async def test_characters_cut_between_reads_are_put_together(run: Run) -> None:
    script = "printf '\\xc3'; sleep 0.1; printf '\\xa4\\xff'; printf '\\xe2\\x82'"
    result = await run(script)
    assert result.output == "ä��"
    assert run.output == result.output


async def test_many_commands_run_side_by_side(run: Run) -> None:
    results = await asyncio.gather(*(run(f"echo {i}; exit {i}") for i in range(12)))
    assert [(r.output, r.exit_code) for r in results] == [(f"{i}\n", i) for i in range(12)]


async def test_no_descriptor_is_left_open(run: Run) -> None:
    await run.sandbox.probe()
    before = len(list(Path("/proc/self/fd").iterdir()))
    for script, limit in (("true", 60.0), ("sleep 300", 0.1), ("exit 1", 60.0)):
        await run(script, timeout_s=limit)
    # Who bounds the numbers of its processes may be at work for a moment longer than the command.
    async with asyncio.timeout(60):
        while len(list(Path("/proc/self/fd").iterdir())) != before:
            await asyncio.sleep(0.01)
    assert run.registry.ever >= 3


async def test_without_a_sandbox_nothing_runs_when_it_is_required(
    tmp_path: Path, nothing_works: None
) -> None:
    run = Run(tmp_path)
    with pytest.raises(SandboxUnavailableError, match="not installed"):
        await run("echo ran > proof")
    assert not (run.workspace / "proof").exists()
    assert run.sandbox.is_available is False


@pytest.mark.parametrize("mode", ["preferred", "off"])
async def test_without_a_sandbox_a_command_runs_bare_when_the_owner_says_so(
    tmp_path: Path, mode: Mode, nothing_works: None
) -> None:
    run = Run(tmp_path, mode=mode)
    result = await run("env; ulimit -c; exit 4")
    assert (result.level, result.exit_code) == ("none", 4)
    assert "HOME=/tmp\n" in result.output
    assert "CLAWD" not in result.output


async def test_a_bare_command_is_killed_with_its_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(tmp_path, mode="off")
    run.over = TimeLimit(monkeypatch)
    script = "(exec -a TAG sleep 300) & (exec -a TAG sleep 300) & echo ready; wait"
    result = await run(script)
    assert (result.level, result.timed_out) == ("none", True)
    await gone(run.tag)
    background = await run("(exec -a TAG sleep 300) & echo done")
    assert (background.output, background.ended_by) == ("done\n", "exit")
    await gone(run.tag)


async def test_a_sandbox_that_cannot_be_set_up_is_an_error_that_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "which", _fake_which(tmp_path))
    status = await Sandbox(SandboxSettings(levels=("bwrap",))).probe()
    assert status.level == "none"
    assert "no user namespaces for you" in status.reason


@pytest.fixture
def nothing_works(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(landlock, "abi", lambda: 0)
    real = shutil.which
    monkeypatch.setattr(
        shutil,
        "which",
        lambda name, path=None: None if name == "bwrap" else real(name, path=path),
    )


def _fake_which(folder: Path) -> Callable[..., str]:
    program = folder / "bwrap"
    program.write_text("#!/bin/sh\necho 'bwrap: no user namespaces for you' >&2\nexit 1\n")
    program.chmod(0o755)
    real = shutil.which
    return lambda name, path=None: str(program) if name == "bwrap" else str(real(name, path=path))


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


def plan_with(bwrap: Path, workspace: Path) -> SandboxPlan:
    command = ChildCommand(argv=("true",), workspace=workspace)
    return bubblewrap_plan(command, HostFacts(bwrap=str(bwrap), prlimit="/usr/bin/prlimit"))


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
