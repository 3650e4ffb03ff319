"""Where conversations stood when a client saw them: found by digests, by their owner alone."""

import pytest

from clawd.memory import checkpoints
from clawd.memory.checkpoints import Point
from clawd.memory.rows import Conversation, NewMessage
from clawd.memory.store import Memory
from clawd.providers.base import Message

ADA, BOB = 1000, 1001


async def talked(memory: Memory, owner: int = ADA) -> str:
    made = await memory.conversations.create(Conversation(owner=owner, workspace="/w"))
    await say(memory, made.id, owner)
    return made.id


async def say(memory: Memory, conversation: str, owner: int = ADA) -> int:
    row = NewMessage(message=Message(role="user", content="hello"))
    (kept,) = await memory.messages.append(conversation, [row], owner=owner, turn_id="t")
    return kept.id


async def test_a_place_is_found_by_its_owner_and_knows_whether_more_came(memory: Memory) -> None:
    name = await talked(memory)
    await memory.points.add(name, owner=ADA, history="h1", system="s", sources=("web",))
    (found,) = await memory.points.find(("h0", "h1"), owner=ADA)
    assert found == Point(
        conversation_id=name,
        history="h1",
        system="s",
        message_id=found.message_id,
        is_end=True,
        sources=("web",),
    )
    assert await memory.points.find(("h1",), owner=BOB) == ()
    await say(memory, name)
    assert not (await memory.points.find(("h1",), owner=ADA))[0].is_end
    await memory.points.add(name, owner=ADA, history="h2", system="s")
    newest, oldest = await memory.points.find(("h1", "h2"), owner=ADA)
    assert (newest.history, newest.is_end, oldest.history, oldest.is_end) == (
        "h2", True, "h1", False,
    )  # fmt: skip


async def test_nothing_is_noted_for_another_or_of_what_is_not_there(memory: Memory) -> None:
    name = await talked(memory)
    await memory.points.add(name, owner=BOB, history="h", system="")
    await memory.points.add("conv-none", owner=BOB, history="h", system="")
    assert await memory.points.find(("h",), owner=BOB) == ()
    assert await memory.points.find((), owner=BOB) == ()


async def test_a_place_goes_with_its_conversation(memory: Memory) -> None:
    name = await talked(memory)
    await memory.points.add(name, owner=ADA, history="h", system="")
    await memory.conversations.delete(name, owner=ADA)
    assert await memory.points.find(("h",), owner=ADA) == ()


async def test_of_each_owner_the_oldest_places_go(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints, "MAX_POINTS", 3)
    theirs = await talked(memory, BOB)
    await memory.points.add(theirs, owner=BOB, history="h0", system="")
    name = await talked(memory)
    for number in range(5):
        await memory.points.add(name, owner=ADA, history=f"h{number}", system="")
    asked = [f"h{number}" for number in range(5)]
    found = await memory.points.find(asked, owner=ADA)
    assert [each.history for each in found] == ["h4", "h3", "h2"]
    assert len(await memory.points.find(asked, owner=BOB)) == 1
