"""The lock of a home, and its socket: stale, live, and in folders of every mode."""

import asyncio
import os
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest

from clawd.errors import ClawError, ForbiddenError
from clawd.service.control_socket import HomeLock, listen, remove, take_when_free
from tests.support.rows import each_row

HOLD = """
import sys, pathlib
from clawd.service.control_socket import HomeLock
lock = HomeLock(pathlib.Path(sys.argv[1]))
lock.take()
print("held", flush=True)
sys.stdin.read()
"""
# A child has the descriptor of the lock, as any has between its start and its exec.
HOLD_WITH_A_CHILD = """
import os, subprocess, sys, pathlib
from clawd.service.control_socket import HomeLock
lock = HomeLock(pathlib.Path(sys.argv[1]))
lock.take()
child = subprocess.Popen(["cat"], stdin=0, pass_fds=[lock._descriptor])
print("held", flush=True)
child.wait()
"""
LIMIT_S = 60


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def answered(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as client:
        try:
            client.connect(str(path))
        except OSError:
            return False
        return True


def test_the_lock_says_who_holds_it(tmp_path: Path) -> None:
    path = tmp_path / "clawd.lock"
    lock = HomeLock(path)
    lock.take()
    assert path.read_text() == f"{os.getpid()}\n"
    assert mode(path) == 0o600
    with pytest.raises(ClawError, match=f"runs already in .*pid {os.getpid()}") as caught:
        HomeLock(path).take()
    assert caught.value.code == "already_running"
    assert path.read_text() == f"{os.getpid()}\n"
    lock.release()
    lock.release()
    again = HomeLock(path)
    again.take()
    again.release()


def test_the_lock_of_a_process_that_died_is_free(tmp_path: Path) -> None:
    path = tmp_path / "clawd.lock"
    path.write_text("999999999999\nold and longer than a pid\n")
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(ClawError, match=f"pid {holder.pid}"):
            HomeLock(path).take()
        holder.kill()
        holder.wait(LIMIT_S)
        lock = HomeLock(path)
        lock.take()
        assert path.read_text() == f"{os.getpid()}\n"
        lock.release()


@pytest.fixture
def killed(tmp_path: Path) -> Iterator[IO[bytes]]:
    """A daemon that was killed, and a child of it that has the lock until this is closed."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLD_WITH_A_CHILD, str(tmp_path / "clawd.lock")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as holder:
        assert holder.stdin is not None and holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        holder.kill()
        holder.wait(LIMIT_S)
        yield holder.stdin


async def test_a_daemon_that_was_killed_is_waited_for_while_a_child_of_it_has_its_lock(
    tmp_path: Path, killed: IO[bytes]
) -> None:
    socket_path = tmp_path / "clawd.sock"
    socket_path.touch()  # who is killed leaves it in place
    lock = HomeLock(tmp_path / "clawd.lock")
    waiting = asyncio.create_task(take_when_free(lock, socket_path))
    await asyncio.sleep(0)
    assert not waiting.done()
    killed.close()
    await asyncio.wait_for(waiting, LIMIT_S)
    assert (tmp_path / "clawd.lock").read_text() == f"{os.getpid()}\n"
    lock.release()


@each_row("text", ["", "nobody", "1"])
def test_a_lock_whose_daemon_is_not_known_to_be_dead_is_not_left_behind(
    tmp_path: Path, text: str
) -> None:
    path = tmp_path / "clawd.lock"
    path.write_text(text)
    assert not HomeLock(path).is_left_behind()


async def test_a_daemon_that_listens_no_more_is_waited_for(tmp_path: Path) -> None:
    socket_path = tmp_path / "clawd.sock"
    ending, next_one = HomeLock(tmp_path / "clawd.lock"), HomeLock(tmp_path / "clawd.lock")
    ending.take()
    waiting = asyncio.create_task(take_when_free(next_one, socket_path))
    await asyncio.sleep(0)
    assert not waiting.done()
    ending.release()
    await asyncio.wait_for(waiting, LIMIT_S)
    with pytest.raises(ClawError, match="runs already"):
        await take_when_free(ending, socket_path, limit_s=0)
    socket_path.touch()
    with pytest.raises(ClawError, match="runs already"):
        await asyncio.wait_for(take_when_free(ending, socket_path, limit_s=100), LIMIT_S)
    next_one.release()


def test_a_lock_that_cannot_be_opened_is_told_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("precious")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    (tmp_path / "folder").mkdir()
    for path in (tmp_path / "link", tmp_path / "folder", tmp_path / "missing" / "clawd.lock"):
        with pytest.raises(ClawError, match="cannot be opened"):
            HomeLock(path).take()
    assert (tmp_path / "real").read_text() == "precious"


def test_the_socket_and_its_folder_are_private_from_the_start(tmp_path: Path) -> None:
    path = tmp_path / "home" / "run" / "clawd.sock"
    old = os.umask(0)
    try:
        with listen(path):
            assert mode(path.parent) == 0o700
            assert mode(path) == 0o600
            assert answered(path)
        assert os.umask(0) == 0
    finally:
        os.umask(old)


def test_the_listener_does_not_block_and_is_not_inherited(tmp_path: Path) -> None:
    with listen(tmp_path / "run" / "s") as listener:
        assert not listener.getblocking()
        assert not listener.get_inheritable()


def test_a_stale_socket_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "run" / "clawd.sock"
    listen(path).close()
    assert path.is_socket()
    assert not answered(path)
    with listen(path):
        assert answered(path)


def test_only_the_socket_that_was_made_is_removed_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "run" / "clawd.sock"
    with listen(path):
        first = path.lstat()
        path.rename(path.with_name("moved"))  # keeps its inode from being used again
        remove(path, first)
        with listen(path):
            remove(path, first)
            assert answered(path)
            remove(path, path.lstat())
            assert not path.exists()


def test_a_socket_at_which_somebody_answers_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "run" / "clawd.sock"
    with listen(path):
        before = path.lstat().st_ino
        with pytest.raises(ClawError, match="somebody answers") as caught:
            listen(path)
        assert caught.value.code == "already_running"
        assert path.lstat().st_ino == before
        assert answered(path)


@each_row("kind", ["file", "folder", "link"])
def test_what_is_no_socket_is_never_removed(tmp_path: Path, kind: str) -> None:
    folder = tmp_path / "run"
    folder.mkdir(mode=0o700)
    path = folder / "clawd.sock"
    match kind:
        case "file":
            path.write_text("precious")
        case "folder":
            path.mkdir()
        case _:
            path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ClawError, match="is no socket"):
        listen(path)
    assert path.is_symlink() if kind == "link" else path.exists()


@each_row("open_to", [0o755, 0o701, 0o770, 0o777, 0o1777])
def test_a_folder_that_others_may_enter_is_refused(tmp_path: Path, open_to: int) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    folder.chmod(open_to)
    with pytest.raises(ForbiddenError, match="open to others") as caught:
        listen(folder / "clawd.sock")
    assert f"chmod 700 {folder}" in caught.value.hint
    assert list(folder.iterdir()) == []


def test_a_folder_that_is_a_link_or_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    (tmp_path / "file").write_text("x")
    for folder in (tmp_path / "link", tmp_path / "file"):
        with pytest.raises(ForbiddenError, match="is not a folder of uid"):
            listen(folder / "clawd.sock")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_folder_of_somebody_else_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir(mode=0o700)
    os.chown(folder, 12345, 12345)
    with pytest.raises(ForbiddenError, match="is not a folder of uid 0"):
        listen(folder / "clawd.sock")


def test_a_folder_that_cannot_be_made_is_told_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(ClawError, match="cannot be made"):
        listen(tmp_path / "file" / "run" / "clawd.sock")


def test_a_path_that_is_too_long_is_told_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(ClawError, match=r"cannot be bound: .*too long"):
        listen(tmp_path / "run" / ("x" * 150))
