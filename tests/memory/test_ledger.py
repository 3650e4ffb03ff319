"""Intents, contents and the head: durable, grouped, and there after a crash."""

import asyncio
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from clawd.errors import StorageError
from clawd.memory.store import Memory
from clawd.receipts.record import Intent, new_id, sha256_hex
from clawd.tools.journal import Ledger

ARGUMENTS = b'{"path":"."}'
RESULT = b"a\nb/"


def intent(**fields: Any) -> Intent:
    plain = Intent(
        id="receipt-1",
        timestamp="2026-11-21T08:00:00Z",
        conversation_id="conv-1",
        tool="file_list",
        args_hash=sha256_hex(ARGUMENTS),
        risk="low",
        uid=1000,
        workspace="/w",
        approval="auto",
    )
    return msgspec.structs.replace(plain, **fields)


def test_it_is_the_ledger_that_receipts_want(memory: Memory) -> None:
    ledger: Ledger = memory.ledger
    assert ledger is memory.ledger


async def test_an_intent_is_open_until_its_receipt_closes_it(memory: Memory) -> None:
    first, second = intent(), intent(id="receipt-2", reason="ünïcode \n", sandbox="bwrap")
    await memory.ledger.open_intent(first, ARGUMENTS)
    await memory.ledger.open_intent(second, ARGUMENTS)
    assert await memory.ledger.open_intents() == [first, second]
    assert await memory.ledger.load_content(first.args_hash) == ARGUMENTS
    await memory.ledger.close_intent(first.id, content=RESULT, content_hash=sha256_hex(RESULT))
    assert await memory.ledger.open_intents() == [second]
    assert await memory.ledger.load_content(sha256_hex(RESULT)) == RESULT


async def test_content_is_kept_once_by_its_hash(memory: Memory) -> None:
    for content in (b"", b"\0\xff" * 1000, RESULT, RESULT):
        await memory.ledger.store_content(content, sha256_hex(content))
        assert await memory.ledger.load_content(sha256_hex(content)) == content
    assert await memory.ledger.load_content("0" * 64) is None
    with sqlite3.connect(memory.path) as connection:
        assert connection.execute("SELECT count(*) FROM contents").fetchone() == (3,)
    connection.close()


async def test_content_under_a_wrong_hash_is_refused_and_nothing_is_kept(memory: Memory) -> None:
    with pytest.raises(StorageError, match="does not have the hash"):
        await memory.ledger.open_intent(intent(), b"other arguments")
    assert await memory.ledger.open_intents() == []
    with pytest.raises(StorageError, match="does not have the hash"):
        await memory.ledger.store_content(b"x", sha256_hex(b"y"))


async def test_one_bad_intent_does_not_harm_those_beside_it(memory: Memory) -> None:
    good = [intent(id=new_id()) for _ in range(10)]
    answers = await asyncio.gather(
        *(memory.ledger.open_intent(made, ARGUMENTS) for made in good[:5]),
        memory.ledger.open_intent(good[0], ARGUMENTS),
        memory.ledger.open_intent(intent(id="bad"), b"other"),
        *(memory.ledger.open_intent(made, ARGUMENTS) for made in good[5:]),
        return_exceptions=True,
    )
    assert [isinstance(answer, StorageError) for answer in answers] == [False] * 6 + [True] + [
        False
    ] * 5
    assert await memory.ledger.open_intents() == good


async def test_an_intent_told_again_takes_the_place_of_the_first(memory: Memory) -> None:
    first, other = intent(id=new_id(), approval="none"), intent(id=new_id())
    await memory.ledger.open_intent(first, ARGUMENTS)
    await memory.ledger.open_intent(other, ARGUMENTS)
    approved = msgspec.structs.replace(first, approval="user", approved_by="uid 1000")
    await memory.ledger.open_intent(approved, ARGUMENTS)
    assert await memory.ledger.open_intents() == [approved, other]


async def test_the_head_only_moves_forward(memory: Memory) -> None:
    assert await memory.ledger.last_head() is None
    await memory.ledger.record_head(2, "b" * 64)
    await memory.ledger.record_head(1, "a" * 64)
    assert await memory.ledger.last_head() == (2, "b" * 64)
    await memory.ledger.record_head(3, "c" * 64)
    assert await memory.ledger.last_head() == (3, "c" * 64)


async def test_it_is_all_there_after_reopening(tmp_path: Path) -> None:
    memory = await Memory.open(tmp_path / "m")
    await memory.ledger.open_intent(intent(), ARGUMENTS)
    await memory.ledger.record_head(1, "a" * 64)
    await memory.close()
    memory = await Memory.open(tmp_path / "m")
    assert await memory.ledger.open_intents() == [intent()]
    assert await memory.ledger.last_head() == (1, "a" * 64)
    await memory.close()


def test_nothing_acknowledged_is_lost_when_the_daemon_is_killed(tmp_path: Path) -> None:
    path = tmp_path / "memory.sqlite"
    acknowledged: list[str] = []
    for lines in (1, 40):
        writer = subprocess.Popen(
            [sys.executable, "-m", "tests.memory.crash_writer", str(path)],
            stdout=subprocess.PIPE,
            cwd=Path(__file__).parents[2],
            text=True,
        )
        assert writer.stdout is not None
        acknowledged += [writer.stdout.readline() for _ in range(lines)]
        writer.kill()
        acknowledged += writer.stdout.read().split("\n")[:-1]
        writer.stdout.close()
        writer.wait(timeout=60)
    asyncio.run(_check(path, [line.split() for line in acknowledged]))


async def _check(path: Path, acknowledged: list[list[str]]) -> None:
    memory = await Memory.open(path)
    ids = {made.id for made in await memory.ledger.open_intents()}
    assert {name for kind, name in acknowledged if kind == "intent"} <= ids
    for kind, name in acknowledged:
        if kind == "turn":
            question, answer = await memory.messages.history(name, owner=1000)
            assert question.message.content is not None
            assert answer.message.content == question.message.content.replace("question", "answer")
    assert any(kind == "turn" for kind, _ in acknowledged)
    await memory.close()


CLOSE_AND_DIE = """
import asyncio, os, signal, sys
from pathlib import Path
from clawd.memory.store import Memory
from clawd.receipts.record import sha256_hex
from tests.memory.test_ledger import ARGUMENTS, RESULT, intent

async def main():
    memory = await Memory.open(Path(sys.argv[1]))
    await memory.ledger.open_intent(intent(), ARGUMENTS)
    await memory.ledger.close_intent("receipt-1", content=RESULT, content_hash=sha256_hex(RESULT))
    await memory.ledger.record_head(7, "a" * 64)
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


async def test_what_follows_a_receipt_survives_a_kill_without_an_fsync(tmp_path: Path) -> None:
    path = tmp_path / "memory.sqlite"
    killed = subprocess.run([sys.executable, "-c", CLOSE_AND_DIE, path], check=False)
    assert killed.returncode == -signal.SIGKILL
    memory = await Memory.open(path)
    assert await memory.ledger.open_intents() == []
    assert await memory.ledger.load_content(sha256_hex(RESULT)) == RESULT
    assert await memory.ledger.last_head() == (7, "a" * 64)
    await memory.close()
