"""MCP tools in running turns: what comes between two requests is in the next one."""

import asyncio
from typing import Any, cast

import msgspec

from clawd.config.schema import ChannelsSection, CliSection
from clawd.mcp.model import RemoteTool, ServerSettings
from clawd.providers.base import ChatRequest
from clawd.providers.ledger import estimate_tokens, tool_text
from clawd.tools.offer import ToolLookup
from clawd.tools.registry import Nowhere
from clawd.wire.events import Notice, ToolFinished, TurnFinished
from tests.mcp.conftest import Shop
from tests.mcp.remote import a_tool, text
from tests.runtime.inboxes import House, events_of
from tests.runtime.models import calls, says
from tests.support.dispatching import Bench, Probe

FILES = ServerSettings(
    alias="files", url="https://mcp.example/mcp", trusted=True, auto_approve=("files__*",)
)


class Rooms:
    """A house whose tools are a probe and those of a server."""

    def __init__(self, shop: Shop, bench: Bench) -> None:
        self.shop = shop
        self.bench = bench
        self.house: House

    async def open(self, *hops: Any, tools: tuple[RemoteTool, ...]) -> None:
        found = await self.shop.stock(FILES, *tools)
        self.house = House(self.bench, *hops, tools=[Probe(), *found])

    def refresh(self) -> None:
        """Do what the daemon does when a server tells of other tools."""
        registry = self.house.inbox.preparation.registry
        registry.replace([Probe(), *self.shop.tools()])

    async def finished(self) -> tuple[TurnFinished, list[Any]]:
        ticket = await self.house.send("hi")
        events = await events_of(ticket)
        return await ticket.finished(), events

    def requests(self) -> list[ChatRequest]:
        return self.house.model.requests


def names(request: ChatRequest) -> list[str]:
    return [tool.name for tool in request.tools]


def block(request: ChatRequest) -> bytes:
    return msgspec.json.encode((request.system, request.tools))


READ = ("files__read", '{"text":"a"}')


async def test_p11_what_is_not_there_is_said_in_the_turn_that_begins_without_it(
    shop: Shop, bench: Bench
) -> None:
    rooms = Rooms(shop, bench)
    await rooms.open(says("done"), tools=(a_tool("read"),))

    class Away(Nowhere):
        is_awaited = True

        async def arrived(self) -> tuple[str, ...]:
            return ("the tools of web are not there",)

    rooms.house.inbox.preparation.registry.elsewhere = Away()
    _, events = await rooms.finished()
    assert [each.text for each in events if isinstance(each, Notice)] == [
        "the tools of web are not there"
    ]


async def test_a_tool_that_comes_in_mid_turn_is_in_the_next_request_and_can_be_called(
    shop: Shop, bench: Bench
) -> None:
    rooms = Rooms(shop, bench)
    new = ("files__write", '{"text":"b"}')
    await rooms.open(calls(READ), calls(new), says("done"), tools=(a_tool("read", read_only=True),))

    async def act(tool: str, *_rest: Any) -> Any:
        if tool == "read":
            more = (a_tool("read", read_only=True), a_tool("write", read_only=True))
            shop.servers.offer("files", *more)
            rooms.refresh()
        return text(f"{tool} done")

    shop.servers.act = act
    _, events = await rooms.finished()
    first, second, third = rooms.requests()
    assert names(first) == ["files__read", "probe"]
    assert names(second) == names(third) == ["files__read", "files__write", "probe"]
    ended = [(each.tool, each.status) for each in events if isinstance(each, ToolFinished)]
    # The turn did not begin with the second tool, and yet it may be called: the first result, text
    # of strangers, makes it ask, and nobody is there.
    assert ended == [("files__read", "allowed"), ("files__write", "denied")]


async def test_the_beginning_of_requests_stays_the_same_while_the_tools_do(
    shop: Shop, bench: Bench
) -> None:
    rooms = Rooms(shop, bench)
    await rooms.open(calls(READ), says("done"), tools=(a_tool("read", read_only=True),))

    async def act(*_call: Any) -> Any:
        shop.servers.lose("files")  # away: its tools stay
        rooms.refresh()
        return text("done")

    shop.servers.act = act
    await rooms.finished()
    first, second = rooms.requests()
    assert block(first) == block(second)
    assert second.messages[: len(first.messages)] == first.messages


async def test_a_tool_that_goes_in_mid_turn_is_not_offered_any_more(
    shop: Shop, bench: Bench
) -> None:
    rooms = Rooms(shop, bench)
    gone = ("files__write", '{"text":"b"}')
    both = (a_tool("read", read_only=True), a_tool("write", read_only=True))
    await rooms.open(calls(READ), calls(gone), says("done"), tools=both)

    async def act(*_call: Any) -> Any:
        shop.servers.offer("files", a_tool("read", read_only=True))
        rooms.refresh()
        return text("done")

    shop.servers.act = act
    _, events = await rooms.finished()
    assert names(rooms.requests()[1]) == ["files__read", "probe"]
    (_, last) = [each for each in events if isinstance(each, ToolFinished)]
    assert last.status == "failed"
    assert "there is no tool 'files__write'" in last.output


async def test_what_an_agent_may_not_use_is_not_offered_in_mid_turn_either(
    shop: Shop, bench: Bench
) -> None:
    rooms = Rooms(shop, bench)
    await rooms.open(calls(READ), says("done"), tools=(a_tool("read", read_only=True),))
    house = rooms.house
    house.settings = msgspec.structs.replace(
        house.settings, channels=ChannelsSection(cli=CliSection(tools_allow=("files__read",)))
    )

    async def act(*_call: Any) -> Any:
        shop.servers.offer("files", a_tool("read", read_only=True), a_tool("write"))
        rooms.refresh()
        return text("done")

    shop.servers.act = act
    await rooms.finished()
    assert [names(request) for request in rooms.requests()] == [["files__read"], ["files__read"]]


async def test_the_ledger_of_a_turn_has_a_part_for_each_server(shop: Shop, bench: Bench) -> None:
    rooms = Rooms(shop, bench)
    await rooms.open(says("done"), tools=(a_tool("read"), a_tool("write")))
    finished, _ = await rooms.finished()
    parts = {part.name: part.tokens for part in finished.ledger.parts}
    assert list(parts)[:3] == ["system", "tools", "mcp:files"]


async def test_a_turn_waits_for_a_hanging_server_no_longer_than_its_limits(
    shop: Shop, bench: Bench
) -> None:
    impatient = msgspec.structs.replace(FILES, connect_timeout_s=0.01, call_timeout_s=0.01)
    (tool,) = await shop.stock(impatient, a_tool("read", read_only=True))
    cast("Any", tool).timeout_s = 0.05

    async def act(*_call: Any) -> Any:
        await asyncio.Event().wait()

    shop.servers.act = act
    outcome = await bench.called(tool)
    assert outcome.kind == "timed_out"
    assert (await bench.only_receipt()).status == "failed"


MANY = tuple(a_tool(f"t{i}", f"Does the thing number {i} with much care. " * 3) for i in range(500))


async def test_p11_five_hundred_tools_stay_within_the_budget_and_the_prefix_when_one_is_found(
    shop: Shop, bench: Bench
) -> None:
    rooms = Rooms(shop, bench)
    wanted = ("files__t499", '{"text":"a"}')
    look = ("tool_lookup", '{"name":"files__t499"}')
    found = await shop.stock(FILES, *MANY)
    rooms.house = House(
        bench, calls(look), calls(wanted), says("done"), tools=[ToolLookup(), *found]
    )
    await rooms.finished()
    first, second, _ = rooms.requests()
    tokens = [
        sum(estimate_tokens(tool_text(each)) for each in request.tools if each.group)
        for request in (first, second)
    ]
    assert max(tokens) <= shop.rules.budget_tokens + 100
    assert min(tokens) > shop.rules.budget_tokens / 2
    assert "files__t499" not in names(first)
    assert "tool_lookup finds them" in next(each.description for each in first.tools if each.group)
    assert (second.system, second.tools) == (first.system, first.tools)
    (carried,) = second.found
    assert carried.name == "files__t499"
    assert carried.parameters["required"] == ["text"]
    assert shop.servers.calls == [("files", "t499", {"text": "a"})]
