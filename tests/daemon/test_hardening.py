"""The daemon and its worker are closed to other processes of the same user, from the start on."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.engine_home import EngineHome
from tests.support.home import Home

pytestmark = pytest.mark.daemon

TOLD_TO_NOBODY = "what the environment holds"
# All of them run without capabilities, so that root is a user like any other.
_AS_A_USER = (
    "import os, sys; from clawd.kernel.syscalls import drop_capabilities; drop_capabilities(); "
    "os.execv(sys.argv[1], sys.argv[1:])"
)
_DAEMON = ("-c", _AS_A_USER, sys.executable, "-m", "clawd")
_READER = """
import ctypes, json, os, sys
from clawd.kernel.syscalls import NUMBERS
from clawd.kernel.syscalls import drop_capabilities, system_call
drop_capabilities()
calls = NUMBERS[os.uname().machine]
pid = int(sys.argv[1])
def held():
    descriptor = os.pidfd_open(pid)
    return system_call(calls["pidfd_getfd"], descriptor, 0, 0)
attempts = {
    "environ": lambda: open(f"/proc/{pid}/environ", "rb").read(),
    "memory": lambda: open(f"/proc/{pid}/mem", "rb"),
    "maps": lambda: open(f"/proc/{pid}/maps").read(),
    "descriptors": lambda: os.readlink(f"/proc/{pid}/fd/0"),
    "root": lambda: os.listdir(f"/proc/{pid}/root"),
    "trace": lambda: system_call(calls["ptrace"], 0x4206, pid, 0, 0),
    "take": held,
}
worked = []
for name, attempt in attempts.items():
    try:
        attempt()
    except OSError:
        continue
    worked.append(name)
print(json.dumps(worked))
"""


def what_another_process_reads(home: Home, pid: int) -> list[str]:
    read = subprocess.run(
        [sys.executable, "-c", _READER, str(pid)],
        env=home.environ,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return list(json.loads(read.stdout))


def test_the_daemon_cannot_be_read_or_traced_by_its_own_user(home: Home) -> None:
    home.environ["OPENAI_API_KEY"] = TOLD_TO_NOBODY
    home.configure()
    home.start(*_DAEMON)
    pid = home.pid()
    assert pid is not None
    assert what_another_process_reads(home, pid) == []
    limits = Path(f"/proc/{pid}/limits").read_text("utf-8")
    core = next(line for line in limits.splitlines() if line.startswith("Max core file size"))
    assert core.split()[4:6] == ["0", "0"]


def test_another_process_of_the_user_can_be_read(home: Home) -> None:
    argv = [sys.executable, "-c", _AS_A_USER, "/bin/sh", "-c", "echo ready; read line"]
    with subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=home.environ
    ) as plain:
        assert plain.stdout is not None
        assert plain.stdout.readline() == b"ready\n"
        read = what_another_process_reads(home, plain.pid)
        plain.kill()
    assert {"environ", "maps", "descriptors"} <= set(read)


@pytest.mark.real_model
@pytest.mark.landlock
def test_a_worker_is_closed_too_and_its_fence_is_told(home: Home) -> None:
    engines = EngineHome(home)
    engines.configure()
    home.environ["OPENAI_API_KEY"] = TOLD_TO_NOBODY
    home.start(*_DAEMON)
    engines.assert_embedded_answers()
    worker = engines.loaded()["embedded"]
    assert worker.fence == "landlock+seccomp"
    assert what_another_process_reads(home, worker.pid) == []
    (line,) = _status(home)["workers"]
    assert (line["pid"], line["fence"]) == (worker.pid, "landlock+seccomp")
    assert "fence landlock+seccomp" in home.ctl("status").stdout
    assert "landlock+seccomp" in home.ctl("model", "ps").stdout


def _status(home: Home) -> dict[str, Any]:
    status: dict[str, Any] = home.json("status")
    return status
