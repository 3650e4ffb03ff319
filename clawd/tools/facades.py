"""The unified tools `fs` and `web`: one name with an `action` for several flat tools.

A facade is only another spelling. A call of one is resolved to the flat tool that its action stands
for before anything is judged; the facade itself is in no registry and can never run.
"""

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Literal

from typing_extensions import override

from clawd.security.risk import Assessment
from clawd.tools.base import Arguments, Tool, ToolContext, ToolResult, failed, traits_of
from clawd.tools.traits import Traits

ToolMode = Literal["split", "unified", "both"]

FACADES: dict[str, dict[str, str]] = {
    "fs": {
        "list": "file_list",
        "read": "file_read",
        "write": "file_write",
        "edit": "file_edit",
        "append": "file_append",
        "glob": "glob",
        "grep": "grep",
        "check": "check_path",
        "cwd": "cwd",
        "workspace": "workspace",
        "undo": "undo",
        "ops": "fs_ops",
    },
    "web": {
        "search": "web_search",
        "fetch": "web_fetch",
        "http": "http",
        "pdf": "pdf_extract",
    },
}
MEMBERS: dict[str, tuple[str, str]] = {
    flat: (facade, action)
    for facade, actions in FACADES.items()
    for action, flat in actions.items()
}
_WORK = {"fs": "Work with files", "web": "Use the web"}


class Facade(Tool):
    """One unified tool as it is offered: the actions whose flat tools may be called.

    Args:
        name: `fs` or `web`.
        members: the flat tools, by action; at least one.
    """

    name: ClassVar[str] = "facade"
    short: ClassVar[str] = ""
    parameters: ClassVar[dict[str, Any]] = {}

    def __init__(self, name: str, members: Mapping[str, Tool]) -> None:
        self.members = dict(members)
        self.name = name  # type: ignore[misc]
        self.short = f"{_WORK[name]}: {', '.join(self.members)}."  # type: ignore[misc]
        self.description = _manual(self.short, self.members)  # type: ignore[misc]
        self.parameters = _schema(self.members)  # type: ignore[misc]
        addenda = [tool.addendum for tool in self.members.values() if tool.addendum]
        self.addendum = "\n\n".join(addenda)  # type: ignore[misc]
        self.traits = _traits(self.members)  # type: ignore[misc]
        opens = {tool.outward for tool in self.members.values()}
        self.outward = True in opens  # type: ignore[misc]

    @override
    def risk(self, arguments: Arguments, context: ToolContext) -> Assessment:
        return Assessment(risk="high", blocked=f"{self.name} runs by its actions only")

    @override
    async def invoke(self, arguments: Arguments, context: ToolContext) -> ToolResult:
        return failed(f"{self.name} runs by its actions only")


def facades_over(tools: Iterable[Tool]) -> tuple[Facade, ...]:
    """Return the facades of which at least one action may be called, by name."""
    by_name = {tool.name: tool for tool in tools}
    made = []
    for name, actions in FACADES.items():
        members = {action: by_name[flat] for action, flat in actions.items() if flat in by_name}
        if members:
            made.append(Facade(name, members))
    return tuple(made)


def flat_name(called: str, action: object) -> str:
    """Return the flat tool of a facade's action; "" when there is none."""
    return FACADES.get(called, {}).get(str(action), "")


def _schema(members: Mapping[str, Tool]) -> dict[str, Any]:
    calls = "; ".join(f"{action}({_arguments(tool)})" for action, tool in members.items())
    properties: dict[str, Any] = {
        "action": {"type": "string", "enum": list(members), "description": calls}
    }
    for tool in members.values():
        for name, rule in (tool.parameters.get("properties") or {}).items():
            plain = {key: value for key, value in rule.items() if key != "default"}
            properties[name] = _either(properties[name], plain) if name in properties else plain
    return {
        "type": "object",
        "properties": properties,
        "required": ["action"],
        "additionalProperties": False,
    }


def _arguments(tool: Tool) -> str:
    required = tool.parameters.get("required", ())
    names = tool.parameters.get("properties") or {}
    return ", ".join(name if name in required else f"{name}?" for name in names)


def _either(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """Return a rule for an argument that two actions take."""

    def without(rule: dict[str, Any]) -> dict[str, Any]:
        return {key: value for key, value in rule.items() if key != "description"}

    known = one.get("anyOf", [without(one)])
    if without(other) in known:
        return one
    return {"anyOf": [*known, without(other)]}


def _manual(short: str, members: Mapping[str, Tool]) -> str:
    lines = [
        f"action={action}: {' '.join((tool.description or tool.short).split())}"
        for action, tool in members.items()
    ]
    return "\n".join([short, *lines])


def _traits(members: Mapping[str, Tool]) -> Traits:
    action, tool = next(iter(members.items()))
    ranked = max((traits_of(each) for each in members.values()), key=lambda each: each.rank)
    example = traits_of(tool).example
    return Traits(effect=ranked.effect, example={"action": action, **example})
