"""What of MCP tools requests carry: all of it, or names and lines where schemas are too much."""

import asyncio
from typing import Any

import msgspec

from clawd.mcp.catalogue import CatalogueRules
from clawd.mcp.model import RemoteTool, ServerSettings
from clawd.mcp.server import INSTRUCTIONS
from clawd.mcp.tools import McpTool
from clawd.providers.base import ChatRequest
from clawd.providers.ledger import estimated, tokens_by_kind
from clawd.runtime.prompt import PromptSettings, system_prompt
from clawd.tools.offer import WRITE_RULE, Offer, RequestTools, ToolLookup, descriptors, specs
from tests.mcp.conftest import Shop
from tests.mcp.remote import a_tool
from tests.support.dispatching import Bench, Probe, request

FILES = ServerSettings(alias="files", command=("server",), auto_approve=("files__*",))
OPEN = {"type": "object", "additionalProperties": True}


def large(name: str, fields: int = 40) -> RemoteTool:
    properties = {
        f"field_{number}": {"type": "string", "description": f"Field {number} of {name}."}
        for number in range(fields)
    }
    schema = {"type": "object", "properties": properties, "required": ["field_0"]}
    return a_tool(name, schema=schema)


async def stocked(shop: Shop, budget: int, *tools: RemoteTool) -> tuple[McpTool, ...]:
    await shop.stock(FILES, *tools)
    shop.rules = CatalogueRules(servers={"files": FILES}, budget_tokens=budget)
    return shop.tools()


async def test_all_schemas_are_carried_while_they_fit(shop: Shop) -> None:
    tools = await stocked(shop, 4_000, large("write"), a_tool("read"))
    assert [spec.parameters for spec in specs(tools)] == [tool.parameters for tool in tools]
    assert not any("tool_lookup" in tool.short for tool in tools)


async def test_a_schema_beyond_the_budget_is_left_to_tool_lookup(shop: Shop) -> None:
    tools = await stocked(shop, 200, large("write"), a_tool("read"))
    write, read = specs(tools)
    assert write.parameters == OPEN
    assert write.description == "Does write. (its arguments: tool_lookup)"
    assert read.parameters == tools[1].parameters
    cost = shop.maker.catalogue(shop.rules).tokens["files"]
    assert cost <= 200


async def test_both_channels_say_the_same_of_deferred_tools(shop: Shop) -> None:
    offer = Offer([*await stocked(shop, 0, large("write"), a_tool("read")), Probe()])
    block = specs(offer.shown)
    assert [
        (each.name, each.description, each.input_schema) for each in descriptors(offer.shown)
    ] == [(spec.name, spec.description, spec.parameters) for spec in block]


async def test_tool_lookup_shows_the_whole_schema_of_a_deferred_tool(
    shop: Shop, bench: Bench
) -> None:
    tools = await stocked(shop, 0, large("write"))
    dispatcher = bench.dispatcher([*tools, ToolLookup()])
    call = request("tool_lookup", '{"name":"files__write"}')
    outcome = await dispatcher.call(call, bench.scope())
    (line,) = [line for line in outcome.text.splitlines() if line.startswith("schema: ")]
    assert msgspec.json.decode(line.removeprefix("schema: ")) == tools[0].parameters


async def test_arguments_of_a_deferred_tool_are_held_to_the_whole_schema(
    shop: Shop, bench: Bench
) -> None:
    (tool,) = await stocked(shop, 0, large("write", fields=2))
    dispatcher = bench.dispatcher([tool], sandbox_level="landlock")
    refused = await dispatcher.call(request("files__write", '{"field_1":"x"}'), bench.scope())
    assert refused.kind == "bad_arguments"
    assert "missing argument `field_0`" in refused.text
    schema = msgspec.json.decode(refused.text.partition("The schema of the arguments: ")[2])
    assert schema == tool.parameters
    assert shop.servers.calls == []
    call = request("files__write", '{"field_0":"x"}')
    assert (await dispatcher.call(call, bench.scope())).status == "allowed"


async def test_the_refusal_of_a_tool_that_is_offered_whole_shows_no_schema(
    shop: Shop, bench: Bench
) -> None:
    (tool,) = await stocked(shop, 4_000, large("write", fields=2))
    refused = await bench.called(tool, "{}", sandbox_level="landlock")
    assert "The schema" not in refused.text


async def test_the_same_tools_give_the_same_block_whatever_their_order(shop: Shop) -> None:
    tools = [large("write"), large("move", 30), a_tool("read")]
    first = specs(Offer(await stocked(shop, 700, *tools)).shown)
    second = specs(Offer(await stocked(shop, 700, *reversed(tools))).shown)
    assert msgspec.json.encode(first) == msgspec.json.encode(second)


async def test_tokens_are_counted_by_server(shop: Shop) -> None:
    tools: list[Any] = [*await stocked(shop, 4_000, a_tool("read"), a_tool("write")), Probe()]
    request_ = ChatRequest(system="s", messages=(), tools=specs(tools), model="m")
    counted = tokens_by_kind(estimated(request_))
    assert list(counted) == ["system", "tools", "mcp:files"]
    assert counted["mcp:files"] == shop.maker.catalogue(shop.rules).tokens["files"]


async def test_the_names_of_a_tool_lead_to_it_and_no_other_spelling_does(
    shop: Shop, bench: Bench
) -> None:
    tools = await stocked(shop, 4_000, a_tool("read_file"), a_tool("get.user"))
    dispatcher = bench.dispatcher(tools, sandbox_level="landlock")
    for name, own in (
        ("mcp__files__read_file", "read_file"),
        ("functions.files__read_file", "read_file"),
        ("files__get_user", "get.user"),
    ):
        shop.servers.calls.clear()
        outcome = await dispatcher.call(request(name), bench.scope())
        assert outcome.status == "allowed", name
        assert [call[1] for call in shop.servers.calls] == [own]
    shop.servers.calls.clear()
    for name in ("files__read_all_of_it", "files__readFile", "files.read_file", "files__read_flie"):
        unknown = await dispatcher.call(request(name), bench.scope())
        assert unknown.kind == "unknown_tool", name
        assert "files__read_file" in unknown.text
    assert shop.servers.calls == []


async def test_a_running_call_goes_on_when_the_server_takes_its_tool_away(
    shop: Shop, bench: Bench
) -> None:
    (tool,) = await stocked(shop, 4_000, a_tool("read"))
    dispatcher = bench.dispatcher([tool], sandbox_level="landlock")
    begun, let_go = asyncio.Event(), asyncio.Event()
    plain = shop.servers.act

    async def act(*arguments: Any) -> Any:
        begun.set()
        await let_go.wait()
        return await plain(*arguments)

    shop.servers.act = act
    task = asyncio.create_task(dispatcher.call(request("files__read"), bench.scope()))
    async with asyncio.timeout(60):
        await begun.wait()
        dispatcher.registry.replace([])
        let_go.set()
        assert (await task).status == "allowed"


def test_m3_the_rule_about_writing_is_told_to_mcp_clients_and_in_the_prompt() -> None:
    assert WRITE_RULE in INSTRUCTIONS
    prompt = system_prompt(PromptSettings(), RequestTools(tools=(Probe("file_write"),)))
    assert WRITE_RULE in prompt
