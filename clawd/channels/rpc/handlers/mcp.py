"""Handlers about MCP servers and plugins; and the MCP server that clawd itself is."""

import asyncio
import logging
import sys
from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from clawd import __version__
from clawd.channels.rpc.connection import Call
from clawd.channels.rpc.handlers.parts import NOT_SHOWN, Handler
from clawd.config.mcp import wrong_values
from clawd.errors import InvalidRequestError
from clawd.mcp.model import RemoteTool, ServerSettings, ServerState, address_of
from clawd.mcp.mount import load_sdk
from clawd.mcp.tools import McpTool, assessment_of
from clawd.plugins.loader import InstalledPlugin, Review
from clawd.providers.abilities import Holding
from clawd.runtime.calls import ClientKind
from clawd.security.principal import Principal
from clawd.tools.base import first_line, in_thread
from clawd.tools.offer import aliases_of, example_of, short_of
from clawd.wire.events import McpLine
from clawd.wire.frames import Answer
from clawd.wire.mcp import (
    LINE,
    AcceptMcp,
    ConnectMcp,
    DiffMcp,
    DisconnectMcp,
    ListMcpServers,
    ListMcpTools,
    McpDiff,
    McpDifference,
    McpLeftOut,
    McpServerLine,
    McpServerList,
    McpToolDetail,
    McpToolLine,
    McpToolList,
    ServeMcp,
    ShowMcpTool,
)
from clawd.wire.method import Done
from clawd.wire.tools import (
    ApprovePlugin,
    InspectPlugin,
    InstallPlugin,
    ListPlugins,
    PluginFileLine,
    PluginLine,
    PluginList,
    PluginReview,
    PluginToolLine,
    ReloadPlugins,
    RemovePlugin,
)

MAX_WAITING_BYTES = 64 << 20
_FROM_WORKSPACE = "it lies in the workspace: the model may have written it, read its files first"
_log = logging.getLogger(__name__)


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
        reach_problem = state.reach_problem if principal.is_admin else ""
        return McpServerLine(
            alias=state.alias,
            link=state.link,
            transport=state.transport,
            address=address_of(settings) if settings and principal.is_admin else "",
            problem=problem,
            reach_problem=reach_problem,
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

    async def serve_mcp(self, _params: ServeMcp, call: Call) -> Done:
        """Serve an MCP client until its messages end or the caller goes.

        Raises:
            ConnectionError: the caller went before it was told all.
        """
        lines = _Lines()
        call.on_answer = lines.take  # before anything is waited for: the client has begun already
        call.ends = False
        await load_sdk()
        from clawd.mcp.lines import serve_lines
        from clawd.mcp.server import make_server

        kind = ClientKind(
            label="MCP client",
            patterns=lambda: self.parts.tool_clients.settings().tools_allow("socket"),
        )
        door = self.parts.tool_clients.door(call.principal, kind)

        async def send(text: str) -> None:
            await call.emit(McpLine(text=text))

        on_change = self.parts.tool_clients.registry.on_change
        server = make_server(lambda _ctx: door, version=__version__, on_change=on_change)
        try:
            await serve_lines(server, lines.all(), send, on_change)
        except ExceptionGroup as group:
            _, others = group.split(ConnectionError)
            if others is not None:
                raise others from None
            raise ConnectionResetError("the client is gone") from None
        return Done(message="the client has left")

    async def list_plugins(self, _params: ListPlugins, _call: Call) -> PluginList:
        """List the installed plugins."""
        return PluginList(
            items=tuple(map(_plugin_line, await in_thread(self.parts.plugins.installed)))
        )

    async def inspect_plugin(self, params: InspectPlugin, _call: Call) -> PluginReview:
        """Say what a plugin is and may do."""
        store = self.parts.plugins
        if bool(params.path) == bool(params.name):
            raise InvalidRequestError("either a path or a name is wanted")
        if params.name:
            return _review_shown(await in_thread(lambda: store.review(params.name)))
        source = _source(params.path)
        found = await in_thread(lambda: store.inspect(source))
        if source.resolve().is_relative_to(self.parts.calls.workspace("")):
            found = msgspec.structs.replace(found, reach=(*found.reach, _FROM_WORKSPACE))
        return _review_shown(found)

    async def install_plugin(self, params: InstallPlugin, call: Call) -> Done:
        """Install a plugin."""
        store, by, source = self.parts.plugins, call.principal.uid, _source(params.path)
        found = await in_thread(lambda: store.install(source, digest=params.digest, by=by))
        _log.info("plugin installed", extra=_facts(found, by))
        return await self._took_effect(found, "is installed")

    async def approve_plugin(self, params: ApprovePlugin, call: Call) -> Done:
        """Approve a plugin as it is now."""
        store, by = self.parts.plugins, call.principal.uid
        found = await in_thread(lambda: store.approve(params.name, digest=params.digest, by=by))
        _log.info("plugin approved", extra=_facts(found, by))
        return await self._took_effect(found, "is approved")

    async def remove_plugin(self, params: RemovePlugin, call: Call) -> Done:
        """Remove a plugin."""
        await in_thread(lambda: self.parts.plugins.remove(params.name))
        await self.parts.reload_tools()
        _log.info("plugin removed", extra={"plugin": params.name, "by": call.principal.uid})
        return Done(message=f"{params.name} is removed")

    async def reload_plugins(self, _params: ReloadPlugins, _call: Call) -> Done:
        """Read plugins and external tools again."""
        await self.parts.reload_tools()
        refused = sum(each.severity == "refused" for each in self.parts.tool_problems())
        added = sum(tool.source in {"plugin", "external"} for tool in self.parts.registry.all())
        rest = f"; {refused} left out, see clawctl tool problems" if refused else ""
        return Done(message=f"{added} tools of plugins and manifests are loaded{rest}")

    async def _took_effect(self, found: Review, what: str) -> Done:
        await self.parts.reload_tools()
        name = found.manifest.name
        wanted = {each.name for each in found.manifest.tools}
        loaded = {tool.name for tool in self.parts.registry.all() if tool.source == "plugin"}
        text = f"{name} {found.manifest.version} {what}"
        if left := sorted(wanted - loaded):
            text += f"; not loaded: {', '.join(left)} (see clawctl tool problems)"
        return Done(message=text)


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
        self._is_over = answer.question != LINE or self._bytes > MAX_WAITING_BYTES
        self._lines.put_nowait(None if self._is_over else answer.value)

    async def all(self) -> AsyncIterator[str]:
        """Return the messages until their end."""
        while (line := await self._lines.get()) is not None:
            self._bytes -= sys.getsizeof(line)
            yield line


def _source(path: str) -> Path:
    if "\0" in path or not Path(path).is_absolute():
        raise InvalidRequestError(f"{path[:80]!r} is no absolute path")
    return Path(path)


def _facts(found: Review, by: int) -> dict[str, object]:
    return {"plugin": found.manifest.name, "digest": found.digest, "by": by}


def _plugin_line(plugin: InstalledPlugin) -> PluginLine:
    manifest = plugin.manifest
    return PluginLine(
        name=plugin.name,
        state=plugin.state,
        version=manifest.version if manifest is not None else "",
        capabilities=manifest.capabilities if manifest is not None else (),
        tools=tuple(each.name for each in manifest.tools) if manifest is not None else (),
        digest=plugin.digest,
        approved_at=plugin.approved_at,
        reason=plugin.reason,
    )


def _review_shown(found: Review) -> PluginReview:
    manifest = found.manifest
    return PluginReview(
        name=manifest.name,
        version=manifest.version,
        description=manifest.description,
        digest=found.digest,
        tools=tuple(
            PluginToolLine(name=each.name, risk=each.risk, description=first_line(each.description))
            for each in manifest.tools
        ),
        files=tuple(
            PluginFileLine(path=path, size_bytes=size, is_program=is_program)
            for path, size, is_program in found.files
        ),
        reach=found.reach,
        secrets=found.secrets,
        replaces=found.replaces,
        changes=found.changes,
    )
