"""Children that stay: talked with, held back, killed whole, dead with their daemon."""

import asyncio
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

from clawd.errors import SandboxUnavailableError
from clawd.security.sandbox import long_lived as sandbox_long_lived
from clawd.security.sandbox.long_lived import OpenChild
from clawd.security.sandbox.plan import ChildCommand, ResourceLimits
from clawd.security.sandbox.process import Level
from clawd.security.sandbox.run import Sandbox, SandboxSettings
from tests.security.test_sandbox_process import Registry, processes_with

pytestmark = pytest.mark.sandbox

LEVELS = ["bwrap", pytest.param("landlock", marks=pytest.mark.landlock), "none"]
FENCED = LEVELS[:2]


class Place:
    """A sandbox of one level, a home and a workspace, and a word in the command lines."""

    def __init__(self, root: Path, level: Level, limits: ResourceLimits | None = None) -> None:
        self.level = level
        self.home, self.workspace = root / "home", root / "workspace"
        self.home.mkdir()
        self.workspace.mkdir()
        self.tag = f"clawd-test-{os.getpid()}-{time.monotonic_ns()}"
        self.registry = Registry()
        self.errors = b""
        settings = SandboxSettings(
            mode="off" if level == "none" else "required",
            home=self.home,
            levels=() if level == "none" else (level,),
            limits=limits or ResourceLimits(),
        )
        self.sandbox = Sandbox(settings, registry=self.registry)

    def take(self, data: bytes) -> None:
        self.errors = (self.errors + data)[-100_000:]

    def command(self, script: str, **more: object) -> ChildCommand:
        argv = ("bash", "-c", script.replace("TAG", self.tag))
        fields = {"workspace": self.workspace, "workspace_writable": False} | more
        return ChildCommand(argv=argv, **fields)  # type: ignore[arg-type]

    def open(self, script: str, **more: object) -> AbstractAsyncContextManager[OpenChild]:
        return self.sandbox.open(self.command(script, **more), on_errors=self.take)


async def read_all(child: OpenChild) -> bytes:
    data = b""
    while piece := await child.read():
        data += piece
    return data


async def read_until(child: OpenChild, word: bytes) -> bytes:
    data = b""
    async with asyncio.timeout(60):
        while word not in data:
            piece = await child.read()
            assert piece, data
            data += piece
    return data


@pytest.fixture(autouse=True)
def _short_graces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a child that does not leave be asked, and ended, soon."""
    monkeypatch.setattr(sandbox_long_lived, "EOF_GRACE_S", 0.3)
    monkeypatch.setattr(sandbox_long_lived, "TERM_GRACE_S", 0.2)


@pytest.fixture(params=LEVELS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return Place(tmp_path, request.param)


@pytest.fixture(params=FENCED)
def fenced(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return Place(tmp_path, request.param)


@asynccontextmanager
async def within(limit_s: float = 100.0) -> AsyncIterator[None]:
    async with asyncio.timeout(limit_s):
        yield


async def test_what_is_written_is_answered_for_as_long_as_it_lives(place: Place) -> None:
    async with within(), place.open('while read -r line; do echo "$line!"; done') as child:
        for word in (b"one", b"two", b"three"):
            await child.write(word + b"\n")
            assert await read_until(child, b"\n") == word + b"!\n"
    assert place.registry.held == set()


async def test_its_exit_is_noticed_and_its_code_told(place: Place) -> None:
    async with within(), place.open("echo gone; exit 7") as child:
        assert await read_all(child) == b"gone\n"
        await child.dead()
    assert child.exit_code() == 7


async def test_standard_error_is_handed_on_apart(place: Place) -> None:
    async with within(), place.open("echo out; echo err >&2") as child:
        assert await read_all(child) == b"out\n"
        await child.wait()
    assert place.errors == b"err\n"


async def test_a_child_that_nobody_reads_is_held_back_and_not_buffered(place: Place) -> None:
    script = "head -c 50000000 /dev/zero; echo all >&2"
    async with within(), place.open(script) as child:
        assert await child.read(1) == b"\0"
        total = 1
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await child.dead()
        assert place.errors == b""
        while data := await child.read():
            total += len(data)
        await child.wait()
    assert (total, place.errors) == (50_000_000, b"all\n")


async def test_a_writer_is_held_back_by_a_child_that_does_not_read(place: Place) -> None:
    async with within(), place.open("sleep 300") as child:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await child.write(bytes(50_000_000))


async def test_writing_to_what_has_ended_fails(place: Place) -> None:
    async with within(), place.open("exit 0") as child:
        await child.dead()
        with pytest.raises(BrokenPipeError):
            await child.write(bytes(10_000_000))


async def test_one_that_obeys_end_of_file_ends_by_itself(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sandbox_long_lived, "EOF_GRACE_S", 60.0)
    async with within(), place.open("cat; exit 3") as child:
        await child.write(b"x")
    assert child.exit_code() == 3


async def test_one_that_ignores_end_of_file_is_asked_by_signal(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sandbox_long_lived, "TERM_GRACE_S", 60.0)
    script = "trap 'exit 5' TERM; echo ready; while :; do sleep 0.05; done"
    async with within(), place.open(script) as child:
        await read_until(child, b"ready")
    assert child.exit_code() == 5


async def test_one_that_ignores_everything_is_killed_with_all_it_started(place: Place) -> None:
    script = (
        "trap '' TERM HUP INT; for i in 1 2 3; do (exec -a TAG sleep 300) & done; "
        "setsid sh -c '(exec sleep 300.TAG & )' 2>/dev/null; echo ready; "
        "while :; do sleep 0.05; done"
    )
    async with within(), place.open(script) as child:
        await read_until(child, b"ready")
        assert processes_with(place.tag)
    assert processes_with(place.tag) == []


async def test_what_survives_its_parent_ends_when_the_child_does(place: Place) -> None:
    script = (
        "(setsid bash -c 'trap \"\" TERM HUP; exec -a TAG sleep 300' &) ; sleep 0.2; echo ready"
    )
    async with within(), place.open(script) as child:
        await read_until(child, b"ready")
        await child.dead()
        assert processes_with(place.tag) == []


async def test_the_emergency_stop_kills_all_of_it_at_once(place: Place) -> None:
    script = (
        "trap '' TERM; (setsid bash -c 'trap \"\" TERM HUP; exec -a TAG sleep 300' &) ; "
        "echo ready; exec -a TAG sleep 300"
    )
    async with within(), place.open(script) as child:
        await read_until(child, b"ready")
        place.registry.stop()
        await child.dead()
        assert processes_with(place.tag) == []


async def test_a_stop_that_is_set_lets_nothing_begin(place: Place) -> None:
    await place.sandbox.probe()
    place.registry.is_set = True
    script = "echo ran > proof; sleep 300"
    async with within(), place.open(script, workspace_writable=True) as child:
        await child.dead()
    assert not (place.workspace / "proof").exists()


async def test_several_are_closed_side_by_side(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    leaving, asked = asyncio.Barrier(4), OpenChild.ask_to_leave

    async def together(child: OpenChild) -> None:
        await leaving.wait()  # one after the other they would never be four
        await asked(child)
        await leaving.wait()

    monkeypatch.setattr(OpenChild, "ask_to_leave", together)

    async def one() -> None:
        async with place.open("trap '' TERM; exec -a TAG sleep 300") as child:
            await child.write(b"x")
            ready.release()
            await leave.wait()

    ready, leave = asyncio.Semaphore(0), asyncio.Event()
    async with within(), asyncio.TaskGroup() as group:
        for _ in range(4):
            group.create_task(one())
        for _ in range(4):
            await ready.acquire()
        leave.set()
    assert processes_with(place.tag) == []


async def test_cancelling_leaves_nothing_behind(place: Place) -> None:
    ready = asyncio.Event()

    async def stay() -> None:
        async with place.open("trap '' TERM; echo ready; exec -a TAG sleep 300") as child:
            await read_until(child, b"ready")
            ready.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(stay())
    async with within():
        await ready.wait()
        task.cancel()
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert processes_with(place.tag) == []
    assert place.registry.held == set()


@pytest.mark.parametrize("turns", [0, 1, 2, 3, 5, 8, 13])
async def test_cancelling_at_the_very_start_leaves_nothing_behind(place: Place, turns: int) -> None:
    async def stay() -> None:
        async with place.open("exec -a TAG sleep 300"):
            await asyncio.Event().wait()

    await place.sandbox.probe()
    task = asyncio.create_task(stay())
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert processes_with(place.tag) == []
    assert place.registry.held == set()


async def test_only_the_given_variables_and_the_fixed_ones_are_seen(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DAEMONS_OWN", "private")
    async with within(), place.open("env", env={"GIVEN": "yes"}) as child:
        words = (await read_all(child)).decode().splitlines()
    assert "GIVEN=yes" in words
    assert not [word for word in words if word.startswith(("DAEMONS_OWN", "PYTHONPATH", "CLAWD"))]


async def test_the_home_cannot_be_read(fenced: Place) -> None:
    (fenced.home / "secret").write_text("hidden")
    async with within(), fenced.open(f"cat {fenced.home}/secret; ls {fenced.home}") as child:
        assert await read_all(child) == b""
    assert b"hidden" not in fenced.errors


async def test_a_forbidden_folder_in_a_shown_one_is_not_seen(tmp_path: Path) -> None:
    place = Place(tmp_path, "bwrap")
    shown = tmp_path / "shown"
    (shown / "private").mkdir(parents=True)
    (shown / "private" / "key").write_text("hidden")
    (shown / "open").write_text("fine")
    place.sandbox.adopt(SandboxSettings(home=place.home, forbidden_paths=(shown / "private",)))
    script = f"cat {shown}/open {shown}/private/key"
    async with within(), place.open(script, readonly_paths=(shown,)) as child:
        assert await read_all(child) == b"fine"


@pytest.mark.landlock
async def test_where_nothing_can_be_hidden_a_forbidden_folder_in_a_shown_one_is_refused(
    tmp_path: Path,
) -> None:
    place = Place(tmp_path, "landlock")
    with pytest.raises(SandboxUnavailableError, match="is forbidden"):
        async with within(), place.open("true", readonly_paths=(tmp_path,)):
            pass


async def test_a_readonly_workspace_cannot_be_written_and_a_writable_one_can(fenced: Place) -> None:
    script = "echo x > made && echo ok || echo refused"
    async with within(), fenced.open(script) as child:
        assert await read_all(child) == b"refused\n"
    async with within(), fenced.open(script, workspace_writable=True) as child:
        assert await read_all(child) == b"ok\n"


async def test_there_is_no_network(fenced: Place) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        script = f"(exec 3<>/dev/tcp/127.0.0.1/{server.getsockname()[1]}) && echo in || echo out"
        async with within(), fenced.open(script) as child:
            assert await read_all(child) == b"out\n"


async def test_the_daemons_socket_cannot_be_reached(fenced: Place) -> None:
    path = fenced.home / "s"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()
        code = f"import socket; socket.socket(socket.AF_UNIX).connect({str(path)!r})"
        script = f'python3 -c "{code}" 2>/dev/null && echo in || echo out'
        async with within(), fenced.open(script) as child:
            assert await read_all(child) == b"out\n"


async def test_what_runs_later_outside_is_quarantine_when_it_ends(fenced: Place) -> None:
    subprocess.run(["git", "init", "-q", str(fenced.workspace)], check=True)
    script = (
        "mkdir -p .git/hooks; echo evil > .git/hooks/pre-commit; chmod +x .git/hooks/pre-commit"
    )
    async with within(), fenced.open(script, workspace_writable=True) as child:
        await read_all(child)
    assert not (fenced.workspace / ".git" / "hooks" / "pre-commit").exists()


async def test_one_that_writes_too_much_is_ended(tmp_path: Path) -> None:
    place = Place(tmp_path, "bwrap", ResourceLimits(disk_bytes=1 << 20))
    script = "head -c 20000000 /dev/zero > big; echo done; sleep 300"
    async with within(), place.open(script, workspace_writable=True) as child:
        await child.dead()
    assert "wrote more than" in child.overuse


async def test_one_that_only_reads_hinders_no_command_around_it(fenced: Place) -> None:
    inner = fenced.workspace / "inner"
    inner.mkdir()
    async with within(), fenced.open("cat"):
        result = await fenced.sandbox.run(ChildCommand(argv=("true",), workspace=inner))
        assert result.exit_code == 0


async def test_beside_one_that_writes_commands_within_are_refused(fenced: Place) -> None:
    inner = fenced.workspace / "inner"
    inner.mkdir()
    async with within(), fenced.open("cat", workspace_writable=True):
        with pytest.raises(SandboxUnavailableError, match="at work"):
            await fenced.sandbox.run(ChildCommand(argv=("true",), workspace=inner))


async def test_a_required_sandbox_that_is_not_there_refuses(tmp_path: Path) -> None:
    sandbox = Sandbox(SandboxSettings(levels=()))
    with pytest.raises(SandboxUnavailableError, match="no sandbox here"):
        command = ChildCommand(argv=("true",), workspace=tmp_path)
        async with sandbox.open(command, on_errors=lambda _data: None):
            pass


async def test_a_program_that_is_not_there_ends_at_once_and_says_so(place: Place) -> None:
    command = ChildCommand(argv=("no-such-program",), workspace=place.workspace)
    async with within(), place.sandbox.open(command, on_errors=place.take) as child:
        await child.wait()
    assert child.exit_code() != 0
    assert b"no-such-program" in place.errors


# A daemon with one child, which it never reads; it tells when all is running.
DAEMON = """
import asyncio, sys
from pathlib import Path
from tests.security.test_sandbox_long_lived import Place, read_until

async def main(root, level, tag):
    place = Place(Path(root), level)
    place.tag = tag
    script = (
        "trap '' TERM HUP INT PIPE; "
        "(setsid bash -c 'trap : TERM HUP PIPE; exec -a TAG sleep 300' &) ; "
        "(exec -a TAG sleep 300) & sleep 0.2; echo ready; while :; do sleep 0.05; done"
    )
    async with place.open(script) as child:
        await read_until(child, b"ready")
        print("ready", flush=True)
        await asyncio.Event().wait()

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.parametrize("level", LEVELS)
def test_nothing_outlives_a_daemon_that_is_killed(tmp_path: Path, level: str) -> None:
    tag = f"clawd-test-{os.getpid()}-{time.monotonic_ns()}"
    root = tmp_path / "daemon"
    root.mkdir()
    argv = [sys.executable, "-c", DAEMON, str(root), level, tag]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as daemon:
        assert daemon.stdout is not None
        assert daemon.stdout.readline() == b"ready\n"
        held = [os.pidfd_open(pid) for pid in processes_with(tag) if pid != daemon.pid]
        assert len(held) >= 2
        daemon.send_signal(signal.SIGKILL)
    for pidfd in held:
        assert select.select([pidfd], [], [], 60.0)[0], "it outlived the daemon"
        os.close(pidfd)
    assert processes_with(tag) == []
