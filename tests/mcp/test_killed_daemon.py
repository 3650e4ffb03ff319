"""A daemon that is killed leaves no server behind, whatever that server ignores."""

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.security.test_sandbox_process import processes_with

pytestmark = pytest.mark.sandbox

LIMIT_S = 60.0

DAEMON = """
import asyncio, sys
from pathlib import Path
from tests.mcp.world import World, told

async def main(root, level, tag):
    world = World(Path(root), level)
    world.tag = tag
    hows = ("good", "ignores-everything", "grandchildren", "stops-reading")
    world.start(*(world.program(how) for how in hows))
    for how in hows:
        await world.ready(how)
    asyncio.create_task(world.call("stops-reading"))
    assert told(await world.call("good")) == "hi"
    print("ready", flush=True)
    await asyncio.Event().wait()

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.parametrize(
    "level", ["bwrap", pytest.param("landlock", marks=pytest.mark.landlock), "none"]
)
def test_nothing_outlives_a_daemon_that_is_killed(tmp_path: Path, level: str) -> None:
    tag = f"clawd-test-{os.getpid()}-{time.monotonic_ns()}"
    argv = [sys.executable, "-c", DAEMON, str(tmp_path), level, tag]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as daemon:
        assert daemon.stdout is not None
        assert daemon.stdout.readline() == b"ready\n"
        held: list[int] = []
        for pid in processes_with(tag):
            with contextlib.suppress(ProcessLookupError):  # one that starts another ends by itself
                held += [os.pidfd_open(pid)] if pid != daemon.pid else []
        assert len(held) >= 4
        daemon.send_signal(signal.SIGKILL)
    for pidfd in held:
        assert select.select([pidfd], [], [], LIMIT_S)[0], "it outlived the daemon"
        os.close(pidfd)
    deadline = time.monotonic() + LIMIT_S
    while left := processes_with(tag):  # of one that was just being started
        assert time.monotonic() < deadline, left
        time.sleep(0.01)
