"""The daemon under systemd, with a stand-in for the manager: readiness, socket, watchdog."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from clawctl.client import Client, connect
from clawd.errors import UnreachableError
from clawd.wire.daemon import Ping
from tests.support.home import Home

pytestmark = pytest.mark.daemon

# As systemd does it: the sockets are descriptors 3 and 4, and LISTEN_PID names who gets them.
LAUNCH = """
import fcntl, os, sys
passed = [fcntl.fcntl(int(number), fcntl.F_DUPFD, 10) for number in sys.argv[1:]]
for place, each in enumerate(passed, 3):
    os.dup2(each, place)
    os.close(each)
named = {"LISTEN_FDS": "2", "LISTEN_FDNAMES": "control:http"}
os.environ |= {**named, "LISTEN_PID": str(os.getpid())}
os.execv(sys.executable, [sys.executable, "-m", "clawd"])
"""


LIMIT_S = 60.0


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a client wait for the start of the daemon that gets the socket, as for systemd's."""
    monkeypatch.setattr("clawctl.client.GREETING_LIMIT_S", LIMIT_S)


class Manager:
    """Receives what a service tells it."""

    def __init__(self, path: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(str(path))
        self.socket.settimeout(LIMIT_S)
        self.told: list[str] = []

    def drain(self) -> None:
        """Forget what was told so far, also what has not been read."""
        self.socket.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while self.socket.recv(4096):
                pass
        self.socket.settimeout(LIMIT_S)
        self.told.clear()

    def until(self, wanted: str) -> None:
        while wanted not in self.told:
            self.told += self.socket.recv(4096).decode().splitlines()

    def status(self, part: str) -> str:
        """Wait for a status line with the part in it, and return it."""
        deadline = time.monotonic() + LIMIT_S
        while time.monotonic() < deadline:
            for line in self.told:
                if line.startswith("STATUS=") and part in line:
                    return line
            self.told += self.socket.recv(4096).decode().splitlines()
        raise AssertionError(self.told)


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Manager]:
    made = Manager(tmp_path / "notify")
    yield made
    made.socket.close()


@pytest.fixture(scope="module")
def managed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Home, Manager]]:
    """A daemon that a manager started: its home, and the manager."""
    folder = tmp_path_factory.mktemp("a user ")
    home, manager = Home(folder), Manager(folder / "notify")
    home.configure()
    home.environ |= {
        "NOTIFY_SOCKET": str(manager.socket.getsockname()),
        "WATCHDOG_USEC": "200000",
    }
    try:
        home.start()
        yield home, manager
    finally:
        home.close()
        manager.socket.close()


def test_the_daemon_asks_for_time_says_ready_feeds_the_watchdog_and_says_stopping(
    home: Home, manager: Manager
) -> None:
    home.configure()
    home.environ |= {
        "NOTIFY_SOCKET": str(manager.socket.getsockname()),
        "WATCHDOG_USEC": "200000",
    }
    home.start()
    manager.until("READY=1")
    before = manager.told[: manager.told.index("READY=1")]
    assert "EXTEND_TIMEOUT_USEC=30000000" in before
    assert "STATUS=opening memory and receipts" in before
    manager.until("WATCHDOG=1")
    manager.told.clear()
    manager.until("WATCHDOG=1")
    home.close()
    manager.until("STOPPING=1")


def test_a_reload_is_announced_and_ends_with_ready(managed: tuple[Home, Manager]) -> None:
    home, manager = managed
    manager.drain()
    assert home.daemon is not None
    home.daemon.send_signal(signal.SIGHUP)
    manager.until("RELOADING=1")
    manager.until("READY=1")
    assert any(line.startswith("MONOTONIC_USEC=") for line in manager.told)


@pytest.mark.usefixtures("patient")
def test_sockets_from_systemd_are_served_by_their_names_and_left_in_place(
    home: Home, tmp_path: Path
) -> None:
    home.configure(tables="[channels.http]\nenabled = true\nport = 0\n")
    path = tmp_path / "passed.sock"
    with socket.socket(socket.AF_UNIX) as listener, socket.socket() as web:
        listener.bind(str(path))
        web.bind(("127.0.0.1", 0))
        for each in (listener, web):
            each.listen()
        numbers = (listener.fileno(), web.fileno())
        daemon = subprocess.Popen(
            [sys.executable, "-c", LAUNCH, *map(str, numbers)],
            env=home.environ,
            pass_fds=numbers,
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            with connect(path) as client:
                assert client.call(Ping()).message == "pong"
            assert not (home.path / "run" / "clawd.sock").exists()
            url = f"http://127.0.0.1:{web.getsockname()[1]}/health"
            with urllib.request.urlopen(url, timeout=LIMIT_S) as answer:
                assert answer.status == 200
        finally:
            daemon.terminate()
            _, log = daemon.communicate(timeout=LIMIT_S)
        assert daemon.returncode == 0, log
        assert path.exists()


def test_a_daemon_that_hangs_stops_feeding_the_watchdog(managed: tuple[Home, Manager]) -> None:
    home, manager = managed
    manager.drain()
    manager.until("WATCHDOG=1")
    pid = home.pid()
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    manager.socket.settimeout(1.0)
    deadline = time.monotonic() + LIMIT_S
    with pytest.raises(TimeoutError):
        while time.monotonic() < deadline:
            manager.socket.recv(4096)
    os.kill(pid, signal.SIGCONT)
    manager.socket.settimeout(LIMIT_S)
    manager.until("WATCHDOG=1")


def test_a_refused_reload_stands_in_the_status_until_one_succeeds(
    managed: tuple[Home, Manager],
) -> None:
    home, manager = managed
    manager.drain()
    good = home.config.read_text()
    assert home.daemon is not None
    key = "sk-" + "a1" * 20
    home.config.write_text(good + f'[security]\nautonomy = "{key}"\n')
    home.daemon.send_signal(signal.SIGHUP)
    assert "[secret:" in manager.status("RELOAD REFUSED")
    assert key not in home.ctl("status", "--json").stdout
    manager.told.clear()
    home.config.write_text(good + '[security]\nautonomy = "godmode"\n')
    home.daemon.send_signal(signal.SIGHUP)
    assert "RELOAD REFUSED" in manager.status('security.autonomy = "godmode"')
    assert 'security.autonomy = "godmode"' in home.json("status")["reload_refused"]
    shown = home.ctl("status").stdout
    assert "the old one stays" in shown
    assert "clawctl config validate" in shown
    manager.drain()  # also the end of that reload, which is another READY=1
    home.config.write_text(good)
    home.daemon.send_signal(signal.SIGHUP)
    manager.until("READY=1")
    assert "RELOAD" not in manager.status("serving")
    assert home.json("status")["reload_refused"] == ""


def test_the_status_says_that_the_emergency_stop_is_set(managed: tuple[Home, Manager]) -> None:
    home, manager = managed
    manager.drain()
    assert home.daemon is not None
    home.daemon.send_signal(signal.SIGHUP)
    assert "0 turns running" in manager.status("serving")
    assert home.ctl("estop").returncode == 0
    assert manager.status("EMERGENCY STOP SET")
    assert home.ctl("estop", "--clear").returncode == 0


def connected(path: Path, activator: subprocess.Popen[str]) -> Client:
    """Connect as soon as somebody listens there: the file is there a moment before that."""
    deadline = time.monotonic() + LIMIT_S
    while True:
        with contextlib.suppress(UnreachableError):
            return connect(path)
        assert activator.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.usefixtures("patient")
@pytest.mark.skipif(
    shutil.which("systemd-socket-activate") is None, reason="systemd-socket-activate is missing"
)
def test_the_first_client_of_systemds_socket_starts_the_daemon(home: Home, tmp_path: Path) -> None:
    home.configure()
    path = tmp_path / "activated.sock"
    passed = [f"-E{name}={value}" for name, value in home.environ.items()]
    activator = subprocess.Popen(
        [
            *("systemd-socket-activate", "-l", str(path), "--fdname=control"),
            *(*passed, sys.executable, "-m", "clawd"),
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        with connected(path, activator) as client:
            assert client.call(Ping()).message == "pong"
    finally:
        activator.terminate()
        _, log = activator.communicate(timeout=LIMIT_S)
    assert activator.returncode == 0, log
