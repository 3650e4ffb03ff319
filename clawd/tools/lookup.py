"""The tool `tool_lookup`: what is offered in this session, and the manuals."""

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Protocol, TypeVar

import msgspec
from typing_extensions import override

from clawd.security.risk import Assessment
from clawd.tools.base import Arguments, ManualPage, Tool, ToolContext, ToolResult, failed, succeeded
from clawd.tools.naming import nearest
from clawd.tools.offer import LOOKUP
from clawd.wire.safe_text import paragraph, single_line

_MAX_MANUALS = 5


class ToolLookup(Tool):
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
    def risk(self, arguments: Arguments, context: ToolContext) -> Assessment:
        return Assessment(risk="low", reason="reads about tools")

    @override
    async def invoke(self, arguments: Arguments, context: ToolContext) -> ToolResult:
        pages = context.tools.pages()
        wanted = arguments.get("name", "").strip().lower()
        if not wanted:
            lines = [f"{page.name}: {single_line(page.short)}" for page in pages]
            return succeeded("\n".join(lines), count=len(lines))
        found = matching(wanted, pages)
        if not found:
            return failed(_not_found(wanted, pages))
        shown = [_manual(page) for page in found[:_MAX_MANUALS]]
        if more := found[_MAX_MANUALS:]:
            shown.append("more: " + ", ".join(page.name for page in more))
        return succeeded("\n\n".join(shown), count=len(found))


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


def _manual(page: ManualPage) -> str:
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


def _not_found(wanted: str, pages: tuple[ManualPage, ...]) -> str:
    near = nearest(wanted, {page.name: page.name for page in pages})
    nearest_ones = f"; the nearest are: {', '.join(near)}" if near else ""
    example = msgspec.json.encode({"name": near[0]} if near else {}).decode()
    return (
        f"no tool has {single_line(wanted, 64)!r} in its name{nearest_ones}\n"
        f"A correct call looks like this: tool_lookup {example}"
    )
