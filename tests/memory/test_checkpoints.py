"""Checkpoints and forks in memory: whose they are, what they replace, what goes with them."""

import sqlite3
from pathlib import Path

import pytest

from clawd.errors import InvalidRequestError, NotFoundError
from clawd.memory.checkpoints import UNCOMPRESSED, Checkpoint
from clawd.memory.rows import Conversation, NewMessage
from clawd.memory.schema import STEPS, prepare
from clawd.memory.store import Memory
from clawd.providers.base import Message

ADA, BOB = 1000, 1001


async def conversation(memory: Memory, count: int = 6, owner: int = ADA) -> tuple[str, list[int]]:
    made = await memory.conversations.create(Conversation(owner=owner, workspace="/w"))
    rows = [
        NewMessage(message=Message(role="assistant" if n % 2 else "user", content=f"m{n}"))
        for n in range(count)
    ]
    kept = await memory.messages.append(made.id, rows, owner=owner, turn_id="t")
    return made.id, [row.id for row in kept]


def checkpoint(ids: list[int], upto: int, *, anchor: int = 0, text: str = "before") -> Checkpoint:
    return Checkpoint(text=text, upto=upto, anchor=anchor, seen=ids[-1], replaced=0, cuts={7: 300})


async def test_without_a_checkpoint_all_is_shown(memory: Memory) -> None:
    name, ids = await conversation(memory)
    found = await memory.checkpoints.shown(name, owner=ADA)
    assert ([row.id for row in found.messages], found.checkpoint) == (ids, None)


async def test_a_checkpoint_is_kept_whole_and_hides_what_it_replaces(memory: Memory) -> None:
    name, ids = await conversation(memory)
    made = await memory.checkpoints.add(name, checkpoint(ids, ids[3], anchor=ids[2]), owner=ADA)
    assert (made.replaced, made.cuts) == (3, {7: 300})
    found = await memory.checkpoints.shown(name, owner=ADA)
    assert [row.id for row in found.messages] == [ids[2], ids[4], ids[5]]
    assert found.checkpoint == made
    assert await memory.checkpoints.list(name, owner=ADA) == (made,)
    assert await memory.checkpoints.replaced([name, "other"]) == {name: 3}
    assert len(await memory.messages.history(name, owner=ADA)) == 6


async def test_undo_takes_one_or_all_and_says_how_many_messages_came_back(memory: Memory) -> None:
    name, ids = await conversation(memory)
    first = await memory.checkpoints.add(name, checkpoint(ids, ids[1]), owner=ADA)
    await memory.checkpoints.add(name, checkpoint(ids, ids[3]), owner=ADA)
    assert await memory.checkpoints.undo(name, owner=ADA, only_last=True) == 1
    assert (await memory.checkpoints.shown(name, owner=ADA)).checkpoint == first
    assert (await memory.conversations.get(name, owner=ADA)).metadata == {UNCOMPRESSED: 4}
    await memory.checkpoints.add(name, checkpoint(ids, ids[3]), owner=ADA)
    assert (await memory.conversations.get(name, owner=ADA)).metadata == {}
    assert await memory.checkpoints.undo(name, owner=ADA, only_last=False) == 2
    assert (await memory.conversations.get(name, owner=ADA)).metadata == {UNCOMPRESSED: 6}
    with pytest.raises(InvalidRequestError, match="not compressed"):
        await memory.checkpoints.undo(name, owner=ADA, only_last=False)


async def test_nobody_else_sees_makes_or_undoes_them(memory: Memory) -> None:
    name, ids = await conversation(memory)
    await memory.checkpoints.add(name, checkpoint(ids, ids[1]), owner=ADA)
    checkpoints = memory.checkpoints
    for attempt in (
        checkpoints.shown(name, owner=BOB),
        checkpoints.list(name, owner=BOB),
        checkpoints.add(name, checkpoint(ids, ids[3]), owner=BOB),
        checkpoints.undo(name, owner=BOB, only_last=False),
        memory.forks.fork(name, owner=BOB),
    ):
        with pytest.raises(NotFoundError):
            await attempt
    assert len(await checkpoints.list(name, owner=None)) == 1


async def test_they_go_with_their_conversation(memory: Memory) -> None:
    gone, ids = await conversation(memory)
    stays, others = await conversation(memory, owner=BOB)
    await memory.checkpoints.add(gone, checkpoint(ids, ids[1], text="hush"), owner=ADA)
    await memory.checkpoints.add(stays, checkpoint(others, others[1]), owner=BOB)
    await memory.conversations.delete(gone, owner=ADA)
    assert await memory.checkpoints.replaced([gone, stays]) == {stays: 2}
    again, ids = await conversation(memory)
    await memory.checkpoints.add(again, checkpoint(ids, ids[1], text="hush"), owner=ADA)
    await memory.conversations.clear(owner=ADA)
    assert await memory.checkpoints.replaced([again, stays]) == {stays: 2}
    assert b"hush" not in memory.path.read_bytes()


async def test_they_are_there_when_memory_is_opened_again(tmp_path: Path) -> None:
    memory = await Memory.open(tmp_path / "m.sqlite")
    name, ids = await conversation(memory)
    made = await memory.checkpoints.add(name, checkpoint(ids, ids[1], text="\ud800"), owner=ADA)
    await memory.close()
    memory = await Memory.open(tmp_path / "m.sqlite")
    assert (await memory.checkpoints.shown(name, owner=ADA)).checkpoint == made
    assert made.text == "�"
    await memory.close()


async def test_a_fork_that_fails_leaves_nothing(memory: Memory) -> None:
    name, ids = await conversation(memory)
    with pytest.raises(InvalidRequestError):
        await memory.forks.fork(name, owner=ADA, upto=ids[-1] + 1)
    assert (await memory.conversations.counts(owner=None)).conversations == 1


def test_an_older_file_gets_the_table(tmp_path: Path) -> None:
    path = tmp_path / "old.sqlite"
    connection = sqlite3.connect(path, isolation_level=None)
    before = next(n for n, step in enumerate(STEPS) if " checkpoints (" in str(step))
    prepare(connection, path, steps=STEPS[:before])
    prepare(connection, path)
    assert connection.execute("SELECT count(*) FROM checkpoints").fetchone() == (0,)
    connection.close()
