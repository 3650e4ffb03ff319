"""Tasks that must not end before the daemon does."""

import asyncio

import pytest

from clawd.service.upkeep import Background


async def _fails() -> None:
    raise ValueError("a defect")


async def _ends() -> None:
    await asyncio.sleep(0)


async def test_a_task_that_ends_early_makes_the_daemon_unhealthy_and_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    background = Background()
    task = asyncio.create_task(_fails())
    background.watch(task, "the housekeeping")
    assert background.problem == ""
    await asyncio.wait({task})
    await asyncio.sleep(0)
    assert background.problem == (
        "the housekeeping has ended (ValueError: a defect); restart clawd"
    )
    assert "the housekeeping has ended; clawd counts as broken" in caplog.text


async def test_one_that_just_ends_does_too() -> None:
    background = Background()
    task = asyncio.create_task(_ends())
    background.watch(task, "it")
    await asyncio.wait({task})
    await asyncio.sleep(0)
    assert "it has ended" in background.problem


async def test_one_that_its_owner_cancels_does_not() -> None:
    background = Background()
    task = asyncio.create_task(asyncio.Event().wait())
    background.watch(task, "it")
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait({task})
    await asyncio.sleep(0)
    assert background.problem == ""
