"""The file: private, checked at start, migrated with a copy, honest when the disk is not."""

import asyncio
import sqlite3
import stat
import threading
from pathlib import Path

import pytest

from clawd.errors import NotFoundError, StorageError
from clawd.memory import schema
from clawd.memory.schema import STEPS, prepare
from clawd.memory.store import Memory
from clawd.memory.writer import Database, connect
from tests.memory.samples import ANNA, begun, said, texts_of

LIMIT_S = 60.0


def _version(path: Path) -> int:
    connection = connect(path)
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    connection.close()
    return int(version)


async def test_its_files_are_for_their_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "memory.sqlite"
    path.touch(0o644)
    memory = await Memory.open(path)
    await begun(memory, "x")
    files = sorted(tmp_path.iterdir())
    assert [file.name for file in files] == [
        "memory.sqlite",
        "memory.sqlite-shm",
        "memory.sqlite-wal",
    ]
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
    await memory.close()
    assert list(tmp_path.iterdir()) == [path]


async def test_commits_are_synchronised_to_the_disk(tmp_path: Path) -> None:
    database = Database(tmp_path / "m")
    await database.open()
    names = ("journal_mode", "synchronous", "foreign_keys", "secure_delete")
    found = await database.write(
        lambda c: [c.execute(f"PRAGMA {name}").fetchone()[0] for name in names]
    )
    assert found == ["wal", 2, 1, 1]
    await database.close()


async def test_readers_cannot_write(tmp_path: Path) -> None:
    database = Database(tmp_path / "m")
    await database.open()
    with pytest.raises(StorageError, match="may not be written"):
        await database.read(lambda c: c.execute("DELETE FROM messages"))
    await database.close()
    await database.close()


async def test_a_file_of_something_else_is_refused_and_kept(tmp_path: Path) -> None:
    path = tmp_path / "memory.sqlite"
    path.write_bytes(b"no database " * 1000)
    with pytest.raises(StorageError, match="no SQLite file") as caught:
        await Memory.open(path)
    assert "[memory] path" in caught.value.hint
    assert path.read_bytes() == b"no database " * 1000


async def test_a_damaged_file_is_found_at_start(tmp_path: Path) -> None:
    path = tmp_path / "memory.sqlite"
    memory = await Memory.open(path)
    await begun(memory, *("aardvark " * 50 for _ in range(200)))
    await memory.close()
    content = bytearray(path.read_bytes())
    for page in range(5, len(content) // 4096):
        content[page * 4096 : page * 4096 + 64] = b"\xff" * 64
    path.write_bytes(content)
    with pytest.raises(StorageError, match="damaged") as caught:
        await Memory.open(path)
    assert "backup" in caught.value.hint


async def test_places_where_no_file_can_be_are_refused(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    for path in (tmp_path / "missing" / "m", tmp_path, tmp_path / "link"):
        with pytest.raises(StorageError):
            await Memory.open(path)
    assert not (tmp_path / "elsewhere").exists()


async def test_a_full_disk_fails_the_turn_whole_and_memory_lives_on(tmp_path: Path) -> None:
    database = Database(tmp_path / "m")
    await database.open()
    memory = Memory(database)
    made = await begun(memory, "before")

    def bound(connection: sqlite3.Connection) -> None:
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
        connection.execute(f"PRAGMA max_page_count = {pages + 5}")

    await database.write_alone(bound)
    big = [said("small"), said("big " * 100_000)]
    answers = await asyncio.gather(
        *(memory.messages.append(made.id, big, owner=ANNA, turn_id="t") for _ in range(3)),
        return_exceptions=True,
    )
    assert [type(answer) for answer in answers] == [StorageError] * 3
    assert "full" in str(answers[0])
    assert texts_of(await memory.messages.history(made.id, owner=ANNA)) == ["before"]
    await database.write_alone(lambda c: c.execute("PRAGMA max_page_count = 1000000").fetchall())
    await memory.messages.append(made.id, big, owner=ANNA, turn_id="t")
    assert len(await memory.messages.history(made.id, owner=ANNA)) == 3
    await memory.close()


async def test_a_failing_write_takes_back_its_own_work_only(tmp_path: Path) -> None:
    database = Database(tmp_path / "m")
    await database.open()

    def put(name: str, error: Exception | None = None) -> None:
        def act(connection: sqlite3.Connection) -> None:
            connection.execute("INSERT INTO settings VALUES (?, '')", (name,))
            if error is not None:
                raise error

        tasks.append(asyncio.ensure_future(database.write(act)))

    tasks: list[asyncio.Future[None]] = []
    put("a")
    put("b", NotFoundError("not there"))
    put("a")
    put("c")
    answers = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(answer) for answer in answers] == [
        type(None),
        NotFoundError,
        StorageError,
        type(None),
    ]
    rows = await database.read(lambda c: c.execute("SELECT name FROM settings").fetchall())
    assert rows == [("a",), ("c",)]
    await database.close()


async def test_a_newer_schema_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "m"
    await (await Memory.open(path)).close()
    connection = connect(path)
    connection.execute(f"PRAGMA user_version = {len(STEPS) + 1}")
    connection.close()
    with pytest.raises(StorageError, match=rf"schema {len(STEPS) + 1}.*up to {len(STEPS)}"):
        await Memory.open(path)


async def test_creation_cut_short_is_finished_at_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "m"
    with monkeypatch.context() as patched:
        patched.setattr(schema, "_TRIGRAMS", "this is no SQL")
        with pytest.raises(StorageError):
            await Memory.open(path)
    assert _version(path) == 0
    memory = await Memory.open(path)
    await begun(memory, "Aardvark adapter")
    assert len(await memory.search.find("dvar", owner=ANNA)) == 1
    await memory.close()
    assert _version(path) == len(STEPS)


async def test_an_older_file_is_migrated_and_a_copy_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "m"
    memory = await Memory.open(path)
    made = await begun(memory, "before")
    await memory.close()

    def add_column(connection: sqlite3.Connection) -> None:
        connection.execute("ALTER TABLE settings ADD COLUMN note TEXT")

    connection = connect(path)
    prepare(connection, path, steps=[*STEPS, add_column])
    connection.execute("SELECT note FROM settings")
    connection.close()
    assert _version(path) == len(STEPS) + 1
    copy = tmp_path / f"m.schema-{len(STEPS)}"
    assert (_version(copy), stat.S_IMODE(copy.stat().st_mode)) == (len(STEPS), 0o600)
    old = await Memory.open(copy)
    assert texts_of(await old.messages.history(made.id, owner=ANNA)) == ["before"]
    await old.close()


async def test_a_write_lock_held_by_another_program_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "m"
    await (await Memory.open(path)).close()
    monkeypatch.setattr("clawd.memory.writer.BUSY_TIMEOUT_S", 0.05)
    memory = await Memory.open(path)
    other = connect(path)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StorageError, match="keeps it locked"):
        await memory.ledger.record_head(1, "a" * 64)
    other.execute("ROLLBACK")
    other.close()
    await memory.ledger.record_head(1, "a" * 64)
    await memory.close()


async def test_a_row_that_was_changed_by_hand_is_a_storage_error(memory: Memory) -> None:
    made = await begun(memory, "x")
    connection = connect(memory.path)
    connection.execute("UPDATE conversations SET metadata = 'no json'")
    connection.close()
    with pytest.raises(StorageError, match="never writes"):
        await memory.conversations.get(made.id, owner=ANNA)
    with pytest.raises(StorageError, match="never writes"):
        await memory.conversations.list(owner=ANNA)


async def test_only_writes_that_may_be_lost_in_a_power_cut_go_without_an_fsync(
    tmp_path: Path,
) -> None:
    database = Database(tmp_path / "m")
    await database.open()
    normal, full = 1, 2

    def mode(connection: sqlite3.Connection) -> int:
        (found,) = connection.execute("PRAGMA synchronous").fetchone()
        return int(found)

    assert await database.write(mode) == full
    assert await database.write(mode, durable=False) == normal
    assert await database.write_alone(mode) == full
    # Both wait while the writing thread is held, so that it takes them together.
    go = threading.Event()
    held = asyncio.create_task(database.write(lambda _: go.wait(LIMIT_S)))
    both = [asyncio.create_task(database.write(mode, durable=each)) for each in (False, True)]
    await asyncio.sleep(0)
    go.set()
    assert await asyncio.gather(*both) == [full, full]
    assert await held
    assert await database.write(mode) == full
    await database.close()
