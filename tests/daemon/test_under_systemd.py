"""The daemon under systemd, with a stand-in for the manager: readiness, socket, watchdog."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from clawctl.client import connect
from clawd.wire.methods import Ping
from tests.support.home import Home

pytest.importorskip("systemd.daemon", reason="systemd-python is not installed")

pytestmark = pytest.mark.daemon

# As systemd does it: the socket is descriptor 3, and LISTEN_PID names the process that gets it.
LAUNCH = """
import os, sys
os.dup2(int(sys.argv[1]), 3)
os.set_inheritable(3, True)
os.environ |= {"LISTEN_FDS": "1", "LISTEN_PID": str(os.getpid()), "LISTEN_FDNAMES": "control"}
os.execv(sys.executable, [sys.executable, "-m", "clawd"])
"""


class Manager:
    """Receives what a service tells it."""

    def __init__(self, path: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(str(path))
        self.socket.settimeout(20)
        self.told: list[str] = []

    def until(self, wanted: str) -> None:
        while wanted not in self.told:
            self.told += self.socket.recv(4096).decode().splitlines()


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Manager]:
    made = Manager(tmp_path / "notify")
    yield made
    made.socket.close()


def test_the_daemon_says_ready_feeds_the_watchdog_and_says_stopping(
    home: Home, manager: Manager
) -> None:
    home.configure()
    home.environ |= {
        "NOTIFY_SOCKET": str(manager.socket.getsockname()),
        "WATCHDOG_USEC": "200000",
    }
    home.start()
    manager.until("READY=1")
    manager.until("WATCHDOG=1")
    manager.told.clear()
    manager.until("WATCHDOG=1")
    home.close()
    manager.until("STOPPING=1")


def test_a_reload_is_announced_and_ends_with_ready(home: Home, manager: Manager) -> None:
    home.configure()
    home.environ["NOTIFY_SOCKET"] = str(manager.socket.getsockname())
    home.start()
    manager.until("READY=1")
    manager.told.clear()
    assert home.daemon is not None
    home.daemon.send_signal(signal.SIGHUP)
    manager.until("RELOADING=1")
    manager.until("READY=1")
    assert any(line.startswith("MONOTONIC_USEC=") for line in manager.told)


def test_a_socket_from_systemd_is_served_and_left_in_place(home: Home, tmp_path: Path) -> None:
    home.configure()
    path = tmp_path / "passed.sock"
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(path))
    listener.listen()
    number = listener.fileno()
    daemon = subprocess.Popen(
        [sys.executable, "-c", LAUNCH, str(number)],
        env=home.environ,
        pass_fds=(number,),
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        with connect(path) as client:
            assert client.call(Ping()).message == "pong"
        own = home.path / "run" / "clawd.sock"
        assert not own.exists()
    finally:
        daemon.terminate()
        _, log = daemon.communicate(timeout=20)
    assert daemon.returncode == 0, log
    assert path.exists()
    listener.close()


def test_a_daemon_that_hangs_stops_feeding_the_watchdog(home: Home, manager: Manager) -> None:
    home.configure()
    home.environ |= {
        "NOTIFY_SOCKET": str(manager.socket.getsockname()),
        "WATCHDOG_USEC": "200000",
    }
    home.start()
    manager.until("WATCHDOG=1")
    pid = home.pid()
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    manager.socket.settimeout(1.0)
    deadline = time.monotonic() + 20
    with pytest.raises(TimeoutError):
        while time.monotonic() < deadline:
            manager.socket.recv(4096)
    os.kill(pid, signal.SIGCONT)
