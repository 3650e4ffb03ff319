"""Backups, checks, retention, quota, and that nothing of what was deleted stays in the files."""

import errno
import os
import sqlite3
import stat
from contextlib import closing
from pathlib import Path

import pytest

from clawd.errors import InvalidRequestError, StorageError
from clawd.memory.store import Memory
from clawd.memory.upkeep import KeepLimits
from clawd.memory.writer import connect
from clawd.receipts.record import sha256_hex
from tests.memory.samples import ANNA, BEN, begun, said, texts_of
from tests.support.rows import each_row

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


async def test_a_backup_takes_no_name_away_from_anybody(memory: Memory, tmp_path: Path) -> None:
    """What lies beside the copy is somebody's, whatever it is called."""
    beside = tmp_path / "copy.sqlite.part"
    beside.write_text("half of a film")
    await memory.upkeep.backup(tmp_path / "copy.sqlite")
    assert beside.read_text() == "half of a film"
    assert not list(tmp_path.glob(".clawd-*"))


async def test_a_backup_is_made_where_a_file_has_one_name_only(
    memory: Memory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_link(*_paths: Path) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", no_link)
    target = tmp_path / "copy.sqlite"
    assert await memory.upkeep.backup(target) == target.stat().st_size
    with pytest.raises(InvalidRequestError, match="is there already"):
        await memory.upkeep.backup(target)


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


async def test_what_a_read_keeps_from_being_erased_stays_due(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clawd.memory.writer.BUSY_TIMEOUT_S", 0.05)
    memory = await Memory.open(tmp_path / "memory.sqlite")
    made = await begun(memory, "xyloquartz secretive")
    with closing(connect(memory.path, mode="ro")) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM messages").fetchone()
        await memory.conversations.delete(made.id, owner=ANNA)
        with pytest.raises(StorageError, match="a long read needs it"):
            await memory.upkeep.erase()
        assert await memory.upkeep.is_erase_due()
    await memory.upkeep.erase()
    assert not await memory.upkeep.is_erase_due()
    assert b"xyloquartz" not in _stored_bytes(memory.path)
    await memory.close()


async def test_old_conversations_go_and_those_in_use_stay(memory: Memory) -> None:
    old = [await _aged(memory, f"walrus {n}") for n in range(45)]
    new = (await begun(memory, "walrus now")).id
    limits = KeepLimits(max_age_days=30)
    pruned = await memory.upkeep.prune(limits, in_use=lambda: {old[0], old[7]})
    assert set(pruned.conversations) == set(old) - {old[0], old[7]}
    assert await _ids(memory) == {new, old[0], old[7]}
    assert (await memory.upkeep.prune(limits, in_use=lambda: {old[0], old[7]})).conversations == ()


async def test_without_limits_nothing_goes(memory: Memory) -> None:
    old = await _aged(memory, "walrus")
    assert (await memory.upkeep.prune(KeepLimits(), in_use=set)).conversations == ()
    assert await _ids(memory) == {old}


async def test_over_the_quota_the_oldest_go_until_there_is_room(memory: Memory) -> None:
    made = [(await begun(memory, "word " * 2000)).id for _ in range(120)]
    size = await memory.upkeep.size()
    limits = KeepLimits(max_bytes=size // 2)
    pruned = await memory.upkeep.prune(limits, in_use=set)
    assert await memory.upkeep.size() <= limits.max_bytes
    left = await _ids(memory)
    assert left
    assert list(pruned.conversations) == made[: len(pruned.conversations)]
    assert left == set(made[len(pruned.conversations) :])


async def test_nobody_loses_his_to_make_room_for_what_another_one_writes(memory: Memory) -> None:
    mine = [(await begun(memory, "word " * 2000, owner=ANNA)).id for _ in range(10)]
    flood = [(await begun(memory, "word " * 2000, owner=BEN)).id for _ in range(110)]
    limits = KeepLimits(max_bytes=await memory.upkeep.size() // 2)
    pruned = await memory.upkeep.prune(limits, in_use=set)
    assert await memory.upkeep.size() <= limits.max_bytes
    assert set(mine) <= await _ids(memory)
    assert list(pruned.conversations) == flood[: len(pruned.conversations)]


@each_row("limits", [KeepLimits(max_age_days=1), KeepLimits(max_bytes=1)], fresh=["memory"])
async def test_a_conversation_that_is_taken_up_while_others_go_stays(
    memory: Memory, limits: KeepLimits
) -> None:
    old = [await _aged(memory, "word " * 500) for _ in range(60)]
    asked: list[int] = []

    def in_use() -> set[str]:
        asked.append(1)
        return {old[59]} if len(asked) > 2 else set()

    await memory.upkeep.prune(limits, in_use=in_use)
    assert await _ids(memory) == {old[59]}


async def test_session_files_count_so_that_no_more_goes_than_must(memory: Memory) -> None:
    made = [(await begun(memory, "word " * 20)).id for _ in range(11)]
    await memory.session_files.save(made[0], "big.txt", b"x" * 3_000_000, owner=ANNA)
    for identity in made[1:]:
        await memory.messages.append(identity, [said("later")], owner=ANNA, turn_id="t-2")
    pruned = await memory.upkeep.prune(KeepLimits(max_bytes=1_000_000), in_use=set)
    assert list(pruned.conversations) == made[:1]


async def test_a_quota_that_cannot_be_met_ends(memory: Memory) -> None:
    made = await begun(memory, "walrus")
    pruned = await memory.upkeep.prune(KeepLimits(max_bytes=1), in_use=lambda: {made.id})
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
    pruned = await memory.upkeep.prune(KeepLimits(max_age_days=1), in_use=set)
    assert pruned.contents == 1
    assert await memory.ledger.load_content("a" * 64) is None
    assert await memory.ledger.load_content("b" * 64) == b"new"


async def test_old_contents_that_a_new_receipt_hashes_stay(memory: Memory) -> None:
    content, content_hash = b"ok", sha256_hex(b"ok")
    await memory.ledger.store_content(content, content_hash)
    await memory._database.write(
        lambda c: c.execute("UPDATE contents SET created_at = ?", (OLD,)).rowcount
    )
    await memory.ledger.store_content(content, content_hash)
    pruned = await memory.upkeep.prune(KeepLimits(max_age_days=1), in_use=set)
    assert pruned.contents == 0
    assert await memory.ledger.load_content(content_hash) == content


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
