"""Backups, checks, retention, quota, and that nothing of what was deleted stays in the files."""

import sqlite3
import stat
from pathlib import Path

import pytest

from clawd.errors import InvalidRequestError
from clawd.memory.store import Memory
from clawd.memory.upkeep import KeepLimits
from tests.memory.samples import ANNA, begun, said, texts_of

OLD = "2020-01-01T00:00:00.000000Z"


async def _aged(memory: Memory, *texts: str) -> str:
    """Return the id of a conversation of long ago."""
    made = await begun(memory, *texts)
    await memory._database.write(
        lambda c: (
            c.execute(
                "UPDATE conversations SET updated_at = ? WHERE id = ?", (OLD, made.id)
            ).rowcount
        )
    )
    return made.id


async def _ids(memory: Memory) -> set[str]:
    page = await memory.conversations.list(owner=None, limit=1000)
    return {record.id for record in page.conversations}


def _stored_bytes(path: Path) -> bytes:
    return b"".join(each.read_bytes() for each in path.parent.glob(f"{path.name}*"))


async def test_a_backup_is_a_memory_of_its_own(memory: Memory, tmp_path: Path) -> None:
    made = await begun(memory, "the walrus")
    target = tmp_path / "copy.sqlite"
    size = await memory.upkeep.backup(target)
    await memory.conversations.delete(made.id, owner=ANNA)
    assert size == target.stat().st_size
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    copy = await Memory.open(target)
    assert texts_of(await copy.messages.history(made.id, owner=ANNA)) == ["the walrus"]
    assert [hit.snippet for hit in await copy.search.find("walrus", owner=ANNA)] == ["the walrus"]
    await copy.close()
    assert not list(tmp_path.glob("*.part"))


async def test_a_backup_replaces_nothing_and_wants_a_folder(memory: Memory, tmp_path: Path) -> None:
    there = tmp_path / "mine.txt"
    there.write_text("mine")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for target in (there, tmp_path / "link", tmp_path / "no/folder", Path("copy.sqlite")):
        with pytest.raises(InvalidRequestError):
            await memory.upkeep.backup(target)
    assert there.read_text() == "mine"


async def test_what_was_deleted_is_in_no_file_after_erasing(memory: Memory) -> None:
    kept = await begun(memory, *(f"ordinary words {n}" for n in range(200)))
    for number in range(30):
        made = await begun(memory, f"xyloquartz{number} secretive")
        await memory.conversations.delete(made.id, owner=ANNA)
    assert b"xyloquartz" in _stored_bytes(memory.path)
    await memory.upkeep.erase()
    assert b"xyloquartz" not in _stored_bytes(memory.path)
    assert len(await memory.messages.history(kept.id, owner=ANNA)) == 200
    assert await memory.search.find("ordinary", owner=ANNA)
    assert await memory.upkeep.check() == ()


async def test_old_conversations_go_and_those_in_use_stay(memory: Memory) -> None:
    old = [await _aged(memory, f"walrus {n}") for n in range(45)]
    new = (await begun(memory, "walrus now")).id
    limits = KeepLimits(max_age_days=30)
    pruned = await memory.upkeep.prune(limits, in_use={old[0], old[7]})
    assert set(pruned.conversations) == set(old) - {old[0], old[7]}
    assert await _ids(memory) == {new, old[0], old[7]}
    assert (await memory.upkeep.prune(limits, in_use={old[0], old[7]})).conversations == ()


async def test_without_limits_nothing_goes(memory: Memory) -> None:
    old = await _aged(memory, "walrus")
    assert (await memory.upkeep.prune(KeepLimits(), in_use=())).conversations == ()
    assert await _ids(memory) == {old}


async def test_over_the_quota_the_oldest_go_until_there_is_room(memory: Memory) -> None:
    made = [(await begun(memory, "word " * 2000)).id for _ in range(120)]
    size = await memory.upkeep.size()
    limits = KeepLimits(max_bytes=size // 2)
    pruned = await memory.upkeep.prune(limits, in_use=())
    assert await memory.upkeep.size() <= limits.max_bytes
    left = await _ids(memory)
    assert left
    assert list(pruned.conversations) == made[: len(pruned.conversations)]
    assert left == set(made[len(pruned.conversations) :])


async def test_session_files_count_so_that_no_more_goes_than_must(memory: Memory) -> None:
    made = [(await begun(memory, "word " * 20)).id for _ in range(11)]
    await memory.session_files.save(made[0], "big.txt", b"x" * 3_000_000, owner=ANNA)
    await memory.conversations.touch(made[0], owner=ANNA)
    for identity in made[1:]:
        await memory.conversations.touch(identity, owner=ANNA)
    pruned = await memory.upkeep.prune(KeepLimits(max_bytes=1_000_000), in_use=())
    assert list(pruned.conversations) == made[:1]


async def test_a_quota_that_cannot_be_met_ends(memory: Memory) -> None:
    made = await begun(memory, "walrus")
    pruned = await memory.upkeep.prune(KeepLimits(max_bytes=1), in_use={made.id})
    assert pruned.conversations == ()
    assert await _ids(memory) == {made.id}


async def test_old_contents_of_receipts_go_with_their_time(memory: Memory) -> None:
    await memory._database.write(
        lambda c: (
            c.executemany(
                "INSERT INTO contents (hash, content, created_at) VALUES (?, ?, ?)",
                [("a" * 64, b"old", OLD), ("b" * 64, b"new", "2999-01-01T00:00:00.000000Z")],
            ).rowcount
        )
    )
    pruned = await memory.upkeep.prune(KeepLimits(max_age_days=1), in_use=())
    assert pruned.contents == 1
    assert await memory.ledger.load_content("a" * 64) is None
    assert await memory.ledger.load_content("b" * 64) == b"new"


async def test_an_index_out_of_step_is_found_and_made_anew(memory: Memory) -> None:
    made = await begun(memory, "the walrus")
    await memory.messages.append(made.id, [said("a seal")], owner=ANNA, turn_id="t-2")
    assert await memory.upkeep.check() == ()

    def lose(connection: sqlite3.Connection) -> None:
        connection.execute(
            "INSERT INTO messages_fts (messages_fts, rowid, content) "
            "VALUES ('delete', 1, 'the walrus')"
        )

    await memory._database.write(lose)
    (problem,) = await memory.upkeep.check()
    assert "messages_fts" in problem
    await memory.upkeep.rebuild_indexes()
    assert await memory.upkeep.check() == ()
    assert await memory.search.find("walrus", owner=ANNA)
