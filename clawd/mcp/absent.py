"""Servers that are never reached: what stands in where nothing makes connections."""

from collections.abc import Callable, Mapping
from typing import Any

from clawd.errors import NotFoundError
from clawd.mcp.model import Progress, RemoteResult, ServerSettings, ServerState

WHY = "this clawd makes no connections to MCP servers"


class AbsentServers:
    """`model.RemoteServers` that connects nothing."""

    def __init__(self) -> None:
        self._states: dict[str, ServerState] = {}

    def states(self) -> tuple[ServerState, ...]:
        """Return the configured servers, none of which can be called."""
        return tuple(self._states.values())

    async def call(
        self,
        alias: str,  # noqa: ARG002 - the protocol's signature
        tool: str,  # noqa: ARG002
        arguments: Mapping[str, Any],  # noqa: ARG002
        *,
        progress: Progress,  # noqa: ARG002
    ) -> RemoteResult:
        """Say that there is no connection."""
        return RemoteResult(failure=f"tool transport error: {WHY}")

    async def connect(self, alias: str) -> ServerState:
        """Return the server as it stands."""
        if alias not in self._states:
            raise NotFoundError(f"there is no MCP server {alias[:64]!r}")
        return self._states[alias]

    async def disconnect(self, alias: str) -> ServerState:
        """Return the server as it stands."""
        return await self.connect(alias)

    async def adopt(self, servers: tuple[ServerSettings, ...]) -> None:
        """Take another configuration."""
        self._states = {
            each.alias: ServerState(alias=each.alias, link="waiting", problem=WHY)
            for each in servers
        }

    def on_change(self, listener: Callable[[], None]) -> None:
        """Do nothing: nothing changes."""

    async def close(self) -> None:
        """Do nothing: nothing is open."""
