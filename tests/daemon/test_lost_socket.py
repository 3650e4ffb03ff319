"""The control socket of a running daemon is removed, replaced, or its whole folder goes."""

import asyncio
import logging
import shutil
import socket
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from clawctl.client import connect
from clawd.channels.rpc.connection import RpcServer
from clawd.errors import ClawError
from clawd.service.control_socket import Door
from clawd.service.handlers.table import handlers_of
from clawd.wire.daemon import Ping
from tests.channels.rpc.rig import IDENTITY
from tests.support.home import Home
from tests.support.inprocess import OWNER, daemon_in
from tests.support.rows import each_row

pytestmark = pytest.mark.daemon

LIMIT_S = 60.0


def is_bound_anew(path: Path, limit_s: float = LIMIT_S) -> bool:
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


def test_a_socket_that_is_gone_is_made_again_and_clients_stay(home: Home) -> None:
    home.configure()
    home.start()
    path = home.path / "run" / "clawd.sock"
    with connect(path) as before:
        path.unlink()
        assert is_bound_anew(path)
        assert before.call(Ping()).message == "pong"
    assert path.stat().st_mode & 0o777 == 0o600
    assert "the control socket was gone, it is there again" in home.log()
    home.close()
    assert not path.exists()


@asynccontextmanager
async def watched(folder: Path) -> AsyncIterator[Path]:
    """Serve at a socket that is looked after at short intervals."""
    async with daemon_in(folder) as inside:
        server = RpcServer(
            handlers_of(inside.daemon), identify=lambda _peer: OWNER, identity=IDENTITY
        )
        door = Door(server, folder / "home" / "run" / "clawd.sock", look_interval_s=0.02)
        await door.open(())
        try:
            yield door.path
        finally:
            await door.shut()
            await server.close()


@each_row(
    "lose",
    [Path.unlink, lose_the_folder, plant_a_file],
    ids=["removed", "folder removed", "replaced"],
)
async def test_however_it_went_it_is_made_again_and_clients_stay(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, lose: Callable[[Path], None]
) -> None:
    caplog.set_level(logging.INFO)
    async with watched(tmp_path) as path, asyncio.timeout(LIMIT_S):
        with await asyncio.to_thread(connect, path) as before:
            lose(path)
            assert await asyncio.to_thread(is_bound_anew, path)
            assert (await asyncio.to_thread(before.call, Ping())).message == "pong"
        assert path.stat().st_mode & 0o777 == 0o600
        assert "the control socket was gone, it is there again" in caplog.text
    assert not path.exists()


async def test_a_socket_that_another_process_answers_at_is_left_to_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with watched(tmp_path) as path, asyncio.timeout(LIMIT_S):
        with socket.socket(socket.AF_UNIX) as impostor:
            put(impostor, path, listens=True)
            inode = path.stat().st_ino
            while "cannot be made again" not in caplog.text:
                await asyncio.sleep(0.01)
            assert path.stat().st_ino == inode
        # It has gone: the socket is ours again.
        assert await asyncio.to_thread(is_bound_anew, path)
