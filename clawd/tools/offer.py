"""What a session is offered, told on three channels from one catalogue.

The model's tools block, the list in the prompt and the MCP descriptors all come from `entries`:
the same names, the same lines, the same schemas. The mode decides how the tools are spelled: flat
(`split`), as `fs` and `web` (`unified`), or in both ways.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from clawd.providers.base import ToolSpec
from clawd.tools.base import SHORT_LIMIT, ManualPage, Tool, traits_of
from clawd.tools.facades import MEMBERS, Facade, ToolMode, facades_over
from clawd.tools.naming import ALIASES
from clawd.tools.schema import example_arguments
from clawd.tools.traits import Traits
from clawd.wire.safe_text import DESCRIPTION_LIMIT, NAME_LIMIT, single_line

WRITE_RULE = "Write files only when the user asked for it."
"""The policy about writing, as it is told to models: in the prompt, and to clients over MCP."""

MCP_SOURCE = "mcp:"
"""How the source of a tool of an MCP server begins; its alias follows."""


class McpAnnotations(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What an MCP client may know of a tool's effects (MCP, ToolAnnotations)."""

    read_only_hint: bool
    destructive_hint: bool
    idempotent_hint: bool
    open_world_hint: bool


class McpTool(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A tool as MCP's tools/list tells it."""

    name: str
    description: str
    input_schema: dict[str, Any]
    annotations: McpAnnotations


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the catalogue; `group` is the server that the tool is of, as `mcp:files`."""

    name: str
    short: str
    parameters: dict[str, Any]
    group: str = ""


class Offer:
    """The tools of one session.

    Args:
        tools: the flat tools that may be called.
        mode: how they are offered to a model.
    """

    def __init__(self, tools: Iterable[Tool], mode: ToolMode = "split") -> None:
        self.mode = mode
        self.flat = tuple(sorted(tools, key=lambda tool: tool.name))
        self.names = frozenset(tool.name for tool in self.flat)
        self.facades = facades_over(self.flat)
        self.shown = self._shown()
        self._shown_names = frozenset(tool.name for tool in self.shown)

    def of(self, tool: str) -> str:
        """Return how this session calls a tool: `file_write`, or `fs(action="write")`."""
        if tool in self._shown_names or tool not in MEMBERS or self.mode == "split":
            return tool
        facade, action = MEMBERS[tool]
        return f'{facade}(action="{action}")'

    def also_as(self, tool: str) -> str:
        """Return every way in which this session calls a tool, for people."""
        if self.mode == "both" and tool in MEMBERS:
            facade, action = MEMBERS[tool]
            return f'{tool}, {facade}(action="{action}")'
        return self.of(tool)

    def example(self, tool: Tool) -> tuple[str, dict[str, Any]]:
        """Return a call of a flat tool that works, as this session spells it: name, arguments."""
        arguments = example_of(tool)
        if tool.name in self._shown_names or tool.name not in MEMBERS:
            return tool.name, arguments
        facade, action = MEMBERS[tool.name]
        return facade, {"action": action, **arguments}

    def spelled(self, text: str, *, spared: str = "") -> str:
        """Return a text of ours with tools named as this session calls them.

        Args:
            text: a manual or an error.
            spared: what the text may quote; a name that stands in it is left as it is.
        """
        for name in sorted(_UNMISTAKABLE - self._shown_names, key=len, reverse=True):
            if name in text and name not in spared:
                text = re.sub(rf"(?<![\w./'\"-]){name}(?![\w/'\"-]|\.\w)", self.of(name), text)
        return text

    @property
    def hidden(self) -> tuple[Tool, ...]:
        """The tools that may be called and that no request carries until they are looked at."""
        return tuple(tool for tool in self.flat if tool.is_hidden)

    def looked_at(self, names: Sequence[str]) -> None:
        """Tell tools that their manuals were read: those that were hidden are wanted now."""
        for tool in self.hidden:
            if tool.name in names:
                tool.looked_at()

    def pages(self) -> tuple[ManualPage, ...]:
        """Return the manuals of what is offered, by name."""
        return tuple(
            ManualPage(
                name=tool.name,
                short=short_of(tool),
                description=self.spelled(tool.description or short_of(tool)),
                parameters=tool.parameters,
                example=example_of(tool),
                is_deferred=tool.offered_parameters is not None,
            )
            for tool in (*self.shown, *self.hidden)
        )

    def _shown(self) -> tuple[Tool, ...]:
        flat = tuple(tool for tool in self.flat if not tool.is_hidden)
        if self.mode == "split":
            return flat
        if self.mode == "unified":
            flat = tuple(tool for tool in flat if tool.name not in MEMBERS)
        return tuple(sorted((*flat, *self.facades), key=lambda tool: tool.name))


# No words of plain language, so that a text that holds one can only mean the tool.
_UNMISTAKABLE = frozenset(name for name in MEMBERS if "_" in name)


def entries(tools: Iterable[Tool]) -> tuple[Entry, ...]:
    """Return the one catalogue that all three channels tell."""
    return tuple(map(_entry, tools))


def _entry(tool: Tool) -> Entry:
    is_mcp, schema = tool.source.startswith(MCP_SOURCE), offered_parameters(tool)
    return Entry(
        name=tool.name,
        short=single_line(short_of(tool), DESCRIPTION_LIMIT),
        # Schemas of MCP servers are told as they are: they are counted against a budget.
        parameters=schema if is_mcp else _marked(schema),
        group=tool.source if is_mcp else "",
    )


def specs(tools: Iterable[Tool]) -> tuple[ToolSpec, ...]:
    """Return the tools as a model is offered them: the tools block."""
    return tuple(
        ToolSpec(
            name=entry.name,
            description=entry.short,
            parameters=entry.parameters,
            group=entry.group,
        )
        for entry in entries(tools)
    )


def inline_list(tools: Iterable[Tool]) -> tuple[str, ...]:
    """Return the tools as the prompt lists them, one a line."""
    return tuple(
        f"- {single_line(entry.name, NAME_LIMIT)}: {entry.short}" for entry in entries(tools)
    )


def descriptors(tools: Iterable[Tool]) -> tuple[McpTool, ...]:
    """Return the tools as an MCP server lists them."""
    offered = tuple(tools)
    return tuple(
        McpTool(
            name=entry.name,
            description=entry.short,
            input_schema=entry.parameters,
            annotations=_annotations(tool),
        )
        for entry, tool in zip(entries(offered), offered, strict=True)
    )


def stands_for(tools: Iterable[Tool]) -> frozenset[str]:
    """Return the flat tools that can be called through what is offered."""
    names: set[str] = set()
    for tool in tools:
        members = tool.members.values() if isinstance(tool, Facade) else (tool,)
        names.update(member.name for member in members)
    return frozenset(names)


def short_of(tool: Tool) -> str:
    """Return the tool's one line: its short text, else the start of its description."""
    if tool.short:
        return tool.short
    first = tool.description.strip().splitlines()[0] if tool.description.strip() else ""
    return first[:SHORT_LIMIT]


def offered_parameters(tool: Tool) -> dict[str, Any]:
    """Return the schema that requests carry."""
    whole = tool.offered_parameters is None
    return tool.parameters if whole else dict(tool.offered_parameters or {})


def _marked(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema whose properties say whether they are required: models overlook the list."""
    required = schema.get("required", ())
    properties = {
        name: {**rule, "description": _with_mark(rule, is_required=name in required)}
        if isinstance(rule, dict)
        else rule
        for name, rule in (schema.get("properties") or {}).items()
    }
    return {**schema, "properties": properties} if properties else schema


def _with_mark(rule: dict[str, Any], *, is_required: bool) -> str:
    mark = "required" if is_required else "optional"
    about = str(rule.get("description", "")).strip()
    if not about or re.search(r"\b(required|optional)\b", about, re.IGNORECASE):
        return about or mark
    return f"{about} ({mark})"


def aliases_of(tool: Tool) -> tuple[str, ...]:
    """Return the other names that lead to a tool, sorted."""
    words = [alias for alias, name in ALIASES.items() if name == tool.name]
    return tuple(sorted({*tool.aliases, *words}))


def example_of(tool: Tool) -> dict[str, Any]:
    """Return arguments of a call that works."""
    return dict(traits_of(tool).example) or example_arguments(tool.parameters)


def _annotations(tool: Tool) -> McpAnnotations:
    traits: Traits = traits_of(tool)
    looks = traits.effect == "looks"
    return McpAnnotations(
        read_only_hint=looks,
        destructive_hint=traits.effect not in {"looks", "adds"},
        idempotent_hint=traits.effect in {"looks", "replaces"},
        open_world_hint=tool.outward is True or (tool.outward is None and not looks),
    )
