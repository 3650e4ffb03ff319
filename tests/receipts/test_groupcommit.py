"""The thread that commits what waits together."""

import asyncio
import threading

import pytest

from clawd.errors import StorageError
from clawd.receipts.durable import GroupCommit


class Disk:
    """A commit function that can be held back, and remembers its batches."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.is_ready = threading.Event()
        self.is_busy = threading.Event()
        self.is_ready.set()

    def commit(self, items: list[int]) -> list[int | Exception]:
        self.is_busy.set()
        assert self.is_ready.wait(60)
        self.batches.append(items)
        if -1 in items:
            raise OSError("all of it failed")
        return [ValueError(f"bad {item}") if item < 0 else item * 10 for item in items]


async def _held(disk: Disk, writer: GroupCommit[int, int]) -> "asyncio.Task[int]":
    """Return a task whose item the thread holds in its hands."""
    disk.is_ready.clear()
    first = asyncio.create_task(writer.submit(1))
    assert await asyncio.to_thread(disk.is_busy.wait, 60)
    return first


async def test_items_that_wait_are_committed_together_in_order() -> None:
    disk = Disk()
    writer = GroupCommit("disk", disk.commit, error=StorageError)
    first = await _held(disk, writer)
    others = [asyncio.create_task(writer.submit(item)) for item in (2, 3, 4)]
    await asyncio.sleep(0)
    disk.is_ready.set()
    assert await asyncio.gather(first, *others) == [10, 20, 30, 40]
    assert disk.batches == [[1], [2, 3, 4]]
    await writer.close()


async def test_one_bad_item_fails_alone() -> None:
    disk = Disk()
    writer = GroupCommit("disk", disk.commit, error=StorageError)
    first = await _held(disk, writer)
    others = [asyncio.create_task(writer.submit(item)) for item in (2, -3, 4)]
    await asyncio.sleep(0)
    disk.is_ready.set()
    answers = await asyncio.gather(first, *others, return_exceptions=True)
    assert [str(answer) for answer in answers] == ["10", "20", "bad -3", "40"]
    await writer.close()


async def test_a_failing_commit_reaches_every_waiter_and_the_thread_lives_on() -> None:
    disk = Disk()
    writer = GroupCommit("disk", disk.commit, error=StorageError)
    first = await _held(disk, writer)
    others = [asyncio.create_task(writer.submit(item)) for item in (2, -1)]
    await asyncio.sleep(0)
    disk.is_ready.set()
    assert await first == 10
    for other in others:
        with pytest.raises(OSError, match="all of it failed"):
            await other
    assert await writer.submit(7) == 70
    await writer.close()


async def test_one_more_than_may_wait_is_refused() -> None:
    disk = Disk()
    writer = GroupCommit("disk", disk.commit, error=StorageError, max_waiting=2)
    first = await _held(disk, writer)
    others = [asyncio.create_task(writer.submit(item)) for item in (2, 3)]
    await asyncio.sleep(0)
    with pytest.raises(StorageError, match="2 writes already wait"):
        await writer.submit(4)
    disk.is_ready.set()
    assert await asyncio.gather(first, *others) == [10, 20, 30]
    await writer.close()


async def test_a_cancelled_wait_harms_nobody_and_is_written() -> None:
    disk = Disk()
    writer = GroupCommit("disk", disk.commit, error=StorageError)
    first = await _held(disk, writer)
    second = asyncio.create_task(writer.submit(2))
    third = asyncio.create_task(writer.submit(3))
    await asyncio.sleep(0)
    second.cancel()
    disk.is_ready.set()
    assert [*await asyncio.gather(first, third)] == [10, 30]
    assert disk.batches[1] == [2, 3]
    with pytest.raises(asyncio.CancelledError):
        await second
    await writer.close()


async def test_close_writes_what_waits_and_then_takes_nothing() -> None:
    disk = Disk()
    writer = GroupCommit("disk", disk.commit, error=StorageError)
    first = await _held(disk, writer)
    second = asyncio.create_task(writer.submit(2))
    await asyncio.sleep(0)
    closing = asyncio.create_task(writer.close())
    await asyncio.sleep(0)
    disk.is_ready.set()
    await closing
    assert [*await asyncio.gather(first, second)] == [10, 20]
    await writer.close()
    with pytest.raises(StorageError, match="closed"):
        await writer.submit(3)


def test_it_serves_more_than_one_event_loop() -> None:
    disk = Disk()
    writer = GroupCommit("disk", disk.commit, error=StorageError)
    assert asyncio.run(writer.submit(1)) == 10
    assert asyncio.run(writer.submit(2)) == 20
    asyncio.run(writer.close())


async def test_housekeeping_runs_between_batches_and_when_it_asked_to() -> None:
    disk, runs, is_enough = Disk(), [0], threading.Event()

    def housekeep() -> float | None:
        runs[0] += 1
        if runs[0] == 5:
            is_enough.set()
            return None
        return 0.001

    writer: GroupCommit[int, int] = GroupCommit(
        "test", disk.commit, error=StorageError, housekeep=housekeep
    )
    assert await asyncio.to_thread(is_enough.wait, 60)
    assert disk.batches == []
    assert await writer.submit(1) == 10
    await writer.close()


async def test_housekeeping_that_fails_stops_nobody(caplog: pytest.LogCaptureFixture) -> None:
    def housekeep() -> float | None:
        raise OSError("no room")

    writer: GroupCommit[int, int] = GroupCommit(
        "test", Disk().commit, error=StorageError, housekeep=housekeep
    )
    assert await writer.submit(1) == 10
    assert await writer.submit(2) == 20
    await writer.close()
    assert "housekeeping failed" in caplog.text


async def test_a_thread_that_ends_by_a_defect_leaves_nobody_waiting() -> None:
    disk = Disk()

    def forgets(items: list[int]) -> list[int | Exception]:
        disk.commit(items)
        return []

    writer: GroupCommit[int, int] = GroupCommit("disk", forgets, error=StorageError)
    assert writer.failure == ""
    first = await _held(disk, writer)
    others = [asyncio.create_task(writer.submit(item)) for item in (2, 3)]
    await asyncio.sleep(0)
    disk.is_ready.set()
    async with asyncio.timeout(60):
        answers = await asyncio.gather(first, *others, return_exceptions=True)
        with pytest.raises(StorageError, match="restart clawd"):
            await writer.submit(4)
        await writer.close()
    assert {type(answer) for answer in answers} == {StorageError}
    assert "the writing thread has ended" in writer.failure
