"""Handlers about MCP servers; and the MCP server that clawd itself is."""

import asyncio
import sys
from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime

from clawd import __version__
from clawd.channels.rpc.connection import Call
from clawd.config.mcp import wrong_values
from clawd.errors import InvalidRequestError
from clawd.mcp.model import RemoteTool, ServerSettings, ServerState, address_of
from clawd.mcp.mount import load_sdk
from clawd.mcp.tools import McpTool, assessment_of
from clawd.providers.base import Holding
from clawd.runtime.calls import ClientKind
from clawd.security.principal import Principal
from clawd.service.build import Daemon
from clawd.service.handlers.shared import NOT_SHOWN
from clawd.tools.offer import aliases_of, example_of, short_of
from clawd.wire import mcp as wire
from clawd.wire.codec import Answer, mirror
from clawd.wire.events import McpLine
from clawd.wire.method import Done

MAX_WAITING_BYTES = 64 << 20


async def list_mcp_servers(
    daemon: Daemon, _params: wire.ListMcpServers, call: Call
) -> wire.McpServerList:
    """List the MCP servers and how they are."""
    mcp = daemon.mcp.directory
    return wire.McpServerList(
        items=tuple(_line(daemon, state, call.principal) for state in mcp.states()),
        budget_tokens=mcp.wanted.rules.budget_tokens,
    )


async def list_mcp_tools(
    daemon: Daemon, params: wire.ListMcpTools, _call: Call
) -> wire.McpToolList:
    """List the tools of MCP servers."""
    mcp = daemon.mcp.directory
    states = (mcp.state(params.alias),) if params.alias else mcp.states()
    loose = _loose(daemon)
    return wire.McpToolList(
        items=tuple(
            _tool_line(tool, loose) for state in states for tool in mcp.catalogue.of(state.alias)
        ),
        left_out=tuple(each for state in states for each in _left_out(daemon, state)),
    )


async def show_mcp_tool(
    daemon: Daemon, params: wire.ShowMcpTool, _call: Call
) -> wire.McpToolDetail:
    """Show one tool."""
    tool = daemon.mcp.directory.tool(params.alias, params.tool)
    return wire.McpToolDetail(
        line=_tool_line(tool, _loose(daemon)),
        description=tool.description or short_of(tool),
        parameters=tool.parameters,
        example=example_of(tool),
        other_names=aliases_of(tool),
        hints=_hints(tool.plan.tool),
    )


async def connect_mcp(daemon: Daemon, params: wire.ConnectMcp, call: Call) -> wire.McpServerLine:
    """Connect a server now."""
    if params.accept and not params.offer:
        daemon.mcp.directory.state(params.alias)
        raise InvalidRequestError(
            "what is accepted must be named: accept takes the hash of what was looked at",
            hint=f"Look at it, which shows the hash: clawctl mcp diff {params.alias}",
        )
    if params.url:
        await daemon.mcp.directory.add(_new_server(params))
    accepted = params.offer if params.accept else ""
    state = await daemon.mcp.directory.connect(params.alias, accept=accepted)
    return _line(daemon, state, call.principal)


async def diff_mcp(daemon: Daemon, params: wire.DiffMcp, _call: Call) -> wire.McpDiff:
    """Show how the tools of a server differ from what was first seen of them."""
    offer, found = daemon.mcp.directory.differences(params.alias)
    return wire.McpDiff(alias=params.alias, offer=offer, items=found)


async def accept_mcp(daemon: Daemon, params: wire.AcceptMcp, call: Call) -> wire.McpServerLine:
    """Take the tools of a server as they are."""
    return _line(daemon, daemon.mcp.directory.accept(params.alias, params.offer), call.principal)


async def disconnect_mcp(
    daemon: Daemon, params: wire.DisconnectMcp, call: Call
) -> wire.McpServerLine:
    """Disconnect a server until it is connected by hand."""
    return _line(daemon, await daemon.mcp.directory.disconnect(params.alias), call.principal)


async def serve_mcp(daemon: Daemon, _params: wire.ServeMcp, call: Call) -> Done:
    """Serve an MCP client until its messages end or the caller goes.

    Raises:
        ConnectionError: the caller went before it was told all.
    """
    lines = _Lines()
    call.on_answer = lines.take  # before anything is waited for: the client has begun already
    call.ends = False
    await load_sdk()
    from clawd.mcp.server import make_server, serve_lines

    kind = ClientKind(
        label="MCP client", patterns=lambda: daemon.tool_clients.settings().tools_allow("socket")
    )
    door = daemon.tool_clients.door(call.principal, kind)

    async def send(text: str) -> None:
        await call.emit(McpLine(text=text))

    on_change = daemon.tool_clients.registry.on_change
    server = make_server(lambda _ctx: door, version=__version__, on_change=on_change)
    try:
        await serve_lines(server, lines.all(), send, on_change)
    except ExceptionGroup as group:
        _, others = group.split(ConnectionError)
        if others is not None:
            raise others from None
        raise ConnectionResetError("the client is gone") from None
    return Done(message="the client has left")


def _line(daemon: Daemon, state: ServerState, principal: Principal) -> wire.McpServerLine:
    mcp = daemon.mcp.directory
    tools = mcp.catalogue.of(state.alias)
    settings = mcp.wanted.rules.servers.get(state.alias)
    problem = state.problem
    if problem and not principal.is_admin:
        problem = NOT_SHOWN
    reach_problem = state.reach_problem if principal.is_admin else ""
    return mirror(
        wire.McpServerLine,
        state,
        address=address_of(settings) if settings and principal.is_admin else "",
        problem=problem,
        reach_problem=reach_problem,
        tools=len(tools),
        left_out=len(_left_out(daemon, state)),
        changed=tuple(tool.plan.tool.name for tool in tools if tool.plan.is_changed),
        loose=tuple(tool.plan.tool.name for tool in tools if tool.name in _loose(daemon)),
        waiting=tuple(tool.plan.tool.name for tool in tools if tool.plan.waits),
        tokens=mcp.catalogue.tokens.get(state.alias, 0),
        is_trusted=settings is not None and settings.trusted,
        server=f"{state.server_name} {state.server_version}".strip(),
        since=_moment(state.since),
    )


def _loose(daemon: Daemon) -> dict[str, str]:
    """Return by name why the schemas of tools are not held by a provider's grammar."""
    found: dict[str, str] = {}
    for provider in daemon.state.providers.values():
        if isinstance(provider, Holding):
            found |= provider.loose_schemas()
    return found


def _left_out(daemon: Daemon, state: ServerState) -> tuple[wire.McpLeftOut, ...]:
    named = daemon.mcp.directory.catalogue.left_out.get(state.alias, ())
    return tuple(
        wire.McpLeftOut(alias=state.alias, tool=each.name, reason=each.reason)
        for each in (*state.quarantined, *named)
    )


def _tool_line(tool: McpTool, loose: Mapping[str, str]) -> wire.McpToolLine:
    plan, assessment = tool.plan, assessment_of(tool.plan)
    return wire.McpToolLine(
        name=tool.name,
        alias=plan.server.alias,
        tool=plan.tool.name,
        short=short_of(tool),
        risk=assessment.risk,
        approval=plan.preapproved if assessment.preapproved else "",
        is_deferred=plan.is_deferred,
        is_hidden=plan.is_hidden,
        is_changed=plan.is_changed,
        is_new=plan.is_new,
        repaired=plan.tool.repaired,
        loose=loose.get(tool.name, ""),
    )


def _new_server(params: wire.ConnectMcp) -> ServerSettings:
    """Return the settings of a server that the config does not have.

    Raises:
        InvalidRequestError: its alias or URL would be refused in a config, too.
    """
    for key, _, expected in wrong_values({"servers": {params.alias: {"url": params.url}}}):
        raise InvalidRequestError(f"mcp.servers.{'.'.join(map(str, key[1:]))}: expected {expected}")
    return ServerSettings(alias=params.alias, url=params.url, token=params.token)


def _hints(tool: RemoteTool) -> dict[str, bool]:
    said = {
        "read_only": tool.read_only,
        "destructive": tool.destructive,
        "idempotent": tool.idempotent,
        "open_world": tool.open_world,
    }
    return {name: value for name, value in said.items() if value is not None}


def _moment(since: float) -> str:
    return datetime.fromtimestamp(since, UTC).isoformat(timespec="seconds") if since else ""


class _Lines:
    """The messages of a client, as they come; too many that nobody reads end it."""

    def __init__(self) -> None:
        self._lines: asyncio.Queue[str | None] = asyncio.Queue()
        self._bytes = 0
        self._is_over = False

    def take(self, answer: Answer) -> None:
        """Take a message, or the end of them."""
        if self._is_over:
            return
        # As they lie in memory: many short messages are much more than their letters.
        self._bytes += sys.getsizeof(answer.value)
        self._is_over = answer.question != wire.LINE or self._bytes > MAX_WAITING_BYTES
        self._lines.put_nowait(None if self._is_over else answer.value)

    async def all(self) -> AsyncIterator[str]:
        """Return the messages until their end."""
        while (line := await self._lines.get()) is not None:
            self._bytes -= sys.getsizeof(line)
            yield line
