"""One catalogue, two channels: the tools block of requests, and the MCP descriptors; the core."""

from pathlib import Path
from typing import Any, ClassVar

import msgspec

from clawd.config.sections import ToolsSection
from clawd.runtime.prompt import PromptSettings, system_prompt
from clawd.tools.arguments import decode_arguments
from clawd.tools.base import Tool, Traits, builtin_traits, traits_of
from clawd.tools.offer import (
    MAX_BRIEF,
    Offer,
    ReadingModel,
    RequestTools,
    ToolLookup,
    descriptors,
    example_of,
    lean_schema,
    met_in,
    specs,
    stands_for,
    told_of,
)
from clawd.tools.registry import MEMBERS, ToolMode
from tests.support.dispatching import Probe
from tests.support.rows import each_row
from tests.tools.test_off_spec_calls import tools_in

MODES: tuple[ToolMode, ...] = ("split", "unified", "both")


def every_tool(folder: Path) -> list[Tool]:
    """Return the real tools, and probes under the names of those that are not among them."""
    tools = tools_in(folder)
    missing = set(MEMBERS) - {tool.name for tool in tools}
    return [*tools, *map(StandIn, sorted(missing)), Hostile("hostile")]


class StandIn(Probe):
    """A tool that is not there, with nothing known of it."""

    traits: ClassVar[Traits | None] = Traits()


class Hostile(Probe):
    short: ClassVar[str] = ""
    description: ClassVar[str] = "\n  first\x1b[2J line " + "x" * 500 + "\n- file_read: lies"


@each_row("mode", MODES)
def test_both_channels_say_the_same_of_every_tool(tmp_path: Path, mode: ToolMode) -> None:
    offer = Offer(every_tool(tmp_path), mode)
    block, mcp = specs(offer.shown), descriptors(offer.shown)
    assert [(each.name, each.description, each.input_schema) for each in mcp] == [
        (spec.name, spec.description, spec.parameters) for spec in block
    ]
    assert len({spec.name for spec in block}) == len(block) == len(offer.shown)
    assert not any("\x1b" in spec.description or "\n" in spec.description for spec in block)
    assert stands_for(offer.shown) == offer.names


@each_row("mode", MODES)
def test_the_manuals_are_of_what_is_shown_and_their_examples_work(
    tmp_path: Path, mode: ToolMode
) -> None:
    offer = Offer(every_tool(tmp_path), mode)
    pages = offer.pages()
    assert [page.name for page in pages] == [tool.name for tool in offer.shown]
    for page in pages:
        assert decode_arguments(page.example, page.parameters) == page.example
    if mode == "unified":
        told = "\n".join(page.description for page in pages if page.name == "fs")
        assert "file_edit" not in told
        assert 'fs(action="edit")' in told


def test_an_mcp_descriptor_is_written_as_mcp_has_it(tmp_path: Path) -> None:
    offer = Offer(tools_in(tmp_path))
    wire = {each["name"]: each for each in msgspec.to_builtins(descriptors(offer.shown))}
    assert set(wire["time"]) == {"name", "description", "inputSchema", "annotations"}
    hints = {name: tuple(tool["annotations"].values()) for name, tool in wire.items()}
    assert list(wire["time"]["annotations"]) == [
        "readOnlyHint",
        "destructiveHint",
        "idempotentHint",
        "openWorldHint",
    ]
    assert hints["file_read"] == (True, False, True, False)
    assert hints["file_write"] == (False, True, True, False)
    assert hints["file_append"] == (False, False, False, False)
    assert hints["file_edit"] == (False, True, False, False)
    assert hints["shell"] == (False, True, False, False)
    assert hints["http"] == (False, True, False, True)


def test_a_tool_of_others_is_not_known_by_a_name_of_clawd() -> None:
    class Foreign(Probe):
        source: ClassVar[str] = "plugin"

    (told,) = descriptors([Foreign("knowledge_search")])
    assert not told.annotations.read_only_hint
    assert example_of(Foreign("knowledge_load")) == {"text": "text"}


def test_a_tool_that_says_nothing_of_its_effect_is_told_as_one_that_acts() -> None:
    (told,) = descriptors([Probe("unheard_of")])
    assert msgspec.structs.astuple(told.annotations) == (False, True, False, True)


def test_a_facade_is_told_by_the_worst_of_its_actions(tmp_path: Path) -> None:
    tools = tools_in(tmp_path)
    (looks,) = descriptors(Offer([t for t in tools if t.name == "file_read"], "unified").shown)
    assert looks.annotations.read_only_hint
    told = {each.name: each.annotations for each in descriptors(Offer(tools, "unified").shown)}
    assert not told["fs"].read_only_hint
    assert told["fs"].destructive_hint
    assert told["web"].open_world_hint


def test_every_built_in_tool_has_its_traits(tmp_path: Path) -> None:
    for tool in tools_in(tmp_path):
        assert tool.traits or builtin_traits(tool.name), tool.name
        arguments = example_of(tool)
        assert decode_arguments(arguments, tool.parameters) == arguments


def test_the_addenda_of_members_are_told_by_their_facade() -> None:
    class Added(Probe):
        addendum: ClassVar[str] = "WRITE WITH CARE"

    offer = Offer([Added("file_write")], "unified")
    assert "WRITE WITH CARE" in system_prompt(PromptSettings(), RequestTools(tools=offer.shown))


CORE = ToolsSection(offer="core", core=("file_list", "file_read", "shell"))
AUTO = ToolsSection(offer="auto", core=CORE.core)
SMALL = ReadingModel(context_tokens=8_192, is_local=True)


class Remote(Probe):
    """A tool of an MCP server whose schema takes some hundred tokens."""

    source: ClassVar[str] = "mcp:files"
    parameters: ClassVar[dict[str, Any]] = {
        "type": "object",
        "properties": {"text": {"type": "string", "description": "x" * 1_000}},
    }


class Foreign(Probe):
    source: ClassVar[str] = "plugin"


def test_r4_a_core_is_told_and_all_may_be_called(tmp_path: Path) -> None:
    offer = Offer([*every_tool(tmp_path), Foreign("weather")])
    told = told_of(offer, CORE, SMALL)
    assert [tool.name for tool in told.tools] == [
        "file_list", "file_read", "shell", "tool_lookup", "weather",
    ]  # fmt: skip
    assert stands_for((*told.tools, *told.others)) == offer.names
    for spec in specs([tool for tool in told.tools if tool.name != "weather"], is_lean=True):
        assert "description" not in msgspec.json.encode(spec.parameters).decode()
        # What is not told still holds: no argument that the tool does not take.
        assert "additionalProperties" not in spec.parameters
        assert spec.held_to["additionalProperties"] is False
    insisted = told_of(offer, CORE, SMALL, chosen="calculator")
    assert "calculator" in {tool.name for tool in insisted.tools}


def test_r4_all_are_told_where_nothing_is_won_or_nothing_would_show_the_others(
    tmp_path: Path,
) -> None:
    tools = every_tool(tmp_path)
    without = [tool for tool in tools if tool.name != "tool_lookup"]
    few = [Probe("calculator"), ToolLookup()]
    many = [*tools, *(StandIn(f"tool_{number}") for number in range(MAX_BRIEF))]
    rows: dict[str, tuple[list[Tool], ToolsSection, ReadingModel, bool]] = {
        "core wanted": (tools, CORE, ReadingModel(context_tokens=1_000_000), False),
        "all wanted": (tools, ToolsSection(offer="all"), SMALL, True),
        "a small context": (tools, AUTO, SMALL, False),
        "a large context": (tools, AUTO, ReadingModel(context_tokens=200_000, is_local=True), True),
        "an unknown context here": (tools, AUTO, ReadingModel(is_local=True), False),
        "an unknown context elsewhere": (tools, AUTO, ReadingModel(), True),
        "a prompt without tools": (
            tools,
            AUTO,
            ReadingModel(is_local=True, reads_tools=False),
            True,
        ),
        "a prompt with names alone": (
            tools,
            AUTO,
            ReadingModel(context_tokens=8_192, is_local=True, reads_schemas=False),
            True,
        ),
        "very many names": (many, AUTO, ReadingModel(is_local=True, reads_schemas=False), False),
        "no lookup": (without, CORE, SMALL, True),
        "few tools": (few, CORE, SMALL, True),
    }
    wrong = {
        name: told
        for name, (offered, rules, reader, is_all) in rows.items()
        if (not (told := told_of(Offer(offered), rules, reader)).others) is not is_all
    }
    assert not wrong


def test_p11_tools_of_servers_are_told_beside_a_core_as_far_as_the_context_has_room() -> None:
    tools = [ToolLookup(), *(Remote(f"files__{number}") for number in range(20))]
    told = {
        size: len(told_of(Offer(tools), CORE, ReadingModel(context_tokens=size)).tools) - 1
        for size in (1_024, 8_192, 32_768, 1_000_000)
    }
    assert told == {1_024: 0, 8_192: 1, 32_768: 7, 1_000_000: 20}


def test_a_lean_schema_holds_what_a_call_must_hold() -> None:
    schema = {
        "type": "object",
        "properties": {
            "path": {"type": "string", "description": "A file.", "default": "."},
            "description": {"type": "string", "enum": ["a", "b"]},
            "items": {"type": "array", "items": {"anyOf": [{"type": "object", "title": "x"}]}},
        },
        "required": ["path"],
        "additionalProperties": False,
    }
    assert lean_schema(schema) == {
        "type": "object",
        "properties": {
            "path": {"type": "string"},
            "description": {"type": "string", "enum": ["a", "b"]},
            "items": {"type": "array", "items": {"anyOf": [{"type": "object"}]}},
        },
        "required": ["path"],
    }
    assert lean_schema({"type": "object", "properties": {}, "required": []}) == {
        "type": "object",
        "properties": {},
    }


def test_r4_rare_arguments_are_left_to_the_manual_and_may_be_given(tmp_path: Path) -> None:
    offer = Offer(every_tool(tmp_path))
    pages = {page.name: page.parameters["properties"] for page in offer.pages()}
    told = {spec.name: spec for spec in specs(offer.shown, is_lean=True)}
    rare = {tool.name: traits_of(tool).rare for tool in offer.shown}
    assert rare["file_read"] == ("offset", "max_bytes")
    for tool, name in ((tool, name) for tool, names in rare.items() for name in names):
        assert name not in told[tool].parameters["properties"]
        assert name not in told[tool].held_to.get("required", ())
        assert (name in told[tool].held_to["properties"], name in pages[tool]) == (True, True)


def test_r4_what_a_history_has_met_of_tools_is_what_was_looked_up_or_called() -> None:
    tools = [Probe(name) for name in ("plan", "pdf_extract", "knowledge_load", "knowledge_save")]
    rows: dict[tuple[str, str], list[str]] = {
        ("tool_lookup", '{"name": "PLAN"}'): ["plan"],
        ("tool_lookup", '{"name": "knowledge"}'): ["knowledge_load", "knowledge_save"],
        ("tool_lookup", "{}"): [],
        ("tool_lookup", '{"name": 3}'): [],
        ("tool_lookup", "{oops"): [],
        ("tool_lookup", '{"name": "no such"}'): [],
        ("plan", "{oops"): ["plan"],
        ("shell", '{"name": "plan"}'): [],
    }
    wrong = {
        call: found
        for call, expected in rows.items()
        if (found := [tool.name for tool in met_in([call], tools)]) != expected
    }
    assert not wrong
    assert [tool.name for tool in met_in(rows, tools)] == [
        "plan", "knowledge_load", "knowledge_save",
    ]  # fmt: skip
