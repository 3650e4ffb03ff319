"""The MCP server of a daemon's gateway: what it is made of, when its first client comes."""

from collections.abc import Callable
from typing import Any

from clawd import __version__
from clawd.channels.http.app import McpServed
from clawd.channels.http.exchange import Caller
from clawd.mcp.door import ToolDoor
from clawd.mcp.mount import DOOR, Mount
from clawd.runtime.tool_client import ClientKind
from clawd.security.principal import Role
from clawd.service.build import Daemon
from clawd.tools.registry import Registry

MAX_DOORS = 4_096


def mcp_served(daemon: Daemon) -> McpServed | None:
    """Return what serves MCP clients over HTTP; None where the config wants none."""
    if not daemon.loaded.config.channels.http.mcp:
        return None
    return McpServed(mount=_mount(daemon.registry), door_of=_doors(daemon))


def _mount(registry: Registry) -> Mount:

    def make() -> Any:
        from clawd.mcp.server import make_server

        def door_of(ctx: Any) -> ToolDoor:
            found: ToolDoor = ctx.request.scope["state"][DOOR]
            return found

        return make_server(door_of, version=__version__, on_change=registry.on_change)

    return Mount(make)


def _doors(daemon: Daemon) -> Callable[[Caller], ToolDoor]:
    """Return what finds the tools of a caller; the calls of a key belong to one conversation."""
    clients = daemon.handlers.parts.tool_clients
    kind = ClientKind(
        label="MCP client over HTTP", patterns=lambda: daemon.state.runtime.http_tools_allow
    )
    doors: dict[tuple[int, str, Role], ToolDoor] = {}

    def door_of(caller: Caller) -> ToolDoor:
        # By the role of now: who is an admin no more, or whose key is not, sees his own only.
        at = (caller.principal.uid, caller.key_id, caller.principal.role)
        found = doors.pop(at, None)
        if found is None:
            found = clients.door(caller.principal, kind, lasting=f"mcp:{caller.key_id}")
        doors[at] = found  # put back last: the first is the one that was idle longest
        if len(doors) > MAX_DOORS:
            doors.pop(next(iter(doors)))
        return found

    return door_of
