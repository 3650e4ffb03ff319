"""A client waits longer where systemd listens: the daemon may yet have to start."""

import _socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from clawctl.client import ACTIVATION_LIMIT_S, GREETING_LIMIT_S, _greeting_limit_s

LISTENER = """
import pathlib, socket, sys
pathlib.Path("/proc/self/comm").write_text(sys.argv[1])
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[2])
listener.listen()
print("listening", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def connected(tmp_path: Path) -> Iterator[Callable[[str], _socket.socket]]:
    children: list[subprocess.Popen[str]] = []
    connections: list[_socket.socket] = []

    def connect(name: str) -> _socket.socket:
        path = str(tmp_path / "s")
        words = [sys.executable, "-c", LISTENER, name, path]
        child = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        children.append(child)
        assert child.stdout is not None
        assert child.stdout.readline() == "listening\n"
        connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
        connections.append(connection)
        connection.connect(path)
        return connection

    yield connect
    for connection in connections:
        connection.close()
    for child in children:
        child.communicate(timeout=60)


def test_a_daemon_that_listens_itself_greets_soon(
    connected: Callable[[str], _socket.socket],
) -> None:
    assert _greeting_limit_s(connected("clawd")) == GREETING_LIMIT_S


def test_one_that_systemd_listens_for_may_start_first(
    connected: Callable[[str], _socket.socket],
) -> None:
    assert _greeting_limit_s(connected("systemd")) == ACTIVATION_LIMIT_S


def test_a_socket_that_tells_nothing_is_waited_for_as_ever() -> None:
    connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    try:
        assert _greeting_limit_s(connection) == GREETING_LIMIT_S
    finally:
        connection.close()
