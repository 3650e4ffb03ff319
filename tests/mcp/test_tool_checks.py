"""Whatever a server says of its tools, what is offered can be offered."""

import string
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from clawd.mcp.model import Quarantined, RemoteTool
from clawd.mcp.tool_checks import (
    MAX_PAGES,
    MAX_QUARANTINED,
    MAX_SCHEMA_BYTES,
    Listing,
    ToolPage,
    json_problem,
    object_schema,
    read_page,
    read_tool,
)

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(exclude_categories=()), max_size=10),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["type", "properties", "required", "a"]), inner)
    ),
    max_leaves=12,
)
TOOLS = st.fixed_dictionaries(
    {},
    optional={
        "name": JSON | st.text(string.ascii_letters, min_size=1, max_size=8),
        "inputSchema": JSON,
        "description": JSON,
        "title": JSON,
        "annotations": JSON | st.dictionaries(st.sampled_from(["readOnlyHint", "title"]), JSON),
    },
)


@given(st.lists(TOOLS | JSON, max_size=6), JSON)
def test_a_page_never_fails_and_what_it_gives_can_be_offered(items: list[Any], more: Any) -> None:
    page = read_page({"tools": items, "nextCursor": more})
    assert len(page.tools) + len(page.quarantined) == len(items)
    for tool in page.tools:
        assert tool.name.strip()
        assert tool.schema["type"] == "object"
        assert isinstance(tool.schema.get("properties", {}), dict)
        assert all(isinstance(each, str) for each in tool.schema.get("required", []))
        assert len(msgspec.json.encode(tool.schema)) <= MAX_SCHEMA_BYTES + 100
        for hint in (tool.read_only, tool.destructive, tool.idempotent, tool.open_world):
            assert hint in {None, True, False}
    msgspec.json.decode(msgspec.json.encode(page), type=ToolPage)


@given(JSON)
def test_an_answer_that_is_no_list_is_a_page_without_tools(result: Any) -> None:
    assert read_page(result).tools == ()


@given(JSON.filter(lambda each: not json_problem(each, 32)))
def test_a_schema_that_is_repaired_needs_no_further_repair(given_schema: Any) -> None:
    schema, _ = object_schema(given_schema)
    assert object_schema(schema) == (schema, [])


def test_a_good_tool_is_taken_as_it_is() -> None:
    schema = {"type": "object", "properties": {"a": {"$ref": "#/$defs/x"}}, "$defs": {"x": {}}}
    item = {
        "name": "read",
        "title": "Read",
        "description": "reads\na file",
        "inputSchema": schema,
        "annotations": {"readOnlyHint": True, "destructiveHint": False},
        "outputSchema": {"type": "string"},
        "_meta": {"x": 1},
    }
    assert read_tool(item) == RemoteTool(
        name="read",
        title="Read",
        description="reads\na file",
        schema=schema,
        read_only=True,
        destructive=False,
    )


def test_a_hint_that_is_no_boolean_is_none() -> None:
    tool = read_tool({"name": "a", "inputSchema": {}, "annotations": {"readOnlyHint": "yes"}})
    assert isinstance(tool, RemoteTool)
    assert tool.read_only is None


def test_what_moves_a_terminal_or_hides_is_not_in_a_description() -> None:
    tool = read_tool({"name": "a", "description": "a\x1b[2Jb\u202ec\u200bd\n\te\x00"})
    assert isinstance(tool, RemoteTool)
    assert tool.description == "a[2Jbcd\n\te"


def test_a_huge_description_is_cut_and_that_is_told() -> None:
    tool = read_tool({"name": "a", "inputSchema": {"type": "object"}, "description": "x" * 100_000})
    assert isinstance(tool, RemoteTool)
    assert (len(tool.description) < 10_000, tool.repaired) == (True, "its description was cut")


def test_numbers_that_nobody_can_write_are_quarantined() -> None:
    for number in (float("inf"), float("nan"), 1 << 70):
        bad = read_tool({"name": "a", "inputSchema": {"type": "object", "maximum": number}})
        assert isinstance(bad, Quarantined)


def page(*names: str, cursor: str = "") -> ToolPage:
    return ToolPage(tools=tuple(RemoteTool(name=name) for name in names), cursor=cursor)


def test_the_first_of_two_of_a_name_is_taken_across_pages() -> None:
    listing = Listing(10)
    assert listing.add(page("a", "b", cursor="next")) == "next"
    assert listing.add(page("b", "c")) == ""
    assert [tool.name for tool in listing.tools] == ["a", "b", "c"]
    assert [each.name for each in listing.quarantined] == ["b"]


def test_a_cursor_that_comes_again_ends_the_list() -> None:
    listing = Listing(10)
    assert listing.add(page("a", cursor="x")) == "x"
    assert listing.add(page("b", cursor="y")) == "y"
    assert listing.add(page("c", cursor="x")) == ""
    assert "leads back" in listing.quarantined[0].reason


def test_a_list_of_very_many_pages_ends() -> None:
    listing, cursor, count = Listing(10_000), "0", 0
    while cursor:
        count += 1
        cursor = listing.add(page(f"t{count}", cursor=str(count)))
    assert count == MAX_PAGES


def test_what_is_quarantine_is_bounded_and_counted() -> None:
    listing = Listing(10)
    bad = tuple(Quarantined(name="x", reason="y") for _ in range(500))
    listing.add(ToolPage(quarantined=bad))
    assert len(listing.quarantined) == MAX_QUARANTINED + 1
    assert listing.quarantined[-1].reason == "and 400 more"
