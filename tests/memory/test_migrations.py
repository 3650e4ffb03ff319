"""A memory of every older schema becomes a current one; what cannot be migrated is left alone."""

import sqlite3
import stat
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from clawd.errors import StorageError
from clawd.memory.schema import STEPS, prepare, take
from clawd.memory.store import Memory
from tests.support.rows import each_row

ROOT = Path(__file__).parents[2]
OLDER = range(1, len(STEPS))

# Opens a memory while no file may grow beyond the size given: a full disk, for this process only.
FULL_DISK = """
import asyncio, resource, sys
from pathlib import Path
from clawd.errors import StorageError
from clawd.memory.store import Memory
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))
try:
    asyncio.run(Memory.open(Path(sys.argv[1])))
except StorageError as error:
    print(error.message)
    print(error.hint)
"""


def old_memory(path: Path, version: int, rows: int = 1) -> None:
    """Write a memory as a clawd of that schema left it, with a message in it."""
    with closing(sqlite3.connect(path)) as connection, connection:
        prepare(connection, path, steps=STEPS[:version])
        connection.execute(
            f"INSERT INTO conversations VALUES ({_samples(connection, 'conversations')})"
        )
        for _ in range(rows):
            connection.execute(
                "INSERT INTO messages (conversation_id, owner, turn_id, timestamp, role, content, "
                "tool_calls, tool_call_id, name, provider, model, metadata, is_complete) VALUES "
                "('c1', 7, 't', '2026-01-01', 'user', 'a lighthouse', '[]', "
                "'', '', '', '', '{}', 1)"
            )
        connection.execute("INSERT INTO head VALUES (1, 12, 'abc', '2026-01-01')")


def _samples(connection: sqlite3.Connection, table: str) -> str:
    described = connection.execute(f"PRAGMA table_info({table})").fetchall()
    known = {"id": "'c1'", "owner": "7", "metadata": "'{}'"}
    return ", ".join(known.get(str(name), "''") for _, name, *_ in described)


def schema_of(path: Path) -> set[tuple[str, ...]]:
    with closing(sqlite3.connect(path)) as connection:
        rows = connection.execute("SELECT type, name, sql FROM sqlite_master").fetchall()
    return {tuple(map(str, row)) for row in rows}


def version_of(path: Path) -> int:
    with closing(sqlite3.connect(path)) as connection:
        (version,) = connection.execute("PRAGMA user_version").fetchone()
    return int(version)


@each_row("version", OLDER)
async def test_an_older_memory_becomes_a_current_one_with_all_it_held(
    tmp_path: Path, version: int
) -> None:
    old, new = tmp_path / "old.sqlite", tmp_path / "new.sqlite"
    old_memory(old, version)
    await (await Memory.open(new)).close()
    memory = await Memory.open(old)
    try:
        assert await memory.ledger.last_head() == (12, "abc")
    finally:
        await memory.close()
    assert version_of(old) == len(STEPS)
    assert schema_of(old) == schema_of(new)
    with closing(sqlite3.connect(old)) as connection:
        found = connection.execute(
            "SELECT rowid FROM messages_fts WHERE messages_fts MATCH 'lighthouse'"
        ).fetchall()
    assert len(found) == 1


@each_row("version", OLDER)
async def test_the_copy_that_is_kept_is_the_old_memory(tmp_path: Path, version: int) -> None:
    path = tmp_path / "memory.sqlite"
    old_memory(path, version)
    before = schema_of(path)
    await (await Memory.open(path)).close()
    copy = tmp_path / f"memory.sqlite.schema-{version}"
    assert version_of(copy) == version
    assert schema_of(copy) == before
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600


@each_row("version", OLDER)
async def test_a_migration_that_was_interrupted_is_finished_by_the_next_start(
    tmp_path: Path, version: int
) -> None:
    path, new = tmp_path / "memory.sqlite", tmp_path / "new.sqlite"
    old_memory(path, version)
    with closing(sqlite3.connect(path)) as connection:
        take(STEPS[version], connection)  # done, and killed before the version was counted up
        connection.commit()
    await (await Memory.open(path)).close()
    await (await Memory.open(new)).close()
    assert schema_of(path) == schema_of(new)


async def test_a_newer_memory_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "memory.sqlite"
    await (await Memory.open(path)).close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA user_version = {len(STEPS) + 1}")
    with pytest.raises(StorageError) as caught:
        await Memory.open(path)
    assert f"has schema {len(STEPS) + 1}" in caught.value.message
    assert "A newer clawd wrote it" in caught.value.hint
    assert version_of(path) == len(STEPS) + 1


def on_a_full_disk(path: Path, limit: int) -> str:
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(path), str(limit)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


async def test_without_room_for_the_copy_nothing_is_changed(tmp_path: Path) -> None:
    path = tmp_path / "memory.sqlite"
    old_memory(path, 3, rows=3_000)
    told = on_a_full_disk(path, path.stat().st_size // 2)
    assert "the copy that is kept before it is changed cannot be written" in told
    assert "Nothing was changed." in told
    assert version_of(path) == 3
    assert not list(tmp_path.glob("*.part"))
    assert not list(tmp_path.glob("*.schema-3"))
    memory = await Memory.open(path)  # there is room again
    await memory.close()
    assert version_of(path) == len(STEPS)


async def test_a_disk_that_fills_up_in_the_middle_loses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "memory.sqlite"
    old_memory(path, 1)
    with closing(sqlite3.connect(path)) as connection:
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
        connection.execute(f"PRAGMA max_page_count = {pages + 4}")
        with pytest.raises(sqlite3.OperationalError, match="full"):
            prepare(connection, path)
    assert 1 <= version_of(path) < len(STEPS)
    memory = await Memory.open(path)
    try:
        assert await memory.ledger.last_head() == (12, "abc")
    finally:
        await memory.close()
    assert version_of(path) == len(STEPS)
    assert version_of(tmp_path / "memory.sqlite.schema-1") == 1
