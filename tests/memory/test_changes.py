"""What is kept for undo: private, bounded for each owner, whole after a crash."""

import asyncio
import os
import stat
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from clawd.errors import InvalidRequestError, StorageError
from clawd.memory.changes import ROW_COST, ChangeLimits, Changes
from clawd.memory.store import Memory
from clawd.memory.writer import connect
from clawd.security.file_content import FileChange, FileState
from clawd.tools.changes import CallFacts, Change, ChangeScope

ADA = CallFacts(owner=1000, conversation_id="c1", workspace="/w", call_id="r1", tool="file_write")
SCOPE = ChangeScope(owner=1000, workspace="/w")


class Book:
    """A log of changes over a throwaway memory."""

    def __init__(self, memory: Memory, folder: Path) -> None:
        self.memory = memory
        self.folder = folder
        self.limits = ChangeLimits(max_bytes=4 * ROW_COST)
        self.changes: Changes

    async def keep(self, content: bytes | None, call: CallFacts = ADA, *, reverts: int = 0) -> int:
        """Keep a change of the file `f` that holds this, or of one that does not exist."""
        before = None if content is None else FileState.of(content)
        change = FileChange(path="f", before=before, after=FileState.of(b"after"))
        old = -1
        if content is not None:
            old = os.memfd_create("old")
            os.write(old, content)
        try:
            return await asyncio.to_thread(self.changes.keep, call, change, old, reverts=reverts)
        finally:
            if old >= 0:
                os.close(old)

    async def listed(
        self, scope: ChangeScope = SCOPE, *, calls: int = 9, reverting: bool = False
    ) -> list[list[Change]]:
        return await self.changes.listed(scope, calls=calls, reverting=reverting)

    def kept(self) -> list[bytes]:
        return sorted(path.read_bytes() for path in self.folder.iterdir())


def call(number: int, **changes: object) -> CallFacts:
    return msgspec.structs.replace(ADA, call_id=f"r{number}", **changes)


@pytest.fixture
async def book(memory: Memory, tmp_path: Path) -> AsyncIterator[Book]:
    made = Book(memory, tmp_path / "undo")
    made.changes = await memory.changes(made.folder, lambda: made.limits)
    yield made


async def test_a_change_is_kept_for_its_owner_only(book: Book) -> None:
    number = await book.keep(b"before")
    await book.keep(None, call(2))
    assert stat.S_IMODE(book.folder.stat().st_mode) == 0o700
    assert [stat.S_IMODE(path.stat().st_mode) for path in book.folder.iterdir()] == [0o600]
    [[second], [first]] = await book.listed()
    assert (first.number, first.call, first.file.before) == (number, ADA, FileState.of(b"before"))
    assert (second.kept, second.file.before) == ("", None)
    with book.changes.content(first) as file:
        assert file.read() == b"before"
    for scope in (
        ChangeScope(owner=1001, workspace="/w"),
        ChangeScope(owner=1000, workspace="/other"),
        ChangeScope(owner=1000, workspace="/w", conversation_id="c2"),
    ):
        assert await book.listed(scope) == []
    assert len(await book.listed(ChangeScope(owner=1000, workspace="/w", conversation_id="c1"))) > 0


async def test_changes_of_one_call_come_together_and_newest_first(book: Book) -> None:
    book.limits = ChangeLimits()
    await book.keep(b"1", call(1))
    await book.keep(b"2", call(1))
    await book.keep(b"3", call(2))
    numbers = [[change.number for change in group] for group in await book.listed()]
    assert numbers == [[3], [2, 1]]
    assert len(await book.listed(calls=1)) == 1
    await asyncio.to_thread(book.changes.drop, 3)
    await book.keep(b"4", call(3), reverts=3)
    assert [[c.number for c in group] for group in await book.listed()] == [[2, 1]]
    [[reverting]] = await book.listed(reverting=True)
    assert (reverting.number, reverting.reverts) == (4, 3)


async def test_a_dropped_change_leaves_nothing(book: Book) -> None:
    number = await book.keep(b"before")
    await asyncio.to_thread(book.changes.drop, number)
    assert (await book.listed(), book.kept()) == ([], [])


async def test_the_oldest_calls_of_the_owner_make_room(book: Book) -> None:
    other = call(9, owner=1001)
    await book.keep(b"bob's", other)
    for number in range(1, 6):
        await book.keep(b"%d" % number, call(number))
    assert [group[0].call.call_id for group in await book.listed()] == ["r5", "r4", "r3"]
    assert book.kept() == [b"3", b"4", b"5", b"bob's"]
    assert len(await book.listed(ChangeScope(owner=1001, workspace="/w"))) == 1


async def test_what_is_too_large_is_refused_and_nothing_is_dropped_for_it(book: Book) -> None:
    await book.keep(b"1", call(1))
    with pytest.raises(InvalidRequestError, match="more than is kept for undo") as caught:
        await book.keep(b"x" * 4 * ROW_COST, call(2))
    assert "undo_mb" in caught.value.hint
    with pytest.raises(InvalidRequestError, match="this call changes more"):
        for _ in range(5):
            await book.keep(b"x", call(3))
    assert book.kept() == [b"x", b"x", b"x"]


async def test_a_quota_of_nothing_keeps_nothing(book: Book) -> None:
    book.limits = ChangeLimits(max_bytes=0)
    assert await book.keep(b"before") == 0
    assert (await book.listed(), book.kept()) == ([], [])


async def test_old_changes_and_strays_go_at_the_next_start(book: Book, tmp_path: Path) -> None:
    await book.keep(b"old", call(1))
    await book.keep(b"new", call(2))
    (book.folder / "stray").write_bytes(b"of a crash")
    connection = connect(book.memory.path)
    connection.execute("UPDATE changes SET at = '2020-01-01T00:00:00.000000Z' WHERE number = 1")
    connection.close()
    await book.memory.changes(book.folder, lambda: book.limits)
    assert book.kept() == [b"new"]
    assert [group[0].number for group in await book.listed()] == [2]


async def test_a_disk_that_takes_nothing_refuses_the_change(book: Book) -> None:
    book.folder.rename(book.folder.with_name("gone"))
    with pytest.raises(StorageError, match="cannot be kept for undo"):
        await book.keep(b"before")
    assert await book.listed() == []


async def test_a_row_that_cannot_be_written_leaves_no_content(book: Book) -> None:
    connection = connect(book.memory.path)
    connection.execute("ALTER TABLE changes RENAME TO away")
    connection.close()
    with pytest.raises(StorageError):
        await book.keep(b"before")
    assert book.kept() == []
