"""Pictures in memory: each once, with the messages that have it, and gone with the last of them."""

import sqlite3
from pathlib import Path

from clawd.memory.conversations import facts_of
from clawd.memory.rows import Conversation, NewMessage, StoredMessage
from clawd.memory.store import Memory
from clawd.providers.base import Message
from clawd.wire.pictures import Picture
from tests.support.pictures import picture

ADA = 1000
ONE, TWO = picture(), picture(4, 4)


async def kept(memory: Memory, *messages: tuple[Picture, ...]) -> tuple[str, list[StoredMessage]]:
    made = await memory.conversations.create(Conversation(owner=ADA, workspace="/w"))
    rows = [
        NewMessage(message=Message(role="user", content=f"m{number}", pictures=pictures))
        for number, pictures in enumerate(messages)
    ]
    return made.id, list(await memory.messages.append(made.id, rows, owner=ADA, turn_id="t"))


async def shown(memory: Memory, name: str) -> list[tuple[Picture, ...]]:
    found = await memory.checkpoints.shown(name, owner=ADA)
    return [stored.message.pictures for stored in found.messages]


def counts(path: Path) -> tuple[int, int]:
    with sqlite3.connect(path) as connection:
        (files,) = connection.execute("SELECT count(*) FROM pictures").fetchone()
        (links,) = connection.execute("SELECT count(*) FROM message_pictures").fetchone()
    connection.close()
    return files, links


async def test_a_model_is_shown_them_in_their_order_after_a_restart(tmp_path: Path) -> None:
    memory = await Memory.open(tmp_path / "memory.sqlite")
    name, _ = await kept(memory, (TWO, ONE), (), (ONE,))
    await memory.close()
    again = await Memory.open(tmp_path / "memory.sqlite")
    assert await shown(again, name) == [(TWO, ONE), (), (ONE,)]
    await again.close()


async def test_one_is_kept_once_and_rows_say_what_it_is(tmp_path: Path) -> None:
    memory = await Memory.open(tmp_path / "memory.sqlite")
    name, _ = await kept(memory, (ONE,), (ONE, TWO))
    history = await memory.messages.history(name, owner=ADA)
    await memory.close()
    assert counts(tmp_path / "memory.sqlite") == (2, 3)
    assert [facts_of(stored) for stored in history] == [(ONE.facts,), (ONE.facts, TWO.facts)]
    assert all(stored.message.pictures == () for stored in history)


async def test_a_fork_has_them_and_the_last_to_go_takes_them_along(tmp_path: Path) -> None:
    memory = await Memory.open(tmp_path / "memory.sqlite")
    name, rows = await kept(memory, (ONE,), (TWO,))
    fork = await memory.forks.fork(name, owner=ADA, upto=rows[0].id)
    assert await shown(memory, fork.id) == [(ONE,)]
    await memory.conversations.delete(name, owner=ADA)
    assert await shown(memory, fork.id) == [(ONE,)]
    assert counts(tmp_path / "memory.sqlite") == (1, 1)
    await memory.conversations.delete(fork.id, owner=ADA)
    assert counts(tmp_path / "memory.sqlite") == (0, 0)
    await memory.close()


async def test_clearing_leaves_none_of_their_bytes_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "memory.sqlite"
    memory = await Memory.open(path)
    await kept(memory, (ONE,), (TWO,))
    await memory.conversations.clear(owner=ADA)
    await memory.close()
    assert counts(path) == (0, 0)
    assert ONE.data not in path.read_bytes()
