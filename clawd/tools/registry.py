"""Which tools there are, by name and alias, and the unified tools `fs` and `web` over them.

A unified tool, a facade, is one name with an `action` for several flat tools. It is only another
spelling: a call of one is resolved to the flat tool that its action stands for before anything is
judged; the facade itself is in no registry and can never run.
"""

import fnmatch
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, Literal, Protocol

from typing_extensions import override

from clawd.errors import InvalidRequestError, NotFoundError
from clawd.security.risk import Assessment
from clawd.tools import base

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
    "web": {"search": "web_search", "fetch": "web_fetch", "http": "http", "pdf": "pdf_extract"},
}
MEMBERS: dict[str, tuple[str, str]] = {
    flat: (facade, action)
    for facade, actions in FACADES.items()
    for action, flat in actions.items()
}
_WORK = {"fs": "Work with files", "web": "Use the web"}


class Elsewhere(Protocol):
    """Where further tools come from, which may be there only later, or not at all.

    Attributes:
        is_awaited: whether there is anything that `arrived` could wait for or report.
    """

    is_awaited: bool

    def why_missing(self, name: str) -> str:
        """Return why there is no tool of a name that can only be one of these; "" for others."""
        ...

    async def arrived(self) -> tuple[str, ...]:
        """Wait a while for tools that are on their way; return sentences on what is missing.

        Nothing is waited for twice, and nothing is reported twice.
        """
        ...


class Nowhere:
    """There are no tools but those that are there."""

    is_awaited = False

    def why_missing(self, _name: str) -> str:
        """Return that nothing is known of it."""
        return ""

    async def arrived(self) -> tuple[str, ...]:
        """Return at once."""
        return ()


class Registry:
    """The tools of one daemon.

    Attributes:
        elsewhere: knows of tools that are not there.
    """

    def __init__(self, tools: Iterable[base.Tool] = ()) -> None:
        self._tools: dict[str, base.Tool] = {}
        self._aliases: dict[str, str] = {}
        self._listeners: dict[object, Callable[[], None]] = {}
        self.elsewhere: Elsewhere = Nowhere()
        for tool in tools:
            self.add(tool)

    def add(self, tool: base.Tool) -> None:
        """Take a tool in.

        Raises:
            InvalidRequestError: its name is no tool name, or is taken.
        """
        for name in (tool.name, *tool.aliases):
            if not re.fullmatch(base.NAME_PATTERN, name):
                raise InvalidRequestError(f"tool name {name!r} does not match {base.NAME_PATTERN}")
            if name in self._tools or name in self._aliases or name in FACADES:
                raise InvalidRequestError(f"two tools are called {name!r}")
        self._tools[tool.name] = tool
        self._aliases.update(dict.fromkeys(tool.aliases, tool.name))
        self._changed()

    def replace(self, tools: Iterable[base.Tool]) -> None:
        """Hold these tools instead of those so far; all or none.

        Raises:
            InvalidRequestError: one of them cannot be taken.
        """
        fresh = Registry(tools)
        self._tools, self._aliases = fresh._tools, fresh._aliases
        self._changed()

    def on_change(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Be told when the tools have changed; never raises, never blocks. Returns what ends it."""
        token = object()
        self._listeners[token] = listener

        def end() -> None:
            self._listeners.pop(token, None)

        return end

    def find(self, name: str) -> base.Tool | None:
        """Return the tool of this name or alias; None when there is none."""
        return self._tools.get(self._aliases.get(name, name))

    def get(self, name: str) -> base.Tool:
        """Return the tool of this name or alias.

        Raises:
            NotFoundError: there is none; the message names those that are.
        """
        tool = self.find(name.strip())
        if tool is None:
            raise NotFoundError(
                f"there is no tool {name[:64]!r}; the tools are: {', '.join(sorted(self._tools))}"
            )
        return tool

    def all(self) -> list[base.Tool]:
        """Return every tool, by name."""
        return [self._tools[name] for name in sorted(self._tools)]

    def allowed(self, patterns: Iterable[str]) -> list[base.Tool]:
        """Return the tools whose name matches one of the patterns (`*`, `file_*`), by name.

        A pattern with `-` in front (`-evaluate`) takes out, wherever it stands; where there are no
        others it takes out of all.
        """
        given = tuple(patterns)
        refused = [pattern.removeprefix("-") for pattern in given if pattern.startswith("-")]
        wanted = [pattern for pattern in given if not pattern.startswith("-")]
        if refused and not wanted:
            wanted = ["*"]
        return [
            tool
            for tool in self.all()
            if _matches(tool.name, wanted) and not _matches(tool.name, refused)
        ]

    def _changed(self) -> None:
        for listener in list(self._listeners.values()):
            listener()


def _matches(name: str, patterns: list[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


class Facade(base.Tool):
    """One unified tool as it is offered: the actions whose flat tools may be called.

    Args:
        name: `fs` or `web`.
        members: the flat tools, by action; at least one.
    """

    name: ClassVar[str] = "facade"
    short: ClassVar[str] = ""
    parameters: ClassVar[dict[str, Any]] = {}

    def __init__(self, name: str, members: Mapping[str, base.Tool]) -> None:
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
    def risk(self, arguments: base.Arguments, context: base.ToolContext) -> Assessment:
        return Assessment(risk="high", blocked=f"{self.name} runs by its actions only")

    @override
    async def invoke(self, arguments: base.Arguments, context: base.ToolContext) -> base.ToolResult:
        return base.failed(f"{self.name} runs by its actions only")


def facades_over(tools: Iterable[base.Tool]) -> tuple[Facade, ...]:
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


def _schema(members: Mapping[str, base.Tool]) -> dict[str, Any]:
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


def _arguments(tool: base.Tool) -> str:
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


def _manual(short: str, members: Mapping[str, base.Tool]) -> str:
    lines = [
        f"action={action}: {' '.join((tool.description or tool.short).split())}"
        for action, tool in members.items()
    ]
    return "\n".join([short, *lines])


def _traits(members: Mapping[str, base.Tool]) -> base.Traits:
    action, tool = next(iter(members.items()))
    ranked = max((base.traits_of(each) for each in members.values()), key=lambda each: each.rank)
    example = base.traits_of(tool).example
    return base.Traits(effect=ranked.effect, example={"action": action, **example})
