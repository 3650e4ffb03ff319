"""Plans in memory: durable, one at a time, and gone with their conversation."""

import asyncio
from pathlib import Path

import pytest

from clawd.errors import InvalidRequestError, NotFoundError
from clawd.memory.store import Memory
from clawd.tools.plans import Plan, PlanKey, added
from tests.memory.samples import ANNA, BEN, begun


def key_of(conversation_id: str = "", *, owner: int = ANNA, workspace: str = "") -> PlanKey:
    return PlanKey(conversation_id=conversation_id, owner=owner, workspace=workspace)


def adding(text: str) -> "Adding":
    return Adding(text)


class Adding:
    def __init__(self, text: str) -> None:
        self.text = text

    def __call__(self, plan: Plan) -> Plan:
        return added(plan, [(self.text, "pending")])


async def test_a_plan_is_found_again_when_memory_is_opened_again(tmp_path: Path) -> None:
    memory = await Memory.open(tmp_path / "m.sqlite")
    key = key_of((await begun(memory)).id)
    made = await memory.plans.change(key, adding("\ud800 é"))
    await memory.close()
    memory = await Memory.open(tmp_path / "m.sqlite")
    found = await memory.plans.load(key)
    assert [item.text for item in found.items] == ["\ufffd é"]
    assert found.next_id == made.next_id == 2
    await memory.close()


async def test_changes_at_the_same_time_do_not_get_lost(memory: Memory) -> None:
    key = key_of((await begun(memory)).id)
    await asyncio.gather(*(memory.plans.change(key, adding(str(n))) for n in range(30)))
    items = (await memory.plans.load(key)).items
    assert [item.id for item in items] == list(range(1, 31))
    assert {item.text for item in items} == set(map(str, range(30)))


async def test_a_change_that_fails_changes_nothing(memory: Memory) -> None:
    key = key_of((await begun(memory)).id)
    await memory.plans.change(key, adding("kept"))

    def fail(_plan: Plan) -> Plan:
        raise InvalidRequestError("no")

    with pytest.raises(InvalidRequestError):
        await memory.plans.change(key, fail)
    assert len((await memory.plans.load(key)).items) == 1


async def test_a_plan_goes_with_its_conversation_and_no_other(memory: Memory) -> None:
    one, other = [key_of((await begun(memory)).id) for _ in range(2)]
    outside = key_of(workspace="/w")
    for key in (one, other, outside):
        await memory.plans.change(key, adding("x"))
    await memory.conversations.delete(one.conversation_id, owner=ANNA)
    assert [len((await memory.plans.load(k)).items) for k in (one, other, outside)] == [0, 1, 1]
    with pytest.raises(NotFoundError, match="there is no conversation"):
        await memory.plans.change(one, adding("x"))


async def test_clearing_memory_takes_the_plans_of_the_owner_only(memory: Memory) -> None:
    keys = [key_of(workspace="/w"), key_of(owner=BEN, workspace="/w")]
    for key in keys:
        await memory.plans.change(key, adding("x"))
    await memory.conversations.clear(owner=ANNA)
    assert [len((await memory.plans.load(key)).items) for key in keys] == [0, 1]
