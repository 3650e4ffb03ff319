"""Functions in namespaces at /v1/responses: one name for the model, two parts for the client."""

from typing import Any

from clawd.providers.base import CallDelta, Finished, ToolCall
from tests.channels.http.openai.rig import USAGE, door
from tests.support.rows import each_row

PARAMETERS = {"type": "object", "properties": {"path": {"type": "string"}}}
READ = {"type": "function", "name": "read", "description": "Reads.", "parameters": PARAMETERS}
FILES = {"type": "namespace", "name": "mcp__files", "tools": [READ]}
NOTES = {"type": "namespace", "name": "mcp__notes", "tools": [READ, {"type": "custom"}]}
CALLS = (
    CallDelta(index=0, id="call_x", name="mcp__notes__read", arguments='{"path":"a"}'),
    CallDelta(index=1, id="call_y", name="plain", arguments="{}"),
    Finished(reason="tool_calls", usage=USAGE),
)
PLAIN = {"type": "function", "name": "plain"}


async def offered(*tools: Any) -> list[str]:
    async with door() as at:
        answer = await at.post("/v1/responses", {"input": "hello", "tools": list(tools)})
        assert answer.status == 200, answer
        return [tool.name for tool in at.asked.tools]


async def test_functions_of_namespaces_are_offered_beside_the_others() -> None:
    async with door() as at:
        await at.post("/v1/responses", {"input": "hello", "tools": [FILES, PLAIN, NOTES]})
        plain, files, notes = at.asked.tools
    assert (plain.name, files.name, notes.name) == ("plain", "mcp__files__read", "mcp__notes__read")
    assert (files.description, files.parameters) == ("Reads.", PARAMETERS)


async def test_a_call_comes_back_in_its_namespace_whole_and_streamed() -> None:
    body = {"input": "hello", "tools": [FILES, PLAIN, NOTES]}
    async with door(CALLS, CALLS) as at:
        whole = (await at.post("/v1/responses", body)).json()["output"]
        events = (await at.post("/v1/responses", {**body, "stream": True})).events()
    done = [value["item"] for name, value in events if name == "response.output_item.done"]
    added = [value["item"] for name, value in events if name == "response.output_item.added"]
    named = [("mcp__notes", "read"), (None, "plain")]
    for items in (whole, done, added):
        assert [(item.get("namespace"), item["name"]) for item in items] == named
    (last,) = [value for name, value in events if name == "response.completed"]
    assert last["response"]["output"] == done


async def test_a_history_names_the_functions_as_they_are_offered() -> None:
    items = [
        {"role": "user", "content": "read it"},
        {
            "type": "function_call",
            "call_id": "a",
            "name": "read",
            "namespace": "mcp__notes",
            "arguments": "{}",
        },
        {"type": "function_call_output", "call_id": "a", "output": "A"},
    ]
    async with door() as at:
        await at.post("/v1/responses", {"input": items, "tools": [NOTES]})
        _, said, result = at.asked.messages
        (spec,) = at.asked.tools
    assert said.tool_calls == (ToolCall(id="a", name="mcp__notes__read", arguments="{}"),)
    assert result.name == spec.name == "mcp__notes__read"


async def test_long_names_are_cut_and_stay_apart_and_taken_ones_are_left() -> None:
    long = {**FILES, "name": "n" * 80}
    longer = {**FILES, "name": "n" * 81}
    first, second = await offered(long, longer)
    assert first != second and len(first) == len(second) == 64
    assert await offered(long) == [first]
    taken = {"type": "function", "name": "mcp__files__read"}
    assert await offered(FILES, taken, FILES) == ["mcp__files__read"]


async def test_what_is_no_namespace_is_passed_over_and_what_is_no_function_refused() -> None:
    none = [
        {"type": "namespace"},
        {"type": "namespace", "name": 5, "tools": [READ]},
        {"type": "namespace", "name": "", "tools": [READ]},
        {"type": "namespace", "name": "x", "tools": "read"},
        {"type": "namespace", "name": "x", "tools": [{"type": "web_search"}]},
    ]
    assert await offered(PLAIN, *none) == ["plain"]


@each_row("wrong", ["read", {"type": "function"}, {**READ, "parameters": 5}])
async def test_a_wrong_function_in_a_namespace_is_named(wrong: Any) -> None:
    tool = {"type": "namespace", "name": "x", "tools": [READ, wrong]}
    async with door() as at:
        answer = await at.post("/v1/responses", {"input": "hello", "tools": [PLAIN, tool]})
    assert answer.status == 400
    assert answer.json()["error"]["param"].startswith("tools[1].tools[1]")
