"""What the parts about MCP servers hand each other. Values only; nothing here loads the SDK."""

import re
from collections.abc import Callable, Mapping
from typing import Any, Literal, Protocol
from urllib.parse import urlsplit

import msgspec

from clawd.mcp.events import EventListener, EventPattern

FETCHERS = frozenset({"npx", "uvx", "bunx", "pnpx", "pipx", "uv", "npm", "pnpm", "yarn", "docker"})
"""Programs that fetch what they run, and so take longer to start."""

_LONG_WORD = re.compile(r"[^/]{24,}")
"""A part of a path that may be a key; nobody calls an endpoint so."""

FETCHERS_LIMIT_S = 60.0

Link = Literal["off", "connecting", "ready", "waiting"]
"""off: not wanted; waiting: it failed, and is tried again later."""


class ServerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How one server is reached, and what of it is used. A `command` or a `url`, never both.

    Attributes:
        alias: its name here; tools are called `alias__tool`.
        command: program and arguments of a server on its standard input and output.
        env: variables of that program, beside those every child gets.
        workspace: the folder it may work in, absolute; what it may do there is `workspace_access`.
        readonly_paths: what else it sees of the file system.
        hosts: what that program may reach, as `host:port`, `*.domain:port` or `*`; none if empty.
        url: of a streamable HTTP endpoint.
        token: a bearer token, resolved; empty for none.
        oauth: sign in by OAuth where the server asks for it.
        oauth_client_id: as whom clawd was registered there by hand; empty for by itself.
        oauth_client_secret: of that registration, resolved; empty for none.
        mode: `legacy` never asks for the newest revision first, for servers that break on it.
        allow, deny: which tools are taken, by their own names; patterns end in `*`.
        trusted: its word on what only reads is believed.
        auto_approve: patterns of own tool names whose calls need no person.
    """

    alias: str
    command: tuple[str, ...] = ()
    env: dict[str, str] = {}
    workspace: str = ""
    workspace_access: Literal["none", "read", "write"] = "read"
    readonly_paths: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    url: str = ""
    token: str = ""
    oauth: bool = False
    oauth_client_id: str = ""
    oauth_client_secret: str = ""
    mode: Literal["auto", "legacy"] = "auto"
    allow: tuple[str, ...] = ("*",)
    deny: tuple[str, ...] = ()
    trusted: bool = False
    auto_approve: tuple[str, ...] = ()
    connect_timeout_s: float = 10.0
    call_timeout_s: float = 60.0
    max_result_bytes: int = 4 << 20
    max_tools: int = 500


def address_of(server: ServerSettings) -> str:
    """Return where a server is, for people: nothing in it that may be a secret."""
    if server.command:
        return server.command[0]
    parts = urlsplit(server.url)
    host = parts.hostname or ""
    port = f":{parts.port}" if parts.port else ""
    path = _LONG_WORD.sub("…", parts.path)
    return f"{parts.scheme}://{f'[{host}]' if ':' in host else host}{port}{path}"


class RemoteTool(msgspec.Struct, frozen=True, kw_only=True):
    """One tool as its server tells it, repaired to what can be offered to a model.

    Attributes:
        name: the server's own name.
        schema: JSON Schema of type object.
        read_only, destructive, idempotent, open_world: the server's hints; None where silent.
        repaired: what was wrong with it, in words; empty for nothing.
    """

    name: str
    description: str = ""
    title: str = ""
    schema: dict[str, Any] = msgspec.field(default_factory=lambda: {"type": "object"})
    read_only: bool | None = None
    destructive: bool | None = None
    idempotent: bool | None = None
    open_world: bool | None = None
    repaired: str = ""


class Quarantined(msgspec.Struct, frozen=True, kw_only=True):
    """A tool that cannot be offered, and why."""

    name: str
    reason: str


class ServerState(msgspec.Struct, frozen=True, kw_only=True):
    """One server as it stands.

    Attributes:
        link: whether it can be called.
        problem: what failed last; empty while all is well. Says 401 as such, and what to do.
        tools: what it offers now; kept while it is away, so that prompts stay as they are.
        quarantined: what it offers that cannot be used.
        revision: the protocol's revision agreed on.
        connects: how often it was connected.
        since: when `link` became what it is, seconds since the epoch.
        last_call_ms: how long the last call took; 0 for none.
        reach_problem: why it reaches nothing, or not all hosts that it wants; empty for no reason.
        deaf_problem: why it does not tell what schedules listen to; empty for no reason.
    """

    alias: str
    link: Link = "off"
    problem: str = ""
    tools: tuple[RemoteTool, ...] = ()
    quarantined: tuple[Quarantined, ...] = ()
    revision: str = ""
    server_name: str = ""
    server_version: str = ""
    transport: Literal["stdio", "http"] = "stdio"
    connects: int = 0
    calls: int = 0
    failures: int = 0
    since: float = 0.0
    last_call_ms: int = 0
    reach_problem: str = ""
    deaf_problem: str = ""


class Content(msgspec.Struct, frozen=True, kw_only=True):
    """One block of a result.

    Attributes:
        kind: `text`; `blob` for images, audio and embedded resources; `link` for a resource that is
            only named; `other` for what this side does not know.
        data: of a blob, decoded.
        mime: of a blob or link; empty for unknown.
        uri: of a resource.
    """

    kind: Literal["text", "blob", "link", "other"]
    text: str = ""
    data: bytes = b""
    mime: str = ""
    uri: str = ""
    name: str = ""


class RemoteResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a call of a remote tool came to. `failure` is a finished sentence for the model.

    Attributes:
        is_error: the server says that the call failed; its content still counts.
        failure: `tool dispatch failed: …` for a JSON-RPC error, `tool transport error: …` for a
            lost connection, an HTTP status or a timeout; empty where the server answered.
        contacted: the hosts that the server reached since the receipt before, as receipts list
            them: `HOST:PORT ADDRESS UP/DOWN BY`.
        refused: why it might not reach others, by name.
    """

    content: tuple[Content, ...] = ()
    structured: Any = None
    is_error: bool = False
    failure: str = ""
    contacted: tuple[str, ...] = ()
    refused: dict[str, str] = {}


Progress = Callable[[float, float | None, str], None]
"""Takes progress, total (None for unknown) and a message; never blocks."""


class RemoteServers(Protocol):
    """The servers of a daemon. Nothing raises for what a server does."""

    def states(self) -> tuple[ServerState, ...]:
        """Return all servers, in the order of the config."""
        ...

    async def call(
        self, alias: str, tool: str, arguments: Mapping[str, Any], *, progress: Progress
    ) -> RemoteResult:
        """Make one call by the tool's own name, within the server's time limit.

        Cancelling the task tells the server and returns at once.
        """
        ...

    async def connect(self, alias: str) -> ServerState:
        """Connect a server now (again), and wait for the outcome within its limits.

        Raises:
            NotFoundError: there is no such server.
        """
        ...

    async def disconnect(self, alias: str) -> ServerState:
        """Disconnect a server until it is connected by hand; its tools are no longer offered.

        Raises:
            NotFoundError: there is no such server.
        """
        ...

    async def adopt(self, servers: tuple[ServerSettings, ...]) -> None:
        """Take another configuration: new servers start, changed ones start anew, others stop."""
        ...

    def listen(
        self, wanted: Mapping[str, tuple[EventPattern, ...]], listener: EventListener
    ) -> None:
        """Hear these events of servers by their aliases from now on, and no others."""
        ...

    def on_change(self, listener: Callable[[], None]) -> None:
        """Be told, on the loop, when states or tools have changed."""
        ...

    async def close(self) -> None:
        """End every connection and every process; idempotent."""
        ...
