"""What a session is offered, what of it requests carry, and how the rest is looked up.

The model's tools block and the MCP descriptors come from `entries`: the same names, the same lines,
the same schemas. The mode decides how the tools are spelled: flat (`split`), as `fs` and `web`
(`unified`), or in both ways. All that is offered may be called; what a request carries of it is
`told`: everything, or a core whose schemas are short, and the names of the others.
"""

import re
from collections.abc import Collection, Iterable, Sequence
from functools import cached_property
from typing import Any, ClassVar, Protocol, TypeVar

import msgspec
from typing_extensions import override

from clawd.config.sections import ToolsSection
from clawd.providers.base import ToolSpec
from clawd.providers.ledger import estimate_tokens, tool_text
from clawd.security.risk import Assessment
from clawd.tools import base
from clawd.tools.arguments import example_arguments
from clawd.tools.naming import ALIASES, nearest
from clawd.tools.registry import MEMBERS, Facade, Registry, ToolMode, facades_over
from clawd.wire.safe_text import DESCRIPTION_LIMIT, NAME_LIMIT, paragraph, single_line

WRITE_RULE = "Write files only when the user asked for it."
"""The policy about writing, as it is told to models: in the prompt, and to clients over MCP."""

MCP_SOURCE = "mcp:"
"""How the source of a tool of an MCP server begins; its alias follows."""

LOOKUP = "tool_lookup"
"""The tool that shows how the others are called; where it is not offered, all are told."""


ALL_SHARE = 0.05
"""All tools are told where their schemas take at most this share of the context."""
SMALL_TOKENS = 800
"""Built-in tools that take no more than that are told, in the core or not."""
SERVER_SHARE = 1 / 16
"""Tools of MCP servers may take this share of the context beside a core."""
UNKNOWN_CONTEXT = 8_192
MAX_BRIEF = 48
"""So many tools are all told to a model that reads no more of them than some words each."""
_MAX_NAMED = 64
_KEPT_OFFERS = 64


class McpAnnotations(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What an MCP client may know of a tool's effects (MCP, ToolAnnotations)."""

    read_only_hint: bool
    destructive_hint: bool
    idempotent_hint: bool
    open_world_hint: bool


class ListedTool(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A tool as MCP's tools/list tells it."""

    name: str
    description: str
    input_schema: dict[str, Any]
    annotations: McpAnnotations


class OfferEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the catalogue; `group` is the server that the tool is of, as `mcp:files`."""

    name: str
    short: str
    parameters: dict[str, Any]
    group: str = ""


class ReadingModel(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of the model that will read a request.

    Attributes:
        context_tokens: the size of its context, 0 for unknown.
        is_local: it runs here, where every token of a prompt costs the person time.
        reads_tools: its prompt holds the tools of a request at all.
        reads_schemas: it holds more of them than what they and their arguments are called.
    """

    context_tokens: int = 0
    is_local: bool = False
    reads_tools: bool = True
    reads_schemas: bool = True


class RequestTools(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """What requests carry of an offer.

    Attributes:
        tools: those with a schema.
        others: those that are left to `tool_lookup`, by name; they may be called all the same.
        hidden: those that are not even named, and may be called once they are found.
        is_lean: the schemas say no more than a call needs, and manuals say the rest.
    """

    tools: tuple[base.Tool, ...]
    others: tuple[base.Tool, ...] = ()
    hidden: tuple[base.Tool, ...] = ()
    is_lean: bool = False

    @cached_property
    def specs(self) -> tuple[ToolSpec, ...]:
        """Those with a schema, as a model is offered them."""
        return specs(self.tools, is_lean=self.is_lean)

    @cached_property
    def found_specs(self) -> dict[str, ToolSpec]:
        """The others and the hidden ones, as a model is offered them once it found them."""
        return {spec.name: spec for spec in specs((*self.others, *self.hidden))}


class Offer:
    """The tools of one session; a caller with many requests keeps it.

    Args:
        tools: the flat tools that may be called.
        mode: how they are offered to a model.
    """

    def __init__(self, tools: Iterable[base.Tool], mode: ToolMode = "split") -> None:
        self.mode = mode
        self.flat = tuple(sorted(tools, key=lambda tool: tool.name))
        self.names = frozenset(tool.name for tool in self.flat)
        self.facades = facades_over(self.flat)
        self.shown = self._shown()
        self._shown_names = frozenset(tool.name for tool in self.shown)
        self.told: dict[object, RequestTools] = {}

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

    def example(self, tool: base.Tool) -> tuple[str, dict[str, Any]]:
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
    def hidden(self) -> tuple[base.Tool, ...]:
        """The tools that may be called and that no request carries until they are looked at."""
        return tuple(tool for tool in self.flat if tool.is_hidden)

    def pages(self) -> tuple[base.ManualPage, ...]:
        """Return the manuals of what is offered, by name."""
        return tuple(
            base.ManualPage(
                name=tool.name,
                short=short_of(tool),
                description=self.spelled(tool.description or short_of(tool)),
                parameters=tool.parameters,
                example=example_of(tool),
                is_deferred=tool.offered_parameters is not None,
            )
            for tool in (*self.shown, *self.hidden)
        )

    def _shown(self) -> tuple[base.Tool, ...]:
        flat = tuple(tool for tool in self.flat if not tool.is_hidden)
        if self.mode == "split":
            return flat
        if self.mode == "unified":
            flat = tuple(tool for tool in flat if tool.name not in MEMBERS)
        return tuple(sorted((*flat, *self.facades), key=lambda tool: tool.name))


class Offers:
    """What sessions are offered of the tools there are; kept until the tools change.

    Args:
        registry: the tools.
    """

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._kept: dict[object, Offer] = {}
        registry.on_change(self._kept.clear)

    def matching(self, wanted: tuple[tuple[str, ...], ...], mode: ToolMode) -> Offer:
        """Return the tools whose name matches a pattern of each of `wanted`."""
        if (offer := self._kept.get((wanted, mode))) is not None:
            return offer
        first, *others = (self._registry.allowed(each) for each in wanted)
        tools = (tool for tool in first if all(tool in each for each in others))
        return self._keep((wanted, mode), Offer(tools, mode))

    def named(self, names: frozenset[str] | None, mode: ToolMode) -> Offer:
        """Return the tools of these names; None stands for all."""
        if (offer := self._kept.get((names, mode))) is not None:
            return offer
        tools = (tool for tool in self._registry.all() if names is None or tool.name in names)
        return self._keep((names, mode), Offer(tools, mode))

    def _keep(self, key: object, offer: Offer) -> Offer:
        if len(self._kept) >= _KEPT_OFFERS:
            self._kept.clear()
        return self._kept.setdefault(key, offer)


def told_of(
    offer: Offer, rules: ToolsSection, reader: ReadingModel, *, chosen: str = ""
) -> RequestTools:
    """Return what requests carry of an offer.

    A core is told where the operator wants it so, or else where the schemas of all would take more
    than a small share of the context; never where nothing shows how the others are called. A model
    that reads no schemas is told all, but for the arguments that are rarely given.

    Args:
        offer: all that may be called.
        rules: of the operator.
        reader: of the request.
        chosen: a tool that the request insists on.
    """
    key = (rules.offer, rules.core, reader, chosen)
    if key not in offer.told:
        offer.told[key] = _told(offer, rules, reader, chosen)
    return offer.told[key]


def _told(offer: Offer, rules: ToolsSection, reader: ReadingModel, chosen: str) -> RequestTools:
    if LOOKUP not in offer.names or not _wants_core(offer, rules, reader):
        return RequestTools(
            tools=offer.shown,
            hidden=offer.hidden,
            is_lean=reader.reads_tools and not reader.reads_schemas,
        )
    own = [tool for tool in offer.shown if base.is_builtin(tool)]
    is_small = _tokens(own, is_lean=True) <= SMALL_TOKENS
    room = int((reader.context_tokens or UNKNOWN_CONTEXT) * SERVER_SHARE)
    tools: list[base.Tool] = []
    others: list[base.Tool] = []
    for tool in offer.shown:
        if tool.source.startswith(MCP_SOURCE):
            cost = _tokens([tool], is_lean=True)
            is_told = cost <= room
            room -= cost if is_told else 0
        else:
            is_own = base.is_builtin(tool) and not isinstance(tool, Facade)
            is_told = is_small or not is_own or tool.name in {LOOKUP, *rules.core}
        (tools if is_told or tool.name == chosen else others).append(tool)
    return RequestTools(tools=tuple(tools), others=tuple(others), hidden=offer.hidden, is_lean=True)


def _wants_core(offer: Offer, rules: ToolsSection, reader: ReadingModel) -> bool:
    if rules.offer != "auto":
        return rules.offer == "core"
    if not reader.reads_tools:
        return False
    if not reader.reads_schemas and len(offer.shown) <= MAX_BRIEF:
        return False
    if not reader.context_tokens:
        return reader.is_local
    return _tokens(offer.shown, is_lean=False) > ALL_SHARE * reader.context_tokens


def _tokens(tools: Iterable[base.Tool], *, is_lean: bool) -> int:
    """Return about what tools take of a request, as the ledger of a turn would estimate it."""
    return sum(estimate_tokens(tool_text(spec)) for spec in specs(tools, is_lean=is_lean))


def names_of(tools: Iterable[base.Tool]) -> str:
    """Return the names of tools in a line; those of one server as their number."""
    own: list[str] = []
    servers: dict[str, int] = {}
    for tool in tools:
        if tool.source.startswith(MCP_SOURCE):
            servers[tool.source] = servers.get(tool.source, 0) + 1
        else:
            own.append(single_line(tool.name, NAME_LIMIT))
    if len(own) > _MAX_NAMED:
        own[_MAX_NAMED:] = [f"{len(own) - _MAX_NAMED} more"]
    aliases = (
        f"{single_line(source.removeprefix(MCP_SOURCE), NAME_LIMIT)}__… ({count})"
        for source, count in servers.items()
    )
    return ", ".join([*own, *aliases])


# No words of plain language, so that a text that holds one can only mean the tool.
_UNMISTAKABLE = frozenset(name for name in MEMBERS if "_" in name)


def entries(tools: Iterable[base.Tool], *, is_lean: bool = False) -> tuple[OfferEntry, ...]:
    """Return the one catalogue that models and MCP clients are told."""
    return tuple(_entry(tool, is_lean=is_lean) for tool in tools)


def _entry(tool: base.Tool, *, is_lean: bool) -> OfferEntry:
    is_mcp, schema = tool.source.startswith(MCP_SOURCE), offered_parameters(tool)
    if is_lean and base.is_builtin(tool):
        schema = lean_schema(schema, rare=base.traits_of(tool).rare)
    elif not is_mcp:
        # Schemas of MCP servers are told as they are: they are counted against a budget.
        schema = _marked(schema)
    return OfferEntry(
        name=tool.name,
        short=single_line(short_of(tool), DESCRIPTION_LIMIT),
        parameters=schema,
        group=tool.source if is_mcp else "",
    )


def specs(tools: Iterable[base.Tool], *, is_lean: bool = False) -> tuple[ToolSpec, ...]:
    """Return the tools as a model is offered them: the tools block.

    What a lean schema leaves out for the prompt's sake still holds the arguments.
    """
    offered = tuple(tools)
    return tuple(
        ToolSpec(
            name=entry.name,
            description=entry.short,
            parameters=entry.parameters,
            group=entry.group,
            rules=offered_parameters(tool) if is_lean and base.is_builtin(tool) else None,
        )
        for entry, tool in zip(entries(offered, is_lean=is_lean), offered, strict=True)
    )


def descriptors(tools: Iterable[base.Tool]) -> tuple[ListedTool, ...]:
    """Return the tools as an MCP server lists them."""
    offered = tuple(tools)
    return tuple(
        ListedTool(
            name=entry.name,
            description=entry.short,
            input_schema=entry.parameters,
            annotations=_annotations(tool),
        )
        for entry, tool in zip(entries(offered), offered, strict=True)
    )


def stands_for(tools: Iterable[base.Tool]) -> frozenset[str]:
    """Return the flat tools that can be called through what is offered."""
    names: set[str] = set()
    for tool in tools:
        members = tool.members.values() if isinstance(tool, Facade) else (tool,)
        names.update(member.name for member in members)
    return frozenset(names)


def short_of(tool: base.Tool) -> str:
    """Return the tool's one line: its short text, else the start of its description."""
    if tool.short:
        return tool.short
    first = tool.description.strip().splitlines()[0] if tool.description.strip() else ""
    return first[: base.SHORT_LIMIT]


def offered_parameters(tool: base.Tool) -> dict[str, Any]:
    """Return the schema that requests carry."""
    whole = tool.offered_parameters is None
    return tool.parameters if whole else dict(tool.offered_parameters or {})


def lean_schema(schema: Any, rare: Collection[str] = ()) -> dict[str, Any]:
    """Return what of a schema a call cannot do without: types, names, choices, what is required.

    Names and the tool's line say what the arguments of built-in tools are; manuals say the rest,
    and which `rare` ones there are beside them.
    """
    kept: dict[str, Any] = {}
    for key, value in schema.items():
        if key in {"properties", "$defs"}:
            told = {name: rule for name, rule in value.items() if name not in rare}
            kept[key] = {name: lean_schema(rule) for name, rule in told.items()}
        elif key == "items":
            kept[key] = lean_schema(value)
        elif key in {"anyOf", "oneOf", "allOf"}:
            kept[key] = [lean_schema(rule) for rule in value]
        elif key in _NEEDED and value != []:
            kept[key] = value
    return kept


_NEEDED = frozenset({"type", "enum", "const", "required", "$ref"})


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


def aliases_of(tool: base.Tool) -> tuple[str, ...]:
    """Return the other names that lead to a tool, sorted."""
    words = [alias for alias, name in ALIASES.items() if name == tool.name]
    return tuple(sorted({*tool.aliases, *words}))


def example_of(tool: base.Tool) -> dict[str, Any]:
    """Return arguments of a call that works."""
    return dict(base.traits_of(tool).example) or example_arguments(tool.parameters)


def _annotations(tool: base.Tool) -> McpAnnotations:
    traits: base.Traits = base.traits_of(tool)
    looks = traits.effect == "looks"
    return McpAnnotations(
        read_only_hint=looks,
        destructive_hint=traits.effect not in {"looks", "adds"},
        idempotent_hint=traits.effect in {"looks", "replaces"},
        open_world_hint=tool.outward is True or (tool.outward is None and not looks),
    )


_MAX_MANUALS = 5


class ToolLookup(base.Tool):
    """`tool_lookup(name?)`: the index, or the manuals of the tools whose name has this in it.

    Where no name has, the lines of the tools are searched.
    """

    name: ClassVar[str] = LOOKUP
    short: ClassVar[str] = "List the tools, or show how one is called."
    description: ClassVar[str] = (
        "Without an argument it answers every tool of this session, one a line, as `name: what it "
        "does`. With `name`, a whole name or a part of one, it answers the manuals of the tools "
        "that have it in their name, or else in what they do: their arguments and an example to "
        "copy."
    )
    parameters: ClassVar[dict[str, Any]] = {
        "type": "object",
        "properties": {"name": {"type": "string", "description": "A tool's name, or a part."}},
        "required": [],
        "additionalProperties": False,
    }
    outward: ClassVar[bool | None] = False

    @override
    def risk(self, arguments: base.Arguments, context: base.ToolContext) -> Assessment:
        return Assessment(risk="low", reason="reads about tools")

    @override
    async def invoke(self, arguments: base.Arguments, context: base.ToolContext) -> base.ToolResult:
        pages = context.tools.pages()
        wanted = arguments.get("name", "").strip().lower()
        if not wanted:
            lines = [f"{page.name}: {single_line(page.short)}" for page in pages]
            return base.succeeded("\n".join(lines), count=len(lines))
        found = matching(wanted, pages)
        if not found:
            return base.failed(_not_found(wanted, pages))
        shown = [_manual(page) for page in found[:_MAX_MANUALS]]
        if more := found[_MAX_MANUALS:]:
            shown.append("more: " + ", ".join(page.name for page in more))
        return base.succeeded("\n\n".join(shown), count=len(found))


class _Named(Protocol):
    """What is found by its name, or by its line."""

    @property
    def name(self) -> str: ...
    @property
    def short(self) -> str: ...


_N = TypeVar("_N", bound=_Named)


def matching(wanted: str, named: Sequence[_N]) -> list[_N]:
    """Return what has this name, else has it in its name, else in its line."""
    wanted = wanted.strip().lower()
    exact = [each for each in named if each.name.lower() == wanted]
    partly = [each for each in named if wanted in each.name.lower()]
    return exact or partly or [each for each in named if wanted in each.short.lower()]


def met_in(calls: Iterable[tuple[str, str]], tools: Sequence[_N]) -> list[_N]:
    """Return the tools that calls were of, or that were looked up in them, in that order.

    Args:
        calls: name and arguments of each, as the model wrote them.
        tools: of which.
    """
    met: dict[str, _N] = {}
    for name, arguments in calls:
        found = [tool for tool in tools if tool.name == name]
        if name == LOOKUP and (wanted := _asked(arguments)):
            found = matching(wanted, tools)[:_MAX_MANUALS]
        met.update((tool.name, tool) for tool in found)
    return list(met.values())


def _asked(arguments: str) -> str:
    try:
        given = msgspec.json.decode(arguments, type=dict[str, Any]).get("name")
    except (msgspec.DecodeError, ValueError):
        return ""
    return given if isinstance(given, str) else ""


def _manual(page: base.ManualPage) -> str:
    required = page.parameters.get("required", ())
    lines = [page.name, paragraph(page.description), "arguments:"]
    for name, rule in (page.parameters.get("properties") or {}).items():
        need = "required" if name in required else "optional"
        rule = rule if isinstance(rule, dict) else {}
        about = single_line(str(rule.get("description", "")), 2000)
        lines.append(f"  {name} ({_kind(rule)}, {need}){': ' if about else ''}{about}")
    if len(lines) == 3:
        lines[-1] = "arguments: none"
    if page.is_deferred:
        lines.append(f"schema: {msgspec.json.encode(page.parameters).decode()}")
    lines.append(f"example: {page.name} {msgspec.json.encode(page.example).decode()}")
    return "\n".join(lines)


def _kind(rule: dict[str, Any]) -> str:
    if isinstance(choices := rule.get("enum"), list):
        return "one of " + ", ".join(map(str, choices))
    kind = rule.get("type", "any")
    return " or ".join(map(str, kind)) if isinstance(kind, list) else str(kind)


def _not_found(wanted: str, pages: tuple[base.ManualPage, ...]) -> str:
    near = nearest(wanted, {page.name: page.name for page in pages})
    nearest_ones = f"; the nearest are: {', '.join(near)}" if near else ""
    example = msgspec.json.encode({"name": near[0]} if near else {}).decode()
    return (
        f"no tool has {single_line(wanted, 64)!r} in its name{nearest_ones}\n"
        f"A correct call looks like this: tool_lookup {example}"
    )
