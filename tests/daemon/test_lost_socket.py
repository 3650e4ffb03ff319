"""The control socket of a running daemon is removed, replaced, or its whole folder goes."""

import shutil
import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from clawctl.client import connect
from clawd.errors import ClawError
from clawd.wire.methods import Ping
from tests.support.home import Home

pytestmark = pytest.mark.daemon


def is_bound_anew(path: Path, limit_s: float = 60.0) -> bool:
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        try:
            with connect(path) as client:
                return client.call(Ping()).message == "pong"
        except ClawError:
            time.sleep(0.05)
    return False


def lose_the_folder(path: Path) -> None:
    # At once: a folder that is emptied first may have a new socket before it goes.
    shutil.rmtree(path.parent.rename(path.parent.with_name("gone")))


def plant_a_file(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as dead:  # bound, and nobody listens
        put(dead, path)


def put(made: socket.socket, path: Path, *, listens: bool = False) -> None:
    """Bind a socket in the place of another, in one step: nobody finds the place empty."""
    beside = path.with_name("other")
    made.bind(str(beside))
    if listens:
        made.listen()
    beside.replace(path)


@pytest.mark.parametrize(
    "lose",
    [Path.unlink, lose_the_folder, plant_a_file],
    ids=["removed", "folder removed", "replaced"],
)
def test_a_socket_that_is_gone_is_made_again_and_clients_stay(
    home: Home, lose: Callable[[Path], None]
) -> None:
    home.configure()
    home.start()
    path = home.path / "run" / "clawd.sock"
    with connect(path) as before:
        lose(path)
        assert is_bound_anew(path)
        assert before.call(Ping()).message == "pong"
    assert path.stat().st_mode & 0o777 == 0o600
    assert "the control socket was gone, it is there again" in home.log()
    home.close()
    assert not path.exists()


def test_a_socket_that_another_process_answers_at_is_left_to_it(home: Home) -> None:
    home.configure()
    home.start()
    path = home.path / "run" / "clawd.sock"
    with socket.socket(socket.AF_UNIX) as impostor:
        put(impostor, path, listens=True)
        deadline = time.monotonic() + 60
        while "cannot be made again" not in home.log():
            assert time.monotonic() < deadline
            time.sleep(0.05)
        inode = path.stat().st_ino
    assert path.stat().st_ino == inode
    # It has gone: the socket is ours again.
    assert is_bound_anew(path)
