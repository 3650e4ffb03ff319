"""The memory_search tool."""

from pathlib import Path

import msgspec

from clawd.memory.rows import NewMessage
from clawd.memory.store import Memory
from clawd.memory.tools import MAX_LIMIT, MemorySearch
from clawd.providers.base import Message
from clawd.security.principal import Principal, Role
from clawd.security.risk import Assessment
from clawd.tools.base import SHORT_LIMIT, ToolContext
from tests.memory.samples import ANNA, BEN, begun


def _context(uid: int = ANNA, role: Role = "user") -> ToolContext:
    return ToolContext(
        conversation_id="conv-now",
        call_id="call_0",
        principal=Principal(uid=uid, gid=uid, pid=1, role=role),
        workspace=Path("/w"),
    )


async def test_it_lists_conversation_date_role_and_text(memory: Memory) -> None:
    made = await begun(memory, "Aardvark adapter")
    (stored,) = await memory.messages.history(made.id, owner=ANNA)
    result = await MemorySearch(memory.search).invoke({"query": " dvar "}, _context())
    assert result.success
    assert result.output == f"{made.id} {stored.timestamp[:10]} user: Aardvark adapter"
    assert result.metadata == {"count": 1}


async def test_it_says_when_nothing_is_found(memory: Memory) -> None:
    result = await MemorySearch(memory.search).invoke({"query": "zebra"}, _context())
    assert (result.success, result.output) == (True, "Nothing found for 'zebra'.")


async def test_it_shows_nobody_elses_conversations_not_even_to_an_admin(memory: Memory) -> None:
    await begun(memory, "Aardvark adapter", owner=BEN)
    tool = MemorySearch(memory.search)
    for role in ("user", "admin"):
        result = await tool.invoke({"query": "aardvark"}, _context(role=role))
        assert result.output.startswith("Nothing found")
    assert "Aardvark" in (await tool.invoke({"query": "aardvark"}, _context(BEN))).output


async def test_it_keeps_the_limit(memory: Memory) -> None:
    for _ in range(4):
        await begun(memory, "walrus")
    result = await MemorySearch(memory.search).invoke({"query": "walrus", "limit": 2}, _context())
    assert len(result.output.splitlines()) == 2


async def test_an_empty_query_and_a_closed_memory_are_results(memory: Memory) -> None:
    tool = MemorySearch(memory.search)
    empty = await tool.invoke({"query": "  "}, _context())
    assert (empty.success, "empty" in empty.error) == (False, True)
    await memory.close()
    closed = await tool.invoke({"query": "x"}, _context())
    assert (closed.success, "not open" in closed.error) == (False, True)


def test_it_is_low_risk_and_described(memory: Memory) -> None:
    tool = MemorySearch(memory.search)
    assert tool.risk({"query": "x"}, _context()) == Assessment(
        risk="low", reason="reads earlier conversations"
    )
    assert len(tool.short) <= SHORT_LIMIT
    assert tool.parameters["required"] == ["query"]
    assert tool.parameters["properties"]["limit"]["maximum"] == MAX_LIMIT


async def test_r8_a_question_does_not_find_itself(memory: Memory) -> None:
    made = await begun(memory, "walrus and penguin")
    asked = [
        Message(role="assistant", content="walrus, noted"),
        Message(role="user", content="what did I say of the walrus?"),
        Message(role="assistant", content="I look for walrus."),
    ]
    await memory.messages.append(
        made.id, [NewMessage(message=m) for m in asked], owner=ANNA, turn_id="t"
    )
    tool = MemorySearch(memory.search)
    context = msgspec.structs.replace(_context(), conversation_id=made.id)
    inside = await tool.invoke({"query": "walrus"}, context)
    assert [line.partition(": ")[2] for line in inside.output.splitlines()] == [
        "walrus, noted",
        "walrus and penguin",
    ]
    elsewhere = await tool.invoke({"query": "walrus say"}, _context())
    assert "what did I say of the walrus?" in elsewhere.output
