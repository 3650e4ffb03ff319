"""How a start learns of the end of the run before it."""

import os
from contextlib import AsyncExitStack
from pathlib import Path

import msgspec

from clawd.config.load import load
from clawd.receipts.durable import write_private
from clawd.service.home import FILE, LastRun


async def looked(home: Path, *, begins: bool = False) -> tuple[str, ...]:
    """Return what a run of this home finds, and end it in order."""
    last = LastRun(home)
    loaded = load(environ={"CLAWD_HOME": str(home), "HOME": str(home)})
    async with AsyncExitStack() as stack:
        await last.look(loaded, stack)
        if begins:
            last.begin()
            assert (home / FILE).stat().st_mode & 0o777 == 0o600
    return last.found


async def test_an_end_in_order_leaves_nothing_to_tell(tmp_path: Path) -> None:
    assert await looked(tmp_path, begins=True) == ()
    assert not (tmp_path / FILE).exists()
    assert await looked(tmp_path) == ()


async def test_a_start_that_fails_keeps_what_the_next_one_must_tell(tmp_path: Path) -> None:
    LastRun(tmp_path).begin()
    for _ in range(2):
        (told,) = await looked(tmp_path)
        assert told.startswith(f"the last clawd of this home (pid {os.getpid()}, started ")
        assert told.endswith("did not end in order: it was killed or it crashed")


async def test_a_machine_that_went_down_is_told_from_a_crash(tmp_path: Path) -> None:
    mark = {"pid": 7, "started_at": "2026-11-21T08:00:00Z", "boot": "another life"}
    write_private(tmp_path / FILE, msgspec.json.encode(mark))
    (told,) = await looked(tmp_path)
    assert told == (
        "the last clawd of this home (pid 7, started 2026-11-21T08:00:00Z) did not end in order: "
        "the machine went down with it"
    )


async def test_a_mark_that_cannot_be_kept_hinders_nobody(tmp_path: Path) -> None:
    (tmp_path / FILE).mkdir()
    last = LastRun(tmp_path)
    last.begin()
    last.end()
    assert await looked(tmp_path) != ("",)
