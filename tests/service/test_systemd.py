"""What systemd is told and what it hands over, without systemd."""

import contextlib
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from clawd.service.systemd import Reporter, Systemd
from tests.support.engines import eventually
from tests.support.inprocess import daemon_in
from tests.support.rows import each_row

ROOT = Path(__file__).parents[2]


def manager_at(address: str) -> socket.socket:
    made = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    made.bind(address)
    made.settimeout(10)
    return made


def test_states_of_one_call_go_as_one_message(tmp_path: Path) -> None:
    with manager_at(str(tmp_path / "notify")) as manager:
        Systemd({"NOTIFY_SOCKET": str(tmp_path / "notify")}).notify("READY=1", "STATUS=x")
        assert manager.recv(4096) == b"READY=1\nSTATUS=x"


def test_an_abstract_address_is_told_too() -> None:
    name = f"clawd-test-{os.getpid()}"
    with manager_at(f"\0{name}") as manager:
        Systemd({"NOTIFY_SOCKET": f"@{name}"}).notify("READY=1")
        assert manager.recv(4096) == b"READY=1"


@each_row("address", ["", "relative", "/nonexistent/notify", "vsock:2:1"])
def test_nobody_to_tell_is_no_failure(address: str) -> None:
    systemd = Systemd({"NOTIFY_SOCKET": address})
    systemd.notify("READY=1")
    assert systemd.listens is address.startswith("/")


def test_a_manager_that_does_not_read_does_not_hold_the_daemon_up(tmp_path: Path) -> None:
    with manager_at(str(tmp_path / "notify")):
        systemd = Systemd({"NOTIFY_SOCKET": str(tmp_path / "notify")})
        for _ in range(2_000):  # many more than its queue takes
            systemd.notify("WATCHDOG=1")


def received(manager: socket.socket) -> list[str]:
    """Return what lies in the queue of a manager."""
    told: list[str] = []
    manager.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        while True:
            told.append(manager.recv(4096).decode())
    return told


def test_what_finds_no_room_with_the_manager_is_told_later_in_order(tmp_path: Path) -> None:
    with manager_at(str(tmp_path / "notify")) as manager:
        systemd = Systemd({"NOTIFY_SOCKET": str(tmp_path / "notify")})
        for _ in range(2_000):
            systemd.notify("WATCHDOG=1")
        for states in (["READY=1", "STATUS=a"], ["STATUS=b"], ["STATUS=c"], ["RELOADING=1"]):
            systemd.notify(*states)
        assert not systemd.catch_up()
        assert set(received(manager)) == {"WATCHDOG=1"}
        systemd.notify("WATCHDOG=1")
        # Of two lines that nobody has seen the first is of no use any more.
        assert received(manager) == ["READY=1\nSTATUS=a", "STATUS=c", "RELOADING=1", "WATCHDOG=1"]
        assert systemd.catch_up()
        assert received(manager) == []


async def test_a_manager_that_was_busy_when_it_was_told_ready_learns_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clawd.service.systemd.LOOK_INTERVAL_S", 0.001)
    with manager_at(str(tmp_path / "notify")) as manager:
        systemd = Systemd({"NOTIFY_SOCKET": str(tmp_path / "notify")})
        async with daemon_in(tmp_path) as inside:
            reporter = Reporter(systemd, inside.daemon)
            for _ in range(2_000):
                systemd.notify("WATCHDOG=1")
            reporter.ready()
            received(manager)
            told: list[str] = []

            def is_told() -> bool:
                told.extend(received(manager))
                return bool(told)

            reporter.start()
            await eventually(is_told)
            await reporter.close()
    assert told[0].startswith("READY=1\nSTATUS=serving; ")


def test_a_reload_carries_the_time_that_notify_reload_wants(tmp_path: Path) -> None:
    with manager_at(str(tmp_path / "notify")) as manager:
        Systemd({"NOTIFY_SOCKET": str(tmp_path / "notify")}).reloading()
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
    environ: dict[str, str], interval: float | None
) -> None:
    assert Systemd(environ).watchdog_interval_s() == interval


def adopted(names: str, *, count: str = "5", pid: str = "") -> list[str]:
    """Hand over a control socket, a TCP socket, a datagram socket, a file and nothing."""
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
from clawd.service.systemd import Systemd
systemd = Systemd({{
    "LISTEN_FDS": "{count}", "LISTEN_PID": "{pid}" or str(os.getpid()), "LISTEN_FDNAMES": "{names}"
}})
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
    assert adopted("") == ["control 3 False"]


def test_a_socket_with_another_name_is_left_alone() -> None:
    assert adopted("other:web") == []


def test_what_is_no_listening_socket_is_left_alone() -> None:
    assert adopted("x:x:control:control") == []


@each_row(("count", "pid"), [("5", "1"), ("many", ""), ("", ""), ("-1", "")])
def test_descriptors_for_another_process_are_left_alone(count: str, pid: str) -> None:
    assert adopted("control:http:x:y", count=count, pid=pid) == []
