"""MCP servers without any connection: `model.RemoteServers` whose tools a test writes down."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec

from clawd.errors import NotFoundError
from clawd.mcp.events import EventListener, EventPattern
from clawd.mcp.model import (
    Content,
    Link,
    Progress,
    RemoteResult,
    RemoteTool,
    ServerSettings,
    ServerState,
)

Act = Callable[[str, Mapping[str, Any], Progress], Awaitable[RemoteResult]]


def text(*parts: str) -> RemoteResult:
    """Return a result of texts."""
    return RemoteResult(content=tuple(Content(kind="text", text=part) for part in parts))


def a_tool(name: str, description: str = "", **facts: Any) -> RemoteTool:
    """Return a tool that takes a text."""
    schema = {
        "type": "object",
        "properties": {"text": {"type": "string"}},
        "required": ["text"],
    }
    given = {"schema": schema, "description": description or f"Does {name}."} | facts
    return RemoteTool(name=name, **given)


async def echo(tool: str, arguments: Mapping[str, Any], _progress: Progress) -> RemoteResult:
    return text(f"{tool} {msgspec.json.encode(dict(arguments)).decode()}")


class FakeServers:
    """The servers of a test.

    Args:
        offered: what each server offers, by alias.

    Attributes:
        act: what a call does.
        calls: the calls that were made: alias, tool, arguments.
        settings: the configuration that was adopted last.
        blocked: connecting waits for it; None does not wait.
    """

    def __init__(self, offered: Mapping[str, tuple[RemoteTool, ...]] | None = None) -> None:
        self.offered = dict(offered or {})
        self.act: Act = echo
        self.calls: list[tuple[str, str, dict[str, Any]]] = []
        self.settings: dict[str, ServerSettings] = {}
        self.blocked: asyncio.Event | None = None
        self.is_closed = False
        self.wanted: dict[str, tuple[EventPattern, ...]] = {}
        self.listener: EventListener | None = None
        self._off: set[str] = set()
        self._listener: Callable[[], None] = lambda: None
        self._states: dict[str, ServerState] = {}

    def states(self) -> tuple[ServerState, ...]:
        return tuple(self._states.values())

    async def call(
        self, alias: str, tool: str, arguments: Mapping[str, Any], *, progress: Progress
    ) -> RemoteResult:
        self.calls.append((alias, tool, dict(arguments)))
        if self._states[alias].link != "ready":
            return RemoteResult(failure=f"tool transport error: {alias} is not connected")
        return await self.act(tool, arguments, progress)

    async def connect(self, alias: str) -> ServerState:
        self._check(alias)
        self._off.discard(alias)
        self.put(alias, link="ready", tools=self.offered.get(alias, ()), problem="")
        return self._states[alias]

    async def disconnect(self, alias: str) -> ServerState:
        self._check(alias)
        self._off.add(alias)
        self.put(alias, link="off")
        return self._states[alias]

    async def adopt(self, servers: tuple[ServerSettings, ...]) -> None:
        self.settings = {each.alias: each for each in servers}
        if self.blocked is not None:
            await self.blocked.wait()
        self._states = {
            each.alias: ServerState(
                alias=each.alias,
                link="off" if each.alias in self._off else "ready",
                tools=self.offered.get(each.alias, ()),
                transport="http" if each.url else "stdio",
            )
            for each in servers
        }
        self._listener()

    def listen(
        self, wanted: Mapping[str, tuple[EventPattern, ...]], listener: EventListener
    ) -> None:
        self.wanted, self.listener = dict(wanted), listener

    def on_change(self, listener: Callable[[], None]) -> None:
        self._listener = listener

    async def close(self) -> None:
        self.is_closed = True

    # --- what a test does

    def put(self, alias: str, **facts: Any) -> None:
        """Change the state of a server and tell of it."""
        before = self._states.get(alias, ServerState(alias=alias))
        self._states[alias] = msgspec.structs.replace(before, **facts)
        self._listener()

    def offer(self, alias: str, *tools: RemoteTool) -> None:
        """Let a server have these tools from now on."""
        self.offered[alias] = tools
        self.put(alias, tools=tools)

    def lose(self, alias: str, link: Link = "waiting") -> None:
        """Let a server be away; its tools stay known."""
        self.put(alias, link=link, problem="it is away")

    def _check(self, alias: str) -> None:
        if alias not in self._states:
            raise NotFoundError(f"there is no MCP server {alias}")
