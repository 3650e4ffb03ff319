"""plan: what is kept, what is told, and how kindly a call is read."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from clawd.memory.rows import Conversation
from clawd.memory.store import Memory
from clawd.security.principal import Principal
from clawd.tools.arguments import decode_arguments
from clawd.tools.base import ToolContext, ToolResult
from clawd.tools.plans import MARKS, MAX_OPEN, PlanKey, status_of
from clawd.wire.events import Event, PlanChanged
from tests.support.rows import each_row
from tests.tools.builtin.conftest import Bench


class Desk:
    """The plan of one conversation."""

    def __init__(self, bench: Bench, memory: Memory, conversation_id: str) -> None:
        self.bench = bench
        self.memory = memory
        self.events: list[Event] = []
        bench.changes["plans"] = memory.plans
        self.context = msgspec.structs.replace(
            bench.context(), conversation_id=conversation_id, emit=self.events.append
        )

    async def call(self, context: ToolContext | None = None, **given: Any) -> ToolResult:
        tool = self.bench.tool("plan")
        decoded = decode_arguments(json.dumps(given), tool.parameters)
        return await tool.invoke(decoded, context or self.context)

    async def told(self, **given: Any) -> str:
        result = await self.call(**given)
        return result.output if result.success else f"error: {result.error}"

    async def plan(self) -> str:
        return await self.told(action="list")


@pytest.fixture
async def desk(bench: Bench, tmp_path: Path) -> AsyncIterator[Desk]:
    memory = await Memory.open(tmp_path / "memory.sqlite")
    made = await memory.conversations.create(Conversation(owner=1000, workspace="/w"))
    yield Desk(bench, memory, made.id)
    await memory.close()


@pytest.fixture
async def three(desk: Desk) -> Desk:
    await desk.call(action="add", items=["read", "write the report", "send it"])
    desk.events.clear()
    return desk


async def test_items_are_added_changed_deleted_and_listed(desk: Desk) -> None:
    assert await desk.plan() == "the plan is empty"
    assert await desk.told(action="add", text="read the notes") == "- [ ] 1. read the notes"
    added = await desk.told(action="add", items=[{"text": "write"}, {"text": "send"}])
    assert added == "- [ ] 2. write\n- [ ] 3. send"
    assert await desk.told(action="update", id="2", status="working") == (
        "- [ ] 1. read the notes\n- [~] 2. write\n- [ ] 3. send"
    )
    changes = [{"id": 1, "status": "done"}, {"id": "3", "status": "error", "text": "send it"}]
    await desk.told(action="update", items=changes)
    assert await desk.told(action="delete", id="2") == "- [-] 2. write"
    assert await desk.plan() == "- [x] 1. read the notes\n- [!] 3. send it"


async def test_each_call_that_changes_tells_it_once_and_a_list_does_not(three: Desk) -> None:
    await three.plan()
    assert three.events == []
    await three.call(action="update", items=[{"id": "1", "status": "done"}, {"id": "2",
                                             "status": "working"}])  # fmt: skip
    await three.call(action="delete", id="1")
    assert three.events == [
        PlanChanged(markdown="- [x] 1. read\n- [~] 2. write the report\n- [ ] 3. send it"),
        PlanChanged(markdown="- [-] 1. read\n- [~] 2. write the report\n- [ ] 3. send it"),
    ]
    await three.call(action="update", id="9", status="done")
    assert len(three.events) == 2


async def test_ids_are_never_given_again_and_a_status_brings_an_item_back(three: Desk) -> None:
    assert await three.told(action="delete", id="all") == (
        "- [-] 1. read\n- [-] 2. write the report\n- [-] 3. send it"
    )
    assert await three.plan() == "the plan is empty"
    assert await three.told(action="add", text="anew") == "- [ ] 4. anew"
    assert "a status brings it back" in await three.told(action="update", id="2", text="x")
    await three.told(action="update", id="2", status="pending")
    assert await three.plan() == "- [ ] 2. write the report\n- [ ] 4. anew"


@each_row(
    ("given", "plan"),
    [
        ({"action": "Update", "id": 2, "status": "in_progress"}, "[ ] [~] [ ]"),
        ({"action": "update", "id": "#2", "status": "Completed"}, "[ ] [x] [ ]"),
        ({"action": "update", "id": "item 2.", "status": "[x]"}, "[ ] [x] [ ]"),
        ({"action": "update", "text": "write the report", "status": "done"}, "[ ] [x] [ ]"),
        ({"action": "update", "id": "Write the Report", "status": "done"}, "[ ] [x] [ ]"),
        ({"action": "update", "text": "write the rapport", "status": "failed"}, "[ ] [!] [ ]"),
        ({"action": "update", "items": '[{"id": 2, "status": "doing"}]'}, "[ ] [~] [ ]"),
        ({"action": "update", "id": "1", "status": "done",
          "items": [{"id": "3", "status": "done"}]}, "[ ] [ ] [x]"),
        ({"action": "update", "id": "all", "status": "done"}, "[x] [x] [x]"),
        ({"action": "update", "id": "3", "status": "cancelled"}, "[ ] [ ]"),
        ({"action": "delete", "text": "send it"}, "[ ] [ ]"),
        ({"action": "delete", "items": ["1", "send it"]}, "[ ]"),
        ({"action": "add", "items": "one more"}, "[ ] [ ] [ ] [ ]"),
        ({"action": "add", "items": {"text": "one", "status": "done"}}, "[ ] [ ] [ ] [x]"),
    ],
 fresh=["three"])  # fmt: skip
async def test_what_a_small_model_writes_is_read_kindly(
    three: Desk, given: dict[str, Any], plan: str
) -> None:
    assert (await three.call(**given)).success
    assert " ".join(line[2:5] for line in (await three.plan()).splitlines()) == plan


async def test_the_only_item_needs_no_id(desk: Desk) -> None:
    await desk.call(action="add", text="a")
    assert await desk.told(action="update", status="done") == "- [x] 1. a"
    assert await desk.told(action="update", text="another") == "- [x] 1. another"
    assert "no item 'quite different'" in await desk.told(action="delete", text="quite different")
    told = await desk.told(action="update", text="quite different", status="working")
    assert "no item 'quite different'" in told
    assert await desk.told(action="delete") == "- [-] 1. another"


@each_row(
    ("given", "words"),
    [
        ({"action": "add"}, "say what to add"),
        ({"action": "add", "text": " \n "}, "an item needs a text"),
        ({"action": "add", "items": [{"text": "x"}] * 21}, "at most 20 items, this one has 21"),
        ({"action": "add", "text": "x", "status": "purple"}, "must be pending, working, done"),
        ({"action": "update"}, "say which item"),
        ({"action": "update", "status": "done"}, "say which item: its id"),
        ({"action": "update", "id": "1"}, "say what is new"),
        ({"action": "update", "id": "7", "status": "done"}, "there is no item '7'"),
        ({"action": "update", "id": "all", "text": "x"}, "cannot have the same text"),
        ({"action": "update", "items": [{"id": "1", "status": "done"}, {"id": "8"}]}, "item '8'"),
        ({"action": "delete"}, "say which item: its id"),
        ({"action": "delete", "id": "0"}, "there is no item '0'"),
    ],
    fresh=["three"],
)
async def test_what_stays_in_doubt_is_refused_with_an_example_and_changes_nothing(
    three: Desk, given: dict[str, Any], words: str
) -> None:
    before = await three.plan()
    result = await three.call(**given)
    assert not result.success
    assert words in result.error
    assert result.output == before
    example = json.loads(result.error.split("look like this: ")[1])
    assert (await three.plan(), three.events) == (before, [])
    assert (await three.call(**example)).success


async def test_no_name_of_an_item_takes_long_to_look_for(three: Desk) -> None:
    # With a pattern that tries again from every blank this takes days, and memory waits for it.
    async with asyncio.timeout(60):
        given = {"id": "x" + " " * 1_000_000 + "x", "status": "done"}
        items = [given, {**given, "id": " " * 1_000_000 + "x"}]
        for each in items:
            assert "there is no item" in await three.told(action="update", items=[each])
    assert await three.told(action="update", id=f"{' ' * 90}Write the REPORT\n", status="done")
    assert "[x] 2." in await three.plan()


async def test_long_texts_are_found_whole_only(desk: Desk) -> None:
    long = "a b c d " * 30
    await desk.call(action="add", items=[f"{long}{number}" for number in range(3)])
    assert "no item" in await desk.told(action="update", id=long, status="done")
    assert "[x] 2." in await desk.told(action="update", id=f"{long}1".upper(), status="done")


async def test_a_text_stays_on_one_line_and_a_plan_is_bounded(desk: Desk) -> None:
    told = await desk.told(action="add", text="a\n- [x] 9. b\x1b[2J" + "x" * 900)
    assert told.startswith("- [ ] 1. a - [x] 9. b [2J")
    assert len(told) < 520
    for _ in range(9):
        await desk.call(action="add", items=["x"] * 20)
    assert "at most 200 items" in await desk.told(action="add", items=["x"] * 20)
    assert len((await desk.plan()).splitlines()) == 181
    for _ in range(40):
        await desk.call(action="delete", id="all")
        await desk.call(action="add", items=["x"] * 20)
    kept = await desk.memory.plans.load(
        PlanKey(conversation_id=desk.context.conversation_id, owner=1000, workspace="")
    )
    assert len(kept.items) <= 500 and MAX_OPEN == 200
    assert (await desk.plan()).splitlines()[-1] == "- [ ] 981. x"


async def test_outside_of_a_conversation_a_plan_is_of_the_owner_and_the_workspace(
    three: Desk, tmp_path: Path
) -> None:
    outside = msgspec.structs.replace(three.context, conversation_id="")
    assert (await three.call(outside, action="add", text="mine")).output == "- [ ] 1. mine"
    other = Principal(uid=1001, gid=1001, pid=2)
    for context in (
        msgspec.structs.replace(outside, principal=other),
        msgspec.structs.replace(outside, workspace=tmp_path),
    ):
        assert (await three.call(context, action="list")).output == "the plan is empty"
    assert (await three.call(outside, action="list")).output == "- [ ] 1. mine"
    assert "mine" not in await three.plan()


def test_every_mark_and_word_means_a_status() -> None:
    for status, mark in MARKS.items():
        assert status_of(mark) == status_of(status.upper()) == status
    assert status_of("in-progress") == "working"
    assert status_of("to do") == "pending"


async def test_where_no_plan_is_kept_it_says_so(bench: Bench) -> None:
    assert (await bench.call("plan", action="list")).error == "no plan is kept here"
    assert bench.risk("plan", action="delete", id="all").risk == "low"
