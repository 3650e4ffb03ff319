"""What systemd is told and what it hands over, without systemd."""

import contextlib
import importlib.util
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from clawd.service.systemd import Reporter, Systemd
from tests.support.inprocess import daemon_in
from tests.support.rows import each_row

ROOT = Path(__file__).parents[2]


def library_is_there() -> bool:
    """Return whether the extra `systemd` is installed; the folder of units is no package."""
    with contextlib.suppress(ImportError):
        return importlib.util.find_spec("systemd.daemon") is not None
    return False


def manager_at(address: str) -> socket.socket:
    made = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    made.bind(address)
    made.settimeout(10)
    return made


@pytest.fixture
def manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """A manager that this process is to notify."""
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
    with manager_at(str(tmp_path / "notify")) as made:
        yield made


def test_states_of_one_call_go_as_one_message(manager: socket.socket) -> None:
    Systemd().notify("READY=1", "STATUS=x")
    assert manager.recv(4096) == b"READY=1\nSTATUS=x"


def test_an_abstract_address_is_notified_too(monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"clawd-test-{os.getpid()}"
    monkeypatch.setenv("NOTIFY_SOCKET", f"@{name}")
    with manager_at(f"\0{name}") as manager:
        Systemd().notify("READY=1")
        assert manager.recv(4096) == b"READY=1"


@each_row("address", ["", "relative", "/nonexistent/notify", "vsock:2:1"])
def test_nobody_to_notify_is_no_failure(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", address)
    systemd = Systemd()
    systemd.notify("READY=1")
    assert systemd.listens is address.startswith("/")
    if systemd._sender is not None:
        systemd._sender.shutdown()


def test_a_manager_that_does_not_read_holds_nobody_up_and_gets_all_in_order(
    manager: socket.socket,
) -> None:
    systemd = Systemd()
    for _ in range(2_000):  # many more than its queue takes
        systemd.notify("WATCHDOG=1")
    systemd.notify("READY=1", "STATUS=a")
    systemd.notify("STATUS=b")
    received = [manager.recv(4096) for _ in range(2_002)]
    assert set(received[:2_000]) == {b"WATCHDOG=1"}
    assert received[2_000:] == [b"READY=1\nSTATUS=a", b"STATUS=b"]


async def test_a_manager_that_hangs_holds_up_no_end(manager: socket.socket) -> None:
    systemd = Systemd()
    for _ in range(2_000):
        systemd.notify("WATCHDOG=1")
    await systemd.close()
    assert systemd._sender is not None
    (thread,) = systemd._sender._threads
    thread.join(60)
    assert not thread.is_alive()
    assert manager.recv(4096) == b"WATCHDOG=1"


async def test_what_was_reported_last_is_sent_before_the_end(manager: socket.socket) -> None:
    systemd = Systemd()
    systemd.notify("STOPPING=1")
    await systemd.close()
    assert manager.recv(4096, socket.MSG_DONTWAIT) == b"STOPPING=1"


async def test_a_manager_that_was_busy_learns_that_the_daemon_is_ready(
    manager: socket.socket, tmp_path: Path
) -> None:
    systemd = Systemd()
    async with daemon_in(tmp_path) as inside:
        reporter = Reporter(systemd, inside.daemon)
        for _ in range(2_000):
            systemd.notify("WATCHDOG=1")
        reporter.ready()
        received = [manager.recv(4096) for _ in range(2_001)]
        await reporter.close()
    assert received[-1].startswith(b"READY=1\nSTATUS=serving; ")


def test_a_reload_carries_the_time_that_notify_reload_wants(manager: socket.socket) -> None:
    Systemd().reloading()
    first, second = manager.recv(4096).decode().splitlines()
    assert first == "RELOADING=1"
    assert second.startswith("MONOTONIC_USEC=")
    assert int(second.partition("=")[2]) > 0


@each_row(
    ("environ", "interval"),
    [
        ({"WATCHDOG_USEC": "30000000"}, 15.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "1"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
        ({}, None),
    ],
)
def test_the_watchdog_is_fed_twice_as_often_as_asked(
    environ: dict[str, str], interval: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        for name, value in environ.items():
            patch.setenv(name, value)
        assert Systemd().watchdog_interval_s() == interval


# Ours, and that of systemd-python where that is installed.
READERS = ('sys.modules["systemd"] = None', "")[: 1 + library_is_there()]


def adopted(names: str | None, *, count: str = "4", pid: str = "") -> list[str]:
    """Hand over a control socket, a TCP socket, a datagram socket and a file."""
    environ = {"LISTEN_FDS": count} | ({} if names is None else {"LISTEN_FDNAMES": names})
    first, *others = [_adopted(environ, pid, reader) for reader in READERS]
    assert all(other == first for other in others)
    return first


def _adopted(environ: dict[str, str], pid: str, reader: str) -> list[str]:
    code = f"""
import os, socket, sys
unix = socket.socket(socket.AF_UNIX); unix.bind(""); unix.listen()
tcp = socket.socket(); tcp.bind(("127.0.0.1", 0)); tcp.listen()
datagrams = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
file = open(os.devnull)
kept = [os.dup(each.fileno()) for each in (unix, tcp, datagrams, file)]
os.closerange(3, min(kept))
for place, each in enumerate(kept):
    os.dup2(each, 3 + place)
os.closerange(7, 64)
os.environ |= {environ} | {{"LISTEN_PID": "{pid}" or str(os.getpid())}}
{reader}
from clawd.service.systemd import Systemd
systemd = Systemd()
found = {{"control": systemd.control_listeners(), "http": systemd.http_listeners()}}
for name, sockets in found.items():
    for each in sockets:
        print(name, each.fileno(), os.get_inheritable(each.fileno()))
sys.stdout.flush()
os._exit(0)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return done.stdout.splitlines()


def test_sockets_are_known_by_their_names_and_no_child_inherits_them() -> None:
    assert adopted("control:http:x:y") == ["control 3 False", "http 4 False"]


def test_a_socket_without_a_name_is_the_control_socket() -> None:
    assert adopted(None) == ["control 3 False"]


def test_a_socket_with_another_name_is_left_alone() -> None:
    assert adopted("other:web") == []


def test_what_is_no_listening_socket_is_left_alone() -> None:
    assert adopted("x:x:control:control") == []


@each_row(("count", "pid"), [("5", "1"), ("many", ""), ("", ""), ("-1", "")])
def test_descriptors_for_another_process_are_left_alone(count: str, pid: str) -> None:
    assert adopted("control:http:x:y", count=count, pid=pid) == []
