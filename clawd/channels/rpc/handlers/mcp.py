"""Handlers about MCP servers: how they are, their tools, connecting them."""

from collections.abc import Mapping
from datetime import UTC, datetime

from clawd.channels.rpc.connection import Call
from clawd.channels.rpc.handlers.parts import NOT_SHOWN, Handler
from clawd.config.mcp import wrong_values
from clawd.errors import InvalidRequestError
from clawd.mcp.model import RemoteTool, ServerSettings, ServerState, address_of
from clawd.mcp.tools import McpTool, assessment_of
from clawd.providers.abilities import Holding
from clawd.security.principal import Principal
from clawd.tools.offer import aliases_of, example_of, short_of
from clawd.wire.mcp_methods import (
    AcceptMcp,
    ConnectMcp,
    DiffMcp,
    DisconnectMcp,
    ListMcpServers,
    ListMcpTools,
    ShowMcpTool,
)
from clawd.wire.mcp_reports import (
    McpDiff,
    McpDifference,
    McpLeftOut,
    McpServerLine,
    McpServerList,
    McpToolDetail,
    McpToolLine,
    McpToolList,
)


class McpHandlers(Handler):
    """Each method handles the wire method of its name."""

    async def list_mcp_servers(self, _params: ListMcpServers, call: Call) -> McpServerList:
        """List the MCP servers and how they are."""
        mcp = self.parts.mcp
        return McpServerList(
            items=tuple(self._line(state, call.principal) for state in mcp.states()),
            budget_tokens=mcp.wanted.rules.budget_tokens,
        )

    async def list_mcp_tools(self, params: ListMcpTools, _call: Call) -> McpToolList:
        """List the tools of MCP servers."""
        mcp = self.parts.mcp
        states = (mcp.state(params.alias),) if params.alias else mcp.states()
        loose = self._loose()
        return McpToolList(
            items=tuple(
                _tool_line(tool, loose)
                for state in states
                for tool in mcp.catalogue.of(state.alias)
            ),
            left_out=tuple(each for state in states for each in self._left_out(state)),
        )

    async def show_mcp_tool(self, params: ShowMcpTool, _call: Call) -> McpToolDetail:
        """Show one tool."""
        tool = self.parts.mcp.tool(params.alias, params.tool)
        return McpToolDetail(
            line=_tool_line(tool, self._loose()),
            description=tool.description or short_of(tool),
            parameters=tool.parameters,
            example=example_of(tool),
            other_names=aliases_of(tool),
            hints=_hints(tool.plan.tool),
        )

    async def connect_mcp(self, params: ConnectMcp, call: Call) -> McpServerLine:
        """Connect a server now."""
        if params.accept and not params.offer:
            self.parts.mcp.state(params.alias)
            raise InvalidRequestError(
                "what is accepted must be named: accept takes the hash of what was looked at",
                hint=f"Look at it, which shows the hash: clawctl mcp diff {params.alias}",
            )
        if params.url:
            await self.parts.mcp.add(_new_server(params))
        accepted = params.offer if params.accept else ""
        state = await self.parts.mcp.connect(params.alias, accept=accepted)
        return self._line(state, call.principal)

    async def diff_mcp(self, params: DiffMcp, _call: Call) -> McpDiff:
        """Show how the tools of a server differ from what was first seen of them."""
        offer, found = self.parts.mcp.differences(params.alias)
        items = tuple(
            McpDifference(tool=each.tool, kind=each.kind, was=each.was, now=each.now)
            for each in found
        )
        return McpDiff(alias=params.alias, offer=offer, items=items)

    async def accept_mcp(self, params: AcceptMcp, call: Call) -> McpServerLine:
        """Take the tools of a server as they are."""
        return self._line(self.parts.mcp.accept(params.alias, params.offer), call.principal)

    async def disconnect_mcp(self, params: DisconnectMcp, call: Call) -> McpServerLine:
        """Disconnect a server until it is connected by hand."""
        return self._line(await self.parts.mcp.disconnect(params.alias), call.principal)

    def _line(self, state: ServerState, principal: Principal) -> McpServerLine:
        mcp = self.parts.mcp
        tools = mcp.catalogue.of(state.alias)
        settings = mcp.wanted.rules.servers.get(state.alias)
        problem = state.problem
        if problem and not principal.is_admin:
            problem = NOT_SHOWN
        return McpServerLine(
            alias=state.alias,
            link=state.link,
            transport=state.transport,
            address=address_of(settings) if settings and principal.is_admin else "",
            problem=problem,
            tools=len(tools),
            left_out=len(self._left_out(state)),
            changed=tuple(tool.plan.tool.name for tool in tools if tool.plan.is_changed),
            loose=tuple(tool.plan.tool.name for tool in tools if tool.name in self._loose()),
            waiting=tuple(tool.plan.tool.name for tool in tools if tool.plan.waits),
            tokens=mcp.catalogue.tokens.get(state.alias, 0),
            is_trusted=settings is not None and settings.trusted,
            server=f"{state.server_name} {state.server_version}".strip(),
            revision=state.revision,
            connects=state.connects,
            calls=state.calls,
            failures=state.failures,
            since=_moment(state.since),
            last_call_ms=state.last_call_ms,
        )

    def _loose(self) -> dict[str, str]:
        """Return by name why the schemas of tools are not held by a provider's grammar."""
        found: dict[str, str] = {}
        for provider in self.parts.providers().values():
            if isinstance(provider, Holding):
                found |= provider.loose_schemas()
        return found

    def _left_out(self, state: ServerState) -> tuple[McpLeftOut, ...]:
        named = self.parts.mcp.catalogue.left_out.get(state.alias, ())
        return tuple(
            McpLeftOut(alias=state.alias, tool=each.name, reason=each.reason)
            for each in (*state.quarantined, *named)
        )


def _tool_line(tool: McpTool, loose: Mapping[str, str]) -> McpToolLine:
    plan, assessment = tool.plan, assessment_of(tool.plan)
    return McpToolLine(
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


def _new_server(params: ConnectMcp) -> ServerSettings:
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
