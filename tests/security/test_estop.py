"""The emergency stop: what sets it, what it does at once, and that doubt counts as set."""

import asyncio
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from clawd.errors import StorageError
from clawd.security import estop
from clawd.security.estop import EmergencyStop
from tests.support.rows import each_row

LIMIT_S = 60.0


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    return folder


@pytest.fixture
def stop(home: Path) -> Iterator[EmergencyStop]:
    stop = EmergencyStop(home)
    stop.start()
    yield stop
    stop.close()


@pytest.fixture
def sleeper() -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    child = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
    pidfd = os.pidfd_open(child.pid)
    yield child, pidfd
    os.close(pidfd)
    child.kill()
    child.wait()


def stopped(stop: EmergencyStop) -> threading.Event:
    event = threading.Event()
    stop.on_stop(event.set)
    return event


def test_it_is_not_set_in_a_fresh_home(stop: EmergencyStop) -> None:
    assert not stop.is_set()
    assert not stop.state().is_set


def test_touching_the_file_calls_back(stop: EmergencyStop) -> None:
    event = stopped(stop)
    stop.path.touch()
    assert event.wait(LIMIT_S)
    assert stop.is_set()


def test_a_file_that_was_moved_in_calls_back(stop: EmergencyStop, tmp_path: Path) -> None:
    event = stopped(stop)
    (tmp_path / "elsewhere").write_text("why", encoding="utf-8")
    (tmp_path / "elsewhere").rename(stop.path)
    assert event.wait(LIMIT_S)
    assert stop.state().reason == "why"


def test_it_survives_a_restart(home: Path, stop: EmergencyStop) -> None:
    stop.set("it deletes the wrong files", by="uid 1000")
    stop.close()
    again = EmergencyStop(home)
    event = stopped(again)
    again.start()
    try:
        assert event.wait(LIMIT_S)
        state = again.state()
        assert (state.is_set, state.reason, state.by) == (
            True,
            "it deletes the wrong files",
            "uid 1000",
        )
        assert state.at.endswith("Z")
    finally:
        again.close()


def test_set_has_killed_when_it_returns(
    stop: EmergencyStop, sleeper: tuple[subprocess.Popen[bytes], int]
) -> None:
    child, pidfd = sleeper
    stop.register_kill(pidfd)
    stop.set("now")
    assert child.wait(LIMIT_S) == -signal.SIGKILL


def test_touching_the_file_kills(
    stop: EmergencyStop, sleeper: tuple[subprocess.Popen[bytes], int]
) -> None:
    child, pidfd = sleeper
    stop.register_kill(pidfd)
    stop.path.touch()
    assert child.wait(LIMIT_S) == -signal.SIGKILL


def test_a_process_that_registers_too_late_dies_at_once(
    stop: EmergencyStop, sleeper: tuple[subprocess.Popen[bytes], int]
) -> None:
    child, pidfd = sleeper
    stop.set()
    stop.register_kill(pidfd)
    assert child.wait(LIMIT_S) == -signal.SIGKILL


def test_an_unregistered_process_lives(
    stop: EmergencyStop, sleeper: tuple[subprocess.Popen[bytes], int]
) -> None:
    child, pidfd = sleeper
    stop.register_kill(pidfd)
    stop.unregister_kill(pidfd)
    stop.set()
    assert child.poll() is None


def test_a_dead_process_in_the_registry_is_no_obstacle(
    stop: EmergencyStop, sleeper: tuple[subprocess.Popen[bytes], int]
) -> None:
    child, pidfd = sleeper
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone_fd = os.pidfd_open(gone.pid)
    gone.wait()
    read_end, write_end = os.pipe()
    for descriptor in (gone_fd, read_end, pidfd):
        stop.register_kill(descriptor)
    stop.set()
    assert child.wait(LIMIT_S) == -signal.SIGKILL
    for descriptor in (gone_fd, read_end, write_end):
        os.close(descriptor)


class Lock:
    """The lock of a stop, which does something once, when the watcher has just let go of it."""

    def __init__(self, stop: EmergencyStop, then: Callable[[], None]) -> None:
        self._stop = stop
        self._lock = stop._lock
        self._then: Callable[[], None] | None = then

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        is_seen = threading.current_thread().name == "estop" and self._stop.path.exists()
        self._lock.release()
        if is_seen and self._then is not None:
            then, self._then = self._then, None
            then()


def test_what_begins_after_the_stop_was_cleared_lives(
    stop: EmergencyStop,
    sleeper: tuple[subprocess.Popen[bytes], int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The watcher has seen the file, and is held up before it does anything else."""
    _, pidfd = sleeper

    def clear_and_begin() -> None:
        stop.clear()
        stop.register_kill(pidfd)

    event = stopped(stop)
    monkeypatch.setattr(stop, "_lock", Lock(stop, clear_and_begin))
    stop.path.touch()
    assert event.wait(LIMIT_S)
    assert not stop.is_set()
    assert not select.select([pidfd], [], [], 0.5)[0]


def test_a_broken_callback_does_not_save_the_next(stop: EmergencyStop) -> None:
    def breaks() -> None:
        raise RuntimeError("broken")

    stop.on_stop(breaks)
    event = stopped(stop)
    stop.path.touch()
    assert event.wait(LIMIT_S)


async def test_listeners_hear_set_and_clear_in_order_on_their_loop(stop: EmergencyStop) -> None:
    heard: asyncio.Queue[bool] = asyncio.Queue()
    stop.add_listener(heard.put_nowait)
    for _ in range(3):
        await asyncio.to_thread(stop.set, "again")
        assert await asyncio.wait_for(heard.get(), LIMIT_S) is True
        await asyncio.to_thread(stop.clear)
        assert await asyncio.wait_for(heard.get(), LIMIT_S) is False
    assert not stop.is_set()
    assert heard.empty()


async def test_a_slow_disk_delays_no_listener(
    stop: EmergencyStop, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk_works = threading.Event()
    write = stop._write

    def slow(data: bytes) -> None:
        assert disk_works.wait(LIMIT_S)
        write(data)

    monkeypatch.setattr(stop, "_write", slow)
    heard: asyncio.Queue[bool] = asyncio.Queue()
    stop.add_listener(heard.put_nowait)
    setting = asyncio.create_task(stop.set_from_loop("now", by="uid 1000"))
    assert await asyncio.wait_for(heard.get(), LIMIT_S) is True
    assert not stop.path.exists()
    assert stop.is_set()
    setting.cancel()
    await asyncio.wait([setting])
    assert stop.is_set()
    disk_works.set()
    await asyncio.to_thread(stop._writer.shutdown)
    assert (stop.state().reason, stop.state().by) == ("now", "uid 1000")


async def test_setting_from_a_loop_raises_what_setting_raises(home: Path) -> None:
    stop = EmergencyStop(home / "missing")
    with pytest.raises(StorageError, match="the stop holds"):
        await stop.set_from_loop("now")
    assert stop.is_set()


async def test_its_end_leaves_no_thread_and_a_later_stop_is_written(home: Path) -> None:
    before = set(threading.enumerate())
    stop = EmergencyStop(home)
    stop.start()
    await stop.set_from_loop("first")
    stop.close()
    assert set(threading.enumerate()) - before == set()
    stop.path.unlink()
    await stop.set_from_loop("second")
    assert stop.state().reason == "second"
    stop.close()
    assert set(threading.enumerate()) - before == set()


async def test_removing_the_file_by_hand_clears(stop: EmergencyStop) -> None:
    heard: asyncio.Queue[bool] = asyncio.Queue()
    stop.add_listener(heard.put_nowait)
    stop.path.touch()
    assert await asyncio.wait_for(heard.get(), LIMIT_S) is True
    stop.path.unlink()
    assert await asyncio.wait_for(heard.get(), LIMIT_S) is False
    assert not stop.is_set()


def test_a_listener_whose_loop_is_closed_is_skipped(stop: EmergencyStop) -> None:
    async def listen() -> None:
        stop.add_listener(lambda _is_set: None)

    asyncio.run(listen())
    event = stopped(stop)
    stop.path.touch()
    assert event.wait(LIMIT_S)


@each_row("kind", ["directory", "dangling link", "fifo", "unreadable"], fresh=["home"])
def test_whatever_bears_the_name_counts_as_set(home: Path, kind: str) -> None:
    stop = EmergencyStop(home)
    match kind:
        case "directory":
            stop.path.mkdir()
        case "dangling link":
            stop.path.symlink_to(home / "nowhere")
        case "fifo":
            os.mkfifo(stop.path)
        case _:
            stop.path.touch(mode=0)
    assert stop.is_set()
    assert stop.state().is_set


def test_an_error_other_than_no_such_file_counts_as_set(home: Path) -> None:
    (home / "file").touch()
    assert EmergencyStop(home / "file").is_set()  # ENOTDIR


def test_a_watcher_that_cannot_start_counts_as_set(tmp_path: Path) -> None:
    stop = EmergencyStop(tmp_path / "missing")
    event = stopped(stop)
    stop.start()
    assert event.is_set()
    assert stop.is_set()
    assert "could not start" in stop.state().reason
    with pytest.raises(StorageError, match="stays set"):
        stop.clear()
    stop.close()


def test_a_home_that_disappears_counts_as_set(home: Path, stop: EmergencyStop) -> None:
    event = stopped(stop)
    home.rename(home.with_name("moved"))
    assert event.wait(LIMIT_S)
    assert stop.is_set()


def test_a_home_whose_parent_moves_counts_as_set(tmp_path: Path) -> None:
    home = tmp_path / "parent" / "home"
    home.mkdir(parents=True)
    stop = EmergencyStop(home)
    event = stopped(stop)
    stop.start()
    (tmp_path / "parent").rename(tmp_path / "other")
    assert event.wait(LIMIT_S)
    assert stop.is_set()
    stop.close()


def test_a_stop_that_cannot_be_written_holds_all_the_same(home: Path) -> None:
    stop = EmergencyStop(home / "missing")
    with pytest.raises(StorageError, match="the stop holds"):
        stop.set("now")
    assert stop.is_set()


def test_clearing_twice_is_clear(stop: EmergencyStop) -> None:
    stop.set()
    stop.clear()
    stop.clear()
    assert not stop.is_set()


def test_offline_set_and_clear_are_the_file_alone(home: Path) -> None:
    EmergencyStop(home).set("from a client")
    assert EmergencyStop(home).is_set()
    EmergencyStop(home).clear()
    assert list(home.iterdir()) == []


def test_a_reason_with_escapes_is_one_harmless_line(home: Path) -> None:
    stop = EmergencyStop(home)
    stop.path.write_bytes(b"a\x1b[2Jb\nc\xff")
    assert stop.state().reason == "a [2Jb c�"


def test_a_busy_event_loop_delays_nothing(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The callback comes on a thread of its own, while this one keeps a loop from running."""
    monkeypatch.setattr(estop, "_RECHECK_MS", 3_600_000)  # it is told, and does not look by chance
    stop = EmergencyStop(home)
    stop.start()

    async def main() -> bool:
        event = stopped(stop)
        stop.path.touch()
        return event.wait(LIMIT_S)

    try:
        assert asyncio.run(main())
    finally:
        stop.close()
