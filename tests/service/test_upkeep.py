"""Memory is kept within its limits while the daemon runs, and what is deleted is erased soon."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Collection
from pathlib import Path

import pytest
from typing_extensions import override

from clawd.errors import StorageError
from clawd.memory.rows import Conversation
from clawd.memory.store import Memory
from clawd.memory.upkeep import KeepLimits, Pruned, Upkeep
from clawd.runtime.conversation import ConversationBook
from clawd.security.approval_rules import JsonRuleStore, RuleBook
from clawd.security.principal import Principal
from clawd.security.taint import TaintBook
from clawd.service.upkeep import Background, MemoryKeeper
from tests.memory.samples import ANNA, begun, said
from tests.security.fakes import RuleReceipts
from tests.support.rows import each_row

LIMIT_S = 60.0


class _Fails(Upkeep):
    """Upkeep whose first erasing fails, or never ends."""

    def __init__(self, upkeep: Upkeep, *, hangs: bool) -> None:
        super().__init__(upkeep._database)
        self.begun = asyncio.Event()
        self._hangs = hangs

    @override
    async def erase(self) -> None:
        if self.begun.is_set():
            await super().erase()
            return
        self.begun.set()
        if self._hangs:
            await asyncio.Event().wait()
        raise StorageError("the disk is full")


class _FailsLate(Upkeep):
    """Upkeep that deletes what is to go, and then fails."""

    @override
    async def prune(self, limits: KeepLimits, *, in_use: Callable[[], Collection[str]]) -> Pruned:
        await super().prune(limits, in_use=in_use)
        raise StorageError("the disk is full")


class _House:
    def __init__(self, memory: Memory, folder: Path, upkeep: Upkeep | None = None) -> None:
        self.memory = memory
        self.limits = KeepLimits()
        self.book = ConversationBook(memory, TaintBook())
        self.keeper = MemoryKeeper(
            upkeep or memory.upkeep,
            book=self.book,
            rules=RuleBook(JsonRuleStore(folder / "rules.json"), record=RuleReceipts()),
            limits=lambda: self.limits,
        )

    async def aged(self, text: str) -> Conversation:
        """Return a conversation of long ago."""
        made = await begun(self.memory, text)
        await self.memory._database.write(
            lambda c: (
                c.execute(
                    "UPDATE conversations SET updated_at = ? WHERE id = ?",
                    ("2020-01-01T00:00:00.000000Z", made.id),
                ).rowcount
            )
        )
        return made


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[_House]:
    memory = await Memory.open(tmp_path / "memory.sqlite")
    yield _House(memory, tmp_path)
    await memory.close()


def _files(memory: Memory) -> bytes:
    found = memory.path.parent.glob(f"{memory.path.name}*")
    return b"".join(path.read_bytes() for path in found)


async def test_old_conversations_go_at_the_first_look_and_leave_nothing(house: _House) -> None:
    old = await house.aged("xyloquartz")
    house.limits = KeepLimits(max_age_days=1)
    house.keeper.start()
    async with asyncio.timeout(LIMIT_S):
        while b"xyloquartz" in _files(house.memory):
            await asyncio.sleep(0.01)
    await house.keeper.close()
    page = await house.memory.conversations.list(owner=None, limit=10)
    assert old.id not in {record.id for record in page.conversations}


async def test_a_conversation_in_use_stays_however_old(house: _House) -> None:
    old = await house.aged("xyloquartz")
    house.limits = KeepLimits(max_age_days=1)
    person = Principal(uid=ANNA, gid=ANNA, pid=1)
    async with house.book.in_use(old.id, person):
        assert await house.keeper.look() == 0
    assert await house.keeper.look() == 1


async def test_what_was_deleted_last_is_erased_before_the_end(house: _House) -> None:
    house.keeper.start()
    made = await begun(house.memory, "plain words")
    await house.memory.messages.append(made.id, [said("xyloquartz")], owner=ANNA, turn_id="t-2")
    await house.memory.conversations.delete(made.id, owner=ANNA)
    house.keeper.erase_soon()
    await house.keeper.close()
    assert b"xyloquartz" not in _files(house.memory)


@each_row("hangs", [False, True])
async def test_an_erasing_that_failed_or_was_cut_short_is_done_before_the_end(
    tmp_path: Path, *, hangs: bool
) -> None:
    memory = await Memory.open(tmp_path / "memory.sqlite")
    upkeep = _Fails(memory.upkeep, hangs=hangs)
    house = _House(memory, tmp_path, upkeep)
    house.keeper.start()
    made = await begun(memory, "xyloquartz")
    await memory.conversations.delete(made.id, owner=ANNA)
    house.keeper.erase_soon()
    async with asyncio.timeout(LIMIT_S):
        await upkeep.begun.wait()
    await house.keeper.close()
    assert b"xyloquartz" not in _files(memory)
    await memory.close()


async def test_what_a_look_that_failed_had_deleted_is_erased(tmp_path: Path) -> None:
    memory = await Memory.open(tmp_path / "memory.sqlite")
    house = _House(memory, tmp_path, _FailsLate(memory._database))
    await house.aged("xyloquartz")
    house.limits = KeepLimits(max_age_days=1)
    house.keeper.start()
    async with asyncio.timeout(LIMIT_S):
        while b"xyloquartz" in _files(memory):
            await asyncio.sleep(0.01)
    await house.keeper.close()
    await memory.close()


async def test_what_a_killed_daemon_deleted_is_erased_by_the_next_one(house: _House) -> None:
    made = await begun(house.memory, "xyloquartz")
    await begun(house.memory, "plain words")
    await house.memory.conversations.delete(made.id, owner=ANNA)
    assert b"xyloquartz" in _files(house.memory)
    house.keeper.start()
    async with asyncio.timeout(LIMIT_S):
        while await house.memory.upkeep.is_erase_due():
            await asyncio.sleep(0.01)
    await house.keeper.close()
    assert b"xyloquartz" not in _files(house.memory)
    assert await house.memory.search.find("plain", owner=ANNA)


class _Defective(Upkeep):
    """Upkeep that fails as nobody foresaw, once."""

    def __init__(self, upkeep: Upkeep) -> None:
        super().__init__(upkeep._database)
        self.failed = False

    @override
    async def erase(self) -> None:
        if not self.failed:
            self.failed = True
            raise ValueError("a defect")
        await super().erase()


async def test_a_defect_in_the_housekeeping_does_not_end_it(
    house: _House, caplog: pytest.LogCaptureFixture
) -> None:
    upkeep = _Defective(house.memory.upkeep)
    house.keeper._upkeep = upkeep
    background = Background()
    house.keeper.start(background.watch)
    house.keeper.erase_soon()
    async with asyncio.timeout(LIMIT_S):
        while not upkeep.failed:
            await asyncio.sleep(0.01)
    await asyncio.sleep(0)
    assert background.problem == ""
    await house.keeper.close()
    assert "by a defect" in caplog.text


async def test_a_clock_that_jumped_ahead_deletes_nothing_before_the_next_look(
    house: _House, caplog: pytest.LogCaptureFixture
) -> None:
    old = await house.aged("xyloquartz")
    house.limits = KeepLimits(max_age_days=1)
    await house.memory.upkeep.note_look(time.time() - 40 * 86_400)
    assert await house.keeper.look() == 0
    assert "the clock is 40 days ahead" in caplog.text
    assert (await house.memory.conversations.get(old.id, owner=None)).id == old.id
    assert await house.keeper.look() == 1
