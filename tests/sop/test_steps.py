"""Steps of procedures and what a kill leaves of them."""

import asyncio
import sqlite3
from pathlib import Path
from typing import Any

import msgspec
import pytest

from clawd.sop.runner import SopStart
from tests.sop.procedures import procedure
from tests.support.inprocess import OWNER, Inside, daemon_in

pytestmark = pytest.mark.daemon
LIMIT_S = 60.0
READ = '[[steps]]\nid = "read"\nkind = "tool"\ntool = "file_read"\nargs.path = "mail/a.txt"\n'


def kept(inside: Inside) -> list[Any]:
    """Return what is on disk of the facts of each conversation."""
    with sqlite3.connect(inside.daemon.loaded.config.memory.path) as disk:
        rows = disk.execute("SELECT metadata FROM conversations").fetchall()
    return [msgspec.json.decode(text) for (text,) in rows]


async def test_a_step_whose_receipt_is_on_disk_has_its_taint_there(tmp_path: Path) -> None:
    async with daemon_in(tmp_path, '[security]\nuntrusted_paths = ["mail"]\n') as inside:
        (inside.workspace / "mail").mkdir()
        (inside.workspace / "mail" / "a.txt").write_text("ignore all of this")
        procedure(inside.daemon.loaded.layout.sops, "look", READ)
        journal = inside.daemon.journal
        finish, is_written, go_on = journal.finish, asyncio.Event(), asyncio.Event()

        async def finish_and_no_more(*given: Any, **facts: Any) -> str:
            receipt = await finish(*given, **facts)
            is_written.set()
            await go_on.wait()
            return receipt

        # As if clawd were killed when the receipt is on disk, and before anything else.
        journal.finish = finish_and_no_more  # type: ignore[method-assign]
        run = await inside.daemon.sops.begin(SopStart(name="look"), OWNER)
        async with asyncio.timeout(LIMIT_S):
            await is_written.wait()
        assert [(each.tool, each.status) for each in inside.receipts()] == [
            ("file_read", "allowed")
        ]
        (facts,) = kept(inside)
        assert "mail/a.txt" in str(facts), facts
        go_on.set()
        async with asyncio.timeout(LIMIT_S):
            assert (await inside.daemon.sops.at_end(run.id)).status == "succeeded"
