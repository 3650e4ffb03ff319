"""The tool `tool_lookup`: what is offered in this session, and the manuals."""

from typing import Any, ClassVar

import msgspec
from typing_extensions import override

from clawd.security.risk import Assessment
from clawd.tools.base import Arguments, ManualPage, Tool, ToolContext, ToolResult, failed, succeeded
from clawd.tools.naming import nearest
from clawd.wire.safe_text import paragraph, single_line

_MAX_MANUALS = 5


class ToolLookup(Tool):
    """`tool_lookup(name?)`: the index, or the manuals of the tools whose name has this in it.

    Where no name has, the lines of the tools are searched.
    """

    name: ClassVar[str] = "tool_lookup"
    short: ClassVar[str] = "List the tools, or show how one is called: tool_lookup(name)."
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
        exact = [page for page in pages if page.name.lower() == wanted]
        named = [page for page in pages if wanted in page.name.lower()]
        found = exact or named or [page for page in pages if wanted in page.short.lower()]
        if not found:
            return failed(_not_found(wanted, pages))
        context.tools.looked_at([page.name for page in found[:_MAX_MANUALS]])
        shown = [_manual(page) for page in found[:_MAX_MANUALS]]
        if more := found[_MAX_MANUALS:]:
            shown.append("more: " + ", ".join(page.name for page in more))
        return succeeded("\n\n".join(shown), count=len(found))


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
